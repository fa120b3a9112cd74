// SPDX-License-Identifier: MIT
#include "sim/range_allocator.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace {

using weft::sim::RangeAllocator;

TEST(RangeAllocator, AlignsAndKeepsWhatItSkips) {
  RangeAllocator space(0, 1 << 20);
  EXPECT_EQ(space.take(4096, 4096), 0u);
  EXPECT_EQ(space.take(65536, 65536), 65536u);
  EXPECT_EQ(space.take(4096, 4096), 4096u) << "the part that alignment skipped is free";
  EXPECT_FALSE(space.take(1 << 20));
  EXPECT_EQ(space.free_bytes(), (1u << 20) - 4096 - 65536 - 4096);
}

TEST(RangeAllocator, NeverGivesAByteTwiceAndJoinsAgain) {
  constexpr std::uint64_t kBegin = 4096, kSize = 1000;
  RangeAllocator space(kBegin, kSize);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  std::vector<bool> used(kBegin + kSize, false);
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    if (random() % 2 == 0) {
      const std::uint64_t size = 1 + random() % 60, align = 1u << random() % 4;
      const auto begin = space.take(size, align);
      if (!begin) continue;
      ASSERT_EQ(*begin % align, 0u);
      ASSERT_GE(*begin, kBegin);
      ASSERT_LE(*begin + size, kBegin + kSize);
      for (std::uint64_t at = *begin; at < *begin + size; ++at) {
        ASSERT_FALSE(used[at]);
        used[at] = true;
      }
      taken.emplace_back(*begin, size);
    } else if (!taken.empty()) {
      std::swap(taken[random() % taken.size()], taken.back());
      const auto [begin, size] = taken.back();
      taken.pop_back();
      space.give(begin, size);
      std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(begin), size, false);
    }
  }
  for (const auto& [begin, size] : taken) space.give(begin, size);
  EXPECT_EQ(space.largest(), kSize);
  EXPECT_EQ(space.free_bytes(), kSize);
}

}  // namespace
