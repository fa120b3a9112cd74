// SPDX-License-Identifier: MIT
#include "pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace weft::perf {
namespace {

// splitmix64's finaliser.
std::uint64_t mix(std::uint64_t i) {
  i += 0x9e3779b97f4a7c15ull;
  i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9ull;
  i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
  return i ^ (i >> 31);
}

std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent; exponent >>= 1, base *= base) {
    if (exponent & 1) result *= base;
  }
  return result;
}

// A float format: its bits, conversions and half unit in the last place.
struct F16 {
  using Bits = std::uint16_t;
  static constexpr double kEpsilon = 0x1p-11, kTiny = 0x1p-25;
  static Bits to(double v) { return to_f16(v); }
  static double from(Bits b) { return from_f16(b); }
};
struct BF16 {
  using Bits = std::uint16_t;
  static constexpr double kEpsilon = 0x1p-8, kTiny = 0x1p-134;
  static Bits to(double v) { return to_bf16(v); }
  static double from(Bits b) { return from_bf16(b); }
};
struct F32 {
  using Bits = std::uint32_t;
  static constexpr double kEpsilon = 0x1p-24, kTiny = 0x1p-150;
  static Bits to(double v) { return std::bit_cast<Bits>(static_cast<float>(v)); }
  static double from(Bits b) { return std::bit_cast<float>(b); }
};
struct F64 {
  using Bits = std::uint64_t;
  static constexpr double kEpsilon = 0x1p-53, kTiny = 0x1p-1074;
  static Bits to(double v) { return std::bit_cast<Bits>(v); }
  static double from(Bits b) { return std::bit_cast<double>(b); }
};

template <class T>
struct IntegerForm {
  using Bits = T;
  using Unsigned = std::make_unsigned_t<T>;
  static T wrap(std::uint64_t v) { return static_cast<T>(static_cast<Unsigned>(v)); }

  static T input(const Pattern& p, std::uint32_t r, std::uint64_t i) {
    const std::uint64_t u = mix(i);
    switch (p.op) {
      case wcclProd:
        return wrap(power(u | 1, r + 1));
      case wcclMin:
      case wcclMax:
        return wrap(u % 16 + (r + i) % spread(p));
      default:
        return wrap(u + r * (u >> 17 | 1));
    }
  }
  static T want(const Pattern& p, std::uint64_t i) {
    const std::uint64_t u = mix(i), n = p.ranks;
    switch (p.op) {
      case wcclProd:
        return wrap(power(u | 1, n * (n + 1) / 2));
      case wcclMin:
        return wrap(u % 16);
      case wcclMax:
        return wrap(u % 16 + spread(p) - 1);
      default: {
        const T sum = wrap(n * u + n * (n - 1) / 2 * (u >> 17 | 1));
        if (p.op != wcclAvg) return sum;
        if constexpr (std::is_signed_v<T>) {
          return static_cast<T>(static_cast<std::int64_t>(sum) / static_cast<std::int64_t>(n));
        } else {
          return static_cast<T>(static_cast<std::uint64_t>(sum) / n);
        }
      }
    }
  }
  static bool good(const Pattern& p, std::uint64_t i, T got) { return got == want(p, i); }

 private:
  static std::uint64_t spread(const Pattern& p) { return std::min(p.ranks, 100u); }
};

template <class F>
struct FloatForm {
  using Bits = typename F::Bits;

  static Bits input(const Pattern& p, std::uint32_t r, std::uint64_t i) {
    const double n = p.ranks;
    switch (p.op) {
      case wcclProd:
        return F::to(std::exp2(unit(i) * (r + 1) * 4 / (n * (n + 1))));
      case wcclMin:
      case wcclMax:
        return F::to(step(i, (r + i) % p.ranks));
      default:
        return F::to(unit(i) * (r + 1) / n);
    }
  }
  static bool good(const Pattern& p, std::uint64_t i, Bits bits) {
    const double got = F::from(bits), n = p.ranks;
    double want = 0, allowed = 0;
    switch (p.op) {
      case wcclProd:
        want = std::exp2(2 * unit(i));
        allowed = (2 * n + 1) * F::kEpsilon * want;
        break;
      case wcclMin:
        return bits == F::to(step(i, 0));
      case wcclMax:
        return bits == F::to(step(i, p.ranks - 1));
      default: {
        const double magnitudes = std::abs(unit(i)) * (n + 1) / 2;
        want = unit(i) * (n + 1) / 2;
        allowed = (n + 1) * F::kEpsilon * magnitudes;
        if (p.op == wcclAvg) {
          want /= n;
          allowed = allowed / n + F::kEpsilon * std::abs(want);
        }
      }
    }
    return std::abs(got - want) <= allowed + (n + 1) * F::kTiny;
  }

 private:
  static double unit(std::uint64_t i) { return (static_cast<double>(mix(i) % 2001) - 1000) / 1000; }
  static double step(std::uint64_t i, std::uint64_t k) {
    return (static_cast<double>(mix(i) % 128) - 64 + static_cast<double>(k)) / 8;
  }
};

