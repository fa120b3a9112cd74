// SPDX-License-Identifier: MIT
// `wccl-sched surface`: the ratio staged / peer as table, JSON and heat map.
#pragma once

#include <string>

#include "model/surface.hpp"

namespace weft::ccl::tool {

struct SurfaceOptions {
  std::string profile = "dl1", json, svg, command_line;
  bool tcp = false;
  model::SurfaceRequest request;
};

// Returns the exit code; throws std::exception with the reason.
int run_surface(const SurfaceOptions& options);

}  // namespace weft::ccl::tool
