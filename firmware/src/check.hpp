// SPDX-License-Identifier: MIT
// What a mailbox payload must be before the hardware's tables see it. Pure functions: no hardware, no state.
#pragma once

#include <stdint.h>

#include "error.hpp"
#include "weft/hw/mbox.h"

namespace weft::fw {

// The device's sizes, read once at start.
struct Limits {
  uint32_t ports = 0;
  uint32_t contexts = 0;
  uint32_t regions = 0;
  uint32_t vectors = 0;
  uint64_t hbm_bytes = 0;
};

// One mailbox operation.
struct Operation {
  uint16_t op;                                                   // enum weft_mbox_op
  uint8_t request_bytes;                                         // exact; kAnyLength: up to WEFT_MBOX_PAYLOAD
  uint8_t response_bytes;                                        // of a successful answer
  Error (*check)(const Limits& limits, const uint8_t* payload);  // nullptr: nothing to check
  bool table;                                                    // the hardware's tables execute it
};

inline constexpr uint8_t kAnyLength = 0xff;

// nullptr: unknown.
const Operation* find_operation(uint16_t op);

}  // namespace weft::fw
