// SPDX-License-Identifier: MIT
#include "text.hpp"

namespace weft::fw {

void Text::put(char c) {
  if (used_ < kRoom - 1) bytes_[used_++] = static_cast<uint8_t>(c);  // the last byte stays 0
}

Text& Text::add(const char* text) {
  for (; *text != 0; ++text) put(*text);
  return *this;
}

Text& Text::add(uint32_t number) {
  char digits[10];
  uint32_t count = 0;
  do {
    digits[count++] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  while (count != 0) put(digits[--count]);
  return *this;
}

Text& Text::add_hex(uint32_t number) {
  add("0x");
  for (int shift = 28; shift >= 0; shift -= 4) put("0123456789abcdef"[number >> shift & 15]);
  return *this;
}

}  // namespace weft::fw
