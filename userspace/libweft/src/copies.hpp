// SPDX-License-Identifier: MIT
// Blocking copies on a stream of the device's own, made when first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "weft/weft.h"

namespace weft::front {

class Copies {
 public:
  explicit Copies(weft_device& device) : device_(device) {}
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  // All give 0 or a negative errno value with the thread's last error set.
  int copy(weft_va to, weft_va from, std::size_t bytes);
  int write(weft_va to, const void* from, std::size_t bytes);
  int read(void* to, weft_va from, std::size_t bytes);
  int fill(weft_va to, std::uint64_t pattern, std::size_t bytes);

 private:
  template <typename Put>
  int run(Put put);
  int stage();  // the buffer that host copies pass through

  weft_device& device_;
  std::mutex lock_;
  weft_stream* stream_ = nullptr;
  void* buffer_ = nullptr;
  weft_mem* staging_ = nullptr;
};

}  // namespace weft::front
