// SPDX-License-Identifier: MIT
// RoCE v2 packets: Ethernet (802.1Q) | IPv4 or IPv6 | UDP | BTH | extended headers | payload | pad | ICRC.
//
// Layouts: IBTA volume 1, chapter 9 and annex A17; choices that it leaves open are those of Linux rdma_rxe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::model::nic {

inline constexpr std::size_t kEthernetSize = 14;
inline constexpr std::size_t kVlanSize = 4;
inline constexpr std::size_t kIpv4Size = 20;
inline constexpr std::size_t kIpv6Size = 40;
inline constexpr std::size_t kUdpSize = 8;
inline constexpr std::size_t kBthSize = 12;
inline constexpr std::size_t kIcrcSize = 4;
inline constexpr std::size_t kEthernetMin = 60;      // without FCS
inline constexpr std::size_t kFrameMax = 9216 + 64;  // as weft/fabric/link.hpp
inline constexpr std::size_t kExtensionMax = 28;     // AtomicETH
inline constexpr std::size_t kHeadMax = kEthernetSize + kVlanSize + kIpv6Size + kUdpSize + kBthSize + kExtensionMax;

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::uint16_t kNoVlan = 0xffff;
inline constexpr std::uint16_t kDefaultPkey = 0xffff;

using Mac = std::array<std::uint8_t, 6>;
using Gid = std::array<std::uint8_t, 16>;  // IPv4 as ::ffff:a.b.c.d

bool is_ipv4(const Gid& gid);
Gid gid_of_ipv4(std::span<const std::uint8_t, 4> address);

// Transport services, the upper three bits of an opcode.
inline constexpr std::uint8_t kServiceRc = 0x00;
inline constexpr std::uint8_t kServiceUc = 0x20;
inline constexpr std::uint8_t kServiceUd = 0x60;
inline constexpr std::uint8_t kServiceMask = 0xe0;

// Opcodes without the service.
enum Opcode : std::uint8_t {
  kSendFirst = 0x00,
  kSendMiddle = 0x01,
  kSendLast = 0x02,
  kSendLastImm = 0x03,
  kSendOnly = 0x04,
  kSendOnlyImm = 0x05,
  kWriteFirst = 0x06,
  kWriteMiddle = 0x07,
  kWriteLast = 0x08,
  kWriteLastImm = 0x09,
  kWriteOnly = 0x0a,
  kWriteOnlyImm = 0x0b,
  kReadRequest = 0x0c,
  kReadFirst = 0x0d,
  kReadMiddle = 0x0e,
  kReadLast = 0x0f,
  kReadOnly = 0x10,
  kAcknowledge = 0x11,
  kAtomicAcknowledge = 0x12,
  kCompareSwap = 0x13,
  kFetchAdd = 0x14,
  kSendLastInvalidate = 0x16,
  kSendOnlyInvalidate = 0x17,
};
inline constexpr std::uint8_t kCnp = 0x81;  // congestion notification, annex A17.9.3

enum class Verb : std::uint8_t { kNone, kSend, kWrite, kRead, kCompareSwap, kFetchAdd };
enum class Part : std::uint8_t { kOnly, kFirst, kMiddle, kLast };

// Extended headers.
inline constexpr std::uint8_t kReth = 1;
inline constexpr std::uint8_t kAeth = 2;
inline constexpr std::uint8_t kImmediate = 4;
inline constexpr std::uint8_t kDeth = 8;
inline constexpr std::uint8_t kIeth = 16;
inline constexpr std::uint8_t kAtomicEth = 32;
inline constexpr std::uint8_t kAtomicAckEth = 64;

// What an opcode means (IBTA table 38).
struct OpcodeInfo {
  bool known = false;
  bool response = false;
  bool payload = false;
  Verb verb = Verb::kNone;
  Part part = Part::kOnly;
  std::uint8_t headers = 0;
};
const OpcodeInfo& opcode_info(std::uint8_t opcode);

