// SPDX-License-Identifier: MIT
// What a walk over all pairs of ranks found: plain data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wccl/wccl.h"

namespace weft::doctor {

// The ways that bytes can be asked to go, best first.
enum class Way { kOnchip, kPeer, kStagedEfa, kStagedTcp };
inline constexpr std::array kWays = {Way::kOnchip, Way::kPeer, Way::kStagedEfa, Way::kStagedTcp};

const char* way_name(Way way);  // "onchip", "peer", "staged/efa", "staged/tcp"
wcclPath_t way_path(Way way);
const char* way_over(Way way);  // config.stagedOver, or NULL
// Which of them a communicator took. `transport`: as wcclStats_t has it.
std::optional<Way> way_of(wcclPath_t path, const std::string& transport);

// Transfers of one size. Times are medians, microseconds; 0: not measured.
struct Sample {
  std::uint64_t bytes = 0;
  double one_way_us = 0;  // half a ping of wcclSend and wcclRecv
  double all_reduce_us = 0;
  std::uint64_t wrong = 0;     // 64-bit words that were looked at and differ
  double registrations = 0;    // with the host NIC, for each one-way transfer, when the buffers had been used before
  double registration_us = 0;  // spent in them, for each one-way transfer
};

double one_way_gbps(const Sample& sample);                     // GB/s, 1e9 bytes
double busbw_gbps(const Sample& sample, std::uint32_t ranks);  // of the all-reduce, as nccl-tests has it

enum class Outcome { kNotTried, kImpossible, kFailed, kDone };
const char* outcome_name(Outcome outcome);

// One communicator: whether it came to be, and what was measured on it.
struct Trial {
  Outcome outcome = Outcome::kNotTried;
  std::string error;  // why it is impossible, what failed, why it was not tried
  wcclPath_t path = wcclPathAuto;
  std::string transport;
  std::string reason;           // wcclCommPath's: why not another
  std::vector<Sample> samples;  // also of a failed one: what was measured before
  // Sums over the ranks. host_copies: between HBM and host DRAM, of each byte on its one way.
  std::optional<double> host_copies;
  std::uint64_t cpu_copies = 0;
  std::uint64_t registrations = 0, registration_ns = 0, teardowns = 0, teardown_ns = 0;
  std::uint64_t hits = 0, misses = 0;
  double first_use_us = 0,
         reuse_us = 0;  // one way of cost_bytes from memory never used before, and again; 0: not measured
  std::uint64_t cost_bytes = 0;
};

struct Node {
  std::string name;
  std::uint32_t ports = 0;
  std::string device;  // "kernel 0000:03:00.0"
  std::string error;   // it did not come, or it left
};

struct Pair {
  std::uint32_t a = 0, b = 0;  // ranks
  Trial automatic;             // what a program gets that asks for nothing; not measured
  std::array<Trial, kWays.size()> ways;
  const Trial& way(Way w) const { return ways[static_cast<std::size_t>(w)]; }
  Trial& way(Way w) { return ways[static_cast<std::size_t>(w)]; }
};

struct Survey {
  std::string command, launcher, accel;  // accel: "tcg", "kvm", "sim", "unknown"
  std::vector<std::uint64_t> sizes;
  std::vector<Node> nodes;  // by rank
  std::vector<Pair> pairs;
  std::optional<Trial> world;  // of 3 ranks and more
  std::string cut_short;       // why the walk ended early
};

}  // namespace weft::doctor