// Calls f with the form of the type.
template <class F>
auto with_form(wcclDataType_t type, F&& f) {
  switch (type) {
    case wcclInt8:
      return f(IntegerForm<std::int8_t>{});
    case wcclUint8:
      return f(IntegerForm<std::uint8_t>{});
    case wcclInt32:
      return f(IntegerForm<std::int32_t>{});
    case wcclUint32:
      return f(IntegerForm<std::uint32_t>{});
    case wcclInt64:
      return f(IntegerForm<std::int64_t>{});
    case wcclUint64:
      return f(IntegerForm<std::uint64_t>{});
    case wcclFloat16:
      return f(FloatForm<F16>{});
    case wcclBfloat16:
      return f(FloatForm<BF16>{});
    case wcclFloat64:
      return f(FloatForm<F64>{});
    default:
      return f(FloatForm<F32>{});
  }
}

// IEEE 754 binary format of `digits` mantissa bits and exponents up to `bias` from a double, to nearest even.
std::uint16_t narrow(double value, int digits, int bias) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = 2 * bias + 1;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity << digits | 1 << (digits - 1));
  const double magnitude = std::abs(value);
  if (magnitude == 0) return sign;
  int exponent = 0;
  if (std::isfinite(magnitude)) std::frexp(magnitude, &exponent);
  // The unit in the last place: of the number, or of the subnormals.
  const int unit = std::max(exponent - 1, 1 - bias) - digits;
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity << digits);
  const double scaled = std::nearbyint(std::ldexp(magnitude, -unit));  // exact but for the rounding
  const auto mantissa = static_cast<std::int64_t>(scaled);
  // mantissa may have become 2^(digits + 1): adding instead of or-ing carries into the exponent.
  const std::int64_t biased = static_cast<std::int64_t>(unit + digits + bias - 1) << digits;
  const std::int64_t bits = biased + mantissa;
  return static_cast<std::uint16_t>(sign | std::min<std::int64_t>(bits, static_cast<std::int64_t>(infinity) << digits));
}

double widen(std::uint16_t bits, int digits, int bias) {
  const int exponent = bits >> digits & (2 * bias + 1);
  const int mantissa = bits & ((1 << digits) - 1);
  double value;
  if (exponent == 2 * bias + 1) {
    value = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, 1 - bias - digits);
  } else {
    value = std::ldexp(mantissa + (1 << digits), exponent - bias - digits);
  }
  return bits & 0x8000 ? -value : value;
}

}  // namespace

std::uint16_t to_f16(double value) { return narrow(value, 10, 15); }
double from_f16(std::uint16_t bits) { return widen(bits, 10, 15); }
std::uint16_t to_bf16(double value) { return narrow(value, 7, 127); }
double from_bf16(std::uint16_t bits) { return widen(bits, 7, 127); }

void Pattern::input(std::uint32_t rank, std::uint64_t first, std::span<std::byte> out) const {
  with_form(type, [&](auto form) {
    using Form = decltype(form);
    using Bits = typename Form::Bits;
    const std::size_t count = out.size() / sizeof(Bits);
    for (std::size_t k = 0; k < count; ++k) {
      const Bits bits = Form::input(*this, rank, first + k);
      std::memcpy(out.data() + k * sizeof bits, &bits, sizeof bits);
    }
  });
}

std::uint64_t Pattern::wrong(std::uint32_t rank, std::uint64_t first, std::span<const std::byte> result) const {
  return with_form(type, [&](auto form) {
    using Form = decltype(form);
    using Bits = typename Form::Bits;
    const std::size_t count = result.size() / sizeof(Bits);
    std::uint64_t bad = 0;
    for (std::size_t k = 0; k < count; ++k) {
      Bits bits;
      std::memcpy(&bits, result.data() + k * sizeof bits, sizeof bits);
      if (collective == Collective::kSendRecv) {
        bad += bits != Form::input(*this, (rank + ranks - 1) % ranks, first + k);
      } else if (ranks == 1) {
        bad += bits != Form::input(*this, rank, first + k);
      } else {
        bad += !Form::good(*this, first + k, bits);
      }
    }
    return bad;
  });
}

bool supported(wcclDataType_t type) { return type >= 0 && type <= wcclBfloat16; }

std::uint32_t type_bytes(wcclDataType_t type) {
  return with_form(type, [](auto form) { return static_cast<std::uint32_t>(sizeof(typename decltype(form)::Bits)); });
}

const char* type_name(wcclDataType_t type) {
  static constexpr const char* kNames[] = {"int8", "uint8", "int32",  "uint32",   "int64",   "uint64",
                                           "half", "float", "double", "bfloat16", "fp8e4m3", "fp8e5m2"};
  return type >= 0 && type < wcclNumTypes ? kNames[type] : "unknown";
}

const char* op_name(wcclRedOp_t op) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return op >= 0 && op < wcclNumOps ? kNames[op] : "unknown";
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t hash) {
  for (const std::byte b : bytes) hash = (hash ^ static_cast<std::uint8_t>(b)) * 0x100000001b3ull;
  return hash;
}

}  // namespace weft::perf
