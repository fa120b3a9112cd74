// SPDX-License-Identifier: MIT
#include "host_memory.hpp"

#include <algorithm>
#include <cstring>

namespace weft::sim {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

std::uint64_t HostMemory::map(void* base, std::uint64_t bytes, bool writable, bool watched) {
  const std::uint64_t iova = next_ + reinterpret_cast<std::uintptr_t>(base) % kPage;
  // At least one page stays free behind each range: running over its end is an error.
  next_ = (iova + bytes + 2 * kPage - 1) / kPage * kPage;
  ranges_.push_back({iova, bytes, static_cast<std::byte*>(base), writable, watched});
  return iova;
}

void HostMemory::unmap(std::uint64_t iova) {
  std::erase_if(ranges_, [&](const Range& range) { return range.iova == iova; });
}

const HostMemory::Range* HostMemory::find(std::uint64_t iova, std::uint64_t bytes) const {
  auto next = std::upper_bound(ranges_.begin(), ranges_.end(), iova,
                               [](std::uint64_t value, const Range& range) { return value < range.iova; });
  if (next == ranges_.begin()) return nullptr;
  const Range& range = *std::prev(next);
  const std::uint64_t offset = iova - range.iova;
  if (offset >= range.bytes || bytes > range.bytes - offset) return nullptr;
  return &range;
}

void store_to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 64 || bytes % 8 != 0 || reinterpret_cast<std::uintptr_t>(to) % 8 != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (std::size_t at = 0; at < bytes; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, from + at, 8);
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(to + at), word, __ATOMIC_RELEASE);
  }
}

}  // namespace weft::sim
