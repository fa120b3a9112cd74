// SPDX-License-Identifier: MIT
// Big-endian fields of packets.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft::model::nic {

static_assert(std::endian::native == std::endian::little, "weft/hw/types.h: little-endian hosts only");

constexpr std::uint16_t swap_bytes(std::uint16_t v) { return __builtin_bswap16(v); }
constexpr std::uint32_t swap_bytes(std::uint32_t v) { return __builtin_bswap32(v); }
constexpr std::uint64_t swap_bytes(std::uint64_t v) { return __builtin_bswap64(v); }

template <std::unsigned_integral T>
T load_be(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return swap_bytes(value);
}

template <std::unsigned_integral T>
void store_be(std::byte* to, T value) {
  value = swap_bytes(value);
  std::memcpy(to, &value, sizeof value);
}

inline std::uint32_t load_be24(const std::byte* from) {
  return std::to_integer<std::uint32_t>(from[0]) << 16 | std::to_integer<std::uint32_t>(from[1]) << 8 |
         std::to_integer<std::uint32_t>(from[2]);
}

inline void store_be24(std::byte* to, std::uint32_t value) {
  to[0] = static_cast<std::byte>(value >> 16);
  to[1] = static_cast<std::byte>(value >> 8);
  to[2] = static_cast<std::byte>(value);
}

}  // namespace weft::model::nic
