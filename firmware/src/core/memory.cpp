// SPDX-License-Identifier: MIT
// The four functions that a freestanding compiler may call (GCC manual, "Language Standards Supported by GCC").
// Built without the optimisation that would turn them into calls of themselves (CMakeLists.txt).
#include <stddef.h>
#include <stdint.h>

// The bytes are whatever object they belong to.
using Word [[gnu::may_alias]] = uint32_t;

extern "C" {

void* memcpy(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  if (((reinterpret_cast<uintptr_t>(out) | reinterpret_cast<uintptr_t>(in)) & 3) == 0) {
    for (; bytes >= 4; bytes -= 4, out += 4, in += 4) {
      *reinterpret_cast<Word*>(out) = *reinterpret_cast<const Word*>(in);
    }
  }
  for (; bytes != 0; --bytes) *out++ = *in++;
  return to;
}

void* memmove(void* to, const void* from, size_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);
  if (out <= in) {
    for (size_t i = 0; i < bytes; ++i) out[i] = in[i];
  } else {
    for (size_t i = bytes; i != 0; --i) out[i - 1] = in[i - 1];
  }
  return to;
}

void* memset(void* to, int value, size_t bytes) {
  auto* out = static_cast<uint8_t*>(to);
  const uint32_t byte = static_cast<uint8_t>(value);
  if ((reinterpret_cast<uintptr_t>(out) & 3) == 0) {
    for (; bytes >= 4; bytes -= 4, out += 4) *reinterpret_cast<Word*>(out) = byte * 0x01010101u;
  }
  for (; bytes != 0; --bytes) *out++ = static_cast<uint8_t>(byte);
  return to;
}

int memcmp(const void* left, const void* right, size_t bytes) {
  const auto* a = static_cast<const uint8_t*>(left);
  const auto* b = static_cast<const uint8_t*>(right);
  for (size_t i = 0; i < bytes; ++i) {
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  }
  return 0;
}

}  // extern "C"