// AETH syndromes (IBTA table 43).
inline constexpr std::uint8_t kAckUnlimited = 0x1f;  // acknowledgement without end-to-end credits
inline constexpr std::uint8_t kSyndromeKind = 0x60;
inline constexpr std::uint8_t kSyndromeAck = 0x00;
inline constexpr std::uint8_t kSyndromeRnr = 0x20;  // | timer code
inline constexpr std::uint8_t kNakSequence = 0x60;
inline constexpr std::uint8_t kNakInvalid = 0x61;
inline constexpr std::uint8_t kNakAccess = 0x62;
inline constexpr std::uint8_t kNakOperation = 0x63;

struct Bth {
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = true;  // MigReq: 1 in MIGRATED state; receivers take both
  std::uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  std::uint32_t dest_qpn = 0;
  bool ack_request = false;
  std::uint32_t psn = 0;
};

// Extended headers of a packet; which ones count is the opcode's.
struct Extensions {
  std::uint64_t address = 0;  // RETH, AtomicETH
  std::uint32_t key = 0;      // RETH, AtomicETH: rkey; IETH: key to invalidate
  std::uint32_t length = 0;   // RETH
  std::uint8_t syndrome = 0;  // AETH
  std::uint32_t msn = 0;
  std::uint32_t immediate = 0;
  std::uint32_t qkey = 0;  // DETH
  std::uint32_t source_qpn = 0;
  std::uint64_t swap_add = 0;  // AtomicETH
  std::uint64_t compare = 0;
  std::uint64_t original = 0;  // AtomicAckETH
};

// ---- Building ----

// Addresses of one connection.
struct PathInfo {
  Mac dmac{};
  Mac smac{};
  std::uint16_t vlan = kNoVlan;
  std::uint8_t priority = 0;  // in the VLAN tag
  Gid sgid{};                 // of the same family as dgid
  Gid dgid{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
  std::uint16_t sport = 0xc000;
};

// UDP source port as Linux rdma_get_udp_sport() chooses it, so that both ends of a Soft-RoCE connection look alike.
std::uint16_t udp_source_port(std::uint32_t flow_label, std::uint32_t local_qpn, std::uint32_t remote_qpn);

// All bytes before the payload.
struct Head {
  std::array<std::byte, kHeadMax> bytes;
  std::size_t size = 0;
  std::size_t ip = 0;  // offset of the IP header
  std::span<const std::byte> span() const { return std::span(bytes).first(size); }
};

// All bytes after the payload: pad, ICRC, zeros up to the Ethernet minimum.
struct Tail {
  std::array<std::byte, 3 + kIcrcSize + kEthernetMin> bytes;
  std::size_t size = 0;
  std::span<const std::byte> span() const { return std::span(bytes).first(size); }
};

// The unchanging part of a connection's frames, laid out once.
class Path {
 public:
  Path() = default;
  explicit Path(const PathInfo& info);

  // Headers of a packet with `payload` bytes.
  Head head(const Bth& bth, const Extensions& extensions, std::size_t payload, std::uint16_t ip_id) const;

 private:
  std::array<std::byte, kHeadMax> bytes_{};
  std::size_t ip_ = 0;   // offset of the IP header
  std::size_t udp_ = 0;  // offset of the UDP header
  bool ipv4_ = true;
};

// The payload's bytes must not change between this and the sending.
Tail make_tail(const Head& head, std::span<const std::byte> payload);

// ---- Parsing ----

// A frame taken apart; `payload` points into it.
struct Packet {
  Mac dmac{};
  Mac smac{};
  std::uint16_t vlan = kNoVlan;
  Gid source{};
  Gid destination{};
  std::uint8_t traffic_class = 0;
  std::uint16_t sport = 0;
  Bth bth;
  OpcodeInfo info;  // info.known false: opcode unknown, nothing after the BTH was looked at
  Extensions ext;
  std::span<const std::byte> payload;
  std::size_t ip = 0;    // offset of the IP header
  std::size_t icrc = 0;  // offset of the ICRC
};

enum class Parsed : std::uint8_t {
  kOk,
  kNotRoce,    // something else than RoCE v2: ARP, another UDP port, ...
  kMalformed,  // claims to be RoCE v2 and is not well-formed
};

// Never reads outside `frame`. Does not check the ICRC.
Parsed parse(std::span<const std::byte> frame, Packet& packet);
bool icrc_right(std::span<const std::byte> frame, const Packet& packet);

}  // namespace weft::model::nic
