// SPDX-License-Identifier: MIT
// The other end of QEMU's `-netdev stream`: each frame behind its length, 32 bits big-endian (QEMU net/stream.c). There
// is no flow control but the socket's own; what the socket does not take waits in a bounded buffer, then in the switch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "weft/fabric/link.hpp"
#include "weft/fabric/socket_link.hpp"

namespace weft::fabric {

// Polled as SocketLink is.
class NetdevLink final : public Link {
 public:
  NetdevLink(Fd fd, LinkOwner& owner) : fd_(std::move(fd)), owner_(owner) {}

  SendResult send(unsigned cls, std::span<const Segment> segments) override;
  void release(unsigned, unsigned) override {}
  void pause(unsigned, bool) override {}
  unsigned credits(unsigned) const override { return room() >= kFrameMax + kHead ? 1 : 0; }
  bool up() const override { return open_ && local_up_; }

  int fd() const { return fd_.get(); }
  bool wants_write() const { return open_ && sent_ < output_.size(); }
  bool readable();
  void writable() { flush(); }
  void flush();
  void set_state(bool up) {
    if (std::exchange(local_up_, up) != up) owner_.on_state(up);
  }
  bool open() const { return open_; }

 private:
  static constexpr std::size_t kHead = 4;
  static constexpr std::size_t kBuffer = 256 * 1024;

  std::size_t room() const { return kBuffer - (output_.size() - sent_); }

  Fd fd_;
  LinkOwner& owner_;
  std::vector<std::byte> output_;  // [sent_, size) waits; at most twice kBuffer
  std::size_t sent_ = 0;
  std::unique_ptr<std::byte[]> input_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer + kHead + kFrameMax);
  std::size_t filled_ = 0;  // of the input: the start of a frame
  bool open_ = true;
  bool local_up_ = true;
  bool starved_ = false;
};

}  // namespace weft::fabric
