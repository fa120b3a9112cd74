// SPDX-License-Identifier: MIT
// Narrow floats against the standard's values, integers against wider arithmetic.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "null/reduce.hpp"

namespace {

using weft::null::reduce;

std::uint16_t half(std::uint16_t a, std::uint16_t b, weft_redop op = WEFT_SUM) {
  std::uint16_t out = 0;
  EXPECT_TRUE(reduce(WEFT_F16, op, 0, &out, &a, &b, 1));
  return out;
}

// IEEE 754-2008 binary16: examples of its table and ties by hand.
TEST(NullReduce, HalfPrecision) {
  EXPECT_EQ(half(0x3c00, 0x3c00), 0x4000);           // 1 + 1 = 2
  EXPECT_EQ(half(0x7bff, 0x0000), 0x7bff);           // 65504 stays
  EXPECT_EQ(half(0x7bff, 0x4c00), 0x7c00);           // 65504 + 16 = 65520 rounds to infinity
  EXPECT_EQ(half(0x7bff, 0x4b80), 0x7bff);           // 65504 + 15 does not
  EXPECT_EQ(half(0x0001, 0x0001), 0x0002);           // subnormals
  EXPECT_EQ(half(0x03ff, 0x0001), 0x0400);           // largest subnormal + smallest = smallest normal
  EXPECT_EQ(half(0x3c00, 0x1000), 0x3c00);           // 1 + 2^-11: tie, to even
  EXPECT_EQ(half(0x3c01, 0x1000), 0x3c02);           // the next one up: tie, to even
  EXPECT_EQ(half(0x3c00, 0x1001), 0x3c01);           // just above the tie
  EXPECT_EQ(half(0x7c00, 0xfc00) & 0x7e00, 0x7e00);  // inf - inf: NaN
  EXPECT_EQ(half(0x8001, 0x8001), 0x8002);
}

// Every half survives a sum with zero.
TEST(NullReduce, EveryHalfIsItself) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    const std::uint16_t result = half(static_cast<std::uint16_t>(bits), bits & 0x8000);
    if (nan) {
      EXPECT_TRUE((result & 0x7c00) == 0x7c00 && (result & 0x3ff) != 0);
    } else {
      EXPECT_EQ(result, bits);
    }
  }
}

TEST(NullReduce, BfloatRoundsToNearestEven) {
  const auto sum = [](std::uint16_t a, std::uint16_t b) {
    std::uint16_t out = 0;
    EXPECT_TRUE(reduce(WEFT_BF16, WEFT_SUM, 0, &out, &a, &b, 1));
    return out;
  };
  EXPECT_EQ(sum(0x3f80, 0x3f80), 0x4000);
  EXPECT_EQ(sum(0x3f80, 0x3b80), 0x3f80);  // 1 + 2^-8: tie, to even
  EXPECT_EQ(sum(0x3f81, 0x3b80), 0x3f82);
  EXPECT_EQ(sum(0x7f7f, 0x7f7f), 0x7f80);  // infinity
}

template <typename T>
void integers(weft_dtype type) {
  std::mt19937_64 random(type);
  std::vector<T> a(1000), b(1000), out(1000);
  for (auto& value : a) value = static_cast<T>(random());
  for (auto& value : b) value = static_cast<T>(random());
  for (int op = 0; op < WEFT_REDOPS; ++op) {
    ASSERT_TRUE(reduce(type, static_cast<std::uint8_t>(op), 0, out.data(), a.data(), b.data(), a.size()));
    for (std::size_t i = 0; i < a.size(); ++i) {
      // Modulo 2^128, and so modulo any narrower power.
      const auto x = static_cast<unsigned __int128>(a[i]), y = static_cast<unsigned __int128>(b[i]);
      const unsigned __int128 wide = op == WEFT_PROD  ? x * y
                                     : op == WEFT_MAX ? (a[i] > b[i] ? x : y)
                                     : op == WEFT_MIN ? (a[i] < b[i] ? x : y)
                                                      : x + y;
      ASSERT_EQ(out[i], static_cast<T>(wide)) << "type " << type << " op " << op;
    }
  }
}

TEST(NullReduce, IntegersWrapAround) {
  integers<std::int8_t>(WEFT_I8);
  integers<std::uint8_t>(WEFT_U8);
  integers<std::int32_t>(WEFT_I32);
  integers<std::uint32_t>(WEFT_U32);
  integers<std::int64_t>(WEFT_I64);
  integers<std::uint64_t>(WEFT_U64);
}

TEST(NullReduce, AverageDividesOnce) {
  const float a[] = {1, 2}, b[] = {5, 8};
  float out[2];
  ASSERT_TRUE(reduce(WEFT_F32, WEFT_AVG, 2, out, a, b, 2));
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 5);
  ASSERT_TRUE(reduce(WEFT_F32, WEFT_AVG, 0, out, a, b, 2));
  EXPECT_EQ(out[0], 6);
  const std::int8_t i8[] = {-100, 50};
  std::int8_t mean[2];
  ASSERT_TRUE(reduce(WEFT_I8, WEFT_AVG, 256, mean, i8, i8 + 1, 1)) << "a divisor that int8_t does not hold";
  EXPECT_EQ(mean[0], 0);
  EXPECT_FALSE(reduce(WEFT_F32, WEFT_REDOPS, 0, out, a, b, 2));
  EXPECT_FALSE(reduce(WEFT_F8E4M3, WEFT_SUM, 0, out, a, b, 2));
}

}  // namespace
