// SPDX-License-Identifier: MIT
// The time model: a discrete-event replay of the very steps that the executors carry out, by each path.
//
// Each rank has a command processor that dispatches one command after the other, a scoreboard of `window` commands
// fetched in order, a link in each direction a lane, HBM, a copy and a reduce engine. Each is a server with one queue;
// what a step needs of several at once (source HBM, wire, destination HBM) overlaps and ends with the slowest. Time is
// integer picoseconds and ties are broken by order of creation, so a replay is exactly reproducible.
//
// Over a host NIC a rank also has a thread on the host that takes each step in turn, its part of the NIC in each
// direction, and the accelerator's PCIe link in each direction:
//   peer     the NIC reads HBM and writes HBM over PCIe; a receive waits for a flush before the device takes the slice
//   staged   the device copies to host DRAM (PCIe up), the NIC carries the slice from there to the peer's host DRAM,
//            from where the device's COPY or REDUCE reads it (PCIe down). The copy waits for a slot on its own side,
//            the NIC for the copy and for the peer's credit
//   staged over tcp   as staged, and a core of each host copies each byte between memory and socket
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/profile.hpp"
#include "sched/schedule.hpp"

namespace weft::ccl::model {

enum class Path : std::uint8_t { kOnchip, kPeer, kStagedEfa, kStagedTcp };
inline constexpr std::array kPaths = {Path::kOnchip, Path::kPeer, Path::kStagedEfa, Path::kStagedTcp};
// "onchip", "peer", "staged-efa", "staged-tcp".
std::string_view path_name(Path path);
std::optional<Path> find_path(std::string_view name);

struct Request {
  std::uint64_t count = 0;
  std::uint32_t element_bytes = 4;
  bool in_place = false;
  std::uint32_t slice_bytes = 0;  // 0: as the executor chooses, with `entries`
  std::uint32_t entries = 65536;  // of the command queue
  std::uint32_t slots = 0;        // 0: the profile's
  Path path = Path::kOnchip;
};

// Sums over all ranks, with the names of weft/hw/counters.h where there are such.
struct Usage {
  std::uint64_t commands = 0;
  std::uint64_t rdma_ops = 0, rdma_bytes = 0;
  std::uint64_t copy_ops = 0, copy_bytes = 0;
  std::uint64_t reduce_ops = 0, reduce_bytes = 0;
  std::uint64_t hbm_read_bytes = 0, hbm_write_bytes = 0;
  std::uint64_t wire_bytes = 0;  // with framing, as the link's time counts them
  // Over a host NIC. host_*: payload that devices and NICs moved to and from host DRAM; peer_*: of HBM by NICs.
  std::uint64_t nic_ops = 0, nic_bytes = 0;
  std::uint64_t host_payload_read_bytes = 0, host_payload_write_bytes = 0;
  std::uint64_t peer_payload_read_bytes = 0, peer_payload_write_bytes = 0;
  std::uint64_t pcie_up_bytes = 0, pcie_down_bytes = 0;  // payload over the accelerators' links
  std::uint64_t cpu_copy_bytes = 0, flushes = 0, host_steps = 0;
  // Copies to and from host DRAM: their time, and the time of it in which the rank's wire was idle, ns.
  double host_copy_ns = 0, host_copy_exposed_ns = 0;
  // Busy time of the busiest rank's resource, ns; the link is the host NIC's part where that carries the data.
  double link_ns = 0, hbm_ns = 0, copy_ns = 0, reduce_ns = 0, processor_ns = 0, pcie_ns = 0, host_ns = 0, cpu_ns = 0;
};

struct Result {
  double modelled_us = 0;
  Usage usage;
  std::uint32_t slice_bytes = 0;
  std::uint32_t slots = 0;
  std::uint64_t steps = 0;
  // The share of the copies' time that is hidden behind the wire, of all ranks; nothing without such copies.
  std::optional<double> overlap() const {
    if (usage.host_copy_ns <= 0) return std::nullopt;
    return 1 - usage.host_copy_exposed_ns / usage.host_copy_ns;
  }
};

// One collective from idle to the return of the last rank's wait. Throws std::invalid_argument for a request that does
// not fit, and std::runtime_error when the schedule blocks.
Result replay(const Source& source, const Request& request, const Profile& profile);

}  // namespace weft::ccl::model
