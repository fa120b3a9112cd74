// SPDX-License-Identifier: MIT
// What can go wrong, each with a name and a count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::efa {

enum class Event : std::uint8_t {
  kReset,
  kResponseUnreachable,
  kAdminRingBroken,
  kAdminRefused,
  kAenqFull,
  kHostInfo,
  kBadDoorbell,
  kQueueBroken,
  kCqUnreachable,
  kEqUnreachable,
  kPayloadDma,
  kPostedWriteLost,
  kReceiveNoBuffer,
  kReceiveRefused,
  kBadFrame,
  kBadChecksum,
  kStaleFrame,
  kTooManyPeers,
  kPeerEvicted,
  kPeerGone,
  kPeerReset,
  kPeerTimeout,
  kLinkDown,
  kResend,
  kCount,
};

struct EventInfo {
  const char* name;
  int level;  // enum weft_abi_log_level
};

inline constexpr std::array<EventInfo, static_cast<std::size_t>(Event::kCount)> kEvents = {{
    {"efa_reset", 7},
    {"efa_response_unreachable", 4},
    {"efa_admin_ring_broken", 4},
    {"efa_admin_refused", 4},
    {"efa_aenq_full", 4},
    {"efa_host_info", 7},
    {"efa_bad_doorbell", 4},
    {"efa_queue_broken", 4},
    {"efa_cq_unreachable", 4},
    {"efa_eq_unreachable", 4},
    {"efa_payload_dma", 4},
    {"efa_posted_write_lost", 4},
    {"efa_receive_no_buffer", 7},
    {"efa_receive_refused", 4},
    {"efa_bad_frame", 4},
    {"efa_bad_checksum", 4},
    {"efa_stale_frame", 7},
    {"efa_too_many_peers", 4},
    {"efa_peer_evicted", 6},
    {"efa_peer_gone", 6},
    {"efa_peer_reset", 6},
    {"efa_peer_timeout", 6},
    {"efa_link_down", 6},
    {"efa_resend", 7},
}};

}  // namespace weft::efa
