// SPDX-License-Identifier: MIT
// A queue and its last event. FENCE commands keep the order: one in front of each submission, and one that signals
// behind it when an event is recorded.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/weft.h"

namespace weft::front {

// Key of the object that holds the range; -EFAULT with the thread's last error set.
int key_of(weft_device* device, weft_va va, std::size_t bytes, std::uint32_t& key);

}  // namespace weft::front

struct weft_stream {
 public:
  // Throws nothing; `error` is 0 or a negative errno value with the thread's last error set.
  weft_stream(weft_device* device, std::uint32_t entries, unsigned flags, int& error);
  ~weft_stream();
  weft_stream(const weft_stream&) = delete;
  weft_stream& operator=(const weft_stream&) = delete;

  weft_device* device() const { return device_; }
  std::uint32_t number() const { return weft_queue_number(queue_); }
  int submit(std::span<const weft_cmd> slots, weft_sync_event* event);
  int wait(std::span<const weft_sync_event> events);
  int record(weft_sync_event* event);
  int query();
  int synchronize(std::int64_t timeout_ns, weft_failure* failure);
  int copy(weft_va to, weft_va from, std::size_t bytes);
  int fill(weft_va to, std::uint64_t pattern, std::size_t bytes);

 private:
  int put(std::span<const weft_cmd> slots, bool fence, weft_sync_event* event);

  weft_device* device_;
  weft_queue* queue_ = nullptr;
  std::optional<std::uint32_t> sync_;
  std::uint64_t value_ = 0;     // of sync_ when all that was recorded is done
  std::uint64_t commands_ = 0;  // submitted
  bool fenced_ = true;          // what comes next is ordered behind all before it
  bool recorded_ = true;        // `value_` stands for all that is in the queue
};
