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

Launch find_launch() {
  Launch launch;
  const bool agreed = text("WCCL_COMM_ID").has_value();
  const auto take = [&](const char* who, const char* rank, const char* size, const char* local) {
    const auto r = number(rank), n = number(size);
    if (!r || !n) return false;
    if (*n == 0 || *r >= *n)
      throw std::runtime_error(std::string(rank) + '=' + std::to_string(*r) + " of " + size + '=' + std::to_string(*n));
    launch.launcher = who;
    launch.rank = *r;
    launch.ranks = *n;
    launch.local_rank = local ? number(local).value_or(0) : 0;
    return true;
  };
  if (take("weft-vm", "WEFT_RANK", "WEFT_SIZE", nullptr)) {
    const auto all = text("WEFT_ADDRS");
    if (!agreed && launch.ranks > 1) {
      if (!all) throw std::runtime_error("WEFT_RANK and WEFT_SIZE are set, but neither WEFT_ADDRS nor WCCL_COMM_ID");
      launch.root = with_port(all->substr(0, all->find_first_of(", ")));
    }
  } else if (take("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK")) {
    if (!agreed && launch.ranks > 1) {
      if (number("OMPI_COMM_WORLD_LOCAL_SIZE").value_or(0) != launch.ranks) {
        throw std::runtime_error(
            "Open MPI gives no address of rank 0: set WCCL_COMM_ID=address:port for all ranks (mpirun -x)");
      }
      launch.root = with_port("127.0.0.1");
    }
  } else if (take("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK")) {
    if (!agreed && launch.ranks > 1) {
      const auto master = text("MASTER_ADDR");
      if (!master) throw std::runtime_error("RANK and WORLD_SIZE are set, but neither MASTER_ADDR nor WCCL_COMM_ID");
      // MASTER_PORT itself is the launcher's own store; ours lies as far from the next job's as theirs do.
      const auto port = number("MASTER_PORT");
      launch.root = with_port(*master, port ? (*port < 64536 ? *port + 1000 : *port - 1000) : kDefaultPort);
    }
  } else if (take("Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")) {
    if (!agreed && launch.ranks > 1) {
      auto nodes = text("SLURM_STEP_NODELIST");
      if (!nodes) nodes = text("SLURM_JOB_NODELIST");
      if (!nodes) throw std::runtime_error("Slurm gives no node list: set WCCL_COMM_ID=address:port");
      launch.root = with_port(first_host(*nodes));
    }
  }
  return launch;
}

}  // namespace weft::tools
