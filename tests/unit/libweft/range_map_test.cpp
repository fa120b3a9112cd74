// SPDX-License-Identifier: MIT
#include "range_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

namespace {

using weft::front::RangeMap;

TEST(RangeMap, RefusesOverlapsEmptyAndWrapping) {
  RangeMap<int> map;
  int owner = 0;
  EXPECT_TRUE(map.insert(100, 50, &owner));
  EXPECT_FALSE(map.insert(149, 1, &owner));
  EXPECT_FALSE(map.insert(90, 11, &owner));
  EXPECT_FALSE(map.insert(90, 100, &owner));
  EXPECT_FALSE(map.insert(200, 0, &owner));
  EXPECT_FALSE(map.insert(UINT64_MAX - 5, 10, &owner));
  EXPECT_TRUE(map.insert(150, 10, &owner));
  EXPECT_TRUE(map.insert(90, 10, &owner));
  EXPECT_FALSE(map.erase(101));
  EXPECT_TRUE(map.erase(100));
  EXPECT_EQ(map.find(100, 1), nullptr);
  EXPECT_EQ(map.find(155, UINT64_MAX), nullptr);
}

// Against a list that is searched from end to end.
TEST(RangeMap, AgreesWithALinearSearch) {
  struct Range {
    std::uint64_t begin, end;
    int* owner;
  };
  RangeMap<int> map;
  std::list<Range> ranges;
  int owners[16];
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    const std::uint64_t begin = random() % 400, length = 1 + random() % 20, end = begin + length;
    switch (random() % 3) {
      case 0: {
        const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const Range& r) { return r.begin == begin; });
        ASSERT_EQ(map.erase(begin), found != ranges.end());
        if (found != ranges.end()) ranges.erase(found);
        break;
      }
      case 1: {
        int* owner = &owners[random() % 16];
        const bool free =
            std::none_of(ranges.begin(), ranges.end(), [&](const Range& r) { return r.begin < end && begin < r.end; });
        ASSERT_EQ(map.insert(begin, length, owner), free);
        if (free) ranges.push_back({begin, end, owner});
        break;
      }
      default: {
        const auto found = std::find_if(ranges.begin(), ranges.end(),
                                        [&](const Range& r) { return r.begin <= begin && end <= r.end; });
        ASSERT_EQ(map.find(begin, length), found != ranges.end() ? found->owner : nullptr);
      }
    }
    ASSERT_EQ(map.size(), ranges.size());
  }
}

}  // namespace
