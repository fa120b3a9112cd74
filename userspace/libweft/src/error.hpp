// SPDX-License-Identifier: MIT
// The calling thread's last failure, as weft_last_error() gives it.
#pragma once

namespace weft::front {

// Keeps the text for weft_last_error() and returns -error, so that a call site reads `return fail(ENODEV, "...", ...)`.
// `error` is a positive errno value.
[[gnu::format(printf, 2, 3)]] int fail(int error, const char* format, ...);

}  // namespace weft::front
