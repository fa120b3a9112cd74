// SPDX-License-Identifier: MIT
// libweft's objects as owners. The device must outlive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "weft/weft.h"

namespace weft::ccl {

struct FreeMem {
  void operator()(weft_mem* mem) const { weft_mem_free(mem); }
};
struct FreeQueue {
  void operator()(weft_queue* queue) const { weft_queue_destroy(queue); }
};
struct FreeChannel {
  void operator()(weft_channel* channel) const { weft_channel_destroy(channel); }
};
using MemPtr = std::unique_ptr<weft_mem, FreeMem>;
using QueuePtr = std::unique_ptr<weft_queue, FreeQueue>;
using ChannelPtr = std::unique_ptr<weft_channel, FreeChannel>;

// A run of sync objects that the host can read.
class SyncRun {
 public:
  SyncRun() = default;
  SyncRun(weft_device* device, std::uint32_t count);  // throws Failure
  SyncRun(SyncRun&& other) noexcept;
  SyncRun& operator=(SyncRun&& other) noexcept;
  ~SyncRun();
  std::uint32_t first() const { return first_; }
  std::uint32_t count() const { return count_; }
  std::uint64_t value(std::uint32_t i) const { return weft_sync_value(device_, first_ + i); }

 private:
  weft_device* device_ = nullptr;
  std::uint32_t first_ = 0, count_ = 0;
};

// HBM of the device. Throws Failure: "`what`: no N bytes of HBM ...".
MemPtr allocate(weft_device* device, std::uint64_t bytes, unsigned flags, const char* what);
// For the CPU, as long as `mem` is there. Throws Failure.
std::byte* map(weft_mem* mem);

}  // namespace weft::ccl
