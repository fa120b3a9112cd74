// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pattern.hpp"

namespace weft::perf {

struct Options {
  std::string command_line;
  std::uint64_t min_bytes = 32ull << 20, max_bytes = 32ull << 20;
  std::uint64_t step_bytes = 1ull << 20;
  std::uint32_t factor = 0;   // 0: add step_bytes
  std::uint32_t devices = 1;  // of this process
  std::uint32_t iterations = 20, warmup = 5;
  bool check = true;
  bool in_place = true;  // also
  Collective collective = Collective::kAllReduce;
  std::vector<wcclRedOp_t> ops{wcclSum};
  std::vector<wcclDataType_t> types{wcclFloat32};
  std::string json;
  bool hash = false;
  std::string device;
  double timeout_s = 0;

  bool sim = false;
  std::uint32_t ranks = 2;  // of --sim and --dry
  std::uint64_t seed = 1;
  double loss = 0;
  std::uint32_t ports = 1;
  std::uint64_t hbm = 0;  // 0: as much as is needed
  std::string event_log, capture, firmware;

  std::string trace;  // "training", "loop" or none

  std::string model;
  std::string path = "onchip";  // of --dry
  bool dry = false;
  std::uint32_t lanes = 0;

  std::vector<std::uint64_t> sizes() const;
};

// Nothing: the program ends with `exit_code` (help was printed, or an error).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace weft::perf
