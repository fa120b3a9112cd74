// SPDX-License-Identifier: MIT
// Which rank this process is: from the launcher of weft-vm, torchrun, Open MPI or Slurm.
#pragma once

#include <cstdint>
#include <string>

namespace weft::tools {

inline constexpr std::uint16_t kDefaultPort = 29611;  // of the meeting point, where none is given

struct Launch {
  std::uint32_t rank = 0, ranks = 1;  // of processes
  std::uint32_t local_rank = 0;       // on this machine
  std::string root;                   // "address:port" for WCCL_COMM_ID, or "" when it is set, or with one process
  std::string launcher = "none";
};

// Throws std::runtime_error when the environment contradicts itself.
Launch find_launch();

// First host of a Slurm node list: "node[03-05,9],x" gives "node03".
std::string first_host(const std::string& list);

}  // namespace weft::tools
