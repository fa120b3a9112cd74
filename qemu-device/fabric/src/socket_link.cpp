// SPDX-License-Identifier: MIT
#include "weft/fabric/socket_link.hpp"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace weft::fabric {

static_assert(std::endian::native == std::endian::little, "messages are copied as they lie in memory");

namespace {

constexpr std::size_t kMessageMax = sizeof(MessageHead) + kFrameMax;
constexpr std::uint32_t kFrameMin = 14;         // Ethernet header
constexpr int kSocketBuffer = 2 * 1024 * 1024;  // asked for; the kernel takes what its limit allows

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Fd connect_unix(const std::string& path, int& error) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  error = 0;
  if (path.size() >= sizeof(address.sun_path)) {
    error = ENAMETOOLONG;
    return {};
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A UNIX socket connects at once or fails (EAGAIN: the listener's backlog is full).
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    error = errno;
    return {};
  }
  return fd;
}

std::pair<Fd, Fd> socket_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  return {Fd(fds[0]), Fd(fds[1])};
}

Decode decode(std::span<const std::byte> input, Message& message) {
  if (input.size() < sizeof(MessageHead)) return Decode::kNeedMore;
  MessageHead& head = message.head;
  std::memcpy(&head, input.data(), sizeof(head));
  if (head.cls >= kClasses || head.length > kFrameMax) return Decode::kBad;
  switch (head.type) {
    case MessageType::kHello:
      if (head.length < sizeof(HelloPayload)) return Decode::kBad;  // longer: a later version's
      break;
    case MessageType::kFrame:
      if (head.length < kFrameMin) return Decode::kBad;
      break;
    case MessageType::kStation:
      if (head.length != sizeof(StationPayload)) return Decode::kBad;
      break;
    case MessageType::kCredit:
    case MessageType::kPause:
    case MessageType::kState:
      if (head.length != 0) return Decode::kBad;
      break;
    default:
      return Decode::kBad;
  }
  if (input.size() - sizeof(head) < head.length) return Decode::kNeedMore;
  message.payload = input.subspan(sizeof(head), head.length);
  return Decode::kMessage;
}

std::array<std::byte, sizeof(MessageHead)> encode_head(MessageType type, unsigned cls, std::uint16_t count,
                                                       std::uint32_t length) {
  const MessageHead head{length, type, static_cast<std::uint8_t>(cls), count};
  return std::bit_cast<std::array<std::byte, sizeof(MessageHead)>>(head);
}

HelloPayload make_hello(std::string_view name, unsigned credits) {
  HelloPayload hello{};
  hello.magic = kHelloMagic;
  hello.version = kHelloVersion;
  hello.credits = credits;
  name.copy(hello.name, sizeof(hello.name) - 1);
  return hello;
}

std::string_view to_string(LinkError error) {
  switch (error) {
    case LinkError::kNone:
      return "none";
    case LinkError::kClosed:
      return "closed by peer";
    case LinkError::kSocket:
      return "socket error";
    case LinkError::kBadMessage:
      return "bad message";
    case LinkError::kBadHello:
      return "bad hello";
    case LinkError::kCreditOverrun:
      return "peer overran its credits";
    case LinkError::kCreditExcess:
      return "peer gave back too many credits";
  }
  return "unknown";
}

SocketLink::SocketLink(Fd fd, LinkOwner& owner, const Options& options)
    : fd_(std::move(fd)),
      owner_(owner),
      window_(std::clamp(options.credits, 1u, 65535u)),
      takes_stations_(options.stations),
      capacity_(std::max(options.output_bytes, 2 * kMessageMax + kControlRoom)),
      // Pages that are never used are never touched.
      output_(std::make_unique_for_overwrite<std::byte[]>(capacity_)),
      input_(std::make_unique_for_overwrite<std::byte[]>(kBatch + kMessageMax)) {
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &kSocketBuffer, sizeof(kSocketBuffer));
  for (Class& c : class_) c.granted = window_;
  const HelloPayload hello = make_hello(options.name, window_);
  put(encode_head(MessageType::kHello, 0, 0, sizeof(hello)));
  put(std::as_bytes(std::span(&hello, 1)));
}

void SocketLink::fail(LinkError error, int error_number) {
  if (!open()) return;
  error_ = error;
  socket_errno_ = error_number;
  used_ = 0;
}

// ---- Output

