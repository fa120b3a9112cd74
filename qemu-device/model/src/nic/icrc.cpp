// SPDX-License-Identifier: MIT
#include "icrc.hpp"

#include <libdeflate.h>

#include <array>
#include <cstring>

#include "packet.hpp"

namespace weft::model::nic {

Icrc::Icrc(std::span<const std::byte> headers) {
  constexpr std::size_t kLrh = 8;
  constexpr std::byte kOnes{0xff};
  const bool ipv4 = (headers[0] >> 4) == std::byte{4};
  const std::size_t ip = ipv4 ? kIpv4Size : kIpv6Size;
  const std::size_t masked = ip + kUdpSize + kBthSize;
  std::array<std::byte, kLrh + kIpv6Size + kUdpSize + kBthSize> copy;
  std::memset(copy.data(), 0xff, kLrh);
  std::byte* p = copy.data() + kLrh;
  std::memcpy(p, headers.data(), masked);
  if (ipv4) {
    p[1] = kOnes;           // type of service
    p[8] = kOnes;           // time to live
    p[10] = p[11] = kOnes;  // header checksum
  } else {
    p[0] |= std::byte{0x0f};  // traffic class, flow label
    p[1] = p[2] = p[3] = kOnes;
    p[7] = kOnes;  // hop limit
  }
  p[ip + 6] = p[ip + 7] = kOnes;  // UDP checksum
  p[ip + kUdpSize + 4] = kOnes;   // FECN, BECN, resv6
  crc_ = libdeflate_crc32(0, copy.data(), kLrh + masked);
  add(headers.subspan(masked));
}

void Icrc::add(std::span<const std::byte> bytes) {
  if (!bytes.empty()) crc_ = libdeflate_crc32(crc_, bytes.data(), bytes.size());
}

}  // namespace weft::model::nic
