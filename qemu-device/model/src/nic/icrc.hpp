// SPDX-License-Identifier: MIT
// Invariant CRC of a RoCE v2 packet (IBTA volume 1, annex A17.3.3): CRC-32 over 8 bytes of ones (the LRH that RoCE does
// not have) and the packet from the IP header to the pad, with the fields that routers may change set to ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::model::nic {

class Icrc {
 public:
  // `headers` begins at the IP header (version 4 without options, or 6) and holds at least IP, UDP and BTH; it may go
  // on.
  explicit Icrc(std::span<const std::byte> headers);
  void add(std::span<const std::byte> bytes);
  // As it is stored: least significant byte first.
  std::uint32_t value() const { return crc_; }

 private:
  std::uint32_t crc_;
};

}  // namespace weft::model::nic
