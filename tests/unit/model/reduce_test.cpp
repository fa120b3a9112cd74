// SPDX-License-Identifier: MIT
// The kernels against references that are computed in another way: values by ldexp, rounding by nearbyint on the
// exact scale, integers in 128 bits.
#include "reduce.hpp"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace weft::model {
namespace {

// A binary format of 16 bits: sign, exponent, mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  double value(std::uint16_t bits) const {
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    double magnitude;
    if (exponent == (1 << exponent_bits) - 1) {
      magnitude = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    } else if (exponent == 0) {
      magnitude = std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    } else {
      magnitude = std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias() - mantissa_bits);
    }
    return bits & 0x8000 ? -magnitude : magnitude;
  }
  // Nearest, ties to even; NaN gives 0xffff, which stands for any.
  std::uint16_t round(double exact) const {
    if (std::isnan(exact)) return 0xffff;
    const std::uint16_t sign = std::signbit(exact) ? 0x8000 : 0;
    const double magnitude = std::fabs(exact);
    const std::uint16_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
    if (std::isinf(magnitude)) return sign | infinity;
    if (magnitude == 0) return sign;
    const int exponent = std::max(std::ilogb(magnitude), 1 - bias());
    const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));  // ties to even by default
    // 2^mantissa_bits units are one step of the exponent, also when rounding made one more.
    const double index = units + std::ldexp(exponent + bias() - 1, mantissa_bits);
    return sign | (index >= infinity ? infinity : static_cast<std::uint16_t>(index));
  }
};
constexpr Format kF16{5, 10};
constexpr Format kBF16{8, 7};

bool is_nan16(const Format& format, std::uint16_t bits) { return std::isnan(format.value(bits)); }

// Runs a test body for each instruction set that this CPU has.
class Reduce : public testing::Test {
 protected:
  template <class Body>
  void for_each_target(Body body) {
    const std::int64_t supported = hwy::SupportedTargets();
    for (std::int64_t target = 1; target > 0 && target <= supported; target <<= 1) {
      if (!(supported & target)) continue;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().DeInit();
      SCOPED_TRACE(hwy::TargetName(target));
      body();
    }
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }

  // All of `xs` with `y`, in one call; `expect(x)` is the reference.
  template <class Expect>
  static void check16(weft_dtype dtype, weft_redop op, const Format& format, std::uint16_t y, std::uint32_t divisor,
                      Expect expect) {
    std::vector<std::uint16_t> x(65536);
    std::vector<std::uint16_t> ys(65536, y);
    std::vector<std::uint16_t> out(65536);
    for (std::uint32_t i = 0; i < 65536; ++i) x[i] = static_cast<std::uint16_t>(i);
    ASSERT_TRUE(reduce(dtype, op, out.data(), x.data(), ys.data(), x.size(), divisor));
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const std::uint16_t wanted = expect(x[i]);
      if (wanted == 0xffff) {
        ASSERT_TRUE(is_nan16(format, out[i])) << std::hex << i << " with " << y << " gave " << out[i];
        ASSERT_TRUE(out[i] & (1 << (format.mantissa_bits - 1))) << "NaN is not quiet";
      } else {
        ASSERT_EQ(out[i], wanted) << std::hex << i << " with " << y;
      }
    }
  }
};

// Each of the 65536 values goes through load and store: x + -0 is x.
TEST_F(Reduce, ConversionsOfAll16BitFloatsAreExact) {
  for_each_target([] {
    for (auto [dtype, format] : {std::pair{WEFT_F16, kF16}, {WEFT_BF16, kBF16}}) {
      check16(dtype, WEFT_SUM, format, 0x8000, 0,
              [&](std::uint16_t x) { return is_nan16(format, x) ? std::uint16_t{0xffff} : x; });
    }
  });
}

// Sums and products of f16 are exact in double, so rounding that once is the right answer.
TEST_F(Reduce, F16SumsAndProductsAreCorrectlyRounded) {
  std::vector<std::uint16_t> others = {0x0000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x1000, 0x1400, 0x2e66,
                                       0x3800, 0x3bff, 0x3c00, 0x3c01, 0xbc01, 0x3fff, 0x5bff, 0x6400,
                                       0x7800, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7c01, 0x7e00};
  std::mt19937 random(1);
  for (int i = 0; i < 16; ++i) others.push_back(static_cast<std::uint16_t>(random()));
  for_each_target([&] {
    for (std::uint16_t y : others) {
      const double b = kF16.value(y);
      check16(WEFT_F16, WEFT_SUM, kF16, y, 0, [&](std::uint16_t x) { return kF16.round(kF16.value(x) + b); });
      check16(WEFT_F16, WEFT_PROD, kF16, y, 0, [&](std::uint16_t x) { return kF16.round(kF16.value(x) * b); });
    }
  });
}

