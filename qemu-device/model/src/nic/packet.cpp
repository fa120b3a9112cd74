// SPDX-License-Identifier: MIT
#include "packet.hpp"

#include <algorithm>
#include <cstring>

#include "bytes.hpp"
#include "icrc.hpp"
#include "psn.hpp"

namespace weft::model::nic {
namespace {

constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeIpv6 = 0x86dd;
constexpr std::uint16_t kTypeVlan = 0x8100;
constexpr std::byte kUdpProtocol{17};
constexpr std::array<std::uint8_t, 12> kMappedPrefix{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

constexpr std::array<OpcodeInfo, 256> make_table() {
  std::array<OpcodeInfo, 256> table{};
  const auto request = [&](unsigned opcode, Verb verb, Part part, std::uint8_t headers, bool payload) {
    table[opcode] = {true, false, payload, verb, part, headers};
  };
  const auto response = [&](unsigned opcode, Verb verb, Part part, std::uint8_t headers, bool payload) {
    table[opcode] = {true, true, payload, verb, part, headers};
  };
  for (const unsigned service : {kServiceRc, kServiceUc}) {
    request(service | kSendFirst, Verb::kSend, Part::kFirst, 0, true);
    request(service | kSendMiddle, Verb::kSend, Part::kMiddle, 0, true);
    request(service | kSendLast, Verb::kSend, Part::kLast, 0, true);
    request(service | kSendLastImm, Verb::kSend, Part::kLast, kImmediate, true);
    request(service | kSendOnly, Verb::kSend, Part::kOnly, 0, true);
    request(service | kSendOnlyImm, Verb::kSend, Part::kOnly, kImmediate, true);
    request(service | kWriteFirst, Verb::kWrite, Part::kFirst, kReth, true);
    request(service | kWriteMiddle, Verb::kWrite, Part::kMiddle, 0, true);
    request(service | kWriteLast, Verb::kWrite, Part::kLast, 0, true);
    request(service | kWriteLastImm, Verb::kWrite, Part::kLast, kImmediate, true);
    request(service | kWriteOnly, Verb::kWrite, Part::kOnly, kReth, true);
    request(service | kWriteOnlyImm, Verb::kWrite, Part::kOnly, kReth | kImmediate, true);
  }
  request(kReadRequest, Verb::kRead, Part::kOnly, kReth, false);
  request(kCompareSwap, Verb::kCompareSwap, Part::kOnly, kAtomicEth, false);
  request(kFetchAdd, Verb::kFetchAdd, Part::kOnly, kAtomicEth, false);
  request(kSendLastInvalidate, Verb::kSend, Part::kLast, kIeth, true);
  request(kSendOnlyInvalidate, Verb::kSend, Part::kOnly, kIeth, true);
  response(kReadFirst, Verb::kRead, Part::kFirst, kAeth, true);
  response(kReadMiddle, Verb::kRead, Part::kMiddle, 0, true);
  response(kReadLast, Verb::kRead, Part::kLast, kAeth, true);
  response(kReadOnly, Verb::kRead, Part::kOnly, kAeth, true);
  response(kAcknowledge, Verb::kNone, Part::kOnly, kAeth, false);
  response(kAtomicAcknowledge, Verb::kNone, Part::kOnly, kAeth | kAtomicAckEth, false);
  request(kServiceUd | kSendOnly, Verb::kSend, Part::kOnly, kDeth, true);
  request(kServiceUd | kSendOnlyImm, Verb::kSend, Part::kOnly, kDeth | kImmediate, true);
  request(kCnp, Verb::kNone, Part::kOnly, 0, true);
  return table;
}

constexpr std::array<OpcodeInfo, 256> kOpcodes = make_table();

constexpr std::size_t extension_size(std::uint8_t headers) {
  std::size_t size = 0;
  if (headers & kDeth) size += 8;
  if (headers & kReth) size += 16;
  if (headers & kAtomicEth) size += 28;
  if (headers & kAeth) size += 4;
  if (headers & kAtomicAckEth) size += 8;
  if (headers & kImmediate) size += 4;
  if (headers & kIeth) size += 4;
  return size;
}

// Lays out the extended headers in the standard's order; returns their end.
std::byte* store_extensions(std::byte* p, std::uint8_t headers, const Extensions& ext) {
  if (headers & kDeth) {
    store_be<std::uint32_t>(p, ext.qkey);
    p[4] = std::byte{0};
    store_be24(p + 5, ext.source_qpn);
    p += 8;
  }
  if (headers & kReth) {
    store_be<std::uint64_t>(p, ext.address);
    store_be<std::uint32_t>(p + 8, ext.key);
    store_be<std::uint32_t>(p + 12, ext.length);
    p += 16;
  }
  if (headers & kAtomicEth) {
    store_be<std::uint64_t>(p, ext.address);
    store_be<std::uint32_t>(p + 8, ext.key);
    store_be<std::uint64_t>(p + 12, ext.swap_add);
    store_be<std::uint64_t>(p + 20, ext.compare);
    p += 28;
  }
  if (headers & kAeth) {
    p[0] = static_cast<std::byte>(ext.syndrome);
    store_be24(p + 1, ext.msn);
    p += 4;
  }
  if (headers & kAtomicAckEth) {
    store_be<std::uint64_t>(p, ext.original);
    p += 8;
  }
  if (headers & kImmediate) {
    store_be<std::uint32_t>(p, ext.immediate);
    p += 4;
  }
  if (headers & kIeth) {
    store_be<std::uint32_t>(p, ext.key);
    p += 4;
  }
  return p;
}

void load_extensions(const std::byte* p, std::uint8_t headers, Extensions& ext) {
  if (headers & kDeth) {
    ext.qkey = load_be<std::uint32_t>(p);
    ext.source_qpn = load_be24(p + 5);
    p += 8;
  }
  if (headers & kReth) {
    ext.address = load_be<std::uint64_t>(p);
    ext.key = load_be<std::uint32_t>(p + 8);
    ext.length = load_be<std::uint32_t>(p + 12);
    p += 16;
  }
  if (headers & kAtomicEth) {
    ext.address = load_be<std::uint64_t>(p);
    ext.key = load_be<std::uint32_t>(p + 8);
    ext.swap_add = load_be<std::uint64_t>(p + 12);
    ext.compare = load_be<std::uint64_t>(p + 20);
    p += 28;
  }
  if (headers & kAeth) {
    ext.syndrome = std::to_integer<std::uint8_t>(p[0]);
    ext.msn = load_be24(p + 1);
    p += 4;
  }
  if (headers & kAtomicAckEth) {
    ext.original = load_be<std::uint64_t>(p);
    p += 8;
  }
  if (headers & kImmediate) {
    ext.immediate = load_be<std::uint32_t>(p);
    p += 4;
  }
  if (headers & kIeth) ext.key = load_be<std::uint32_t>(p);
}

// RFC 1071 over an IPv4 header of 20 bytes: the checksum to store where that field is 0, 0 where it is right.
std::uint16_t ipv4_checksum(const std::byte* header) {
  std::uint32_t sum = 0;
  for (std::size_t i = 0; i < kIpv4Size; i += 2) sum += load_be<std::uint16_t>(header + i);
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

// IP header to the UDP payload's end; `end` comes out. kNotRoce, kMalformed or kOk.
Parsed parse_ipv4(std::span<const std::byte> ip, Packet& packet, std::size_t& end) {
  if (ip.size() < kIpv4Size) return Parsed::kMalformed;
  if (ip[9] != kUdpProtocol) return Parsed::kNotRoce;
  // Options and fragments do not occur in RoCE v2 (annex A17.3.1: DF); both would be another protocol's UDP.
  if (ip[0] != std::byte{0x45} || (load_be<std::uint16_t>(&ip[6]) & 0x3fff) != 0) return Parsed::kNotRoce;
  if (ipv4_checksum(ip.data()) != 0) return Parsed::kMalformed;
  end = load_be<std::uint16_t>(&ip[2]);
  if (end < kIpv4Size + kUdpSize || end > ip.size()) return Parsed::kMalformed;
  packet.traffic_class = std::to_integer<std::uint8_t>(ip[1]);
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), packet.source.begin());
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), packet.destination.begin());
  std::memcpy(&packet.source[12], &ip[12], 4);
  std::memcpy(&packet.destination[12], &ip[16], 4);
  return Parsed::kOk;
}

