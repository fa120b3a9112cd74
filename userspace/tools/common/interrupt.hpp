// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM end a run in good order.
#pragma once

#include <stdexcept>

namespace weft::tools {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

// A second signal ends the process at once, with code 130.
void catch_signals();
// One came.
bool interrupted();

}  // namespace weft::tools
