// SPDX-License-Identifier: MIT
// Copies, fills and reductions: a command is worked in slices, so that no command holds up a step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "counters.hpp"
#include "region_table.hpp"
#include "weft/hw/cmd.h"

namespace weft::model {

class DataMover {
 public:
  // What one slice did.
  struct Slice {
    Error error = WEFT_ERR_OK;
    bool finished = false;    // or failed
    std::uint64_t bytes = 0;  // of the result
  };

  DataMover(RegionTable& memory, Counters& counters);

  // Works at most about `budget` bytes of a COPY, FILL or REDUCE of context `context` whose first `done` bytes of the
  // result are there (counted from the end where COPY runs backwards), at least one element; `divisor` is the
  // extension's arg16. Regions are looked up for every slice: one that was destroyed in between ends the command.
  Slice copy(std::uint32_t context, const weft_cmd& cmd, std::uint64_t done, std::uint64_t budget);
  Slice fill(std::uint32_t context, const weft_cmd& cmd, std::uint64_t done, std::uint64_t budget);
  Slice reduce(std::uint32_t context, const weft_cmd& cmd, std::uint32_t divisor, std::uint64_t done,
               std::uint64_t budget);

 private:
  // Through a buffer goes what is not in HBM on both sides.
  static constexpr std::size_t kBounce = WEFT_ABI_MAP_MAX;
  struct alignas(64) Bounce {
    std::array<std::byte, kBounce> bytes;
  };

  RegionTable& memory_;
  Counters& counters_;
  std::unique_ptr<std::array<Bounce, 3>> bounce_;
};

}  // namespace weft::model
