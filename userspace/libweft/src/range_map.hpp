// SPDX-License-Identifier: MIT
// Disjoint address ranges and what each belongs to; lookups far outnumber changes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::front {

// Sorted by address in one piece of memory: a lookup is a binary search over a few cache lines, and takes no lock of
// its own.
template <typename Owner>
class RangeMap {
 public:
  // False when the range is empty, wraps, or overlaps one that is there.
  bool insert(std::uint64_t begin, std::uint64_t bytes, Owner* owner) {
    if (bytes == 0 || begin + bytes < begin) return false;
    auto next = after(begin);
    if (next != ranges_.end() && next->begin < begin + bytes) return false;
    if (next != ranges_.begin() && std::prev(next)->end > begin) return false;
    ranges_.insert(next, {begin, begin + bytes, owner});
    return true;
  }

  // The owner of the range that starts at `begin` is forgotten; false when none does.
  bool erase(std::uint64_t begin) {
    auto next = after(begin);
    if (next == ranges_.begin() || std::prev(next)->begin != begin) return false;
    ranges_.erase(std::prev(next));
    return true;
  }

  // Owner of all of [begin, begin + bytes), nullptr when there is none. Zero bytes ask for the address alone.
  Owner* find(std::uint64_t begin, std::uint64_t bytes) const {
    auto next = const_cast<RangeMap*>(this)->after(begin);
    if (next == ranges_.begin()) return nullptr;
    const Range& range = *std::prev(next);
    if (begin >= range.end || bytes > range.end - begin) return nullptr;
    return range.owner;
  }

  std::size_t size() const { return ranges_.size(); }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Range& range : ranges_) visit(range.owner);
  }

 private:
  struct Range {
    std::uint64_t begin, end;
    Owner* owner;
  };

  // First range that starts behind `address`.
  typename std::vector<Range>::iterator after(std::uint64_t address) {
    return std::upper_bound(ranges_.begin(), ranges_.end(), address,
                            [](std::uint64_t value, const Range& range) { return value < range.begin; });
  }

  std::vector<Range> ranges_;
};

}  // namespace weft::front
