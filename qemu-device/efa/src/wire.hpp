// SPDX-License-Identifier: MIT
// Frames between host NICs. Ethernet header, this head, payload; little-endian, ethertype for local experiments
// (IEEE 802, clause 9.2.4). A NIC's GID is made of its MAC address, so addresses are in the Ethernet header only.
//
// Sequenced frames (kSend, kWrite, kRead, kReadData) carry a number of the flow from one device to another. The
// receiver carries out each once, in any order, and remembers what became of it in a window of kWindow numbers that
// begins at the sender's `base`; kAck repeats what it remembers. Nothing is kept a message: each segment says where it
// goes.
//
// Epochs, drawn by lot at each reset, tell the lives of a device apart. kForgot answers a frame to a former life.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "options.hpp"

namespace weft::efa::wire {

inline constexpr std::uint16_t kEthertype = 0x88b5;
inline constexpr std::size_t kFrameMax = 9216 + 64;  // of the link (weft/fabric/link.hpp)
inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::uint32_t kWindow = 256;  // frames
inline constexpr unsigned kDataClass = 0;
inline constexpr unsigned kControlClass = 1;  // kAck and kForgot never wait behind data

enum class Type : std::uint8_t {
  kDatagram = 1,  // UD: not sequenced, no answer
  kSend = 2,
  kWrite = 3,
  kRead = 4,
  kReadData = 5,  // answer to kRead, of the other direction's flow; `status` not 0: the read failed, no payload
  kAck = 6,       // payload: a status each for `seq`, seq + 1, ...; kNothingYet: not here
  kForgot = 7,    // `op`: the epoch that was addressed
};

enum Flag : std::uint8_t { kImmediate = 1u << 0 };

// Statuses beside hw::Status.
inline constexpr std::uint8_t kBusy = 0xfe;  // too many reads of this peer: again later
inline constexpr std::uint8_t kNothingYet = 0xff;

struct Ethernet {
  Mac destination, source;
  std::uint8_t ethertype[2];
};
static_assert(sizeof(Ethernet) == 14);

struct Head {
  std::uint8_t version;
  Type type;
  std::uint8_t flags;
  std::uint8_t status;
  std::uint16_t source_qp, destination_qp;
  std::uint32_t source_epoch, destination_epoch;  // 0: not known yet
  std::uint64_t seq, base;
  std::uint32_t op;      // the requester's number of it
  std::uint32_t length;  // of the payload
  std::uint32_t offset, total;
  std::uint64_t remote;
  std::uint32_t rkey, qkey;
  std::uint32_t immediate;
  std::uint32_t reserved;
};
static_assert(sizeof(Head) == 72);

inline constexpr std::size_t kHeadBytes = sizeof(Ethernet) + sizeof(Head);
inline constexpr std::uint32_t kPayloadMax = kFrameMax - kHeadBytes;

}  // namespace weft::efa::wire
