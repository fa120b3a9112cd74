// SPDX-License-Identifier: MIT
// Seeded random numbers: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#pragma once

#include <cstdint>
#include <cstring>

namespace weft::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

  void fill(void* buffer, std::size_t bytes) {
    auto* to = static_cast<unsigned char*>(buffer);
    while (bytes > 0) {
      const std::uint64_t word = next();
      const std::size_t part = bytes < sizeof(word) ? bytes : sizeof(word);
      std::memcpy(to, &word, part);
      to += part;
      bytes -= part;
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace weft::sim
