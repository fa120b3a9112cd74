// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace weft::doctor {

// What the figures were taken on.
std::string stamp(const std::string& accel);

}  // namespace weft::doctor
