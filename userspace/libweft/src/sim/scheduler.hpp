// SPDX-License-Identifier: MIT
// Virtual time and what happens when. Events run in the order (time, device, sequence number), which is all that
// determinism needs: equal calls in equal order give equal runs.
#pragma once

#include <cstdint>
#include <queue>
#include <vector>

namespace weft::sim {

// Something that happens. Owners outlive their events, or mark them stale through `argument`.
class Task {
 public:
  virtual ~Task() = default;
  virtual void run(std::uint64_t argument) = 0;
};

class Scheduler {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;

  std::uint64_t now() const { return now_; }

  // Run `task` at `time` (not before now). A timer is what a device asked for to look again; everything else is
  // activity.
  void at(std::uint64_t time, std::uint32_t device, Task& task, std::uint64_t argument, bool timer = false) {
    queue_.push({time < now_ ? now_ : time, std::uint64_t{device} << 48 | (sequence_++ & 0xffffffffffffull), argument,
                 &task, timer});
    if (!timer) ++activities_;
  }

  bool empty() const { return queue_.empty(); }
  // Nothing but timers is left.
  bool quiet() const { return activities_ == 0; }
  std::uint64_t next() const { return queue_.empty() ? kNever : queue_.top().time; }

  // Run the first event; there must be one.
  void run_one() {
    const Event event = queue_.top();
    queue_.pop();
    if (!event.timer) --activities_;
    now_ = event.time;
    ++events_;
    event.task->run(event.argument);
  }

  // Let time pass without an event; not beyond next().
  void advance(std::uint64_t time) {
    if (time > now_) now_ = time;
  }

  std::uint64_t events() const { return events_; }

 private:
  struct Event {
    std::uint64_t time;
    std::uint64_t order;  // device, then sequence
    std::uint64_t argument;
    Task* task;
    bool timer;

    bool operator<(const Event& other) const {  // std::priority_queue gives the largest
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  std::priority_queue<Event> queue_;
  std::uint64_t now_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t activities_ = 0;
  std::uint64_t events_ = 0;
};

}  // namespace weft::sim
