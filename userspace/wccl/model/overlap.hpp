// SPDX-License-Identifier: MIT
// How much of the time of a rank's copies is hidden behind its wire, from when each was served.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::ccl::model {

class Overlap {
 public:
  // Served from `begin` to `end`, in any order; times are of any unit.
  void copy(std::uint64_t begin, std::uint64_t end) { add(begin, end, kCopy); }
  void wire(std::uint64_t begin, std::uint64_t end) { add(begin, end, kWire); }

  std::uint64_t copied() const { return copied_; }  // the copies' times, summed
  // Time in which a copy runs and the wire, in either direction, does not: what copies add to the collective.
  std::uint64_t exposed() const;

 private:
  enum Kind : std::uint8_t { kCopy, kWire };
  struct Edge {
    std::uint64_t time;
    std::int8_t change;
    Kind kind;
  };
  void add(std::uint64_t begin, std::uint64_t end, Kind kind);

  std::vector<Edge> edges_;
  std::uint64_t copied_ = 0;
};

}  // namespace weft::ccl::model