void SocketLink::put(std::span<const std::byte> bytes) {
  const std::size_t tail = (head_ + used_) % capacity_;
  const std::size_t first = std::min(bytes.size(), capacity_ - tail);
  std::copy_n(bytes.data(), first, output_.get() + tail);
  std::copy_n(bytes.data() + first, bytes.size() - first, output_.get());
  used_ += bytes.size();
}

void SocketLink::put_message(MessageType type, unsigned cls, std::uint16_t count) {
  put(encode_head(type, cls, count, 0));
}

SendResult SocketLink::send(unsigned cls, std::span<const Segment> segments) {
  if (!up() || cls >= kClasses) return SendResult::kDown;
  std::size_t length = 0;
  for (const Segment& s : segments) length += s.size();
  if (length > kFrameMax || length < kFrameMin) {
    ++counters_.tx_oversize;
    return SendResult::kSent;
  }
  Class& c = class_[cls];
  const auto fits = [&] { return room() >= sizeof(MessageHead) + length + kControlRoom; };
  if (c.credits > 0 && !c.paused && !fits()) write_out();
  if (c.credits == 0 || c.paused || !fits()) {
    c.starved = true;
    return SendResult::kNoCredit;
  }
  --c.credits;
  put(encode_head(MessageType::kFrame, cls, 0, static_cast<std::uint32_t>(length)));
  for (const Segment& s : segments) put(s);
  ++counters_.tx_frames;
  counters_.tx_bytes += length;
  if (used_ >= kBatch) write_out();
  return SendResult::kSent;
}

void SocketLink::release(unsigned cls, unsigned frames) {
  if (cls >= kClasses) return;
  Class& c = class_[cls];
  frames = std::min(frames, c.held);
  c.held -= frames;
  c.owed += frames;
}

void SocketLink::pause(unsigned cls, bool stop) {
  if (cls < kClasses) class_[cls].pause_wanted = stop;
}

void SocketLink::set_state(bool up) { local_up_ = up; }

unsigned SocketLink::credits(unsigned cls) const { return up() && cls < kClasses ? class_[cls].credits : 0; }

void SocketLink::station(const Mac& mac, bool up) {
  if (!this->up()) return;  // who comes later need not know what was before
  if (stations_.size() == kStations) {
    ++counters_.stations_dropped;
    return;
  }
  stations_.emplace_back(mac, up);
}

// Credits, pauses and state are remembered rather than queued, so that they take bounded room.
void SocketLink::queue_control() {
  constexpr std::size_t kOne = sizeof(MessageHead);
  if (local_up_ != local_up_sent_ && room() >= kOne) {
    put_message(MessageType::kState, 0, local_up_ ? 1 : 0);
    local_up_sent_ = local_up_;
  }
  constexpr std::size_t kStation = kOne + sizeof(StationPayload);
  for (; !stations_.empty() && room() >= kStation; stations_.pop_front()) {
    const StationPayload payload{stations_.front().first, 0};
    put(encode_head(MessageType::kStation, 0, stations_.front().second ? 1 : 0, sizeof(payload)));
    put(std::as_bytes(std::span(&payload, 1)));
  }
  for (unsigned cls = 0; cls < kClasses; ++cls) {
    Class& c = class_[cls];
    if (c.pause_wanted != c.pause_sent && room() >= kOne) {
      put_message(MessageType::kPause, cls, c.pause_wanted ? 1 : 0);
      c.pause_sent = c.pause_wanted;
    }
    // Not a message a frame: credits go back once the peer has used half of them. Then no end ever waits for credits
    // that the other one holds back.
    if (c.owed > 0 && c.granted <= window_ / 2 && room() >= kOne) {
      put_message(MessageType::kCredit, cls, static_cast<std::uint16_t>(c.owed));
      c.granted += c.owed;
      c.owed = 0;
    }
  }
}

void SocketLink::write_out() {
  while (open() && used_ > 0) {
    const std::size_t total = std::min(used_, kBatch);
    const std::size_t first = std::min(total, capacity_ - head_);
    iovec part[2] = {{output_.get() + head_, first}, {output_.get(), total - first}};
    msghdr message{};
    message.msg_iov = part;
    message.msg_iovlen = total > first ? 2 : 1;
    const ssize_t n = ::sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // What the peer sent before it closed is still to be read: readable() finds the end.
      if (errno != EPIPE && errno != ECONNRESET) fail(LinkError::kSocket, errno);
      used_ = 0;
      return;
    }
    ++counters_.writes;
    head_ = (head_ + static_cast<std::size_t>(n)) % capacity_;
    used_ -= static_cast<std::size_t>(n);
    if (used_ == 0) head_ = 0;  // stay in the pages that are warm
  }
}