Parsed parse_ipv6(std::span<const std::byte> ip, Packet& packet, std::size_t& end) {
  if (ip.size() < kIpv6Size || (ip[0] >> 4) != std::byte{6}) return Parsed::kMalformed;
  if (ip[6] != kUdpProtocol) return Parsed::kNotRoce;
  end = kIpv6Size + load_be<std::uint16_t>(&ip[4]);
  if (end < kIpv6Size + kUdpSize || end > ip.size()) return Parsed::kMalformed;
  packet.traffic_class = static_cast<std::uint8_t>(load_be<std::uint16_t>(&ip[0]) >> 4);
  std::memcpy(packet.source.data(), &ip[8], 16);
  std::memcpy(packet.destination.data(), &ip[24], 16);
  return Parsed::kOk;
}

}  // namespace

bool is_ipv4(const Gid& gid) { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin()); }

Gid gid_of_ipv4(std::span<const std::uint8_t, 4> address) {
  Gid gid;
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin());
  std::copy(address.begin(), address.end(), gid.begin() + kMappedPrefix.size());
  return gid;
}

const OpcodeInfo& opcode_info(std::uint8_t opcode) { return kOpcodes[opcode]; }

std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t local_qpn, std::uint32_t remote_qpn) {
  if (flow_label == 0) {
    std::uint64_t v = std::uint64_t{local_qpn} * remote_qpn;
    v ^= v >> 20;
    v ^= v >> 40;
    flow_label = static_cast<std::uint32_t>(v & 0xfffff);
  }
  const std::uint32_t low = (flow_label & 0x3fff) ^ ((flow_label & 0xfc000) >> 14);
  return static_cast<std::uint16_t>(low | 0xc000);
}

