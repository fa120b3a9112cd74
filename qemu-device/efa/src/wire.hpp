// SPDX-License-Identifier: MIT
// Frames between host NICs. Ethernet header, this head, payload; little-endian, ethertype for local experiments
// (IEEE 802, clause 9.2.4). A NIC's GID is made of its MAC address, so addresses are in the Ethernet header only.
//
// Sequenced frames (kSend, kWrite, kRead, kReadData) carry a number of the flow from one device to another. The
// receiver carries out each once, in any order, and remembers what became of it in a window of kWindow numbers that
// begins at the sender's `base`; kAck repeats what it remembers. Nothing is kept a message: each segment says where it
// goes.
//
// Each end of a connection draws a number by lot, its epoch for that peer, and the other end has to show it: a frame
// that does not is not carried out, but answered with kHello, which tells the epoch to the address that the frame came
// from. So a device that was reset is noticed, and a forged frame changes nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "options.hpp"

namespace weft::efa::wire {

inline constexpr std::array<std::uint8_t, 2> kEthertype = {0x88, 0xb5};
inline constexpr std::size_t kFrameMax = 9216 + 64;  // of the link (weft/fabric/link.hpp)
inline constexpr std::uint8_t kVersion = 2;
inline constexpr std::uint32_t kWindow = 256;  // frames
inline constexpr unsigned kDataClass = 0;
inline constexpr unsigned kControlClass = 1;  // kAck, kHello, kAsk and kNoAnswer never wait behind data

enum class Type : std::uint8_t {
  kDatagram = 1,  // UD: not sequenced, no answer
  kSend = 2,
  kWrite = 3,
  kRead = 4,
  kReadData = 5,  // answer to kRead, of the other direction's flow; `status` not 0: the read failed, no payload
  kAck = 6,       // payload: a status each for `seq`, seq + 1, ...; kNothingYet: not here
  kHello = 7,     // `op`: the destination epoch of the frame that this answers
  kAsk = 8,       // is the read `op` still being answered? 0: who are you?
  kNoAnswer = 9,  // answer to kAsk: it is not
};

constexpr bool sequenced(Type type) { return type >= Type::kSend && type <= Type::kReadData; }

enum Flag : std::uint8_t { kImmediate = 1u << 0 };

// Statuses beside hw::Status.
inline constexpr std::uint8_t kBusy = 0xfe;  // too many reads of this peer: again later
inline constexpr std::uint8_t kNothingYet = 0xff;

struct Ethernet {
  Mac destination, source;
  std::array<std::uint8_t, 2> ethertype;
};
static_assert(sizeof(Ethernet) == 14);

struct Head {
  std::uint8_t version;
  Type type;
  std::uint8_t flags;
  std::uint8_t status;
  std::uint16_t source_qp, destination_qp;
  std::uint32_t source_epoch, destination_epoch;  // destination 0: not known yet
  std::uint64_t seq, base;
  std::uint32_t op;      // the requester's number of it
  std::uint32_t length;  // of the payload
  std::uint32_t offset, total;
  std::uint64_t remote;
  std::uint32_t rkey, qkey;
  std::uint32_t immediate;
  std::uint32_t check;  // CRC-32 (IEEE 802.3) of the Ethernet header, this head before here, and the payload
};
static_assert(sizeof(Head) == 72);
static_assert(offsetof(Head, check) == sizeof(Head) - 4);

inline constexpr std::size_t kHeadBytes = sizeof(Ethernet) + sizeof(Head);
inline constexpr std::uint32_t kPayloadMax = kFrameMax - kHeadBytes;

using Heads = std::array<std::byte, kHeadBytes>;  // Ethernet header and head

// The value of `check` for these bytes.
std::uint32_t checksum(std::span<const std::byte, kHeadBytes> heads, std::span<const std::byte> payload);

}  // namespace weft::efa::wire
