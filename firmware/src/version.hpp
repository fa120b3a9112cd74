// SPDX-License-Identifier: MIT
#pragma once

#include <stdint.h>

namespace weft::fw {

inline constexpr uint32_t kVersionMajor = 2;
inline constexpr uint32_t kVersionMinor = 0;
inline constexpr uint32_t kVersion = kVersionMajor << 16 | kVersionMinor;  // as weft_fw_header and IDENTIFY have it

}  // namespace weft::fw
