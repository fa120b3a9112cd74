// SPDX-License-Identifier: MIT
#include "model/overlap.hpp"

#include <algorithm>

namespace weft::ccl::model {

void Overlap::add(std::uint64_t begin, std::uint64_t end, Kind kind) {
  if (begin >= end) return;
  edges_.push_back({begin, 1, kind});
  edges_.push_back({end, -1, kind});
  if (kind == kCopy) copied_ += end - begin;
}

std::uint64_t Overlap::exposed() const {
  std::vector<Edge> edges = edges_;
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.time < b.time; });
  std::uint64_t sum = 0, last = 0;
  std::int64_t running[2] = {};
  for (const Edge& edge : edges) {
    if (running[kCopy] > 0 && running[kWire] == 0) sum += edge.time - last;
    running[edge.kind] += edge.change;
    last = edge.time;
  }
  return sum;
}

}  // namespace weft::ccl::model
