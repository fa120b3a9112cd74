// SPDX-License-Identifier: MIT
// nccl-tests' table, and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"

namespace weft::perf {

// One size, type and reduction, out of place or in place.
struct Row {
  std::string path;
  std::uint64_t bytes = 0, count = 0;
  wcclDataType_t type = wcclFloat32;
  wcclRedOp_t op = wcclSum;
  bool in_place = false;
  double time_us = 0;
  double algbw = 0, busbw = 0;  // GB/s, 1e9 bytes
  std::optional<std::uint64_t> wrong;
  std::uint64_t host_dram_bytes = 0, cpu_copies = 0;  // in the timed loop, all ranks
  std::uint64_t path_bytes[wcclNumPaths] = {};        // in the timed loop, all ranks
  double doorbells = 0;                               // a collective a rank, counted by the device
  std::optional<double> modelled_us;
  std::uint64_t hash = 0;
};

struct Summary {
  std::uint32_t ranks = 0;
  std::string accel;  // "tcg", "kvm", "sim", "unknown"; "none": model only
  std::string launcher;
  std::vector<std::string> paths;  // lines: pairs and reason
  std::vector<Row> rows;
  std::optional<std::uint64_t> event_hash;
  std::string profile;
  std::string profile_text;
};

// GB/s of `bytes` in `time_us`, and what nccl-tests makes of it for the busiest link.
void set_bandwidth(Row& row, Collective collective, std::uint32_t ranks);

void print_header(const Options& options, const Summary& summary);
void print_line(const Options& options, const Row& out, const Row* in);
void print_trailer(const Options& options, const Summary& summary);
// False with `error` set when the file cannot be written.
bool write_json(const Options& options, const Summary& summary, std::string& error);
std::uint64_t total_wrong(const Summary& summary);

}  // namespace weft::perf
