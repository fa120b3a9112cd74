// SPDX-License-Identifier: MIT
#include "core/image.hpp"

#include <libdeflate.h>

#include <cstring>

namespace weft::model {

std::uint32_t image_crc32(std::span<const std::byte> image) {
  constexpr std::size_t kField = offsetof(weft_fw_header, crc32);
  constexpr std::size_t kBehind = kField + sizeof(weft_fw_header::crc32);
  constexpr std::byte kZero[sizeof(weft_fw_header::crc32)] = {};
  std::uint32_t crc = libdeflate_crc32(0, image.data(), kField);
  crc = libdeflate_crc32(crc, kZero, sizeof(kZero));
  return libdeflate_crc32(crc, image.data() + kBehind, image.size() - kBehind);
}

ImageCheck check_image(std::span<const std::byte> image) {
  ImageCheck check;
  const auto refuse = [&check](weft_boot_error error, std::uint32_t detail) {
    check.error = error;
    check.detail = detail;
    return check;
  };
  const auto clamped = static_cast<std::uint32_t>(image.size() > UINT32_MAX ? UINT32_MAX : image.size());
  weft_fw_header& header = check.header;
  if (image.size() <= sizeof(header) || image.size() > sizeof(header) + WEFT_FW_RAM_BYTES) {
    return refuse(WEFT_BOOT_SHORT, clamped);
  }
  std::memcpy(&header, image.data(), sizeof(header));
  if (header.magic != WEFT_FW_MAGIC) return refuse(WEFT_BOOT_MAGIC, header.magic);
  if (header.header_version != WEFT_FW_HEADER_VERSION) return refuse(WEFT_BOOT_HEADER, header.header_version);
  if (header.header_bytes != sizeof(header)) {  // the whole word, so that it differs from a version
    return refuse(WEFT_BOOT_HEADER, static_cast<std::uint32_t>(header.header_bytes) << 16 | header.header_version);
  }
  if (header.image_bytes != image.size()) return refuse(WEFT_BOOT_SIZE, header.image_bytes);
  if (header.hw_version >> 16 != WEFT_HW_MAJOR) return refuse(WEFT_BOOT_ABI, header.hw_version);

  const auto body = static_cast<std::uint32_t>(image.size() - sizeof(header));
  const std::uint32_t offset = header.load - WEFT_FW_RAM;  // wraps to a large number below the RAM
  if (offset % 4 != 0 || offset > WEFT_FW_RAM_BYTES - body) return refuse(WEFT_BOOT_LAYOUT, header.load);
  if (header.entry % 2 != 0 || header.entry - header.load >= body) return refuse(WEFT_BOOT_LAYOUT, header.entry);

  check.crc32 = image_crc32(image);
  if (check.crc32 != header.crc32) return refuse(WEFT_BOOT_CRC, check.crc32);
  return check;
}

std::string_view boot_error_text(weft_boot_error error) {
  switch (error) {
    case WEFT_BOOT_OK:
      return "image is good";
    case WEFT_BOOT_DMA:
      return "image is not readable at the given address";
    case WEFT_BOOT_SHORT:
      return "size is not more than the header's, or above the core's memory";
    case WEFT_BOOT_MAGIC:
      return "not a Weft firmware image (magic)";
    case WEFT_BOOT_HEADER:
      return "header version or length unknown";
    case WEFT_BOOT_SIZE:
      return "size in the header differs from the image's (truncated or padded)";
    case WEFT_BOOT_ABI:
      return "built for another major version of the hardware";
    case WEFT_BOOT_LAYOUT:
      return "load address or entry outside the core's memory";
    case WEFT_BOOT_CRC:
      return "CRC is wrong (damaged)";
    case WEFT_BOOT_TRAP:
      return "the core trapped";
    case WEFT_BOOT_SILENT:
      return "the firmware did not report within its time";
  }
  return "unknown boot error";
}

}  // namespace weft::model
