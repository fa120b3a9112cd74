// SPDX-License-Identifier: MIT
// Messages between the hub and the ranks: a head of 24 bytes and a payload, little-endian.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::ccl::wire {

inline constexpr std::uint32_t kMagic = 0x544f4257;  // "WBOT"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint32_t kPayloadMax = 64u << 20;

enum class Type : std::uint16_t {
  kHello = 1,    // rank -> hub; a: rank, b: ranks, c: time limit in ms; payload: nonce
  kGather = 2,   // rank -> hub; a: round; payload: the rank's bytes
  kTable = 3,    // hub -> ranks; a: round; payload: for each rank u32 length, bytes
  kMessage = 4,  // a: destination (to the hub) or source (from it); payload
  kFailed = 5,   // a: culprit; payload: text; to the hub and from it
  kRefused = 6,  // hub -> rank: text; the communicator does not come about
  kBye = 7,      // rank -> hub: ends in good order
  kSuspect = 8,  // rank -> hub; a: suspected rank, b: definite; payload: u64 order, text
};

struct Head {
  std::uint32_t magic = kMagic;
  std::uint16_t version = kVersion;
  Type type = Type::kHello;
  std::uint32_t length = 0;  // of the payload
  std::uint32_t a = 0, b = 0, c = 0;
};
static_assert(sizeof(Head) == 24);

inline bool valid(const Head& head) {
  return head.magic == kMagic && head.version == kVersion && head.length <= kPayloadMax;
}

std::vector<std::byte> pack(Type type, std::uint32_t a, std::uint32_t b, std::span<const std::byte> payload,
                            std::uint32_t c = 0);

// Two suspicions that come within this belong together.
inline constexpr std::chrono::milliseconds kGrace{500};

inline std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
inline std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace weft::ccl::wire
