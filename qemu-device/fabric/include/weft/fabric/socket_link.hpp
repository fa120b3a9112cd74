// SPDX-License-Identifier: MIT
// SocketLink: a Link over a stream socket (UNIX, socketpair), in the messages of weft/fabric/link.hpp; and its codec.
//
// It owns no thread and never blocks: whoever owns it polls fd() and calls readable() and writable(), and flush() once
// after a burst of send() and release(). One thread at a time. Memory is bounded: one output ring, one input buffer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "weft/fabric/link.hpp"

namespace weft::fabric {

// A file descriptor that is closed with its owner.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A socket connected to the UNIX stream socket at `path`, close-on-exec and non-blocking; empty with `error` an errno
// value (ENOENT, ECONNREFUSED: nobody listens there; ENAMETOOLONG: more than 107 bytes).
Fd connect_unix(const std::string& path, int& error);

// Two connected stream sockets, close-on-exec and non-blocking. Throws std::system_error.
std::pair<Fd, Fd> socket_pair();

// ---- Codec

struct Message {
  MessageHead head;
  std::span<const std::byte> payload;  // into the input
};

enum class Decode {
  kMessage,
  kNeedMore,  // the input ends within a message
  kBad,       // not a message of this protocol: end the connection
};

// The first message of `input`; it takes sizeof(MessageHead) + payload.size() bytes. Head and size are checked (known
// type, class, length that fits the type), nothing else.
Decode decode(std::span<const std::byte> input, Message& message);

std::array<std::byte, sizeof(MessageHead)> encode_head(MessageType type, unsigned cls, std::uint16_t count,
                                                       std::uint32_t length);
HelloPayload make_hello(std::string_view name, unsigned credits);

// ---- Link

// Why a link was closed.
enum class LinkError {
  kNone,
  kClosed,         // by the peer
  kSocket,         // the socket failed: socket_errno()
  kBadMessage,     // unknown type, class or length; a second HELLO; something before it
  kBadHello,       // wrong magic or version, no credits
  kCreditOverrun,  // the peer sent more frames than it had credits for
  kCreditExcess,   // the peer gave back more credits than were in use
};
std::string_view to_string(LinkError error);

class SocketLink final : public Link {
 public:
  struct Options {
    std::string name;                       // of this port, at most 31 bytes are sent
    unsigned credits = kCreditFrames;       // frames a class that the peer may have under way to us, 1..65535
    std::size_t output_bytes = 512 * 1024;  // at least two frames
    bool stations = false;                  // the peer is a switch, which may say what stations are gone or back
  };
  struct Counters {
    std::uint64_t tx_frames = 0, tx_bytes = 0, rx_frames = 0, rx_bytes = 0;  // bytes of frames
    std::uint64_t tx_oversize = 0;                                           // frames above kFrameMax, dropped
    std::uint64_t rx_while_down = 0;      // frames that arrived while the link was down, dropped
    std::uint64_t stations_dropped = 0;   // of station(): the peer does not take them in time
    std::uint64_t reads = 0, writes = 0;  // system calls that moved something
  };

  // Takes the connected socket and queues HELLO. `owner` outlives the link and does not destroy it from a callback.
  SocketLink(Fd fd, LinkOwner& owner, const Options& options);
  SocketLink(const SocketLink&) = delete;
  SocketLink& operator=(const SocketLink&) = delete;

  SendResult send(unsigned cls, std::span<const Segment> segments) override;
  void release(unsigned cls, unsigned frames) override;
  void pause(unsigned cls, bool stop) override;
  unsigned credits(unsigned cls) const override;
  void station(const Mac& mac, bool up) override;
  // HELLO was exchanged, neither side said STATE down, the socket is open.
  bool up() const override { return open() && greeted_ && peer_up_ && local_up_; }

  // What to poll for: always input, output while wants_write().
  int fd() const { return fd_.get(); }
  bool wants_write() const { return open() && used_ > 0; }
  // Take what has arrived, until about `budget` bytes. True: the budget ended it, more may be waiting.
  bool readable(std::size_t budget = kBatch);
  void writable();
  // Write what is queued, credits to give back included. All three call the owner; send() and the rest never do.
  void flush();

  // Tell the peer that this end is up (the start) or down; down, nothing is sent and what arrives is dropped.
  void set_state(bool up);

  bool open() const { return error_ == LinkError::kNone; }
  LinkError error() const { return error_; }
  int socket_errno() const { return socket_errno_; }
  const std::string& peer_name() const { return peer_name_; }  // printable; empty before HELLO
  const Counters& counters() const { return counters_; }
  // Frames of the class that the owner has and did not release.
  unsigned held(unsigned cls) const { return cls < kClasses ? class_[cls].held : 0; }

 private:
  static constexpr std::size_t kBatch = 256 * 1024;                      // of one system call
  static constexpr std::size_t kStations = 1024;                         // that wait to be sent
  static constexpr std::size_t kControlRoom = 64 * sizeof(MessageHead);  // of the ring, not for frames

  struct Class {
    unsigned credits = 0;     // frames that may be sent
    unsigned granted = 0;     // frames that the peer may still send, as it knows
    unsigned held = 0;        // frames given to the owner, not released
    unsigned owed = 0;        // released, the peer does not know yet
    bool starved = false;     // send() said kNoCredit
    bool paused = false;      // by the peer
    bool pause_sent = false;  // what the peer was told
    bool pause_wanted = false;
  };

  void fail(LinkError error, int error_number = 0);
  std::size_t room() const { return capacity_ - used_; }
  void put(std::span<const std::byte> bytes);
  void put_message(MessageType type, unsigned cls, std::uint16_t count);
  void queue_control();
  void write_out();
  void handle(const Message& message);
  void handle_hello(std::span<const std::byte> payload);
  void handle_frame(unsigned cls, std::span<const std::byte> frame);
  void settle();

  Fd fd_;
  LinkOwner& owner_;
  const unsigned window_;
  const bool takes_stations_;
  const std::size_t capacity_;
  std::unique_ptr<std::byte[]> output_;  // ring: [head_, head_ + used_)
  std::size_t head_ = 0, used_ = 0;
  std::unique_ptr<std::byte[]> input_;  // kBatch + one message; [0, filled_) is the start of a message
  std::size_t filled_ = 0;
  std::array<Class, kClasses> class_{};
  std::deque<std::pair<Mac, bool>> stations_;  // to be sent
  unsigned peer_window_ = 0;
  bool greeted_ = false;
  bool peer_up_ = true;
  bool local_up_ = true, local_up_sent_ = true;
  bool told_up_ = false;  // what the owner was told
  LinkError error_ = LinkError::kNone;
  int socket_errno_ = 0;
  std::string peer_name_;
  Counters counters_;
};

}  // namespace weft::fabric
