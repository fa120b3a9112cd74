// SPDX-License-Identifier: MIT
// The firmware image as the boot ROM sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/hw/fw.h"
#include "weft/hw/regs.h"

namespace weft::model {

struct ImageCheck {
  weft_boot_error error = WEFT_BOOT_OK;
  std::uint32_t detail = 0;  // WEFT_REG_BOOT_DETAIL
  std::uint32_t crc32 = 0;   // computed; valid when error is WEFT_BOOT_OK or WEFT_BOOT_CRC
  weft_fw_header header{};   // valid from WEFT_BOOT_MAGIC on
};

// Checks in the order of enum weft_boot_error, from WEFT_BOOT_SHORT to WEFT_BOOT_CRC.
ImageCheck check_image(std::span<const std::byte> image);

// CRC-32 (zlib's) of the image with the header's crc32 field taken as 0; the image holds at least the header.
std::uint32_t image_crc32(std::span<const std::byte> image);

// What went wrong, for people.
std::string_view boot_error_text(weft_boot_error error);

}  // namespace weft::model
