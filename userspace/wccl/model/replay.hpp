// SPDX-License-Identifier: MIT
// The time model: a discrete-event replay of the very steps that the on-chip executor submits.
//
// Each rank has a command processor that dispatches one command after the other, a scoreboard of `window` commands
// fetched in order, a link in each direction a lane, HBM, a copy and a reduce engine. Each is a server with one queue;
// what a step needs of several at once (source HBM, wire, destination HBM) overlaps and ends with the slowest. Time is
// integer picoseconds and ties are broken by order of creation, so a replay is exactly reproducible.
#pragma once

#include <cstdint>
#include <string>

#include "model/profile.hpp"
#include "sched/schedule.hpp"

namespace weft::ccl::model {

struct Request {
  std::uint64_t count = 0;
  std::uint32_t element_bytes = 4;
  bool in_place = false;
  std::uint32_t slice_bytes = 0;  // 0: as the executor chooses, with `entries`
  std::uint32_t entries = 65536;  // of the command queue
};

// Sums over all ranks, with the names of weft/hw/counters.h where there are such.
struct Usage {
  std::uint64_t commands = 0;
  std::uint64_t rdma_ops = 0, rdma_bytes = 0;
  std::uint64_t copy_ops = 0, copy_bytes = 0;
  std::uint64_t reduce_ops = 0, reduce_bytes = 0;
  std::uint64_t hbm_read_bytes = 0, hbm_write_bytes = 0;
  std::uint64_t wire_bytes = 0;  // with framing, as the link's time counts them
  // Busy time of the busiest rank's resource, ns.
  double link_ns = 0, hbm_ns = 0, copy_ns = 0, reduce_ns = 0, processor_ns = 0;
};

struct Result {
  double modelled_us = 0;
  Usage usage;
  std::uint32_t slice_bytes = 0;
  std::uint64_t steps = 0;
};

// One collective from idle to the return of the last rank's wait. Throws std::invalid_argument for a request that does
// not fit, and std::runtime_error when the schedule blocks.
Result replay(const Source& source, const Request& request, const Profile& profile);

}  // namespace weft::ccl::model
