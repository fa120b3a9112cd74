// SPDX-License-Identifier: MIT
// One trial on this process's side: make a communicator, measure on it, take it down. All that touches wccl and libweft
// is here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "survey.hpp"
#include "weft/weft.h"

namespace weft::doctor {

// What all members of a trial are told.
struct Order {
  std::vector<std::uint32_t> ranks;  // of the walk; their places here are the communicator's ranks
  std::string id;                    // wcclUniqueId as hexadecimal; empty: all members are in this process
  int path = WCCL_CONFIG_UNDEF;      // wcclConfig_t's
  std::string over;
  std::vector<std::uint64_t> sizes;  // multiples of 8, rising; empty: nothing is measured
  std::uint32_t iterations = 0;      // at most; large sizes take fewer
  double timeout_s = 0;
};

// A rank of the walk that lives in this process.
struct Member {
  std::uint32_t rank = 0;
  weft_device* device = nullptr;
};

// Runs the order for those of its ranks that are among `members`. In the simulator times are
// virtual, and on-chip only. Never throws but
// tools::Interrupted: what fails is in the result.
Trial run_trial(const Order& order, const std::vector<Member>& members, bool simulator);

// The results of a trial's processes as one: sums, the ping of the one that has the first member, the slower
// all-reduce, the failure that says most.
Trial merge(const std::vector<Trial>& parts);

// A fresh id, hexadecimal. Throws std::runtime_error.
std::string make_id();

}  // namespace weft::doctor
