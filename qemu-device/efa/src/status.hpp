// SPDX-License-Identifier: MIT
// Completion statuses as numbers on the wire.
#pragma once

#include <cstdint>

#include "hw.hpp"

namespace weft::efa {

inline constexpr std::uint8_t kOk = static_cast<std::uint8_t>(hw::Status::kOk);

constexpr std::uint8_t code(hw::Status status) { return static_cast<std::uint8_t>(status); }

// Another device's word: nothing that it cannot mean.
inline hw::Status remote_status(std::uint8_t status) {
  switch (static_cast<hw::Status>(status)) {
    case hw::Status::kOk:
    case hw::Status::kRemoteBadAddress:
    case hw::Status::kRemoteAbort:
    case hw::Status::kRemoteBadQpn:
    case hw::Status::kRemoteRnr:
    case hw::Status::kRemoteBadLength:
      return static_cast<hw::Status>(status);
    default:
      return hw::Status::kRemoteBadStatus;
  }
}

}  // namespace weft::efa
