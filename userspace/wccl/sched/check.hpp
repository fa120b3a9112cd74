// SPDX-License-Identifier: MIT
// The checker: proves of a schedule, by symbolic execution, that it computes its collective on any data, cannot
// deadlock with any amount of buffering, matches every message and has no race between ops of a rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sched/schedule.hpp"

namespace weft::ccl {

enum class Fault : std::uint8_t {
  kStructure,  // an op by itself is malformed, or the chunk counts are not the collective's
  kMatch,      // a message has one end, or its ends differ in size or part
  kOrder,      // steps do not order dependencies and messages: a deadlock is possible
  kRace,       // two ops touch a chunk, one writes it, and no dependency orders them
  kValue,      // the result is not the collective's
};
std::string_view fault_name(Fault fault);

struct Finding {
  Fault fault;
  std::uint32_t rank = 0;
  std::uint32_t op = 0;  // UINT32_MAX: of the rank as a whole
  std::string text;
};

struct Report {
  std::vector<Finding> findings;  // at most `limit`
  std::uint64_t ops = 0;
  std::uint64_t messages = 0;
  std::uint64_t message_chunks = 0;
  bool ok() const { return findings.empty(); }
};

// Stops after the first kind of fault that it finds, and after `limit` findings. Values are sets of (rank, input
// chunk); a reduction must join disjoint ones, and be FINAL exactly when it completes the set. A schedule with
// WCCL_SCHED_IN_PLACE is executed in place as well.
Report check(const Source& source, std::size_t limit = 16);

}  // namespace weft::ccl
