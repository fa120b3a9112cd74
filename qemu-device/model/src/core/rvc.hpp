// SPDX-License-Identifier: MIT
// The C extension: each 16-bit instruction stands for one 32-bit instruction (RISC-V unprivileged ISA, chapter "C").
#pragma once

#include <cstdint>

namespace weft::model {

// The 32-bit instruction that the RV32C `parcel` (low two bits not 11) stands for; 0, which is itself illegal, when the
// encoding is reserved, belongs to F or D, or to another XLEN.
std::uint32_t expand_compressed(std::uint16_t parcel);

}  // namespace weft::model
