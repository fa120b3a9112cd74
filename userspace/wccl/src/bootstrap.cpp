// SPDX-License-Identifier: MIT
#include "bootstrap.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "env.hpp"
#include "error.hpp"
#include "hub.hpp"
#include "wire.hpp"

namespace weft::ccl {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

struct IdLayout {
  char magic[8];
  std::uint8_t version;
  std::uint8_t v6;
  std::uint8_t rank0_listens;
  std::uint8_t reserved0;
  std::uint16_t port;
  std::uint16_t reserved1;
  std::uint8_t address[16];
  std::uint8_t nonce[16];
  std::uint32_t scope;
};
static_assert(sizeof(IdLayout) <= WCCL_UNIQUE_ID_BYTES);
constexpr char kIdMagic[8] = {'W', 'C', 'C', 'L', 'U', 'I', 'D', '1'};

// Hubs of this process. They end by themselves; those that have are swept when the next one is made.
class Hubs {
 public:
  static Hubs& instance() {
    static Hubs hubs;
    return hubs;
  }
  std::uint16_t add(const tcp::endpoint& address, const std::array<std::uint8_t, 16>& nonce,
                    std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    std::erase_if(hubs_, [](const auto& hub) { return hub->ended(); });
    hubs_.push_back(std::make_unique<Hub>(address, nonce, timeout));
    return hubs_.back()->port();
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Hub>> hubs_;
};

// NCCL_SOCKET_IFNAME's syntax: prefixes, "^" at the start excludes, "=" asks for exact names.
bool interface_allowed(const std::string& name, std::string filter) {
  bool exclude = false, exact = false;
  if (!filter.empty() && filter[0] == '^') exclude = true, filter.erase(0, 1);
  if (!filter.empty() && filter[0] == '=') exact = true, filter.erase(0, 1);
  bool listed = false;
  for (std::size_t at = 0; at <= filter.size();) {
    const std::size_t end = std::min(filter.find(',', at), filter.size());
    const std::string item = filter.substr(at, end - at);
    if (!item.empty() && (exact ? name == item : name.compare(0, item.size(), item) == 0)) listed = true;
    at = end + 1;
  }
  return listed != exclude;
}

}  // namespace

asio::ip::address local_address() {
  const auto filter = env_text("WCCL_SOCKET_IFNAME");
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw Failure(wcclSystemError, "cannot list network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::optional<asio::ip::address> loopback;
  for (const ifaddrs* at = list; at; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || !(at->ifa_flags & IFF_UP)) continue;
    if (filter && !interface_allowed(at->ifa_name, *filter)) continue;
    const auto* in = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    const asio::ip::address_v4 address(ntohl(in->sin_addr.s_addr));
    if (!(at->ifa_flags & IFF_LOOPBACK)) return address;
    if (!loopback) loopback = address;
  }
  if (loopback) return *loopback;
  throw Failure(wcclSystemError, "no IPv4 address on an interface" +
                                     (filter ? " that WCCL_SOCKET_IFNAME=" + *filter + " allows" : std::string()));
}

namespace {

// "address:port", "[v6]:port" or "host:port".
tcp::endpoint parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const auto refuse = [&](const std::string& why) {
    return Failure(wcclInvalidArgument, "WCCL_COMM_ID=" + text + ": " + why);
  };
  if (colon == std::string::npos || colon == 0) throw refuse("is not address:port");
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  asio::io_context context;
  tcp::resolver resolver(context);
  error_code error;
  const auto found = resolver.resolve(host, text.substr(colon + 1), tcp::resolver::numeric_service, error);
  if (error || found.empty()) throw refuse(error ? error.message() : "unknown host");
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint();
  }
  return found.begin()->endpoint();
}

std::string text_of(const tcp::endpoint& endpoint) {
  return endpoint.address().to_string() + ':' + std::to_string(endpoint.port());
}

