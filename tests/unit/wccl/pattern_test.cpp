// SPDX-License-Identifier: MIT
// wccl-perf's reference: the closed forms against sums carried out, and its conversions against the compiler's.
#include "pattern.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace weft::perf {
namespace {

TEST(Pattern, HalfIsTheCompilers) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    _Float16 h;
    std::memcpy(&h, &b, 2);
    const double value = from_f16(b);
    if (std::isnan(value)) {
      EXPECT_TRUE(h != h);
      EXPECT_TRUE(std::isnan(from_f16(to_f16(value))));
      continue;
    }
    EXPECT_EQ(value, static_cast<double>(h)) << bits;
    EXPECT_EQ(to_f16(value), b);
    // Between this one and the next: nearest, ties to even.
    if ((bits & 0x7fff) >= 0x7bff) continue;
    const double next = from_f16(static_cast<std::uint16_t>(bits + 1));
    for (const double part : {0.25, 0.5, 0.75}) {
      const double between = value + (next - value) * part;
      const auto want = static_cast<_Float16>(between);
      std::uint16_t want_bits;
      std::memcpy(&want_bits, &want, 2);
      EXPECT_EQ(to_f16(between), want_bits) << between;
    }
  }
  EXPECT_EQ(to_f16(65520), 0x7c00);
  EXPECT_EQ(to_f16(1e300), 0x7c00);
}

// bf16 is the upper half of an f32, rounded to nearest even.
TEST(Pattern, Bfloat16IsHalfAFloat) {
  for (std::uint32_t upper = 0; upper < 0x7f80; upper += 3) {
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t bits = upper << 16 | lower;
      float f;
      std::memcpy(&f, &bits, 4);
      EXPECT_EQ(to_bf16(f), static_cast<std::uint16_t>((bits + 0x7fff + (upper & 1)) >> 16)) << bits;
    }
  }
}

template <class T>
void carry_out(wcclDataType_t type) {
  for (const std::uint32_t ranks : {1u, 2u, 3u, 8u, 64u}) {
    for (int o = 0; o < wcclNumOps; ++o) {
      const Pattern pattern{Collective::kAllReduce, type, static_cast<wcclRedOp_t>(o), ranks};
      const std::size_t count = 500;
      std::vector<T> sum(count), in(count);
      for (std::uint32_t r = 0; r < ranks; ++r) {
        pattern.input(r, 1000, std::as_writable_bytes(std::span(in)));
        for (std::size_t i = 0; i < count; ++i) {
          const T a = sum[i], b = in[i];
          if (r == 0) {
            sum[i] = b;
          } else if (o == wcclProd) {
            if constexpr (std::is_integral_v<T>) {
              sum[i] =
                  static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) * static_cast<std::make_unsigned_t<T>>(b));
            } else {
              sum[i] = a * b;
            }
          } else if (o == wcclMin) {
            sum[i] = std::min(a, b);
          } else if (o == wcclMax) {
            sum[i] = std::max(a, b);
          } else if constexpr (std::is_integral_v<T>) {
            sum[i] = static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
          } else {
            sum[i] = a + b;
          }
        }
      }
      if (o == wcclAvg && ranks > 1) {
        for (T& v : sum) v = static_cast<T>(v / static_cast<T>(ranks));
      }
      EXPECT_EQ(pattern.wrong(0, 1000, std::as_bytes(std::span(sum))), 0u)
          << type_name(type) << ' ' << op_name(pattern.op) << ' ' << ranks;
      // An error of one unit in an integer, of one per cent in a float, is seen.
      if constexpr (std::is_integral_v<T>) {
        sum[7] = static_cast<T>(sum[7] ^ 1);
      } else {
        sum[7] = sum[7] * T(1.01) + T(0.01);
      }
      EXPECT_EQ(pattern.wrong(0, 1000, std::as_bytes(std::span(sum))), 1u);
      // What is left of an earlier pattern, or a rank's own input, is not taken for a result.
      if (ranks > 1 && o != wcclMin && o != wcclMax) {
        EXPECT_GT(pattern.wrong(0, 1000, std::as_bytes(std::span(in))), count / 2);
      }
    }
  }
}

TEST(Pattern, ClosedFormsAreWhatReducingGives) {
  carry_out<std::int32_t>(wcclInt32);
  carry_out<std::uint64_t>(wcclUint64);
  carry_out<std::int64_t>(wcclInt64);
  carry_out<float>(wcclFloat32);
  carry_out<double>(wcclFloat64);
}

}  // namespace
}  // namespace weft::perf
