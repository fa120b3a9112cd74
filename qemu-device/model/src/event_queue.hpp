// SPDX-License-Identifier: MIT
// The event queue: what the hardware tells the driver by itself (enum weft_event_type), a ring in host memory.
#pragma once

#include <cstdint>
#include <vector>

#include "counters.hpp"
#include "host_port.hpp"
#include "interrupts.hpp"
#include "weft/hw/mbox.h"

namespace weft::model {

class EventQueue {
 public:
  EventQueue(HostPort& host, Counters& counters, Interrupts& interrupts);

  // The ring, as WEFT_MBOX_EVENT_QUEUE gives it; starts empty. WEFT_ERR_BAD_FIELD, WEFT_ERR_BAD_ALIGN.
  weft_error configure(const weft_mbox_event_queue& ring);
  // WEFT_REG_EQ_CONSUMER; a value that the ring cannot have is ignored and counted.
  void set_consumer(std::uint32_t consumer);
  std::uint32_t consumer() const { return consumer_; }

  // Notes an event; it is written by flush(). Lost, and counted, when too many wait.
  void post(weft_event_type type, std::uint32_t context, std::uint32_t object, weft_error error, std::uint64_t value);
  // Writes what was noted and raises WEFT_IRQ_EVENT. Without a ring they wait for one; when it is full, they are lost.
  void flush();
  void reset();

 private:
  HostPort& host_;
  Counters& counters_;
  Interrupts& interrupts_;
  std::uint64_t address_ = 0;
  std::uint32_t entries_ = 0;   // 0: no ring
  std::uint32_t producer_ = 0;  // free-running, as the consumer
  std::uint32_t consumer_ = 0;
  std::vector<weft_event> noted_;
};

}  // namespace weft::model
