// SPDX-License-Identifier: MIT
// The mailbox operations: lengths of their payloads, and which fields are 0 in a request. What the other fields may
// hold is for the hardware's tables to say, which do not trust a firmware that the guest supplies.
#pragma once

#include <stdint.h>

#include "error.hpp"
#include "weft/hw/mbox.h"

namespace weft::fw {

// Bytes of a request that are 0: reserved fields and such as only an answer has.
struct ZeroBytes {
  uint8_t offset;
  uint8_t bytes;  // 0: none, the list ends here
};

// One mailbox operation.
struct Operation {
  uint16_t op;             // enum weft_mbox_op
  uint8_t request_bytes;   // exact; kAnyLength: up to WEFT_MBOX_PAYLOAD
  uint8_t response_bytes;  // of a successful answer
  bool table;              // the hardware's tables execute it
  ZeroBytes zero[8];
};

inline constexpr uint8_t kAnyLength = 0xff;

// nullptr: unknown.
const Operation* find_operation(uint16_t op);

// WEFT_ERR_BAD_FIELD when a byte of `payload` that must be 0 is not.
Error check_zero(const Operation& operation, const uint8_t* payload);

}  // namespace weft::fw
