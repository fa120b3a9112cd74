// SPDX-License-Identifier: MIT
#include "error.hpp"

namespace weft::fw {

const char* error_name(Error error) {
  switch (error) {
#define WEFT_ERROR_NAME(name, value, text) \
  case WEFT_ERR_##name:                    \
    return #name;
    WEFT_ERRORS(WEFT_ERROR_NAME)
#undef WEFT_ERROR_NAME
  }
  return "?";
}

}  // namespace weft::fw
