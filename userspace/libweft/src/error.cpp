// SPDX-License-Identifier: MIT
#include "error.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>

#include "weft/weft.h"

namespace weft::front {
namespace {

// Fixed room, so that keeping a text never fails.
thread_local std::array<char, 512> last_error{};

}  // namespace

int fail(int error, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(last_error.data(), last_error.size(), format, arguments);
  va_end(arguments);
  return -error;
}

}  // namespace weft::front

const char* weft_last_error(void) { return weft::front::last_error.data(); }

const char* weft_error_text(uint32_t error) {
  switch (error) {
#define WEFT_ERROR_TEXT(name, value, text) \
  case value:                              \
    return text;
    WEFT_ERRORS(WEFT_ERROR_TEXT)
#undef WEFT_ERROR_TEXT
    default:
      return "unknown error code";
  }
}
