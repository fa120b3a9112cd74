// SPDX-License-Identifier: MIT
#include "command_processor.hpp"

#include <algorithm>
#include <bit>

namespace weft::model {

CommandProcessor::CommandProcessor(HostPort& host, Counters& counters, Contexts& contexts, RegionTable& memory,
                                   EventQueue& events)
    : services_{host, counters, contexts, memory, mover_, events}, mover_(memory, counters) {}

CommandProcessor::~CommandProcessor() = default;

Error CommandProcessor::create(const weft_queue_entry& entry) {
  if (entry.queue >= WEFT_QUEUES_PER_CONTEXT || entry.priority != 0 || entry.flags != 0 ||
      !std::has_single_bit(entry.entries) || entry.entries < 16 || entry.entries > 65536 ||
      std::ranges::any_of(entry.reserved, [](std::uint64_t word) { return word != 0; })) {
    return WEFT_ERR_BAD_FIELD;
  }
  if (!services_.contexts.exists(entry.ctx)) return WEFT_ERR_MBOX_NOT_FOUND;
  if (entry.ring_addr % 64 != 0) return WEFT_ERR_BAD_ALIGN;
  const Range ring{entry.ring_key, entry.ring_addr, sizeof(weft_ring_head) + std::uint64_t{entry.entries} * 64};
  for (std::uint32_t right : {WEFT_RIGHT_READ, WEFT_RIGHT_WRITE}) {
    const Region* region = nullptr;
    if (Error error = services_.memory.find({entry.ctx, right}, ring, region); error != WEFT_ERR_OK) return error;
  }
  const std::uint64_t place = std::uint64_t{entry.ctx} * WEFT_QUEUES_PER_CONTEXT + entry.queue;
  if (queues_[place]) return WEFT_ERR_MBOX_BUSY;
  const std::uint64_t use = ++uses_ & ((std::uint64_t{1} << kUseBits) - 1);
  queues_[place] =
      std::make_unique<CommandQueue>(*this, services_, entry, place << (kUseBits + kIndexBits) | use << kIndexBits);
  head_changed(*queues_[place]);
  return WEFT_ERR_OK;
}

Error CommandProcessor::destroy(std::uint32_t context, std::uint32_t queue) {
  CommandQueue* found = find(context, queue);
  if (found == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  if (found->rdma_in_flight() != 0) {
    const std::uint64_t base = found->token_base();
    services_.nic->cancel([base](std::uint64_t token) { return token >> kIndexBits == base >> kIndexBits; });
  }
  queues_[context * WEFT_QUEUES_PER_CONTEXT + queue].reset();
  return WEFT_ERR_OK;
}

Error CommandProcessor::abort(std::uint32_t context, std::uint32_t queue) {
  CommandQueue* found = find(context, queue);
  if (found == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  found->abort(WEFT_ERR_ABORTED);
  return WEFT_ERR_OK;
}

void CommandProcessor::destroy_context(std::uint32_t context) {
  for (std::uint32_t queue = 0; queue < WEFT_QUEUES_PER_CONTEXT; ++queue) destroy(context, queue);
}

void CommandProcessor::reset() {
  for (auto& queue : queues_) queue.reset();
}

bool CommandProcessor::ring(std::uint32_t context, std::uint32_t queue, std::uint64_t producer) {
  CommandQueue* found = find(context, queue);
  if (found == nullptr) return false;
  services_.counters.add(WEFT_CTR_doorbells);
  found->ring(producer);
  return true;
}

void CommandProcessor::rdma_completed(std::uint64_t token, Error error) {
  const std::uint64_t place = token >> (kUseBits + kIndexBits);
  if (place >= queues_.size() || !queues_[place]) return;
  CommandQueue& queue = *queues_[place];
  if (token >> kIndexBits != queue.token_base() >> kIndexBits) return;
  queue.rdma_completed(static_cast<std::uint32_t>(token & ((1u << kIndexBits) - 1)), error);
}

std::uint64_t CommandProcessor::run(std::uint64_t budget) {
  std::uint64_t spent = 0;
  while (spent < budget && !active_.empty()) {
    CommandQueue& queue = active_.front();
    spent += std::max<std::uint64_t>(queue.turn(std::min(kTurn, budget - spent)), 64);
    // Its place now is behind the others; what became active meanwhile is there already.
    queue.QueueHook<ActiveTag>::unlink();
    if (queue.still_busy()) active_.push_back(queue);
  }
  return spent;
}

void CommandProcessor::flush() {
  while (!heads_.empty()) {
    CommandQueue& queue = heads_.front();
    queue.write_head();
    queue.QueueHook<HeadTag>::unlink();
  }
}

void CommandProcessor::activate(CommandQueue& queue) {
  if (!queue.QueueHook<ActiveTag>::is_linked()) active_.push_back(queue);
}

void CommandProcessor::head_changed(CommandQueue& queue) {
  if (!queue.QueueHook<HeadTag>::is_linked()) heads_.push_back(queue);
}

CommandQueue* CommandProcessor::find(std::uint32_t context, std::uint32_t queue) {
  if (context >= WEFT_CONTEXTS_MAX || queue >= WEFT_QUEUES_PER_CONTEXT) return nullptr;
  return queues_[context * WEFT_QUEUES_PER_CONTEXT + queue].get();
}

}  // namespace weft::model
