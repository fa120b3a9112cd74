// SPDX-License-Identifier: MIT
// Packet sequence numbers: 24 bits that wrap (IBTA volume 1, section 9.7.2).
#pragma once

#include <cstdint>

namespace weft::model::nic {

inline constexpr std::uint32_t kPsnMask = 0xffffff;

// a - b on the circle: negative when a is behind b.
constexpr std::int32_t psn_diff(std::uint32_t a, std::uint32_t b) {
  return static_cast<std::int32_t>((a - b) << 8) >> 8;
}

constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t n) { return (psn + n) & kPsnMask; }

}  // namespace weft::model::nic
