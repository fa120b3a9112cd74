// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "weft/abi/model.h"

namespace weft::efa {

using Mac = std::array<std::uint8_t, 6>;
using Gid = std::array<std::uint8_t, 16>;

struct Options {
  std::optional<Mac> mac;    // else drawn by lot
  std::uint32_t mtu = 8928;  // largest message of SEND, bytes
  bool spray = false;        // segments and messages in random order
  bool posted = false;       // writes to other devices' memory become visible late
  std::string serial;
};

// Throws std::invalid_argument with a text that says what is right.
Options parse_options(const weft_abi_config& config);

// Link-local GID of a MAC address (RFC 4291, appendix A: modified EUI-64) and back; nothing when it is not one.
Gid gid_of(const Mac& mac);
std::optional<Mac> mac_of(const Gid& gid);

}  // namespace weft::efa
