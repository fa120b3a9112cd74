// SPDX-License-Identifier: MIT
// REDUCE, the plain way: one element after the other. Narrow floats are widened to f32 and rounded once a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/hw/cmd.h"

namespace weft::null {

// Bytes of an element, 0: type not offered.
std::size_t element_bytes(std::uint8_t dtype);

// to[i] = one[i] (op) other[i], then divided by `divisor` for WEFT_AVG where that is not 0. `to` may be `one` or
// `other`. False: type or operation not offered.
bool reduce(std::uint8_t dtype, std::uint8_t op, std::uint32_t divisor, void* to, const void* one, const void* other,
            std::size_t elements);

}  // namespace weft::null
