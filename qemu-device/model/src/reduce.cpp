// SPDX-License-Identifier: MIT
#include "reduce.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce.cpp"
#include <hwy/foreach_target.h>  // compiles this file once a target; comes before highway.h
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace weft::model::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Runs `op` over vectors of the tag `d`; Codec loads and stores them from elements in memory. The last, partial vector
// goes through buffers, so that nothing outside the operands is touched.
template <class Codec, class D, class Op>
HWY_INLINE void for_each(D d, typename Codec::Element* out, const typename Codec::Element* a,
                         const typename Codec::Element* b, std::size_t elements, Op op) {
  using Element = typename Codec::Element;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) {
    Codec::store(d, op(Codec::load(d, a + i), Codec::load(d, b + i)), out + i);
  }
  if (i < elements) {
    const std::size_t rest = (elements - i) * sizeof(Element);
    HWY_ALIGN Element last_a[HWY_MAX_BYTES / sizeof(Element)] = {};
    HWY_ALIGN Element last_b[HWY_MAX_BYTES / sizeof(Element)] = {};
    std::memcpy(last_a, a + i, rest);
    std::memcpy(last_b, b + i, rest);
    Codec::store(d, op(Codec::load(d, last_a), Codec::load(d, last_b)), last_a);
    std::memcpy(out + i, last_a, rest);
  }
}

template <class T>
struct Plain {
  using Element = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const T* p) {
    return hn::LoadU(d, p);
  }
  template <class D>
  static HWY_INLINE void store(D d, hn::Vec<D> v, T* p) {
    hn::StoreU(v, d, p);
  }
};

// bf16 is the upper half of an f32.
struct BF16 {
  using Element = std::uint16_t;
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p))));
  }
  template <class D>
  static HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, std::uint16_t* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto u = hn::BitCast(du, v);
    const auto upper = hn::ShiftRight<16>(u);
    // Round to nearest even: half a unit less one, and one more when the kept part is odd.
    const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(hn::Set(du, 0x7fffu), hn::And(upper, hn::Set(du, 1u)))));
    const auto nan = hn::Or(upper, hn::Set(du, 0x40u));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::IfThenElse(is_nan, nan, rounded))), d16, p);
  }
};

struct F16 {
  using Element = std::uint16_t;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2  // a smaller number is a better target
  // F16C rounds to nearest even, keeps subnormals and quiets NaN.
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* p) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    return hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(du16, p)));
  }
  template <class D>
  static HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, std::uint16_t* p) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::RebindToUnsigned<decltype(d16)> du16;
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, v)), du16, p);
  }
#else
  // Highway's own conversions without F16C do not round to nearest even, nor keep NaN; these give F16C's bits.
  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint16_t* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto h = hn::PromoteTo(du, hn::LoadU(d16, p));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7fffu)));
    const auto exponent = hn::And(magnitude, hn::Set(du, 0x7c00u << 13));
    const auto rebiased = hn::Add(magnitude, hn::Set(du, (127u - 15u) << 23));
    const auto special = hn::Add(rebiased, hn::Set(du, (128u - 16u) << 23));  // infinity and NaN
    // A subnormal: put the bits under an implicit one, and subtract that one.
    const auto subnormal = hn::BitCast(
        du, hn::Sub(hn::BitCast(d, hn::Add(rebiased, hn::Set(du, 1u << 23))), hn::BitCast(d, hn::Set(du, 113u << 23))));
    const auto is_special = hn::Eq(hn::BitCast(di, exponent), hn::Set(di, 0x7c00 << 13));
    const auto is_subnormal = hn::Eq(hn::BitCast(di, exponent), hn::Zero(di));
    auto bits = hn::IfThenElse(hn::RebindMask(du, is_special), special, rebiased);
    bits = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, bits);
    return hn::BitCast(d, hn::Or(bits, hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)))));
  }
  template <class D>
  static HWY_INLINE void store([[maybe_unused]] D d, hn::Vec<D> v, std::uint16_t* p) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto u = hn::BitCast(du, v);
    const auto sign = hn::ShiftRight<16>(hn::And(u, hn::Set(du, 0x80000000u)));
    const auto magnitude = hn::And(u, hn::Set(du, 0x7fffffffu));
    const auto m = hn::BitCast(di, magnitude);  // not negative, so signed comparisons do
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
    const auto normal =
        hn::ShiftRight<13>(hn::Add(magnitude, hn::Add(hn::Set(du, 0xfffu - ((127u - 15u) << 23)), odd)));
    // Below 2^-14: adding 2^-1 lines the mantissa up with f16's subnormals and rounds to nearest even.
    const auto line_up = hn::Set(du, 126u << 23);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, line_up))), line_up);
    const auto nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x3ffu)));
    auto bits = hn::IfThenElse(hn::RebindMask(du, hn::Lt(m, hn::Set(di, 113 << 23))), subnormal, normal);
    bits = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, (143 << 23) - 1))), hn::Set(du, 0x7c00u), bits);
    bits = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, 0x7f800000))), nan, bits);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::Or(bits, sign))), d16, p);
  }
#endif
};

