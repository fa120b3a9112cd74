// SPDX-License-Identifier: MIT
// The reduction kernels of the REDUCE command (weft/hw/cmd.h), vectorised for the CPU that runs them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/hw/cmd.h"

namespace weft::model {

// Bytes of an element, 0 when the type is unknown or has no reductions here (fp8).
std::size_t dtype_bytes(std::uint32_t dtype);

// out[i] = a[i] (op) b[i] for `elements` elements; pointers are aligned to the element. `out` may be `a` or `b`
// exactly; no other overlap. `divisor` counts for WEFT_AVG only, 0: not divided. False when the type or the operation
// is not offered; then nothing was written.
//
// Integers: sums and products wrap modulo 2^bits; AVG divides the wrapped sum and truncates toward zero.
// f32, f64: one IEEE operation in that type, round to nearest even; AVG adds, then divides.
// f16, bf16: the operation in f32, then one rounding to nearest even. For a sum and a product this is the correctly
// rounded result (f32 has more than twice the bits and two), except for products that are subnormal in bf16. AVG
// divides in f32 before that rounding. NaN: a NaN operand gives a quiet NaN, also for MIN and MAX (as IEEE 754-2019
// minimum and maximum); which payload is unspecified. MIN and MAX of +0 and -0 give the second operand. Subnormals are
// kept.
bool reduce(std::uint32_t dtype, std::uint32_t op, void* out, const void* a, const void* b, std::size_t elements,
            std::uint32_t divisor);

}  // namespace weft::model
