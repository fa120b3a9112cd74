// SPDX-License-Identifier: MIT
// What the peer program tells the test.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::ofi::test {

inline constexpr std::size_t kPeerBytes = 4u << 20;

struct Card {
  unsigned char address[128];
  std::uint32_t address_bytes;
  std::uint64_t memory, key;
};

}  // namespace weft::ofi::test
