// SPDX-License-Identifier: MIT
#include "control.hpp"

extern "C" [[noreturn]] void weft_main() {
  weft::fw::Control control{weft::fw::Io()};
  for (;;) control.pass();
}
