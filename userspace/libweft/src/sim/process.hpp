// SPDX-License-Identifier: MIT
// The simulator of this process: one at most, made by weft_sim_start() or by the first device that is opened.
#pragma once

#include <memory>
#include <string>

#include "simulator.hpp"

namespace weft::sim {

// The running one, or a new one with defaults; nullptr with `why` set.
std::shared_ptr<Simulator> process_simulator(std::string& why);
// The running one or nullptr.
std::shared_ptr<Simulator> running_simulator();
// How many devices there are or would be.
std::uint32_t process_devices();

}  // namespace weft::sim