TEST_F(Reduce, BF16RoundsTheF32ResultOnce) {
  std::vector<std::uint16_t> others = {0x0000, 0x0001, 0x8001, 0x007f, 0x0080, 0x3f80, 0x3f81, 0xbf81, 0x3fff, 0x4049,
                                       0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7f81, 0x7fc0, 0x3c00, 0x3b80, 0xc2c8};
  std::mt19937 random(2);
  for (int i = 0; i < 16; ++i) others.push_back(static_cast<std::uint16_t>(random()));
  for_each_target([&] {
    for (std::uint16_t y : others) {
      const auto b = static_cast<float>(kBF16.value(y));
      check16(WEFT_BF16, WEFT_SUM, kBF16, y, 0,
              [&](std::uint16_t x) { return kBF16.round(static_cast<float>(kBF16.value(x)) + b); });
      check16(WEFT_BF16, WEFT_PROD, kBF16, y, 0,
              [&](std::uint16_t x) { return kBF16.round(static_cast<float>(kBF16.value(x)) * b); });
      check16(WEFT_BF16, WEFT_AVG, kBF16, y, 3,
              [&](std::uint16_t x) { return kBF16.round((static_cast<float>(kBF16.value(x)) + b) / 3.0f); });
    }
  });
}

// The tie between each f16 from 2^-13 on and its neighbour, and one unit of the smallest subnormal beside it.
TEST_F(Reduce, F16TiesGoToEven) {
  std::vector<std::uint16_t> x, half, wanted;
  for (std::uint32_t bits = 0x0800; bits < 0x7800; ++bits) {
    const int exponent = static_cast<int>(bits >> 10) - 15;
    const double half_unit = std::ldexp(1, exponent - 11);
    x.push_back(static_cast<std::uint16_t>(bits));
    half.push_back(kF16.round(half_unit));
    ASSERT_EQ(kF16.value(half.back()), half_unit);
    wanted.push_back(static_cast<std::uint16_t>(bits + (bits & 1)));
  }
  for_each_target([&] {
    std::vector<std::uint16_t> out(x.size());
    ASSERT_TRUE(reduce(WEFT_F16, WEFT_SUM, out.data(), x.data(), half.data(), x.size(), 0));
    EXPECT_EQ(out, wanted);
  });
}

template <class T, class Reference>
void check(weft_dtype dtype, weft_redop op, std::uint32_t divisor, Reference reference) {
  std::mt19937_64 random(dtype * 16 + op);
  for (std::size_t elements : {0u, 1u, 3u, 7u, 8u, 15u, 16u, 17u, 31u, 33u, 64u, 65u, 1000u}) {
    std::vector<T> a(elements + 2), b(elements + 2), out(elements + 2);
    for (std::size_t i = 0; i < elements + 2; ++i) {
      const std::uint64_t x = random(), y = random();
      if constexpr (std::is_floating_point_v<T>) {
        a[i] = static_cast<T>(
            std::ldexp(static_cast<double>(static_cast<std::int64_t>(x)), static_cast<int>(x % 40) - 60));
        b[i] = static_cast<T>(
            std::ldexp(static_cast<double>(static_cast<std::int64_t>(y)), static_cast<int>(y % 40) - 60));
      } else {
        std::memcpy(&a[i], &x, sizeof(T));
        std::memcpy(&b[i], &y, sizeof(T));
      }
      out[i] = T{42};
    }
    ASSERT_TRUE(reduce(dtype, op, out.data() + 1, a.data() + 1, b.data() + 1, elements, divisor));
    EXPECT_EQ(out[0], T{42});
    EXPECT_EQ(out[elements + 1], T{42}) << "written past the end of " << elements;
    for (std::size_t i = 1; i <= elements; ++i) ASSERT_EQ(out[i], reference(a[i], b[i])) << i << " of " << elements;
    // In place, on either operand.
    std::vector<T> left = a, right = b;
    ASSERT_TRUE(reduce(dtype, op, left.data() + 1, left.data() + 1, b.data() + 1, elements, divisor));
    ASSERT_TRUE(reduce(dtype, op, right.data() + 1, a.data() + 1, right.data() + 1, elements, divisor));
    EXPECT_TRUE(std::equal(left.begin() + 1, left.end() - 1, out.begin() + 1));
    EXPECT_TRUE(std::equal(right.begin() + 1, right.end() - 1, out.begin() + 1));
  }
}

