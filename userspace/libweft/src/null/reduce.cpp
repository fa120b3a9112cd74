// SPDX-License-Identifier: MIT
#include "reduce.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace weft::null {
namespace {

// IEEE 754 binary16. Widening is exact; narrowing rounds to nearest, ties to even.
struct Half {
  using Wide = float;
  std::uint16_t bits;

  float wide() const {
    const std::uint32_t exponent = bits >> 10 & 0x1f;
    const std::uint32_t fraction = bits & 0x3ff;
    float magnitude;
    if (exponent == 31) {
      magnitude = std::bit_cast<float>(0x7f800000u | fraction << 13);
    } else if (exponent != 0) {
      magnitude = std::bit_cast<float>((exponent + 112) << 23 | fraction << 13);
    } else {
      magnitude = std::ldexp(static_cast<float>(fraction), -24);
    }
    return std::copysign(magnitude, (bits & 0x8000) != 0 ? -1.0f : 1.0f);
  }

  static Half narrow(float value) {
    const auto sign = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16 & 0x8000);
    if (std::isnan(value)) return {static_cast<std::uint16_t>(sign | 0x7e00)};
    const float magnitude = std::fabs(value);
    if (magnitude >= 65520.0f) return {static_cast<std::uint16_t>(sign | 0x7c00)};
    // In units of the last place, which is fixed below the normal range, the library rounds as the standard wants.
    const int exponent = magnitude < 0x1p-14f ? -14 : std::ilogb(magnitude);
    const auto units = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
    const std::uint32_t base = magnitude < 0x1p-14f ? 0 : static_cast<std::uint32_t>(exponent + 14) << 10;
    return {static_cast<std::uint16_t>(sign | (base + units))};
  }
};

// The upper half of binary32.
struct Brain {
  using Wide = float;
  std::uint16_t bits;

  float wide() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static Brain narrow(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if (std::isnan(value)) return {static_cast<std::uint16_t>(word >> 16 | 0x40)};
    return {static_cast<std::uint16_t>((word + 0x7fff + (word >> 16 & 1)) >> 16)};
  }
};

template <typename T>
struct Plain {
  using Wide = T;
  T value;

  T wide() const { return value; }
  static Plain narrow(T wide) { return {wide}; }
};

template <typename T>
T apply(std::uint8_t op, T a, T b, std::uint32_t divisor) {
  // Integers wrap around, which C++ defines for unsigned ones of at least int's width.
  using Sum = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;
  switch (op) {
    case WEFT_PROD:
      return static_cast<T>(static_cast<Sum>(a) * static_cast<Sum>(b));
    case WEFT_MAX:
      return a > b ? a : b;
    case WEFT_MIN:
      return a < b ? a : b;
    default: {
      const T sum = static_cast<T>(static_cast<Sum>(a) + static_cast<Sum>(b));
      if (op != WEFT_AVG || divisor == 0) return sum;
      // A divisor may be more than a narrow integer holds.
      using Quotient = std::conditional_t<std::is_floating_point_v<T>, T,
                                          std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
      return static_cast<T>(static_cast<Quotient>(sum) / static_cast<Quotient>(divisor));
    }
  }
}

template <typename Element>
void run(std::uint8_t op, std::uint32_t divisor, void* to, const void* one, const void* other, std::size_t elements) {
  auto* out = static_cast<std::byte*>(to);
  auto* a = static_cast<const std::byte*>(one);
  auto* b = static_cast<const std::byte*>(other);
  for (std::size_t i = 0; i < elements * sizeof(Element); i += sizeof(Element)) {
    Element x, y;
    std::memcpy(&x, a + i, sizeof(x));
    std::memcpy(&y, b + i, sizeof(y));
    const Element result = Element::narrow(apply<typename Element::Wide>(op, x.wide(), y.wide(), divisor));
    std::memcpy(out + i, &result, sizeof(result));
  }
}

}  // namespace

std::size_t element_bytes(std::uint8_t dtype) {
  switch (dtype) {
    case WEFT_I8:
    case WEFT_U8:
      return 1;
    case WEFT_F16:
    case WEFT_BF16:
      return 2;
    case WEFT_I32:
    case WEFT_U32:
    case WEFT_F32:
      return 4;
    case WEFT_I64:
    case WEFT_U64:
    case WEFT_F64:
      return 8;
    default:
      return 0;
  }
}

bool reduce(std::uint8_t dtype, std::uint8_t op, std::uint32_t divisor, void* to, const void* one, const void* other,
            std::size_t elements) {
  if (op >= WEFT_REDOPS) return false;
  const auto with = [&]<typename Element>(Element) {
    run<Element>(op, divisor, to, one, other, elements);
    return true;
  };
  switch (dtype) {
    case WEFT_I8:
      return with(Plain<std::int8_t>{});
    case WEFT_U8:
      return with(Plain<std::uint8_t>{});
    case WEFT_I32:
      return with(Plain<std::int32_t>{});
    case WEFT_U32:
      return with(Plain<std::uint32_t>{});
    case WEFT_I64:
      return with(Plain<std::int64_t>{});
    case WEFT_U64:
      return with(Plain<std::uint64_t>{});
    case WEFT_F16:
      return with(Half{});
    case WEFT_BF16:
      return with(Brain{});
    case WEFT_F32:
      return with(Plain<float>{});
    case WEFT_F64:
      return with(Plain<double>{});
    default:
      return false;
  }
}

}  // namespace weft::null
