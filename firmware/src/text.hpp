// SPDX-License-Identifier: MIT
// Text of a log record: built piece by piece, cut at its end, zero-filled.
#pragma once

#include <stdint.h>

#include "weft/hw/mbox.h"

namespace weft::fw {

class Text {
 public:
  Text& add(const char* text);
  Text& add(uint32_t number);      // decimal
  Text& add_hex(uint32_t number);  // 0x and 8 digits

  static constexpr uint32_t kRoom = sizeof(weft_log_record::text);
  const uint8_t (&bytes() const)[kRoom] { return bytes_; }

 private:
  void put(char c);

  uint8_t bytes_[kRoom] = {};
  uint32_t used_ = 0;
};

}  // namespace weft::fw
