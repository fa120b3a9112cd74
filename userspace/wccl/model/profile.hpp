// SPDX-License-Identifier: MIT
// Profiles: what the time model knows of a machine. Rates are the maker's or measured figures; none is fitted to
// results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::ccl::model {

struct Profile {
  std::string name;
  std::string text;
  std::vector<std::string> sources;

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
  double doorbell_ns = 0;    // call to first fetch
  double completion_ns = 0;  // last signal to return

  std::uint32_t slots = 4;  // of a connection, and their bytes
  std::uint32_t slot_bytes = 512 * 1024;
};

// From JSON text; every key must be known. Throws std::invalid_argument that names the key.
Profile parse_profile(const std::string& json);
// From a file, or by name from the built-in ones ("gaudi2", "dl1", "weft").
Profile load_profile(const std::string& name_or_path);
std::vector<std::string> builtin_profiles();

}  // namespace weft::ccl::model
