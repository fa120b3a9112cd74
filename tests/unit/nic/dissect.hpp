// SPDX-License-Identifier: MIT
// A second reading of the standard, for tests only: takes a RoCE v2 frame apart without a line of the model's code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dissect {

using Bytes = std::span<const std::byte>;

inline std::uint64_t be(Bytes b, std::size_t at, std::size_t n) {
  std::uint64_t v = 0;
  for (std::size_t i = 0; i < n; ++i) v = v << 8 | std::to_integer<std::uint64_t>(b[at + i]);
  return v;
}

// CRC-32 a bit at a time: reflected 0xedb88320, ones in, complement out.
inline std::uint32_t crc32(Bytes bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

// ICRC of the packet `ip` (IP header to pad, ICRC left out), as IBTA annex A17.3.3 words it.
inline std::uint32_t icrc(Bytes ip) {
  std::vector<std::byte> masked(8, std::byte{0xff});
  masked.insert(masked.end(), ip.begin(), ip.end());
  std::byte* p = masked.data() + 8;
  std::size_t udp = 20;
  if ((p[0] >> 4) == std::byte{4}) {
    for (const std::size_t at : {1, 8, 10, 11}) p[at] = std::byte{0xff};
  } else {
    udp = 40;
    p[0] |= std::byte{0x0f};
    for (const std::size_t at : {1, 2, 3, 7}) p[at] = std::byte{0xff};
  }
  p[udp + 6] = p[udp + 7] = p[udp + 12] = std::byte{0xff};
  return crc32(masked);
}

struct Frame {
  std::size_t ip = 14;  // offset
  bool ipv4 = true;
  unsigned vlan = 0;
  unsigned tos = 0, ttl = 0, ip_flags = 0, ip_id = 0, sport = 0, dport = 0, udp_checksum = 0;
  unsigned opcode = 0, solicited = 0, migrated = 0, pad = 0, version = 0, pkey = 0, ack_request = 0;
  std::uint32_t qpn = 0, psn = 0;
  std::uint64_t reth_va = 0;
  std::uint32_t reth_key = 0, reth_length = 0, syndrome = 0, msn = 0, immediate = 0;
  std::vector<std::byte> payload;
  std::size_t end = 0;  // of the ICRC, in the frame
};

// The frame, or why it is wrong.
inline std::optional<Frame> frame(Bytes f, std::string& why) {
  Frame r;
  const auto bad = [&](const char* text) {
    why = text;
    return std::nullopt;
  };
  if (f.size() < 60) return bad("shorter than an Ethernet frame");
  std::uint64_t type = be(f, 12, 2);
  if (type == 0x8100) {
    r.vlan = static_cast<unsigned>(be(f, 14, 2));
    type = be(f, 16, 2);
    r.ip = 18;
  }
  r.ipv4 = type == 0x0800;
  if (!r.ipv4 && type != 0x86dd) return bad("not IP");
  const Bytes ip = f.subspan(r.ip);
  std::size_t udp = 0;
  std::size_t length = 0;
  if (r.ipv4) {
    if (be(ip, 0, 1) != 0x45 || be(ip, 9, 1) != 17) return bad("not plain UDP over IPv4");
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < 20; i += 2) sum += be(ip, i, 2);
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    if (sum != 0xffff) return bad("IPv4 checksum");
    udp = 20;
    length = be(ip, 2, 2);
    r.tos = static_cast<unsigned>(be(ip, 1, 1));
    r.ip_id = static_cast<unsigned>(be(ip, 4, 2));
    r.ip_flags = static_cast<unsigned>(be(ip, 6, 2));
    r.ttl = static_cast<unsigned>(be(ip, 8, 1));
  } else {
    if (be(ip, 0, 1) >> 4 != 6 || be(ip, 6, 1) != 17) return bad("not plain UDP over IPv6");
    udp = 40;
    length = 40 + be(ip, 4, 2);
    r.tos = static_cast<unsigned>(be(ip, 0, 2) >> 4 & 0xff);
    r.ttl = static_cast<unsigned>(be(ip, 7, 1));
  }
  if (length > ip.size() || length < udp + 8 + 12 + 4) return bad("length");
  if (be(ip, udp + 4, 2) != length - udp) return bad("UDP length");
  r.sport = static_cast<unsigned>(be(ip, udp, 2));
  r.dport = static_cast<unsigned>(be(ip, udp + 2, 2));
  r.udp_checksum = static_cast<unsigned>(be(ip, udp + 6, 2));
  r.end = r.ip + length;
  const std::uint32_t crc = icrc(ip.first(length - 4));
  for (std::size_t i = 0; i < 4; ++i) {
    if (std::to_integer<std::uint32_t>(ip[length - 4 + i]) != (crc >> (8 * i) & 0xff)) return bad("ICRC");
  }
  const Bytes b = ip.subspan(udp + 8, length - udp - 8 - 4);
  r.opcode = static_cast<unsigned>(be(b, 0, 1));
  r.solicited = static_cast<unsigned>(be(b, 1, 1) >> 7);
  r.migrated = static_cast<unsigned>(be(b, 1, 1) >> 6 & 1);
  r.pad = static_cast<unsigned>(be(b, 1, 1) >> 4 & 3);
  r.version = static_cast<unsigned>(be(b, 1, 1) & 15);
  r.pkey = static_cast<unsigned>(be(b, 2, 2));
  r.qpn = static_cast<std::uint32_t>(be(b, 5, 3));
  r.ack_request = static_cast<unsigned>(be(b, 8, 1) >> 7);
  r.psn = static_cast<std::uint32_t>(be(b, 9, 3));
  std::size_t at = 12;
  if (r.opcode == 0x06 || r.opcode == 0x0a || r.opcode == 0x0b) {
    r.reth_va = be(b, at, 8);
    r.reth_key = static_cast<std::uint32_t>(be(b, at + 8, 4));
    r.reth_length = static_cast<std::uint32_t>(be(b, at + 12, 4));
    at += 16;
  }
  if (r.opcode == 0x11) {
    r.syndrome = static_cast<std::uint32_t>(be(b, at, 1));
    r.msn = static_cast<std::uint32_t>(be(b, at + 1, 3));
    at += 4;
  }
  if (r.opcode == 0x09 || r.opcode == 0x0b) {
    r.immediate = static_cast<std::uint32_t>(be(b, at, 4));
    at += 4;
  }
  if (at + r.pad > b.size() || (b.size() - at) % 4 != 0) return bad("payload and pad");
  for (std::size_t i = b.size() - r.pad; i < b.size(); ++i) {
    if (b[i] != std::byte{0}) return bad("pad not zero");
  }
  r.payload.assign(b.begin() + static_cast<std::ptrdiff_t>(at), b.end() - r.pad);
  return r;
}

}  // namespace dissect
