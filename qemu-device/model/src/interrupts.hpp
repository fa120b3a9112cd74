// SPDX-License-Identifier: MIT
// MSI-X: vector 0 with cause and mask registers, and the contexts' vectors. Messages are collected while a step runs
// and sent at its end, after everything that they announce has been written.
#pragma once

#include <bit>
#include <cstdint>

#include "counters.hpp"
#include "host_port.hpp"
#include "weft/hw/regs.h"

namespace weft::model {

class Interrupts {
 public:
  Interrupts(HostPort& host, Counters& counters) : host_(host), counters_(counters) {}

  // `bits` of WEFT_IRQ_*: noted in the cause register; vector 0 follows if the mask lets one through.
  void cause(std::uint32_t bits) {
    cause_ |= bits;
    if (bits & mask_) raise(0);
  }
  // One message on `vector`, however often it is raised before send(). Vectors that do not exist are ignored.
  void raise(std::uint32_t vector) {
    if (vector < WEFT_VECTORS) pending_ |= 1u << vector;
  }

  std::uint32_t cause() const { return cause_; }
  void clear_cause(std::uint32_t bits) { cause_ &= ~bits; }
  std::uint32_t mask() const { return mask_; }
  // Unmasking what is pending sends its message.
  void set_mask(std::uint32_t mask) {
    const std::uint32_t opened = mask & ~mask_;
    mask_ = mask & (WEFT_IRQ_MBOX | WEFT_IRQ_EVENT | WEFT_IRQ_FATAL);
    if (cause_ & opened & mask_) raise(0);
  }

  bool pending() const { return pending_ != 0; }
  void send() {
    while (pending_ != 0) {
      const auto vector = static_cast<std::uint32_t>(std::countr_zero(pending_));
      pending_ &= pending_ - 1;
      counters_.add(WEFT_CTR_interrupts);
      host_.irq(vector);
    }
  }
  void reset() { cause_ = mask_ = pending_ = 0; }

 private:
  HostPort& host_;
  Counters& counters_;
  std::uint32_t cause_ = 0;
  std::uint32_t mask_ = 0;
  std::uint32_t pending_ = 0;  // bit = vector
};

}  // namespace weft::model
