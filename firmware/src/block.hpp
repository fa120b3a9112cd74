// SPDX-License-Identifier: MIT
// Structures of weft/hw to and from the hardware's 32-bit words, and out of raw payload bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "io.hpp"

namespace weft::fw {

// `bytes` is a multiple of 4, memory is 4-aligned: the core traps on misaligned words, so the compiler must know.
inline void read_words(const Io& io, uint32_t offset, void* to, uint32_t bytes) {
  auto* out = static_cast<uint8_t*>(__builtin_assume_aligned(to, 4));
  for (uint32_t i = 0; i < bytes; i += 4) {
    const uint32_t word = io.read(offset + i);
    __builtin_memcpy(out + i, &word, sizeof(word));
  }
}

inline void write_words(Io& io, uint32_t offset, const void* from, uint32_t bytes) {
  const auto* in = static_cast<const uint8_t*>(__builtin_assume_aligned(from, 4));
  for (uint32_t i = 0; i < bytes; i += 4) {
    uint32_t word = 0;
    __builtin_memcpy(&word, in + i, sizeof(word));
    io.write(offset + i, word);
  }
}

constexpr uint32_t round_up_to_word(uint32_t bytes) { return (bytes + 3) & ~3u; }

// A payload as structure T; the payload buffer is 8-aligned and has room for every T (WEFT_MBOX_PAYLOAD).
template <class T>
T from_payload(const uint8_t* payload) {
  T value;
  __builtin_memcpy(&value, __builtin_assume_aligned(payload, 8), sizeof(value));
  return value;
}

template <class T>
void to_payload(uint8_t* payload, const T& value) {
  __builtin_memcpy(__builtin_assume_aligned(payload, 8), &value, sizeof(value));
}

}  // namespace weft::fw
