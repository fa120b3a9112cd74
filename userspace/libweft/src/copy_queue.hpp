// SPDX-License-Identifier: MIT
// Blocking copies on a queue of the device's own, made when first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "weft/weft.h"

namespace weft::front {

class CopyQueue {
 public:
  explicit CopyQueue(weft_device& device) : device_(device) {}
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // All give 0 or a negative errno value with the thread's last error set.
  int copy(weft_va to, weft_va from, std::size_t bytes);
  int write(weft_va to, const void* from, std::size_t bytes);
  int read(void* to, weft_va from, std::size_t bytes);
  int fill(weft_va to, std::uint64_t pattern, std::size_t bytes);

 private:
  int ready();
  void drop();  // a halted queue takes nothing more: the next call makes a new one
  int run(weft_cmd& command);
  int wait();
  int run_copy(weft_va to, std::uint32_t to_key, weft_va from, std::uint32_t from_key, std::size_t bytes);
  int stage();  // the buffer that host copies pass through
  int key_of(weft_va va, std::size_t bytes, std::uint32_t& key);

  weft_device& device_;
  std::mutex lock_;
  weft_queue* queue_ = nullptr;
  bool have_sync_ = false;
  std::uint32_t sync_ = 0;
  std::uint64_t value_ = 0;  // of sync_ once all submitted commands are done
  void* buffer_ = nullptr;
  weft_mem* staging_ = nullptr;
};

}  // namespace weft::front
