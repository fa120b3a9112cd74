// SPDX-License-Identifier: MIT
// What a simulated device can reach by DMA: the ranges of this process's memory that were mapped for it, and nothing
// else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::sim {

// Bus addresses are given out in order and never again, so that a run does not depend on where the process's memory
// lies, and a stale address is found out. They are congruent to the memory modulo 4 KiB.
class HostMemory {
 public:
  struct Range {
    std::uint64_t iova = 0;
    std::uint64_t bytes = 0;
    std::byte* base = nullptr;
    bool writable = false;
    bool watched = false;  // waits depend on what is written here
  };

  std::uint64_t map(void* base, std::uint64_t bytes, bool writable, bool watched);
  void unmap(std::uint64_t iova);

  // The range that holds [iova, iova + bytes), or nullptr.
  const Range* find(std::uint64_t iova, std::uint64_t bytes) const;
  // The range that holds `iova`, or nullptr.
  const Range* find(std::uint64_t iova) const { return find(iova, 1); }

 private:
  std::vector<Range> ranges_;  // by iova: appended in order
  std::uint64_t next_ = 1ull << 32;
};

// Copies towards the driver. Whole, aligned words are stored as such, since the other side reads indices and values
// without a lock; the last word (an owner flag, a state) is stored last.
void store_to_host(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace weft::sim
