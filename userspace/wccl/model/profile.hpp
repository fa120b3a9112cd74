// SPDX-License-Identifier: MIT
// Profiles: what the time model knows of a machine. Rates are the maker's or measured figures; none is fitted to
// results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::ccl::model {

// A ratio of staged to peer-direct that somebody measured on this machine, as an interval.
struct Published {
  std::uint64_t bytes = 0;
  double low = 0, high = 0;
  std::string text;
};

struct Profile {
  std::string name;
  std::string text;
  std::vector<std::string> sources;
  std::vector<Published> published;

  // One lane's link: what connects two ranks, per lane.
  double link_gbps = 100;    // 1e9 bits a second on the wire, preamble and gap included
  std::uint32_t links = 1;   // lanes of a rank that have a link of their own; further lanes share them
  std::uint32_t mtu = 4096;  // bytes of payload a packet
  std::uint32_t packet_bytes =
      82;  // on the wire beside payload: preamble 8, Ethernet 14 + 4, gap 12, IPv4 20, UDP 8, BTH 12, ICRC 4
  std::uint32_t message_bytes = 20;  // once a message: RETH 16, immediate 4
  double wire_ns = 0;                // first bit out to first bit in: serialisers, cable, switch

  // Inside the accelerator.
  double hbm_GBps = 1000;     // reads and writes together
  double reduce_GBps = 1000;  // result bytes
  double copy_GBps = 1000;
  double command_ns = 0;  // the command processor's time a command
  double reduce_ns = 0;   // of a reduction, beside its bytes
  double copy_ns = 0;
  std::uint32_t window = 256;  // commands in the scoreboard

  // The host, once a collective.
  double doorbell_ns = 0;    // call to first fetch, or to the host thread's first step
  double completion_ns = 0;  // last signal to return

  // The host's NIC, for the paths peer and staged: the figures of a link above, and how many accelerators share it. All
  // of a node do the same at the same time, so each gets its part of the rate.
  double host_nic_gbps = 100;
  std::uint32_t host_nic_sharers = 1;
  std::uint32_t host_nic_mtu = 4096;
  std::uint32_t host_nic_packet_bytes = 82;
  std::uint32_t host_nic_message_bytes = 20;
  double host_wire_ns = 0;  // first bit out of memory to first bit into the peer's memory

  // The accelerator's PCIe link, each direction.
  double pcie_GBps = 15.754;                // after line coding
  std::uint32_t pcie_payload_bytes = 256;   // of a packet
  std::uint32_t pcie_packet_bytes = 24;     // beside it: framing 4, header 16, LCRC 4
  double d2h_GBps = 12.5, h2d_GBps = 12.5;  // the accelerator's copies to and from host DRAM, no more than the link's
  double cpu_copy_GBps = 5;                 // a core's copies between a socket and memory, staged over tcp

  // The thread on the host that drives these paths.
  double host_step_ns = 0;     // of its time, a step: post a message, or take a completion and queue what follows
  double host_command_ns = 0;  // its doorbell to the command's start
  double host_notice_ns = 0;   // a command's end to the thread's noticing
  double flush_ns = 0;         // the read through the NIC that makes peer's writes visible

  std::uint32_t slots = 4;  // of a connection, and their bytes
  std::uint32_t slot_bytes = 512 * 1024;
};

// From JSON text; every key must be known. Throws std::invalid_argument that names the key.
Profile parse_profile(const std::string& json);
// From a file, or by name from the built-in ones ("gaudi2", "dl1", "weft").
Profile load_profile(const std::string& name_or_path);
std::vector<std::string> builtin_profiles();

}  // namespace weft::ccl::model
