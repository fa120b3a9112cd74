// SPDX-License-Identifier: MIT
// The calling thread's last failure, as the table's error() gives it.
#pragma once

#include <string>

namespace weft::ofi {

// Keeps the text and returns -error. `error` is positive, an errno value or one of libfabric's own (FI_EOTHER and
// above), which becomes EIO.
[[gnu::format(printf, 2, 3)]] int fail(int error, const char* format, ...);
const char* last_error();

// An errno value for one of libfabric's.
int errno_of(int error);

}  // namespace weft::ofi