// T: type of the arithmetic, f32 or f64.
template <class Codec, class T>
bool floating(std::uint32_t op, void* out_bytes, const void* a_bytes, const void* b_bytes, std::size_t elements,
              std::uint32_t divisor) {
  using Element = typename Codec::Element;
  auto* out = static_cast<Element*>(out_bytes);
  const auto* a = static_cast<const Element*>(a_bytes);
  const auto* b = static_cast<const Element*>(b_bytes);
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  switch (op) {
    case WEFT_AVG:
      if (divisor != 0) {
        const V by = hn::Set(d, static_cast<T>(divisor));
        for_each<Codec>(d, out, a, b, elements, [by](V x, V y) HWY_ATTR { return hn::Div(hn::Add(x, y), by); });
        return true;
      }
      [[fallthrough]];
    case WEFT_SUM:
      for_each<Codec>(d, out, a, b, elements, [](V x, V y) HWY_ATTR { return hn::Add(x, y); });
      return true;
    case WEFT_PROD:
      for_each<Codec>(d, out, a, b, elements, [](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
      return true;
    // x + y is NaN when one of them is, and quiet; the comparison alone would give y.
    case WEFT_MAX:
      for_each<Codec>(d, out, a, b, elements, [](V x, V y) HWY_ATTR {
        return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), hn::IfThenElse(hn::Gt(x, y), x, y));
      });
      return true;
    case WEFT_MIN:
      for_each<Codec>(d, out, a, b, elements, [](V x, V y) HWY_ATTR {
        return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), hn::IfThenElse(hn::Lt(x, y), x, y));
      });
      return true;
    default:
      return false;
  }
}

// Loops that the compiler vectorises as far as the target has the instruction (8- and 64-bit products have none).
template <class T, class Op>
void loop(T* out, const T* a, const T* b, std::size_t elements, Op op) {
  for (std::size_t i = 0; i < elements; ++i) out[i] = op(a[i], b[i]);
}

template <class T>
bool integer(std::uint32_t op, void* out_bytes, const void* a_bytes, const void* b_bytes, std::size_t elements,
             std::uint32_t divisor) {
  using U = std::make_unsigned_t<T>;
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  auto* out = static_cast<T*>(out_bytes);
  const auto* a = static_cast<const T*>(a_bytes);
  const auto* b = static_cast<const T*>(b_bytes);
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  switch (op) {
    case WEFT_AVG:
      if (divisor != 0) {
        loop(out, a, b, elements, [divisor](T x, T y) {
          const T sum = static_cast<T>(static_cast<U>(static_cast<U>(x) + static_cast<U>(y)));
          return static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(divisor));
        });
        return true;
      }
      [[fallthrough]];
    case WEFT_SUM:
      for_each<Plain<T>>(d, out, a, b, elements, [](V x, V y) HWY_ATTR { return hn::Add(x, y); });
      return true;
    case WEFT_PROD:
      if constexpr (sizeof(T) == 4) {
        for_each<Plain<T>>(d, out, a, b, elements, [](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
      } else {
        loop(out, a, b, elements,
             [](T x, T y) { return static_cast<T>(static_cast<U>(static_cast<U>(x) * static_cast<U>(y))); });
      }
      return true;
    case WEFT_MAX:
      if constexpr (sizeof(T) < 8) {
        for_each<Plain<T>>(d, out, a, b, elements, [](V x, V y) HWY_ATTR { return hn::Max(x, y); });
      } else {
        loop(out, a, b, elements, [](T x, T y) { return x > y ? x : y; });
      }
      return true;
    case WEFT_MIN:
      if constexpr (sizeof(T) < 8) {
        for_each<Plain<T>>(d, out, a, b, elements, [](V x, V y) HWY_ATTR { return hn::Min(x, y); });
      } else {
        loop(out, a, b, elements, [](T x, T y) { return x < y ? x : y; });
      }
      return true;
    default:
      return false;
  }
}

bool reduce_here(std::uint32_t dtype, std::uint32_t op, void* out, const void* a, const void* b, std::size_t elements,
                 std::uint32_t divisor) {
  switch (dtype) {
    case WEFT_I8:
      return integer<std::int8_t>(op, out, a, b, elements, divisor);
    case WEFT_U8:
      return integer<std::uint8_t>(op, out, a, b, elements, divisor);
    case WEFT_I32:
      return integer<std::int32_t>(op, out, a, b, elements, divisor);
    case WEFT_U32:
      return integer<std::uint32_t>(op, out, a, b, elements, divisor);
    case WEFT_I64:
      return integer<std::int64_t>(op, out, a, b, elements, divisor);
    case WEFT_U64:
      return integer<std::uint64_t>(op, out, a, b, elements, divisor);
    case WEFT_F16:
      return floating<F16, float>(op, out, a, b, elements, divisor);
    case WEFT_BF16:
      return floating<BF16, float>(op, out, a, b, elements, divisor);
    case WEFT_F32:
      return floating<Plain<float>, float>(op, out, a, b, elements, divisor);
    case WEFT_F64:
      return floating<Plain<double>, double>(op, out, a, b, elements, divisor);
    default:
      return false;
  }
}

}  // namespace weft::model::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace weft::model {

HWY_EXPORT(reduce_here);

std::size_t dtype_bytes(std::uint32_t dtype) {
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

bool reduce(std::uint32_t dtype, std::uint32_t op, void* out, const void* a, const void* b, std::size_t elements,
            std::uint32_t divisor) {
  return HWY_DYNAMIC_DISPATCH(reduce_here)(dtype, op, out, a, b, elements, divisor);
}

}  // namespace weft::model
#endif
