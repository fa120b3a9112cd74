// SPDX-License-Identifier: MIT
// Link: one end of a full-duplex Ethernet link, the same for an accelerator's port, a switch port and a QEMU netdev.
//
// Flow control is credits, counted in frames a class: an end may have at most `credits()` frames under way; the peer's
// end gives them back when its buffers have room again. With credits nothing is ever dropped on a link.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::fabric {

inline constexpr std::size_t kFrameMax = 9216 + 64;  // bytes, Ethernet header to payload end, without FCS
inline constexpr unsigned kClasses = 8;
inline constexpr unsigned kCreditFrames = 1024;  // default a class and direction

using Segment = std::span<const std::byte>;
using Mac = std::array<std::uint8_t, 6>;

// What an end tells its owner. Calls come from the thread that drives the link, never from inside Link::send().
class LinkOwner {
 public:
  virtual ~LinkOwner() = default;
  // One whole frame; the memory is the link's and ends with the call. The owner calls Link::release() when the frame
  // has left its own buffers (at once, if it has none).
  virtual void on_frame(unsigned cls, std::span<const std::byte> frame) = 0;
  // There is credit again after send() returned kNoCredit, or the peer lifted a pause.
  virtual void on_ready(unsigned cls) = 0;
  virtual void on_pause(unsigned cls, bool stop) = 0;
  virtual void on_state(bool up) = 0;
  // The switch says that the station behind another of its ports is gone (its connection closed or its link went
  // down), or that it is back. Only links to a switch bring it.
  virtual void on_station(const Mac& /*mac*/, bool /*up*/) {}
};

enum class SendResult {
  kSent,      // copied or written
  kNoCredit,  // nothing taken; on_ready() follows
  kDown,      // nothing taken
};

class Link {
 public:
  virtual ~Link() = default;
  virtual SendResult send(unsigned cls, std::span<const Segment> segments) = 0;
  virtual void release(unsigned cls, unsigned frames) = 0;
  virtual void pause(unsigned cls, bool stop) = 0;
  virtual unsigned credits(unsigned cls) const = 0;
  virtual bool up() const = 0;
  // The switch's side of on_station(). Links without a way to say it (a netdev) ignore it.
  virtual void station(const Mac& /*mac*/, bool /*up*/) {}
};

// On a stream socket each message is this head and `length` bytes. HELLO is first in both directions.
enum class MessageType : std::uint8_t {
  kHello = 1,    // payload: HelloPayload
  kFrame = 2,    // payload: the frame
  kCredit = 3,   // count: frames given back
  kPause = 4,    // count: 1 stop, 0 go on
  kState = 5,    // count: 1 up, 0 down
  kStation = 6,  // payload: StationPayload; count: 1 back, 0 gone. From a switch only
};

struct MessageHead {
  std::uint32_t length;  // little-endian, bytes of payload, at most kFrameMax
  MessageType type;
  std::uint8_t cls;
  std::uint16_t count;
};
static_assert(sizeof(MessageHead) == 8);

inline constexpr std::uint32_t kHelloMagic = 0x4b4e4c57;  // "WLNK"
inline constexpr std::uint16_t kHelloVersion = 2;
struct HelloPayload {
  std::uint32_t magic;
  std::uint16_t version;   // kHelloVersion
  std::uint16_t features;  // 0; shared-memory ring and payload by reference to come
  std::uint32_t credits;   // frames a class that the sender's peer may have under way
  std::uint32_t reserved;
  char name[32];  // of the port, text, zero-filled: capture interface, log
};
static_assert(sizeof(HelloPayload) == 48);

struct StationPayload {
  Mac mac;
  std::uint16_t reserved;  // 0
};
static_assert(sizeof(StationPayload) == 8);

}  // namespace weft::fabric
