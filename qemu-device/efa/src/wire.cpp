// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <libdeflate.h>

namespace weft::efa::wire {

std::uint32_t checksum(std::span<const std::byte, kHeadBytes> heads, std::span<const std::byte> payload) {
  const std::uint32_t crc = libdeflate_crc32(0, heads.data(), heads.size() - sizeof(Head::check));
  return payload.empty() ? crc : libdeflate_crc32(crc, payload.data(), payload.size());
}

}  // namespace weft::efa::wire
