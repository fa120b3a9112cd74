// SPDX-License-Identifier: MIT
#include "bootstrap.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "env.hpp"
#include "error.hpp"
#include "hub.hpp"
#include "hub_wire.hpp"

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
  // At the end of the process. Ranks that leave in good order do so at about the same time: let them, before
  // connections break.
  ~Hubs() {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
    for (const auto& hub : hubs_) {
      while (hub->busy() && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::uint16_t add(const tcp::endpoint& address, const wire::Hello& me, std::chrono::milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    std::erase_if(hubs_, [](const auto& hub) { return hub->ended(); });
    hubs_.push_back(std::make_unique<Hub>(address, me, timeout));
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

// What tells this process from others; what launchers call the job, where they say so.
wire::Hello introduce(const Meeting& meeting, std::chrono::milliseconds timeout) {
  static const std::uint64_t process = [] {
    std::random_device random;
    return static_cast<std::uint64_t>(random()) << 32 | random();
  }();
  wire::Hello me;
  std::copy(meeting.nonce.begin(), meeting.nonce.end(), me.nonce.begin());
  std::string job;
  for (const char* name : {"WCCL_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT", "SLURM_JOB_ID", "SLURM_STEP_ID",
                           "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (const auto value = env_text(name)) job += std::string(name) + '=' + *value + ' ';
  }
  std::uint64_t hash = job.empty() ? 0 : 14695981039346656037u;  // FNV-1a: the same on all machines
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  me.job = hash;
  me.process = process;
  me.pid = static_cast<std::uint32_t>(getpid());
  me.limit_ms = static_cast<std::uint32_t>(timeout.count());
  gethostname(me.host, sizeof me.host - 1);
  return me;
}

// One rank's connection to the hub.
class SocketRendezvous final : public Rendezvous {
 public:
  // Comes as `rank` and waits until that is accepted; the hub may not listen yet. Throws Failure.
  SocketRendezvous(const Meeting& meeting, std::uint32_t rank, std::uint32_t ranks, std::chrono::milliseconds timeout,
                   bool claim = false)
      : ranks_(ranks), address_(text_of(meeting.address)) {
    const Clock::time_point deadline = Clock::now() + timeout;
    const wire::Hello me = introduce(meeting, timeout);
    const auto hello = wire::pack(wire::Type::kHello, rank, ranks, std::as_bytes(std::span(&me, 1)));
    for (;;) {
      const std::string why = connect(meeting.address, hello, deadline);
      if (why.empty()) return;
      if (note_ && note_->refused) throw Failure(wcclInvalidUsage, note_->text);
      if (claim || Clock::now() + kAgain >= deadline) {
        throw Failure(wcclRemoteError, "nobody answers at the meeting point " + address_ + ": " + why);
      }
      std::this_thread::sleep_for(kAgain);
    }
  }

  ~SocketRendezvous() override {
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
    while (stream_->open() && !stream_->idle() && Clock::now() < deadline) {
      rest(awaited(), std::chrono::milliseconds(10));
      poll();
    }
    stream_->close();
    poll();
  }

  void gather(std::span<const std::byte> mine) override {
    stream_->send(wire::pack(wire::Type::kGather, round_++, 0, mine));
  }

  std::optional<std::vector<Bytes>> gathered() override {
    if (tables_.empty()) return std::nullopt;
    std::vector<Bytes> out(ranks_);
    const Bytes table = std::move(tables_.front());
    tables_.pop_front();
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

  void send(std::uint32_t peer, std::span<const std::byte> message) override {
    stream_->send(wire::pack(wire::Type::kMessage, peer, 0, message));
  }

  std::optional<std::pair<std::uint32_t, Bytes>> receive() override {
    if (messages_.empty()) return std::nullopt;
    auto out = std::move(messages_.front());
    messages_.pop_front();
    return out;
  }

  void report(const Note& note) noexcept override {
    post(wire::Type::kFailed, note.culprit, 0, wire::as_bytes(note.text));
  }

  void suspect(const Suspicion& suspicion) noexcept override {
    Bytes payload(sizeof suspicion.order);
    std::memcpy(payload.data(), &suspicion.order, sizeof suspicion.order);
    const auto text = wire::as_bytes(suspicion.text);
    payload.insert(payload.end(), text.begin(), text.end());
    post(wire::Type::kSuspect, suspicion.peer, suspicion.definite, payload);
  }

  std::optional<Note> poll() override {
    if (stream_->open() && stream_->idle() && Clock::now() - beat_ > wire::kBeatEvery) {
      beat_ = Clock::now();
      stream_->send(wire::pack(wire::Type::kBeat, 0, 0, {}));
    }
    context_.restart();
    context_.poll();
    return note_;
  }

  void leave() noexcept override { post(wire::Type::kBye, 0, 0, {}); }

  pollfd awaited() noexcept override {
    // A closed connection has no descriptor; what came before the end is seen by poll() anyway.
    const int fd = stream_->open() ? stream_->descriptor() : -1;
    return {fd, static_cast<short>(POLLIN | (stream_->idle() ? 0 : POLLOUT)), 0};
  }

 private:
  static constexpr std::chrono::milliseconds kAgain{50};

  // One try. Empty: accepted; else why not, and note_ may say more.
  std::string connect(const tcp::endpoint& address, const std::vector<std::byte>& hello, Clock::time_point deadline) {
    error_code result = asio::error::would_block;
    auto socket = std::make_shared<tcp::socket>(context_);
    socket->async_connect(address, [&result, socket](error_code error) { result = error; });
    context_.restart();
    context_.run_until(deadline);
    if (result) {
      error_code ignored;
      socket->close(ignored);
      context_.restart();
      context_.run();  // let the handler go before its variables do
      return result == asio::error::would_block || result == asio::error::operation_aborted ? "time-out"
                                                                                            : result.message();
    }
    note_.reset();
    accepted_ = later_ = false;
    stream_ = std::make_shared<wire::Stream>(std::move(*socket));
    stream_->start([this] { take(); }, [this](error_code error) { lost(error); });
    stream_->send(hello);
    while (!accepted_ && !note_ && !later_ && Clock::now() < deadline) {
      poll();
      if (!accepted_ && !note_ && !later_) rest(awaited(), std::chrono::milliseconds(20));
    }
    if (accepted_) return "";
    stream_->close();
    poll();
    return note_ ? note_->text : later_ ? "another communicator is ending there" : "time-out";
  }

  void post(wire::Type type, std::uint32_t a, std::uint32_t b, std::span<const std::byte> payload) noexcept {
    try {
      stream_->send(wire::pack(type, a, b, payload));
      poll();
    } catch (const std::exception&) {
      // No memory: then the others learn it from the end of the connection.
    }
  }

  void take() {
    const wire::Head& head = stream_->head();
    Bytes& payload = stream_->payload();
    switch (head.type) {
      case wire::Type::kWelcome:
        accepted_ = true;
        break;
      case wire::Type::kLater:
        later_ = true;
        break;
      case wire::Type::kTable:
        hub_rank_ = head.b ? head.b - 1 : kNobody;
        tables_.push_back(std::move(payload));
        break;
      case wire::Type::kMessage:
        if (head.a < ranks_) messages_.emplace_back(head.a, std::move(payload));
        break;
      case wire::Type::kFailed:
        if (!note_) note_ = Note{head.a, wire::as_text(payload)};
        break;
      case wire::Type::kRefused:
        if (!note_ || !note_->refused)
          note_ = Note{kNobody, "refused at " + address_ + ": " + wire::as_text(payload), true};
        break;
      default:
        break;
    }
  }

  void lost(error_code error) {
    if (note_) return;
    const bool process = error == asio::error::eof || error == asio::error::connection_reset;
    const std::string why = process ? "its process is gone" : wire::why_ended(error);
    note_ =
        hub_rank_ != kNobody
            ? Note{hub_rank_, "rank " + std::to_string(hub_rank_) + ", which holds the meeting point, is gone: " + why}
            : Note{kNobody, "the process that made the unique id, at " + address_ + ", is gone: " + why};
  }

  const std::uint32_t ranks_;
  asio::io_context context_;
  std::shared_ptr<wire::Stream> stream_;
  const std::string address_;
  std::uint32_t round_ = 0, hub_rank_ = kNobody;
  bool accepted_ = false, later_ = false;
  std::deque<Bytes> tables_;
  std::deque<std::pair<std::uint32_t, Bytes>> messages_;
  std::optional<Note> note_;
  Clock::time_point beat_ = Clock::now();
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
    const std::uint16_t port = Hubs::instance().add(tcp::endpoint(address, 0), introduce(meeting, timeout), timeout);
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
      std::string why;
      try {
        Hubs::instance().add(any, introduce(meeting, timeout), timeout);
        break;
      } catch (const boost::system::system_error& error) {
        why = error.code().message();
        if (error.code() != asio::error::address_in_use) {
          throw Failure(wcclSystemError, "cannot listen on " + text_of(any) + ": " + why);
        }
      }
      // Whose is it? A hub says so; a communicator that is just ending holds it for a moment only.
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      try {
        const SocketRendezvous claim(meeting, rank, ranks, left, true);
        why = "it accepts another rank 0";  // it does not
      } catch (const Failure& failure) {
        if (failure.result() == wcclInvalidUsage) throw;
      }
      if (left.count() <= 50) throw Failure(wcclSystemError, "cannot listen on " + text_of(any) + ": " + why);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  return std::make_unique<SocketRendezvous>(meeting, rank, ranks, timeout);
}

}  // namespace weft::ccl