// One rank's connection to the hub.
class SocketRendezvous final : public Rendezvous {
 public:
  SocketRendezvous(const Meeting& meeting, std::uint32_t rank, std::uint32_t ranks, std::chrono::milliseconds timeout)
      : ranks_(ranks), socket_(context_), address_(text_of(meeting.address)) {
    const Clock::time_point deadline = Clock::now() + timeout;
    connect(meeting.address, deadline);
    write(wire::pack(wire::Type::kHello, rank, ranks, std::as_bytes(std::span(meeting.nonce)),
                     static_cast<std::uint32_t>(timeout.count())),
          deadline);
    read_head();
  }

  ~SocketRendezvous() override {
    error_code ignored;
    socket_.close(ignored);
    context_.restart();
    context_.poll();
  }

  std::vector<Bytes> all_gather(std::span<const std::byte> mine, Clock::time_point deadline) override {
    write(wire::pack(wire::Type::kGather, round_, 0, mine), deadline);
    // The hub's own limit names who is missing, so let it speak first.
    wait([&] { return !tables_.empty(); }, deadline + std::chrono::seconds(2), "the other ranks");
    std::vector<Bytes> out(ranks_);
    const Bytes table = std::move(tables_.front());
    tables_.pop_front();
    ++round_;
    std::size_t at = 0;
    for (Bytes& bytes : out) {
      std::uint32_t length = 0;
      if (table.size() - at < sizeof length) throw Failure(wcclInternalError, "bad table from " + address_);
      std::memcpy(&length, table.data() + at, sizeof length);
      at += sizeof length;
      if (table.size() - at < length) throw Failure(wcclInternalError, "bad table from " + address_);
      bytes.assign(table.begin() + static_cast<std::ptrdiff_t>(at),
                   table.begin() + static_cast<std::ptrdiff_t>(at + length));
      at += length;
    }
    return out;
  }

  std::map<std::uint32_t, Bytes> exchange(const std::map<std::uint32_t, Bytes>& out,
                                          Clock::time_point deadline) override {
    for (const auto& [peer, bytes] : out) write(wire::pack(wire::Type::kMessage, peer, 0, bytes), deadline);
    std::map<std::uint32_t, Bytes> in;
    for (const auto& [peer, bytes] : out) {
      auto& queue = messages_[peer];
      wait([&] { return !queue.empty(); }, deadline, "rank " + std::to_string(peer), static_cast<int>(peer));
      in[peer] = std::move(queue.front());
      queue.pop_front();
    }
    return in;
  }

  void report(const Note& note) noexcept override {
    try {
      write(wire::pack(wire::Type::kFailed, note.culprit, 0, wire::as_bytes(note.text)),
            Clock::now() + std::chrono::seconds(1));
    } catch (const std::exception&) {
      // The hub is gone: then everybody knows already.
    }
  }

  void suspect(const Suspicion& suspicion) noexcept override {
    try {
      Bytes payload(sizeof suspicion.order);
      std::memcpy(payload.data(), &suspicion.order, sizeof suspicion.order);
      const auto text = wire::as_bytes(suspicion.text);
      payload.insert(payload.end(), text.begin(), text.end());
      write(wire::pack(wire::Type::kSuspect, suspicion.peer, suspicion.definite, payload),
            Clock::now() + std::chrono::seconds(1));
    } catch (const std::exception&) {
      // As above.
    }
  }

  std::optional<Note> poll() override {
    context_.restart();
    context_.poll();
    return note_;
  }

  void leave() noexcept override {
    try {
      write(wire::pack(wire::Type::kBye, 0, 0, {}), Clock::now() + std::chrono::seconds(1));
    } catch (const std::exception&) {
      // As above.
    }
  }

