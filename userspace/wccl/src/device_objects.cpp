// SPDX-License-Identifier: MIT
#include "device_objects.hpp"

#include <string>

#include "error.hpp"

namespace weft::ccl {

SyncRun::SyncRun(weft_device* device, std::uint32_t count) : device_(device), count_(count) {
  if (weft_sync_alloc(device, count, 0, &first_) != 0) {
    throw device_failure("no " + std::to_string(count) + " sync objects (fewer WCCL_SLOTS need fewer)");
  }
}

SyncRun::SyncRun(SyncRun&& other) noexcept
    : device_(std::exchange(other.device_, nullptr)), first_(other.first_), count_(std::exchange(other.count_, 0)) {}

SyncRun& SyncRun::operator=(SyncRun&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(first_, other.first_);
  std::swap(count_, other.count_);
  return *this;
}

SyncRun::~SyncRun() {
  if (device_) weft_sync_free(device_, first_, count_);
}

MemPtr allocate(weft_device* device, std::uint64_t bytes, unsigned flags, const char* what) {
  weft_mem* mem = nullptr;
  if (weft_mem_alloc(device, bytes, flags, &mem) != 0) {
    throw device_failure("no " + std::to_string(bytes) + " bytes of HBM for " + what);
  }
  return MemPtr(mem);
}

std::byte* map(weft_mem* mem) {
  auto* base = static_cast<std::byte*>(weft_mem_map(mem));
  if (!base) throw device_failure("no mapping of HBM");
  return base;
}

}  // namespace weft::ccl