void SocketLink::flush() {
  if (open()) {
    queue_control();
    write_out();
  }
  settle();
}

void SocketLink::writable() { flush(); }

// ---- Input

bool SocketLink::readable(std::size_t budget) {
  bool more = open();
  while (more && budget > 0) {
    const ssize_t n = ::recv(fd_.get(), input_.get() + filled_, kBatch, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) {
        fail(LinkError::kClosed);
      } else if (errno == ECONNRESET) {
        fail(LinkError::kClosed);
      } else if (errno != EAGAIN && errno != EWOULDBLOCK) {
        fail(LinkError::kSocket, errno);
      }
      more = false;
      break;
    }
    ++counters_.reads;
    budget -= std::min(budget, static_cast<std::size_t>(n));
    filled_ += static_cast<std::size_t>(n);

    std::span<const std::byte> rest(input_.get(), filled_);
    Message message;
    Decode result = Decode::kMessage;
    while (open() && (result = decode(rest, message)) == Decode::kMessage) {
      handle(message);
      rest = rest.subspan(sizeof(MessageHead) + message.payload.size());
    }
    if (result == Decode::kBad) fail(LinkError::kBadMessage);
    // At most a part of one message is left, so kBatch bytes fit behind it.
    if (rest.data() != input_.get()) std::memmove(input_.get(), rest.data(), rest.size());
    filled_ = rest.size();
    more = open();
  }
  flush();
  return more && open();
}

void SocketLink::handle(const Message& message) {
  const MessageHead& head = message.head;
  if (greeted_ == (head.type == MessageType::kHello)) return fail(LinkError::kBadMessage);
  Class& c = class_[head.cls];
  switch (head.type) {
    case MessageType::kHello:
      return handle_hello(message.payload);
    case MessageType::kFrame:
      return handle_frame(head.cls, message.payload);
    case MessageType::kCredit:
      if (head.count > peer_window_ - c.credits) return fail(LinkError::kCreditExcess);
      c.credits += head.count;
      return;
    case MessageType::kPause:
      c.paused = head.count != 0;
      if (!c.paused) c.starved = true;  // on_ready() is promised
      return owner_.on_pause(head.cls, c.paused);
    case MessageType::kState:
      peer_up_ = head.count != 0;
      return settle();
    case MessageType::kStation: {
      if (!takes_stations_) return fail(LinkError::kBadMessage);  // a port cannot speak for others
      StationPayload station;
      std::memcpy(&station, message.payload.data(), sizeof(station));
      if (up()) owner_.on_station(station.mac, head.count != 0);
      return;
    }
  }
}

void SocketLink::handle_hello(std::span<const std::byte> payload) {
  HelloPayload hello;
  std::memcpy(&hello, payload.data(), sizeof(hello));
  if (hello.magic != kHelloMagic || hello.version != kHelloVersion || hello.credits == 0 || hello.credits > 65535) {
    return fail(LinkError::kBadHello);
  }
  peer_window_ = hello.credits;
  for (Class& c : class_) c.credits = peer_window_;
  for (const char ch : std::string_view(hello.name, strnlen(hello.name, sizeof(hello.name)))) {
    peer_name_ += ch > 0x20 && ch < 0x7f ? ch : '_';
  }
  greeted_ = true;
  settle();
}

void SocketLink::handle_frame(unsigned cls, std::span<const std::byte> frame) {
  Class& c = class_[cls];
  if (c.granted == 0) return fail(LinkError::kCreditOverrun);
  --c.granted;
  if (!up()) {
    ++counters_.rx_while_down;
    ++c.owed;
    return;
  }
  ++c.held;
  ++counters_.rx_frames;
  counters_.rx_bytes += frame.size();
  owner_.on_frame(cls, frame);
}

// Tell the owner what changed.
void SocketLink::settle() {
  if (told_up_ != up()) {
    told_up_ = up();
    owner_.on_state(told_up_);
  }
  if (!up()) return;
  for (unsigned cls = 0; cls < kClasses; ++cls) {
    Class& c = class_[cls];
    if (c.starved && c.credits > 0 && !c.paused && room() >= kMessageMax + kControlRoom) {
      c.starved = false;
      owner_.on_ready(cls);
    }
  }
}

}  // namespace weft::fabric
