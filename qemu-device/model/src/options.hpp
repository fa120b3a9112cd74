// SPDX-License-Identifier: MIT
// The device's options, `key=value` as they come over the model ABI.
#pragma once

#include <cstdint>
#include <string>

#include "weft/abi/model.h"

namespace weft::model {

struct Options {
  bool accelerator = true;  // false: the NIC alone, without command queues and HBM
  std::uint64_t hbm_bytes = std::uint64_t{1} << 30;
  std::uint32_t ports = 1;
  std::uint32_t link_mbps = 100000;
  std::string serial = "WEFT0000";
  bool native_firmware = false;
};

// Keys: kind= ("accelerator", "nic": ports without accelerator and HBM), hbm= (bytes, or with K, M, G; a power of two
// from 1M to 1T), ports= (1..24), link= (Mb/s, 1..1600000), serial= (1..31
// printable characters), firmware= ("image": boot what the driver loads; "native": the same sources compiled in),
// fault= ("none"). Throws std::invalid_argument with a text that says what would be right.
Options parse_options(const weft_abi_config& config);

}  // namespace weft::model