Path::Path(const PathInfo& info) : ipv4_(is_ipv4(info.dgid)) {
  std::byte* p = bytes_.data();
  std::memcpy(p, info.dmac.data(), 6);
  std::memcpy(p + 6, info.smac.data(), 6);
  p += 12;
  if (info.vlan != kNoVlan) {
    store_be<std::uint16_t>(p, kTypeVlan);
    store_be<std::uint16_t>(p + 2, static_cast<std::uint16_t>(info.priority << 13 | info.vlan));
    p += kVlanSize;
  }
  store_be<std::uint16_t>(p, ipv4_ ? kTypeIpv4 : kTypeIpv6);
  p += 2;
  ip_ = static_cast<std::size_t>(p - bytes_.data());
  if (ipv4_) {
    p[0] = std::byte{0x45};
    p[1] = static_cast<std::byte>(info.traffic_class);
    p[6] = std::byte{0x40};  // DF
    p[8] = static_cast<std::byte>(info.hop_limit);
    p[9] = kUdpProtocol;
    std::memcpy(p + 12, &info.sgid[12], 4);
    std::memcpy(p + 16, &info.dgid[12], 4);
    p += kIpv4Size;
  } else {
    store_be<std::uint32_t>(p, 6u << 28 | std::uint32_t{info.traffic_class} << 20 | (info.flow_label & 0xfffff));
    p[6] = kUdpProtocol;
    p[7] = static_cast<std::byte>(info.hop_limit);
    std::memcpy(p + 8, info.sgid.data(), 16);
    std::memcpy(p + 24, info.dgid.data(), 16);
    p += kIpv6Size;
  }
  udp_ = static_cast<std::size_t>(p - bytes_.data());
  store_be<std::uint16_t>(p, info.sport);
  store_be<std::uint16_t>(p + 2, kRoceUdpPort);
}

Head Path::head(const Bth& bth, const Extensions& extensions, std::size_t payload, std::uint16_t ip_id) const {
  Head head;
  std::memcpy(head.bytes.data(), bytes_.data(), udp_ + kUdpSize);
  const std::uint8_t headers = kOpcodes[bth.opcode].headers;
  const std::size_t pad = -payload & 3;
  const std::size_t udp_length = kUdpSize + kBthSize + extension_size(headers) + payload + pad + kIcrcSize;

  std::byte* ip = head.bytes.data() + ip_;
  if (ipv4_) {
    store_be<std::uint16_t>(ip + 2, static_cast<std::uint16_t>(kIpv4Size + udp_length));
    store_be<std::uint16_t>(ip + 4, ip_id);
    store_be<std::uint16_t>(ip + 10, ipv4_checksum(ip));
  } else {
    store_be<std::uint16_t>(ip + 4, static_cast<std::uint16_t>(udp_length));
  }
  std::byte* udp = head.bytes.data() + udp_;
  store_be<std::uint16_t>(udp + 4, static_cast<std::uint16_t>(udp_length));
  // UDP checksum stays 0: the ICRC protects the packet.

  std::byte* p = udp + kUdpSize;
  p[0] = static_cast<std::byte>(bth.opcode);
  p[1] = static_cast<std::byte>(unsigned{bth.solicited} << 7 | unsigned{bth.migrated} << 6 |
                                static_cast<unsigned>(pad) << 4);
  store_be<std::uint16_t>(p + 2, bth.pkey);
  p[4] = static_cast<std::byte>(unsigned{bth.fecn} << 7 | unsigned{bth.becn} << 6);
  store_be24(p + 5, bth.dest_qpn);
  p[8] = static_cast<std::byte>(unsigned{bth.ack_request} << 7);
  store_be24(p + 9, bth.psn);
  p = store_extensions(p + kBthSize, headers, extensions);
  head.size = static_cast<std::size_t>(p - head.bytes.data());
  head.ip = ip_;
  return head;
}

