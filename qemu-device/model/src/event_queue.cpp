// SPDX-License-Identifier: MIT
#include "event_queue.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

namespace weft::model {

namespace {
constexpr std::size_t kNotedMax = 1024;  // as the largest ring
}

EventQueue::EventQueue(HostPort& host, Counters& counters, Interrupts& interrupts)
    : host_(host), counters_(counters), interrupts_(interrupts) {
  noted_.reserve(64);
}

weft_error EventQueue::configure(const weft_mbox_event_queue& ring) {
  if (!std::has_single_bit(ring.entries) || ring.entries < 16 || ring.entries > 1024 || ring.vector != 0) {
    return WEFT_ERR_BAD_FIELD;
  }
  if (ring.addr % 64 != 0) return WEFT_ERR_BAD_ALIGN;
  if (ring.addr > UINT64_MAX - (ring.entries * sizeof(weft_event) - 1)) return WEFT_ERR_BAD_RANGE;
  address_ = ring.addr;
  entries_ = ring.entries;
  producer_ = consumer_ = 0;
  return WEFT_ERR_OK;
}

void EventQueue::set_consumer(std::uint32_t consumer) {
  if (producer_ - consumer > entries_ || producer_ - consumer > producer_ - consumer_) {
    counters_.error(WEFT_ERR_BAD_FIELD);
    return;
  }
  consumer_ = consumer;
}

void EventQueue::post(weft_event_type type, std::uint32_t context, std::uint32_t object, weft_error error,
                      std::uint64_t value) {
  if (noted_.size() >= kNotedMax) {
    counters_.add(WEFT_CTR_events_lost);
    return;
  }
  weft_event event{};
  event.type = static_cast<std::uint8_t>(type);
  event.error = static_cast<std::uint16_t>(error);
  event.ctx = context;
  event.object = object;
  event.value = value;
  event.time = host_.now_ns();
  noted_.push_back(event);
}

void EventQueue::flush() {
  if (entries_ == 0) return;
  bool written = false;
  for (weft_event& event : noted_) {
    if (producer_ - consumer_ >= entries_) {
      counters_.add(WEFT_CTR_events_lost);
      continue;
    }
    const std::uint32_t lap = producer_ / entries_;
    const std::uint64_t slot = address_ + std::uint64_t{producer_ % entries_} * sizeof(event);
    const auto owner = static_cast<std::uint8_t>((lap & 1) ^ 1);
    // The entry still carries the owner of the lap before; the new one goes last and by itself.
    event.owner = owner ^ 1;
    if (!host_.dma_write(slot, std::as_bytes(std::span(&event, 1)), WEFT_ABI_DMA_CONTROL) ||
        !host_.publish(slot + offsetof(weft_event, owner), std::as_bytes(std::span(&owner, 1)))) {
      counters_.error(WEFT_ERR_DMA);
      counters_.add(WEFT_CTR_events_lost);
      continue;
    }
    ++producer_;
    counters_.add(WEFT_CTR_events);
    written = true;
  }
  noted_.clear();
  if (written) interrupts_.cause(WEFT_IRQ_EVENT);
}

void EventQueue::reset() {
  address_ = 0;
  entries_ = producer_ = consumer_ = 0;
  noted_.clear();
}

}  // namespace weft::model
