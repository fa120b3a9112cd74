// SPDX-License-Identifier: MIT
// Settings from the environment, read once a communicator. A value that is not understood is an error that names it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "wccl/wccl.h"

namespace weft::ccl {

std::optional<std::string> env_text(const char* name);
// Decimal, optionally with K, M or G (1024). Throws Failure(wcclInvalidArgument) outside [least, most].
std::uint64_t env_number(const char* name, std::uint64_t fallback, std::uint64_t least, std::uint64_t most);

struct Settings {
  std::chrono::milliseconds timeout{30000};
  wcclPath_t path = wcclPathAuto;
  std::uint32_t slot_bytes = 0;  // 0: what suits the path
  std::uint32_t slots = 4;
  std::uint32_t queue_entries = 65536;
  std::uint32_t lanes = 0;                      // 0: one a port, at most 4
  std::uint8_t rc_timeout = 0, rc_retries = 0;  // 0: the device's
  std::string staged_over;                      // "efa", "tcp"; empty: either
  std::uint64_t mr_cache_entries = 1024;        // 0: no cache
  std::uint64_t mr_cache_bytes = 16ull << 30;
  std::string algorithm;
  std::string schedule_file;
  int verbosity = 0;  // 1: warnings, 2: information

  static Settings from_environment();
  // Throws Failure for what is neither; `name` says where it comes from.
  void set_staged_over(const std::string& value, const char* name);
};

}  // namespace weft::ccl
