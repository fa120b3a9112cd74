// SPDX-License-Identifier: MIT
// Ranges of a numbered space: HBM bytes, sync objects. First fit, neighbours join again.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace weft::sim {

class RangeAllocator {
 public:
  RangeAllocator(std::uint64_t begin, std::uint64_t size) : free_bytes_(size) {
    if (size > 0) free_.emplace(begin, size);
  }

  // Start of a free range of `size`, aligned to `align` (a power of two); nullopt when there is none.
  std::optional<std::uint64_t> take(std::uint64_t size, std::uint64_t align = 1) {
    for (auto range = free_.begin(); range != free_.end(); ++range) {
      const auto [begin, length] = *range;
      const std::uint64_t skip = ((begin + align - 1) & ~(align - 1)) - begin;
      if (length < size || length - size < skip) continue;
      free_.erase(range);
      if (skip > 0) free_.emplace(begin, skip);
      if (length - skip > size) free_.emplace(begin + skip + size, length - skip - size);
      free_bytes_ -= size;
      return begin + skip;
    }
    return std::nullopt;
  }

  void give(std::uint64_t begin, std::uint64_t size) {
    free_bytes_ += size;
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == begin + size) {
      size += next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->first + std::prev(next)->second == begin) {
      std::prev(next)->second += size;
    } else {
      free_.emplace(begin, size);
    }
  }

  std::uint64_t free_bytes() const { return free_bytes_; }
  std::uint64_t largest() const {
    std::uint64_t largest = 0;
    for (const auto& [begin, size] : free_) largest = size > largest ? size : largest;
    return largest;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // begin -> size
  std::uint64_t free_bytes_;
};

}  // namespace weft::sim
