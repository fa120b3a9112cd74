// SPDX-License-Identifier: MIT
#include "completions.hpp"

#include <algorithm>
#include <bit>

namespace weft::efa {

using enum hw::AdminStatus;

hw::AdminStatus Completions::create_cq(const hw::CreateCqCommand& command, hw::CreateCqReply& reply) {
  const std::uint32_t entry_bytes = (command.caps2 & 0x1fu) * 4;
  const bool interrupts = (command.caps1 & hw::kCqInterrupt) != 0;
  const bool source_address = (command.caps2 & hw::kCqSourceAddress) != 0;
  if (command.caps1 & hw::kCqVirtual) return kUnsupported;
  if (entry_bytes != 16 && entry_bytes != sizeof(hw::Cqe)) return kIllegalParameter;
  if (source_address && entry_bytes != sizeof(hw::Cqe)) return kIllegalParameter;
  if (!std::has_single_bit(command.depth) || command.depth > hw::kCompletionDepth || command.sub_cqs != 1) {
    return kIllegalParameter;
  }
  const std::uint64_t base = command.base.value();
  const std::uint64_t bytes = std::uint64_t{command.depth} * entry_bytes;
  if (base % entry_bytes != 0 || base > UINT64_MAX - bytes) return kIllegalParameter;
  if (interrupts && (command.eqn >= eqs_.size() || !eqs_[command.eqn].used)) return kIllegalParameter;
  const auto found = std::ranges::find(cqs_, false, &CompletionQueue::used);
  if (found == cqs_.end()) return kNoResource;
  *found = {.used = true,
            .interrupts = interrupts,
            .source_address = source_address,
            .entry_bytes = entry_bytes,
            .depth = command.depth,
            .eq = interrupts ? command.eqn : std::uint16_t{0},
            .base = base};
  if (interrupts) ++eqs_[command.eqn].users;
  const auto index = static_cast<std::uint16_t>(found - cqs_.begin());
  reply = {index, command.depth, static_cast<std::uint32_t>((hw::kQueuePairs + index) * hw::kPage), 1};
  return kSuccess;
}

hw::AdminStatus Completions::destroy_cq(std::uint16_t index) {
  CompletionQueue* queue = cq(index);
  if (queue == nullptr) return kIllegalParameter;
  if (queue->users > 0) return kBusy;
  if (queue->interrupts) --eqs_[queue->eq].users;
  *queue = {};
  return kSuccess;
}

hw::AdminStatus Completions::create_eq(const hw::CreateEqCommand& command, std::uint16_t& index) {
  const std::uint64_t base = command.base.value();
  const std::uint64_t bytes = std::uint64_t{command.depth} * sizeof(hw::EventEntry);
  if (!std::has_single_bit(command.depth) || command.depth > hw::kEventDepth || command.vector >= hw::kVectors ||
      (command.caps & 0x1f) * 4 != sizeof(hw::EventEntry) || base % sizeof(hw::EventEntry) != 0 ||
      base > UINT64_MAX - bytes) {
    return kIllegalParameter;
  }
  const auto found = std::ranges::find(eqs_, false, &EventQueue::used);
  if (found == eqs_.end()) return kNoResource;
  *found = {.used = true, .vector = command.vector, .depth = command.depth, .base = base};
  index = static_cast<std::uint16_t>(found - eqs_.begin());
  return kSuccess;
}

hw::AdminStatus Completions::destroy_eq(std::uint16_t index) {
  if (index >= eqs_.size() || !eqs_[index].used) return kIllegalParameter;
  if (eqs_[index].users > 0) return kBusy;
  eqs_[index] = {};
  return kSuccess;
}

void Completions::clear() {
  cqs_.fill({});
  eqs_.fill({});
}

void Completions::post(std::uint32_t index, hw::Cqe cqe) {
  CompletionQueue* queue = cq(index);
  if (queue == nullptr) return;
  const std::uint32_t slot = queue->produced & (queue->depth - 1);
  const bool phase = (queue->produced & queue->depth) == 0;  // 1 in the first round
  cqe.flags = static_cast<std::uint8_t>((cqe.flags & ~hw::kCqePhase) | (phase ? hw::kCqePhase : 0));
  const std::uint64_t at = queue->base + std::uint64_t{slot} * queue->entry_bytes;
  if (!host_.publish(at, hw::bytes_of(cqe).first(queue->entry_bytes), 0)) {
    host_.report(Event::kCqUnreachable, {index, at});
    return;
  }
  ++queue->produced;
  if (queue->armed) {
    queue->armed = false;
    post_event(static_cast<std::uint16_t>(index));
  }
}

void Completions::arm_cq(std::uint32_t index, std::uint16_t consumed) {
  CompletionQueue* queue = cq(index);
  if (queue == nullptr || !queue->interrupts) return;
  queue->armed = static_cast<std::uint16_t>(queue->produced) == consumed;
  if (!queue->armed) post_event(static_cast<std::uint16_t>(index));  // it has missed some already
}

void Completions::post_event(std::uint16_t index) {
  EventQueue& queue = eqs_[cqs_[index].eq];
  if (!queue.used) return;
  const std::uint32_t slot = queue.produced & (queue.depth - 1);
  const bool phase = (queue.produced & queue.depth) == 0;
  const hw::EventEntry entry{.common = phase ? 1u : 0u, .reserved = 0, .cqn = index, .reserved2 = 0, .reserved3 = 0};
  const std::uint64_t at = queue.base + std::uint64_t{slot} * sizeof(entry);
  if (!host_.publish(at, hw::bytes_of(entry), 0)) {
    host_.report(Event::kEqUnreachable, {index, at});
    return;
  }
  ++queue.produced;
  // The doorbell carries no consumer index. So an entry that comes between the driver's last look and its arming must
  // raise the interrupt when it arms.
  queue.unseen = true;
  if (queue.armed) {
    queue.armed = queue.unseen = false;
    host_.irq(queue.vector);
  }
}

void Completions::arm_eq(std::uint32_t index) {
  if (index >= eqs_.size() || !eqs_[index].used) return;
  EventQueue& queue = eqs_[index];
  queue.armed = !queue.unseen;
  if (queue.unseen) {
    queue.unseen = false;
    host_.irq(queue.vector);
  }
}

}  // namespace weft::efa
