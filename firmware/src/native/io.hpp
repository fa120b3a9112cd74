// SPDX-License-Identifier: MIT
// Hardware access when the firmware runs inside the model's process. src/core/io.hpp is its twin.
#pragma once

#include <stdint.h>

#include "weft/hw/fw.h"
#include "weft/model/firmware_port.hpp"

namespace weft::fw {

class Io {
 public:
  explicit Io(model::FirmwareBus& bus) : bus_(&bus) {}

  uint32_t read(uint32_t offset) const { return bus_->io_read(offset); }
  void write(uint32_t offset, uint32_t value) {
    if (offset == WEFT_FWIO_IDLE) idle_ = true;
    bus_->io_write(offset, value);
  }

  // Whether IDLE was written since the last call.
  bool take_idle() {
    const bool idle = idle_;
    idle_ = false;
    return idle;
  }

 private:
  model::FirmwareBus* bus_;
  bool idle_ = false;
};

}  // namespace weft::fw
