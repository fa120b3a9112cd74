// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace weft::engine {

struct Write {
  std::uint64_t offset;
  std::uint64_t value;
  std::uint32_t bar;
  std::uint32_t bytes;
};

// Register writes that wait for the model, in order; bounded. Any thread pushes; whoever holds the model's lock takes.
class WriteQueue {
 public:
  static constexpr std::size_t kRoom = 4096;

  WriteQueue() {
    waiting_.reserve(kRoom);
    taken_.reserve(kRoom);
  }
  // False: full, nothing taken.
  bool push(const Write& write) {
    std::lock_guard guard(mutex_);
    if (waiting_.size() == kRoom) return false;
    waiting_.push_back(write);
    return true;
  }
  // Everything up to now. The result is the queue's and stays until the next call.
  const std::vector<Write>& take() {
    taken_.clear();
    std::lock_guard guard(mutex_);
    taken_.swap(waiting_);
    return taken_;
  }

 private:
  std::mutex mutex_;
  std::vector<Write> waiting_;
  std::vector<Write> taken_;  // under the model's lock
};

}  // namespace weft::engine