template <class T>
void check_integer(weft_dtype dtype) {
  using Wide = __int128;
  using Unsigned = unsigned __int128;  // products of 64-bit values do not fit the signed one
  const auto wrap = [](Wide value) { return static_cast<T>(static_cast<unsigned __int128>(value)); };
  check<T>(dtype, WEFT_SUM, 0, [&](T x, T y) { return wrap(Wide{x} + y); });
  check<T>(dtype, WEFT_PROD, 0, [&](T x, T y) { return wrap(static_cast<Wide>(Unsigned(x) * Unsigned(y))); });
  check<T>(dtype, WEFT_MAX, 0, [&](T x, T y) { return std::max(x, y); });
  check<T>(dtype, WEFT_MIN, 0, [&](T x, T y) { return std::min(x, y); });
  check<T>(dtype, WEFT_AVG, 0, [&](T x, T y) { return wrap(Wide{x} + y); });
  check<T>(dtype, WEFT_AVG, 3, [&](T x, T y) { return wrap(Wide{wrap(Wide{x} + y)} / 3); });
  check<T>(dtype, WEFT_AVG, 65535, [&](T x, T y) { return wrap(Wide{wrap(Wide{x} + y)} / 65535); });
}

TEST_F(Reduce, IntegersWrap) {
  for_each_target([] {
    check_integer<std::int8_t>(WEFT_I8);
    check_integer<std::uint8_t>(WEFT_U8);
    check_integer<std::int32_t>(WEFT_I32);
    check_integer<std::uint32_t>(WEFT_U32);
    check_integer<std::int64_t>(WEFT_I64);
    check_integer<std::uint64_t>(WEFT_U64);
  });
}

TEST_F(Reduce, WideFloatsAreOneIeeeOperation) {
  for_each_target([] {
    // f32 in double, rounded once more: double has more than twice the bits and two, so that changes nothing.
    check<float>(WEFT_F32, WEFT_SUM, 0, [](float x, float y) { return static_cast<float>(double{x} + y); });
    check<float>(WEFT_F32, WEFT_PROD, 0, [](float x, float y) { return static_cast<float>(double{x} * y); });
    check<float>(WEFT_F32, WEFT_MAX, 0, [](float x, float y) { return std::fmax(x, y); });
    check<float>(WEFT_F32, WEFT_MIN, 0, [](float x, float y) { return std::fmin(x, y); });
    check<float>(WEFT_F32, WEFT_AVG, 5,
                 [](float x, float y) { return static_cast<float>(double{static_cast<float>(double{x} + y)} / 5.0); });
    check<double>(WEFT_F64, WEFT_SUM, 0, [](double x, double y) { return static_cast<double>(x + y); });
    check<double>(WEFT_F64, WEFT_PROD, 0, [](double x, double y) { return x * y; });
    check<double>(WEFT_F64, WEFT_MAX, 0, [](double x, double y) { return std::fmax(x, y); });
    check<double>(WEFT_F64, WEFT_MIN, 0, [](double x, double y) { return std::fmin(x, y); });
    check<double>(WEFT_F64, WEFT_AVG, 7, [](double x, double y) { return (x + y) / 7.0; });
  });
}

TEST_F(Reduce, NanWinsInEachOperation) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const float signalling = std::bit_cast<float>(0x7f800001u);
  const float a[] = {kNan, 1, kNan, signalling, 2, -0.0f, 0.0f};
  const float b[] = {1, kNan, kNan, 1, signalling, 0.0f, -0.0f};
  for_each_target([&] {
    for (weft_redop op : {WEFT_SUM, WEFT_PROD, WEFT_MAX, WEFT_MIN, WEFT_AVG}) {
      float out[7];
      ASSERT_TRUE(reduce(WEFT_F32, op, out, a, b, 7, 2));
      for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(std::isnan(out[i])) << op << " " << i;
        EXPECT_TRUE(std::bit_cast<std::uint32_t>(out[i]) & 0x400000u) << "not quiet";
      }
      if (op == WEFT_MAX || op == WEFT_MIN) {  // the second of two zeros
        EXPECT_FALSE(std::signbit(out[5]));
        EXPECT_TRUE(std::signbit(out[6]));
      }
    }
  });
}

TEST_F(Reduce, RefusesWhatIsNotOffered) {
  std::uint8_t byte = 1;
  EXPECT_FALSE(reduce(WEFT_F8E4M3, WEFT_SUM, &byte, &byte, &byte, 1, 0));
  EXPECT_FALSE(reduce(WEFT_DTYPES, WEFT_SUM, &byte, &byte, &byte, 1, 0));
  EXPECT_FALSE(reduce(WEFT_I8, WEFT_REDOPS, &byte, &byte, &byte, 1, 0));
  EXPECT_EQ(byte, 1);
  EXPECT_EQ(dtype_bytes(WEFT_F8E5M2), 0u);
}

}  // namespace
}  // namespace weft::model
