// SPDX-License-Identifier: MIT
// The search for a path: every rank looks at one way after the other, all come to the same decision.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "wccl/wccl.h"

namespace weft::ccl {

// What carries bytes on a path: "roce", or the wrapper's name of libfabric's provider.
struct Way {
  wcclPath_t path = wcclPathAuto;
  const char* transport = "";
};

// What one rank asks for.
struct Wish {
  wcclPath_t path = wcclPathAuto;
  std::string staged_over;  // "efa", "tcp", or empty: either
  std::string host;         // its name, for messages
};

struct PathChoice {
  wcclPath_t path = wcclPathAuto;
  std::string transport;
  std::string reason;  // why this one, and why not those before it
};

// All pairs of a communicator take the same path: the first one that every rank can take, in the order on-chip,
// peer-direct, staged over a host NIC, staged over tcp. Asked for by hand it is that one or none.
class PathSearch {
 public:
  // Throws Failure(wcclInvalidUsage) when ranks ask for different things.
  explicit PathSearch(std::vector<Wish> ranks);

  const Way& way() const { return ways_[at_]; }
  // What each rank found in this way; empty: nothing. True: the way is open. False: look at way() again, which is the
  // next one. Throws Failure(wcclInvalidUsage) with all obstacles when there is none left.
  bool answers(std::span<const std::string> obstacles);
  PathChoice choice() const;

 private:
  std::vector<Wish> ranks_;
  std::vector<Way> ways_;
  std::size_t at_ = 0;
  std::string reasons_;
};

// "onchip", "peer", "staged", "auto".
const char* path_name(wcclPath_t path);

}  // namespace weft::ccl
