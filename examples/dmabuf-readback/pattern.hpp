// SPDX-License-Identifier: MIT
// Contents that say where they were put: each 8-byte word names its allocation (a tag) and its place in it, so that a
// wrong word tells whose it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace readback {

inline constexpr std::uint64_t kMark = 0x5eedull << 48;
inline constexpr unsigned kTagShift = 36;  // 12 bits of tag, 36 of place: 512 GiB
inline constexpr std::uint64_t kPlaceMask = (std::uint64_t{1} << kTagShift) - 1;

/** `bytes` (a multiple of 8) of allocation `tag`, from byte `offset` (a multiple of 8) of it on. */
inline std::vector<std::byte> seeded(unsigned tag, std::uint64_t offset, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = kMark | std::uint64_t{tag} << kTagShift | ((offset + at) / 8 & kPlaceMask);
    std::memcpy(&out[at], &word, 8);
  }
  return out;
}

struct Difference {
  bool found = false;
  std::uint64_t at = 0;    // byte of the allocation
  std::uint64_t word = 0;  // what lies there

  bool is_seeded() const { return word >> 48 == kMark >> 48; }
  unsigned tag() const { return static_cast<unsigned>(word >> kTagShift & 0xfff); }
  std::uint64_t place() const { return (word & kPlaceMask) * 8; }
  std::string text() const {
    const std::string there = "at byte " + std::to_string(at) + " the NIC sees ";
    if (is_seeded())
      return there + "what was put at byte " + std::to_string(place()) + " of allocation " + std::to_string(tag());
    char hex[32];
    std::snprintf(hex, sizeof(hex), "0x%016llx", static_cast<unsigned long long>(word));
    return there + hex + ", which no test put anywhere";
  }
};

/** The first word that is not allocation `tag`'s, `got` being what lies from byte `offset` of it on. */
inline Difference compare(std::span<const std::byte> got, unsigned tag, std::uint64_t offset) {
  for (std::size_t at = 0; at + 8 <= got.size(); at += 8) {
    const std::uint64_t right = kMark | std::uint64_t{tag} << kTagShift | ((offset + at) / 8 & kPlaceMask);
    std::uint64_t word;
    std::memcpy(&word, &got[at], 8);
    if (word != right) return {true, offset + at, word};
  }
  return {};
}

}  // namespace readback
