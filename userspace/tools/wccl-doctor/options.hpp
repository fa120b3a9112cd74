// SPDX-License-Identifier: MIT
// The command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "judge.hpp"

namespace weft::doctor {

struct Options {
  std::vector<std::uint64_t> sizes;  // rising, multiples of 8
  std::uint32_t iterations = 8;
  double timeout_s = 20;  // of each wait
  double limit_s = 900;   // of the walk
  Criteria criteria;
  std::string json, svg;
  std::string device;
  bool sim = false;
  std::uint32_t ranks = 2, ports = 1;  // --sim
  std::uint64_t seed = 1;
  std::string command_line;
};

// Nothing: the process ends with exit_code.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace weft::doctor
