// SPDX-License-Identifier: MIT
// Algorithms as a table: each entry computes the ops of any rank of a schedule, without storing them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sched/schedule.hpp"

namespace weft::ccl {

struct AlgorithmParams {
  std::uint32_t ranks = 1;
  std::uint32_t lanes = 1;  // parallel connections between two ranks; one stripe of the data goes over each
  std::uint32_t root = 0;   // SENDRECV: distance, taken modulo the ranks
};

struct Algorithm {
  wccl_sched_collective collective;
  std::string_view name;
  std::string_view text;
  // Throws std::invalid_argument for parameters that the format cannot hold.
  std::unique_ptr<Source> (*make)(const AlgorithmParams& params);
};

// In order of preference for each collective.
std::span<const Algorithm> algorithms();
// nullptr: there is none of that name ("" takes the first for the collective).
const Algorithm* find_algorithm(wccl_sched_collective collective, std::string_view name = {});

}  // namespace weft::ccl
