// SPDX-License-Identifier: MIT
// A backend that speaks no version that this library knows.
#include <cstdint>

#include "weft/backend.h"

const weft_backend* weft_backend_entry(std::uint32_t) { return nullptr; }