Tail make_tail(const Head& head, std::span<const std::byte> payload) {
  Tail tail;
  Icrc icrc(head.span().subspan(head.ip));
  icrc.add(payload);
  const std::size_t pad = -payload.size() & 3;
  std::fill_n(tail.bytes.begin(), pad, std::byte{0});
  icrc.add(std::span(tail.bytes).first(pad));
  const std::uint32_t value = icrc.value();
  std::memcpy(&tail.bytes[pad], &value, kIcrcSize);  // least significant byte first
  tail.size = pad + kIcrcSize;
  const std::size_t frame = head.size + payload.size() + tail.size;
  if (frame < kEthernetMin) {
    std::fill_n(tail.bytes.begin() + static_cast<std::ptrdiff_t>(tail.size), kEthernetMin - frame, std::byte{0});
    tail.size += kEthernetMin - frame;
  }
  return tail;
}

Parsed parse(std::span<const std::byte> frame, Packet& packet) {
  if (frame.size() < kEthernetSize) return Parsed::kMalformed;
  std::memcpy(packet.dmac.data(), frame.data(), 6);
  std::memcpy(packet.smac.data(), frame.data() + 6, 6);
  std::size_t at = 12;
  std::uint16_t type = load_be<std::uint16_t>(&frame[at]);
  packet.vlan = kNoVlan;
  if (type == kTypeVlan) {
    if (frame.size() < kEthernetSize + kVlanSize) return Parsed::kMalformed;
    packet.vlan = load_be<std::uint16_t>(&frame[at + 2]) & 0xfff;
    if (packet.vlan == 0) packet.vlan = kNoVlan;  // priority tag, IEEE 802.1Q: no VLAN
    at += kVlanSize;
    type = load_be<std::uint16_t>(&frame[at]);
  }
  at += 2;
  packet.ip = at;
  const auto ip = frame.subspan(at);
  std::size_t end = 0;  // of the IP packet, from its header
  Parsed parsed = Parsed::kNotRoce;
  if (type == kTypeIpv4) parsed = parse_ipv4(ip, packet, end);
  if (type == kTypeIpv6) parsed = parse_ipv6(ip, packet, end);
  if (parsed != Parsed::kOk) return parsed;

  const auto udp = ip.first(end).subspan(type == kTypeIpv4 ? kIpv4Size : kIpv6Size);
  if (load_be<std::uint16_t>(&udp[2]) != kRoceUdpPort) return Parsed::kNotRoce;
  packet.sport = load_be<std::uint16_t>(&udp[0]);
  const std::size_t udp_length = load_be<std::uint16_t>(&udp[4]);
  if (udp_length != udp.size() || udp_length < kUdpSize + kBthSize + kIcrcSize) return Parsed::kMalformed;
  packet.icrc = at + end - kIcrcSize;

  const std::byte* b = &udp[kUdpSize];
  const auto flags = std::to_integer<unsigned>(b[1]);
  if ((flags & 0x0f) != 0) return Parsed::kMalformed;  // TVer
  packet.bth.opcode = std::to_integer<std::uint8_t>(b[0]);
  packet.bth.solicited = (flags & 0x80) != 0;
  packet.bth.migrated = (flags & 0x40) != 0;
  packet.bth.pkey = load_be<std::uint16_t>(b + 2);
  packet.bth.fecn = (b[4] & std::byte{0x80}) != std::byte{0};
  packet.bth.becn = (b[4] & std::byte{0x40}) != std::byte{0};
  packet.bth.dest_qpn = load_be24(b + 5);
  packet.bth.ack_request = (b[8] & std::byte{0x80}) != std::byte{0};
  packet.bth.psn = load_be24(b + 9);
  packet.info = kOpcodes[packet.bth.opcode];
  if (!packet.info.known) return Parsed::kOk;

  const auto rest = udp.subspan(kUdpSize + kBthSize, udp_length - kUdpSize - kBthSize - kIcrcSize);
  const std::size_t extension = extension_size(packet.info.headers);
  if (rest.size() < extension) return Parsed::kMalformed;
  load_extensions(rest.data(), packet.info.headers, packet.ext);
  const std::size_t pad = (flags >> 4) & 3;
  const std::size_t padded = rest.size() - extension;
  if (padded < pad || padded % 4 != 0) return Parsed::kMalformed;
  packet.payload = rest.subspan(extension, padded - pad);
  if (!packet.info.payload && padded != 0) return Parsed::kMalformed;
  return Parsed::kOk;
}

bool icrc_right(std::span<const std::byte> frame, const Packet& packet) {
  const Icrc icrc(frame.subspan(packet.ip, packet.icrc - packet.ip));
  std::uint32_t stored;
  std::memcpy(&stored, &frame[packet.icrc], sizeof stored);
  return stored == icrc.value();
}

}  // namespace weft::model::nic
