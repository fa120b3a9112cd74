// SPDX-License-Identifier: MIT
// The one rule for structures of the C interfaces that start with `uint32_t size`, which the caller sets to sizeof. A
// caller may have been compiled with an older, shorter structure or with a newer, longer one:
//
// * in: what a shorter one lacks is 0. What a longer one has beyond ours must be 0, or the caller asks for what we do
//   not know: -E2BIG.
// * out: no more than the caller has is written. What a longer one has beyond ours becomes 0. `size` stays as the
//   caller set it.
//
// A new field therefore goes to the end, and its 0 means what the library did before there was such a field.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weft {

// Reads the caller's structure. 0, -EINVAL (NULL, or `size` is not set) or -E2BIG.
template <typename Struct>
int read_sized(const Struct* theirs, Struct* ours) {
  static_assert(offsetof(Struct, size) == 0);
  *ours = {};
  if (theirs == nullptr || theirs->size < sizeof(theirs->size)) return -EINVAL;
  const auto* bytes = reinterpret_cast<const unsigned char*>(theirs);
  const std::size_t size = theirs->size;
  const std::size_t known = std::min(size, sizeof(Struct));
  if (std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; })) return -E2BIG;
  std::memcpy(ours, bytes, known);
  ours->size = sizeof(Struct);
  return 0;
}

// Writes the caller's structure. 0 or -EINVAL (NULL, or `size` is not set).
template <typename Struct>
int write_sized(const Struct& ours, Struct* theirs) {
  static_assert(offsetof(Struct, size) == 0);
  constexpr std::size_t kAfterSize = sizeof(theirs->size);
  if (theirs == nullptr || theirs->size < kAfterSize) return -EINVAL;
  auto* to = reinterpret_cast<unsigned char*>(theirs);
  const std::size_t size = theirs->size;
  const std::size_t known = std::min(size, sizeof(Struct));
  std::memcpy(to + kAfterSize, reinterpret_cast<const unsigned char*>(&ours) + kAfterSize, known - kAfterSize);
  std::fill(to + known, to + size, static_cast<unsigned char>(0));
  return 0;
}

}  // namespace weft
