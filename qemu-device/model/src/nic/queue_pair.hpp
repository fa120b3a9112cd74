// SPDX-License-Identifier: MIT
// A queue pair: what the mailbox knows of it, its two halves, its place in the device's lists.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "packet.hpp"
#include "port.hpp"
#include "requester.hpp"
#include "responder.hpp"
#include "timers.hpp"
#include "weft/hw/mbox.h"
#include "weft/hw/qp.h"

namespace weft::model::nic {

struct QueuePair {
  weft_qp_entry entry{};
  Path path;
  Gid sgid{};
  Gid dgid{};
  Mac smac{};
  std::uint32_t cls = 0;  // of the link, or kLoopback
  Requester requester;
  Responder responder;
  // Scheduling.
  bool wants_data = false;    // is in the list of those with data to send
  bool wants_answer = false;  // is in the list of those with an answer to send
  bool parked = false;        // waits for credit
  Timers::Hook timer;

  std::uint32_t mtu() const { return 128u << entry.path_mtu; }
  bool receives() const { return entry.state == WEFT_QPS_RTR || entry.state == WEFT_QPS_RTS; }
  bool sends() const { return entry.state == WEFT_QPS_RTS; }
};

// A queue pair as QP_CREATE makes it, in RESET; what is wrong with it otherwise.
Error make_queue_pair(const weft_qp_entry& wanted, std::uint32_t ports, QueuePair& qp);

// What a transition requires and allows, WEFT_QPM_* (IBTA volume 1, section 11.2.5.2); nothing: there is none. To RESET
// and ERR one may always go, with no fields.
struct TransitionRule {
  std::uint32_t required = 0;
  std::uint32_t allowed = 0;
};
std::optional<TransitionRule> transition_rule(std::uint8_t type, std::uint8_t from, std::uint8_t to);

// Checks and applies a QP_MODIFY except for what its new state sets in motion. Nothing changes on error.
// WEFT_ERR_MBOX_STATE, WEFT_ERR_BAD_FIELD, WEFT_ERR_BAD_GID; WEFT_ERR_UNSUPPORTED: SQD.
Error apply_modify(QueuePair& qp, const weft_mbox_qp_modify& modify, std::span<const Port> ports);

}  // namespace weft::model::nic
