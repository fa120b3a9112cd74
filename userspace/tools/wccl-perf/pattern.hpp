// SPDX-License-Identifier: MIT
// Test data, and what a collective must make of it, by closed forms: no reduction is carried out to get the reference.
//
// With u(i) a hash of the element's index i, r the rank, n the ranks, all in the element type's arithmetic:
//   integers  sum, avg   x = u + r v, v odd                want n u + n (n - 1) / 2 v (mod 2^bits); avg: then divided
//   by n, toward 0
//             prod       x = g^(r + 1), g odd              want g^(n (n + 1) / 2) (mod 2^bits)
//             min, max   x = a + (r + i) mod min(n, 100)   want a, a + min(n, 100) - 1
//   floats    sum, avg   x = b (r + 1) / n, |b| <= 1       want b (n + 1) / 2, / n
//             prod       x = 2^(f (r + 1) c)               want 2^(2 f), c = 4 / (n (n + 1)), |f| <= 1
//             min, max   x = (a + (r + i) mod n) / 8       want the least, the largest
//
// Integers, minima, maxima and what is only moved must be equal. A float's sum has rounding errors: one of the input
// and one an addition, each at most e times the sum of the magnitudes, e half a unit in the last place (2^-11 f16, 2^-8
// bf16, 2^-24 f32, 2^-53 f64). Allowed are n + 1 of them for a sum (avg: / n, and one more), 2 n + 1 for a product, and
// as many of the smallest subnormal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wccl/wccl.h"

namespace weft::perf {

enum class Collective { kAllReduce, kSendRecv, kBarrier };

struct Pattern {
  Collective collective = Collective::kAllReduce;
  wcclDataType_t type = wcclFloat32;
  wcclRedOp_t op = wcclSum;
  std::uint32_t ranks = 1;

  // Elements first .. of rank `rank`'s input, as many as fit `out` (whole elements).
  void input(std::uint32_t rank, std::uint64_t first, std::span<std::byte> out) const;
  // How many elements of rank `rank`'s result, from element `first` on, are wrong.
  std::uint64_t wrong(std::uint32_t rank, std::uint64_t first, std::span<const std::byte> result) const;
};

bool supported(wcclDataType_t type);
std::uint32_t type_bytes(wcclDataType_t type);
const char* type_name(wcclDataType_t type);
const char* op_name(wcclRedOp_t op);

// Rounds to nearest even, as IEEE 754 wants it.
std::uint16_t to_f16(double value);
double from_f16(std::uint16_t bits);
std::uint16_t to_bf16(double value);
double from_bf16(std::uint16_t bits);

// FNV-1a, 64 bits, going on from `hash`.
inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325ull;
std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t hash);

}  // namespace weft::perf
