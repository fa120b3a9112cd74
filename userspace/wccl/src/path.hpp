// SPDX-License-Identifier: MIT
// The choice of a path: from what each rank found on its machine, the same decision on every rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wccl/wccl.h"

namespace weft::ccl {

// What one rank has. An empty reason means that the path is possible as far as that rank can tell.
struct PathFacts {
  wcclPath_t asked = wcclPathAuto;
  std::string host;
  std::string no_onchip, no_peer, no_staged;
};

struct PathChoice {
  wcclPath_t path = wcclPathAuto;  // wcclPathAuto: none, see `reason`
  std::string reason;              // why this one, and why not those before it
};

// All pairs of a communicator take the same path: one that every rank has. Asked for by hand it is that one or none.
PathChoice choose_path(std::span<const PathFacts> ranks);

// "onchip", "peer", "staged", "auto".
const char* path_name(wcclPath_t path);

}  // namespace weft::ccl
