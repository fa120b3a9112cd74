// SPDX-License-Identifier: MIT
// The command processor: all queues of all contexts, served in turn.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>

#include "command_queue.hpp"
#include "weft/hw/regs.h"

namespace weft::model {

class CommandProcessor final : public QueueOwner {
 public:
  CommandProcessor(HostPort& host, Counters& counters, Contexts& contexts, RegionTable& memory, EventQueue& events);
  ~CommandProcessor();

  void set_nic(Nic& nic) { services_.nic = &nic; }

  // As WEFT_MBOX_QUEUE_CREATE. WEFT_ERR_BAD_FIELD, BAD_ALIGN, MBOX_NOT_FOUND (context), MBOX_BUSY, and what the ring's
  // region refuses.
  Error create(const weft_queue_entry& entry);
  // Nothing of the queue is in flight when it returns: slices live within a step, and RDMA requests are taken back from
  // the NIC.
  Error destroy(std::uint32_t context, std::uint32_t queue);
  Error abort(std::uint32_t context, std::uint32_t queue);
  void destroy_context(std::uint32_t context);
  // Forgets all queues; the NIC must be reset too.
  void reset();

  // Doorbell. False: no such queue.
  bool ring(std::uint32_t context, std::uint32_t queue, std::uint64_t producer);
  // From the NIC.
  void rdma_completed(std::uint64_t token, Error error);

  // Works about `budget` bytes, queue by queue; returns what it spent.
  std::uint64_t run(std::uint64_t budget);
  bool busy() const { return !active_.empty(); }

  // Writes the heads that changed.
  void flush();

  // QueueOwner.
  void activate(CommandQueue& queue) override;
  void head_changed(CommandQueue& queue) override;

 private:
  static constexpr std::uint64_t kTurn = 256 * 1024;  // bytes that one queue works before the next has its turn
  static constexpr unsigned kIndexBits = 8;           // of a token: place in the window
  static constexpr unsigned kUseBits = 44;            // number of the queue's creation; above it the queue's place
  static_assert(CommandQueue::kWindow <= 1u << kIndexBits);
  static_assert(WEFT_CONTEXTS_MAX * WEFT_QUEUES_PER_CONTEXT <= 1u << (64 - kIndexBits - kUseBits));

  CommandQueue* find(std::uint32_t context, std::uint32_t queue);

  QueueServices services_;
  DataMover mover_;
  std::uint64_t uses_ = 0;
  boost::intrusive::list<CommandQueue, boost::intrusive::base_hook<QueueHook<ActiveTag>>,
                         boost::intrusive::constant_time_size<false>>
      active_;
  boost::intrusive::list<CommandQueue, boost::intrusive::base_hook<QueueHook<HeadTag>>,
                         boost::intrusive::constant_time_size<false>>
      heads_;
  std::array<std::unique_ptr<CommandQueue>, WEFT_CONTEXTS_MAX * WEFT_QUEUES_PER_CONTEXT> queues_;
};

}  // namespace weft::model
