// SPDX-License-Identifier: MIT
// The ratio staged / peer of an all-reduce over (copy rate, overlap). The overlap is not set but results from how the
// schedule is pipelined: from messages of one slice through one slot, where nothing overlaps, to many slices in flight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/replay.hpp"

namespace weft::ccl::model {

// How messages are cut: `pieces` slices each (1.5: two, the second half as large), through `slots` slots.
struct Pipelining {
  std::uint32_t slots = 1;
  double pieces = 1;
};

struct SurfaceRequest {
  std::uint32_t ranks = 2;
  Path staged = Path::kStagedEfa;
  std::vector<std::uint64_t> bytes{32ull << 20, 256ull << 20};
  std::vector<double> copy_GBps{2, 2.5, 3, 3.6, 4.3, 5, 6.25, 8, 10, 12.5, 16};  // both directions
  std::vector<Pipelining> pipelinings{{1, 1},    {8, 1.05}, {8, 1.1}, {8, 1.2}, {8, 1.35}, {8, 1.5},
                                      {8, 1.75}, {8, 2},    {8, 3},   {8, 4},   {8, 8},    {8, 16}};
};

struct SurfacePoint {
  std::uint64_t bytes = 0;
  double copy_GBps = 0;
  double effective_GBps = 0;  // no more than PCIe lets through
  Pipelining pipelining;
  std::uint32_t slice_bytes = 0;
  double overlap = 0;
  double peer_us = 0, staged_us = 0;
  double ratio = 0;
  bool consistent = false;      // with what is published for this size
  bool consistent_all = false;  // this copy rate and pipelining with what is published for all sizes
};

// In the order of bytes, pipelinings, copy rates; compared with what the profile says is published. Throws as replay().
std::vector<SurfacePoint> surface(const SurfaceRequest& request, const Profile& profile);

}  // namespace weft::ccl::model
