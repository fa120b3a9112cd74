// SPDX-License-Identifier: MIT
// nccl-tests' table, and JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"

namespace weft::perf {

// Of a host NIC, where one carries the data: wcclStats_t's counters, all ranks.
struct Nic {
  std::uint64_t flushes = 0;
  std::uint64_t hits = 0, misses = 0, evictions = 0, invalidations = 0;  // of the registration cache
  std::uint64_t registrations = 0, registration_ns = 0, teardowns = 0, teardown_ns = 0;
  // All of them, to be summed up.
  static constexpr std::uint64_t Nic::* kAll[] = {&Nic::flushes,         &Nic::hits,          &Nic::misses,
                                                  &Nic::evictions,       &Nic::invalidations, &Nic::registrations,
                                                  &Nic::registration_ns, &Nic::teardowns,     &Nic::teardown_ns};
};

// One size, type and reduction, out of place or in place.
struct Row {
  std::string path, transport;
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
  Nic nic;                                            // in the timed loop
  std::optional<double> modelled_us;
  std::uint64_t hash = 0;
};

// A trace of collectives on buffers that come and go, from the first registration on.
struct TraceRow {
  std::string name, path, transport;
  std::uint64_t collectives = 0, bytes = 0;  // payload of each rank, all collectives
  std::uint32_t buffers = 0, steps = 0, reallocations = 0;
  double time_us = 0;  // of the collectives alone
  std::optional<std::uint64_t> wrong;
  Nic nic;
};

struct Summary {
  std::uint32_t ranks = 0;
  std::string accel;  // "tcg", "kvm", "sim", "unknown"; "none": model only
  std::string launcher;
  std::vector<std::string> paths;  // lines: pairs and reason
  std::vector<Row> rows;
  std::vector<TraceRow> traces;
  Nic nic;  // since the communicators' begin
  std::optional<std::uint64_t> event_hash;
  std::string profile;
  std::string profile_text;
  std::string schedule;  // that the model replays
};

// GB/s of `bytes` in `time_us`, and what nccl-tests makes of it for the busiest link.
void set_bandwidth(Row& row, Collective collective, std::uint32_t ranks);

void print_header(const Options& options, const Summary& summary);
void print_line(const Options& options, const Row& out, const Row* in);
void print_trace(const TraceRow& row);
void print_trailer(const Options& options, const Summary& summary);
std::string as_json(const Options& options, const Summary& summary);
std::uint64_t total_wrong(const Summary& summary);

}  // namespace weft::perf
