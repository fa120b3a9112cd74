// SPDX-License-Identifier: MIT
// The one error type of the firmware: enum weft_error, as the mailbox carries it.
#pragma once

#include "weft/hw/error.h"

namespace weft::fw {

using Error = weft_error;

// The name in weft/hw/error.h, such as "BAD_FIELD"; "?" for a value that is not listed.
const char* error_name(Error error);

}  // namespace weft::fw

#define WEFT_RETURN_IF_ERROR(expression)                \
  do {                                                  \
    const ::weft::fw::Error weft_error_ = (expression); \
    if (weft_error_ != WEFT_ERR_OK) return weft_error_; \
  } while (false)

// For checks: `condition` holds, or the caller gets `error`.
#define WEFT_REQUIRE(condition, error) \
  do {                                 \
    if (!(condition)) return (error);  \
  } while (false)
