// SPDX-License-Identifier: MIT
#include "launch.hpp"

#include <cstdlib>
#include <optional>
#include <stdexcept>

namespace weft::tools {
namespace {

std::optional<std::string> text(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

std::optional<std::uint32_t> number(const char* name) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  char* end = nullptr;
  const unsigned long n = std::strtoul(value->c_str(), &end, 10);
  if (*end || n > 65535) throw std::runtime_error(std::string(name) + '=' + *value + " is not a number up to 65535");
  return static_cast<std::uint32_t>(n);
}

std::string with_port(const std::string& host, std::uint32_t port = kDefaultPort) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

}  // namespace

std::string first_host(const std::string& list) {
  const std::size_t open = list.find('['), comma = list.find(',');
  if (open == std::string::npos || comma < open) return list.substr(0, comma);
  const std::size_t end = list.find_first_of(",-]", open);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1);
}

namespace {

// A launcher's variables: rank, number of ranks, rank on this machine, ranks on this machine.
struct Variables {
  const char *who, *rank, *size, *local, *local_size;
};
// MPI's first: a job of Slurm or Flux may run mpirun.
constexpr Variables kLaunchers[] = {
    {"weft-vm", "WEFT_RANK", "WEFT_SIZE", nullptr, nullptr},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PALS", "PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
    {"PMIx", "PMIX_RANK", nullptr, nullptr, nullptr},
};

// Where rank 0 listens, where the launcher tells it; "": it does not.
std::string root_of(const std::string& who, std::uint32_t ranks, const char* local_size) {
  if (who == "weft-vm") {
    const auto all = text("WEFT_ADDRS");
    return all ? with_port(all->substr(0, all->find_first_of(", "))) : "";
  }
  if (who == "torchrun") {
    // MASTER_PORT itself is the launcher's own store; ours lies as far from the next job's as theirs do.
    const auto master = text("MASTER_ADDR");
    const auto port = number("MASTER_PORT");
    if (!master) return "";
    return with_port(*master, port ? (*port < 64536 ? *port + 1000 : *port - 1000) : kDefaultPort);
  }
  if (who == "Slurm") {
    auto nodes = text("SLURM_STEP_NODELIST");
    if (!nodes) nodes = text("SLURM_JOB_NODELIST");
    return nodes ? with_port(first_host(*nodes)) : "";
  }
  return local_size && number(local_size).value_or(0) == ranks ? with_port("127.0.0.1") : "";
}

}  // namespace

Launch find_launch() {
  Launch launch;
  std::string half;  // a launcher that tells a rank and not of how many
  for (const Variables& v : kLaunchers) {
    const auto rank = number(v.rank);
    if (!rank) continue;
    const auto ranks = v.size ? number(v.size) : std::nullopt;
    if (!ranks) {
      // A batch script of Slurm's is rank 0 of nothing.
      if (*rank != 0 || std::string(v.who) != "Slurm")
        half = std::string(v.rank) + '=' + std::to_string(*rank) + " is set, but " +
               (v.size ? std::string(v.size) + " is not" : std::string(v.who) + " does not say of how many ranks") +
               ": set WEFT_RANK and WEFT_SIZE, and WCCL_COMM_ID=address:port of rank 0";
      continue;
    }
    if (*ranks == 0 || *rank >= *ranks)
      throw std::runtime_error(std::string(v.rank) + '=' + std::to_string(*rank) + " of " + v.size + '=' +
                               std::to_string(*ranks));
    launch.launcher = v.who;
    launch.rank = *rank;
    launch.ranks = *ranks;
    launch.local_rank = v.local ? number(v.local).value_or(0) : 0;
    if (launch.ranks == 1 || text("WCCL_COMM_ID")) return launch;
    launch.root = root_of(v.who, launch.ranks, v.local_size);
    if (launch.root.empty())
      throw std::runtime_error(launch.launcher + " gives no address of rank 0 (" + v.rank + ", " + v.size +
                               "): set WCCL_COMM_ID=address:port for all ranks");
    return launch;
  }
  if (!half.empty()) throw std::runtime_error(half);
  return launch;
}

}  // namespace weft::tools
