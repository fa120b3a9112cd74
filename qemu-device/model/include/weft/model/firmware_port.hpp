// SPDX-License-Identifier: MIT
// What the firmware, on the RISC-V core or compiled natively, sees of the device: 32-bit words at WEFT_FW_IO.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "weft/hw/fw.h"
#include "weft/hw/regs.h"

namespace weft::model {

// The hardware's side of WEFT_FW_IO; `offset` < WEFT_FW_IO_BYTES, 4-aligned. Unlisted words read 0.
class FirmwareBus {
 public:
  virtual ~FirmwareBus() = default;
  virtual std::uint32_t io_read(std::uint32_t offset) = 0;
  virtual void io_write(std::uint32_t offset, std::uint32_t value) = 0;
};

// A running firmware. It is stepped, and sleeps after it wrote WEFT_FWIO_IDLE until wake() or its next tick.
class Firmware {
 public:
  virtual ~Firmware() = default;
  struct Progress {
    bool idle = false;        // wrote IDLE: nothing to do until wake() or 100 ms later
    bool trapped = false;     // `cause` and `pc` are valid; it will not run again
    std::uint32_t cause = 0;  // mcause
    std::uint32_t pc = 0;
  };
  // At most `instructions` instructions (natively: one pass of the main loop).
  virtual Progress step(std::uint32_t instructions) = 0;
};

struct BootResult {
  weft_boot_error error = WEFT_BOOT_OK;
  std::uint32_t detail = 0;  // WEFT_REG_BOOT_DETAIL
  std::uint32_t image_crc = 0;
  std::unique_ptr<Firmware> firmware;  // set when error is WEFT_BOOT_OK
};

// The boot ROM: checks the image (in the order of enum weft_boot_error) and loads it into a new core.
BootResult boot_image(std::span<const std::byte> image, FirmwareBus& bus);

// The same firmware sources compiled into this program.
std::unique_ptr<Firmware> boot_native(FirmwareBus& bus);

}  // namespace weft::model
