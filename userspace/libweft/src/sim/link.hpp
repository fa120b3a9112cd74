// SPDX-License-Identifier: MIT
// A link with a rate, a latency and credits in virtual time: fabric::Link for the simulator.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler.hpp"
#include "weft/fabric/link.hpp"

namespace weft::sim {

struct LinkTiming {
  std::uint64_t ps_per_byte = 80;  // 100 Gb/s
  std::uint64_t latency_ns = 250;  // transceivers and a few metres of cable
};

// Frames under way a class and direction. 64 jumbo frames are many times the bandwidth-delay product of such a link,
// and small enough that what is under way stays in the CPU's cache.
inline constexpr unsigned kCredits = 64;

// Buffers of frames under way. They are reused; there are as many as credits allow.
class FramePool {
 public:
  struct Buffer {
    std::array<std::byte, fabric::kFrameMax> bytes;
    std::uint32_t length = 0;
    std::uint32_t holders = 0;
  };

  // A buffer with these bytes and one holder; nullptr when they are more than a frame has. What the switch passes on is
  // the frame that is being delivered to it: that buffer is held instead of copied.
  Buffer* take(std::span<const fabric::Segment> segments);
  void release(Buffer* buffer) {
    if (--buffer->holders == 0) free_.push_back(buffer);
  }
  void set_current(Buffer* buffer) { current_ = buffer; }

 private:
  std::vector<std::unique_ptr<Buffer>> all_;
  std::vector<Buffer*> free_;
  Buffer* current_ = nullptr;  // being delivered
};

// One end. Two ends are joined; each has an owner that takes frames.
class LinkEnd final : public fabric::Link {
 public:
  // `device` orders this end's events among others of the same time.
  LinkEnd(Scheduler& scheduler, FramePool& pool, std::uint32_t device, LinkTiming timing);

  static void join(LinkEnd& one, LinkEnd& other);
  void set_owner(fabric::LinkOwner& owner) { owner_ = &owner; }
  // Both ends at once. Down: what is under way is lost, and credits start anew.
  void set_state(bool up);

  fabric::SendResult send(unsigned cls, std::span<const fabric::Segment> segments) override;
  void release(unsigned cls, unsigned frames) override;
  void pause(unsigned cls, bool stop) override;
  unsigned credits(unsigned cls) const override { return credits_[cls]; }
  bool up() const override { return up_; }
  void station(const fabric::Mac& mac, bool up) override;
  std::uint64_t stalls() const { return stalls_; }

 private:
  struct Arrival {
    FramePool::Buffer* buffer;
    unsigned cls;
  };
  class Deliver final : public Task {
   public:
    explicit Deliver(LinkEnd& end) : end_(end) {}
    void run(std::uint64_t epoch) override { end_.deliver(epoch); }

   private:
    LinkEnd& end_;
  };
  class Stations final : public Task {
   public:
    explicit Stations(LinkEnd& end) : end_(end) {}
    void run(std::uint64_t epoch) override { end_.deliver_station(epoch); }

   private:
    LinkEnd& end_;
  };
  class Ready final : public Task {
   public:
    explicit Ready(LinkEnd& end) : end_(end) {}
    void run(std::uint64_t cls) override { end_.ready(static_cast<unsigned>(cls)); }

   private:
    LinkEnd& end_;
  };

  void down();
  void deliver(std::uint64_t epoch);
  void deliver_station(std::uint64_t epoch);
  void ready(unsigned cls);

  Scheduler& scheduler_;
  FramePool& pool_;
  const std::uint32_t device_;
  const LinkTiming timing_;
  LinkEnd* peer_ = nullptr;
  fabric::LinkOwner* owner_ = nullptr;
  bool up_ = true;
  std::uint64_t epoch_ = 0;       // of the link's state: events of an earlier one are void
  std::uint64_t free_at_ps_ = 0;  // when the transmitter is free again
  std::array<unsigned, fabric::kClasses> credits_;
  std::array<bool, fabric::kClasses> stalled_{};  // send() said kNoCredit, on_ready() is owed
  std::uint64_t stalls_ = 0;
  std::deque<Arrival> arriving_;
  std::deque<std::pair<fabric::Mac, bool>> stations_;  // likewise
  Deliver deliver_task_{*this};
  Stations station_task_{*this};
  Ready ready_task_{*this};
};

}  // namespace weft::sim
