// SPDX-License-Identifier: MIT
// The mailbox between driver and firmware (weft/hw/mbox.h): one request at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "counters.hpp"
#include "interrupts.hpp"
#include "weft/hw/regs.h"

namespace weft::model {

class Mailbox {
 public:
  using Window = std::array<std::uint32_t, WEFT_MBOX_BYTES / 4>;

  Mailbox(Counters& counters, Interrupts& interrupts) : counters_(counters), interrupts_(interrupts) {}

  // The driver's side; word < size of a window.
  std::uint32_t request_word(std::size_t word) const { return request_[word]; }
  void set_request_word(std::size_t word, std::uint32_t value) { request_[word] = value; }
  std::uint32_t response_word(std::size_t word) const { return response_[word]; }
  std::uint32_t done() const { return done_; }
  // Doorbell. The request is latched, so that the driver cannot change it under the firmware's hands. False, and
  // ignored: number 0, or a request is still unanswered.
  bool ring(std::uint32_t sequence) {
    if (sequence == 0 || pending_ != 0) return false;
    latched_ = request_;
    pending_ = sequence;
    return true;
  }

  // The firmware's side.
  std::uint32_t latched_word(std::size_t word) const { return latched_[word]; }
  std::uint32_t answer_word(std::size_t word) const { return answer_[word]; }
  void set_answer_word(std::size_t word, std::uint32_t value) { answer_[word] = value; }
  std::uint32_t pending() const { return pending_; }
  // Answers the pending request; another number is ignored.
  void answer(std::uint32_t sequence) {
    if (pending_ == 0 || sequence != pending_) return;
    response_ = answer_;
    done_ = sequence;
    pending_ = 0;
    counters_.add(WEFT_CTR_mbox_requests);
    interrupts_.cause(WEFT_IRQ_MBOX);
  }

  void reset() {
    request_ = latched_ = answer_ = response_ = {};
    pending_ = done_ = 0;
  }

 private:
  Counters& counters_;
  Interrupts& interrupts_;
  Window request_{}, latched_{}, answer_{}, response_{};
  std::uint32_t pending_ = 0;
  std::uint32_t done_ = 0;
};

}  // namespace weft::model