 private:
  // The hub may not listen yet: try until the deadline.
  void connect(const tcp::endpoint& address, Clock::time_point deadline) {
    for (;;) {
      error_code result = asio::error::would_block;
      socket_ = tcp::socket(context_);
      socket_.async_connect(address, [&](error_code error) { result = error; });
      context_.restart();
      context_.run_until(deadline);
      if (!result) break;
      if (result == asio::error::would_block || Clock::now() + std::chrono::milliseconds(50) >= deadline) {
        error_code ignored;
        socket_.close(ignored);
        context_.restart();
        context_.run();  // let the handler go before its variables do
        throw Failure(wcclRemoteError,
                      "rank 0 does not answer at " + address_ +
                          (result == asio::error::would_block || result == asio::error::operation_aborted
                               ? std::string(": time-out")
                               : ": " + result.message()),
                      0);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  }

  void write(std::vector<std::byte> message, Clock::time_point deadline) {
    if (!socket_.is_open())
      throw Failure(wcclRemoteError, note_ ? note_->text : "the connection to rank 0 is closed", 0);
    const auto shared = std::make_shared<std::vector<std::byte>>(std::move(message));
    const auto result = std::make_shared<std::optional<error_code>>();
    asio::async_write(socket_, asio::buffer(*shared),
                      [shared, result](error_code error, std::size_t) { *result = error; });
    run([&] { return result->has_value(); }, deadline);
    if (!*result || **result) {
      if (note_) throw Failure(wcclRemoteError, note_->text, static_cast<int>(note_->culprit));
      throw Failure(wcclRemoteError,
                    "cannot send to " + address_ + ": " + (*result ? (*result)->message() : "time-out"), 0);
    }
  }

  template <class Done>
  void run(Done done, Clock::time_point deadline) {
    context_.restart();
    while (!done() && Clock::now() < deadline) {
      if (context_.run_one_until(deadline) == 0) break;
    }
  }

  template <class Done>
  void wait(Done done, Clock::time_point deadline, const std::string& whom, int culprit = -1) {
    run([&] { return done() || note_.has_value(); }, deadline);
    if (done()) return;
    if (note_)
      throw Failure(refused_ ? wcclInvalidUsage : wcclRemoteError, note_->text, static_cast<int>(note_->culprit));
    throw Failure(wcclTimeout, whom + " did not answer in time", culprit);
  }

  void read_head() {
    asio::async_read(socket_, asio::buffer(&head_, sizeof head_), [this](error_code error, std::size_t) {
      if (error) return lost(error);
      if (!wire::valid(head_)) return lost(asio::error::invalid_argument);
      payload_.resize(head_.length);
      asio::async_read(socket_, asio::buffer(payload_), [this](error_code failed, std::size_t) {
        if (failed) return lost(failed);
        take();
        read_head();
      });
    });
  }

  void take() {
    switch (head_.type) {
      case wire::Type::kTable:
        tables_.push_back(std::move(payload_));
        break;
      case wire::Type::kMessage:
        if (head_.a < ranks_) messages_[head_.a].push_back(std::move(payload_));
        break;
      case wire::Type::kFailed:
        if (!note_) note_ = Note{head_.a, wire::as_text(payload_)};
        break;
      case wire::Type::kRefused:
        refused_ = true;
        if (!note_) note_ = Note{0, "refused at " + address_ + ": " + wire::as_text(payload_)};
        break;
      default:
        break;
    }
    payload_ = {};
  }

  void lost(error_code error) {
    if (error == asio::error::operation_aborted) return;
    error_code ignored;
    socket_.close(ignored);
    if (!note_) note_ = Note{0, "the connection to " + address_ + " (rank 0) is lost: " + error.message()};
  }

  const std::uint32_t ranks_;
  asio::io_context context_;
  tcp::socket socket_;
  const std::string address_;
  std::uint32_t round_ = 0;
  wire::Head head_;
  Bytes payload_;
  std::deque<Bytes> tables_;
  std::map<std::uint32_t, std::deque<Bytes>> messages_;
  std::optional<Note> note_;
  bool refused_ = false;
};

}  // namespace

wcclUniqueId encode(const Meeting& meeting) {
  IdLayout layout{};
  std::memcpy(layout.magic, kIdMagic, sizeof kIdMagic);
  layout.version = 1;
  layout.rank0_listens = meeting.rank0_listens;
  layout.port = meeting.address.port();
  const asio::ip::address address = meeting.address.address();
  layout.v6 = address.is_v6();
  if (address.is_v6()) {
    const auto bytes = address.to_v6().to_bytes();
    std::memcpy(layout.address, bytes.data(), bytes.size());
    layout.scope = static_cast<std::uint32_t>(address.to_v6().scope_id());
  } else {
    const auto bytes = address.to_v4().to_bytes();
    std::memcpy(layout.address, bytes.data(), bytes.size());
  }
  std::memcpy(layout.nonce, meeting.nonce.data(), meeting.nonce.size());
  wcclUniqueId id{};
  std::memcpy(id.internal, &layout, sizeof layout);
  return id;
}

Meeting decode(const wcclUniqueId& id) {
  IdLayout layout;
  std::memcpy(&layout, id.internal, sizeof layout);
  if (std::memcmp(layout.magic, kIdMagic, sizeof kIdMagic) != 0 || layout.version != 1) {
    throw Failure(wcclInvalidArgument, "the unique id was not made by wcclGetUniqueId of this version");
  }
  Meeting meeting;
  meeting.rank0_listens = layout.rank0_listens != 0;
  std::memcpy(meeting.nonce.data(), layout.nonce, meeting.nonce.size());
  if (layout.v6) {
    asio::ip::address_v6::bytes_type bytes;
    std::memcpy(bytes.data(), layout.address, bytes.size());
    meeting.address = tcp::endpoint(asio::ip::address_v6(bytes, layout.scope), layout.port);
  } else {
    asio::ip::address_v4::bytes_type bytes;
    std::memcpy(bytes.data(), layout.address, bytes.size());
    meeting.address = tcp::endpoint(asio::ip::address_v4(bytes), layout.port);
  }
  return meeting;
}

Meeting make_meeting(std::chrono::milliseconds timeout) {
  Meeting meeting;
  if (const auto agreed = env_text("WCCL_COMM_ID")) {
    meeting.address = parse_address(*agreed);
    meeting.rank0_listens = true;
    return meeting;
  }
  std::random_device random;
  for (std::uint8_t& byte : meeting.nonce) byte = static_cast<std::uint8_t>(random());
  const asio::ip::address address = local_address();
  try {
    const std::uint16_t port = Hubs::instance().add(tcp::endpoint(address, 0), meeting.nonce, timeout);
    meeting.address = tcp::endpoint(address, port);
  } catch (const boost::system::system_error& error) {
    throw Failure(wcclSystemError, "cannot listen on " + address.to_string() + ": " + error.code().message());
  }
  return meeting;
}

std::unique_ptr<Rendezvous> join_meeting(const Meeting& meeting, std::uint32_t rank, std::uint32_t ranks,
                                         std::chrono::milliseconds timeout) {
  if (meeting.rank0_listens && rank == 0) {
    const tcp::endpoint any(meeting.address.address().is_v6() ? tcp::v6() : tcp::v4(), meeting.address.port());
    const Clock::time_point deadline = Clock::now() + timeout;
    for (;;) {
      try {
        Hubs::instance().add(any, meeting.nonce, timeout);
        break;
      } catch (const boost::system::system_error& error) {
        // A communicator that is just coming about may hold the port for a moment.
        if (error.code() != asio::error::address_in_use || Clock::now() + std::chrono::milliseconds(50) >= deadline) {
          throw Failure(wcclSystemError, "cannot listen on " + text_of(any) + ": " + error.code().message());
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
  return std::make_unique<SocketRendezvous>(meeting, rank, ranks, timeout);
}

}  // namespace weft::ccl
