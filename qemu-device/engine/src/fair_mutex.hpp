// SPDX-License-Identifier: MIT
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weft::engine {

// A mutex that is taken in order of arrival. The engine's thread takes the model's lock again right after it gave it
// back; with a std::mutex a register read, whose caller holds QEMU's big lock, could wait for many steps.
class FairMutex {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const std::uint64_t ticket = next_++;
    turn_.wait(guard, [&] { return serving_ == ticket; });
  }
  void unlock() {
    std::lock_guard guard(mutex_);
    ++serving_;
    if (serving_ != next_) turn_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  std::uint64_t next_ = 0;
  std::uint64_t serving_ = 0;
};

}  // namespace weft::engine
