// SPDX-License-Identifier: MIT
// Hardware access on the core: WEFT_FW_IO is memory-mapped. src/native/io.hpp is its twin.
#pragma once

#include <stdint.h>

#include "weft/hw/fw.h"

namespace weft::fw {

class Io {
 public:
  uint32_t read(uint32_t offset) const { return *reinterpret_cast<const volatile uint32_t*>(WEFT_FW_IO + offset); }
  void write(uint32_t offset, uint32_t value) { *reinterpret_cast<volatile uint32_t*>(WEFT_FW_IO + offset) = value; }
};

}  // namespace weft::fw
