// SPDX-License-Identifier: MIT
// Which backend a device specification means.
#pragma once

#include <string>

#include "weft/backend.h"

namespace weft {

namespace null {
const weft_backend* backend();
}
namespace sim {
const weft_backend* backend();
}
namespace kernel {
const weft_backend* backend();
}

namespace front {

struct Specification {
  std::string backend;   // "kernel", "sim", "null" or the path of a shared object
  std::string argument;  // what follows ':', or ""
};

// "kernel:1" -> {"kernel", "1"}; "./my.so:x=1" -> {"./my.so", "x=1"}. A shared object is told by ".so" at its end.
Specification parse(const std::string& text);

// The table, or nullptr with the thread's last error set and `error` a negative errno value.
const weft_backend* find_backend(const std::string& name, int& error);

}  // namespace front
}  // namespace weft
