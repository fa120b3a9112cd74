// SPDX-License-Identifier: MIT
// The owner of a channel's queue pair: the command processor posts, sync objects take the arrivals.
#pragma once

#include <cstdint>
#include <deque>

#include "requester.hpp"
#include "responder.hpp"
#include "weft/hw/mbox.h"
#include "weft/hw/qp.h"
#include "weft/model/nic.hpp"

namespace weft::model::nic {

// What the device around the NIC is told, in order, from within step().
struct Notice {
  enum class Kind : std::uint8_t { kCompleted, kQueuePairFailed, kPortChanged };
  Kind kind = Kind::kCompleted;
  Error error = WEFT_ERR_OK;
  std::uint32_t context = 0;
  std::uint32_t number = 0;  // QPN, port
  std::uint64_t token = 0;
  weft_port_state state = WEFT_PORT_DOWN;
};
using Notices = std::deque<Notice>;

class Channel final : public Completions, public Arrivals {
 public:
  Channel(const weft_qp_entry& entry, Memory& memory, Notices& notices)
      : entry_(entry), memory_(memory), notices_(notices) {}

  void complete(const WorkRequest& request, Error error) override {
    Notice notice;
    notice.error = error;
    notice.context = entry_.ctx;
    notice.number = entry_.qpn;
    notice.token = request.token;
    notices_.push_back(notice);
  }

  Error immediate_check(std::uint32_t immediate) override {
    return immediate < entry_.sync_count ? WEFT_ERR_OK : WEFT_ERR_BAD_SYNC;
  }

  Error immediate_arrived(std::uint32_t immediate) override {
    return memory_.signal(entry_.ctx, entry_.sync_base + immediate, 1);
  }

 private:
  const weft_qp_entry& entry_;
  Memory& memory_;
  Notices& notices_;
};

}  // namespace weft::model::nic
