// SPDX-License-Identifier: MIT
#include "command_queue.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <span>

#include "reduce.hpp"

namespace weft::model {
namespace {

// Which fields an operation uses: the first operands, and the others by name. Further ones must be 0.
struct Fields {
  int addresses;
  int keys;
  bool length;
  int args;
};
constexpr Fields kFields[] = {
    {0, 0, false, 0},  // NOP
    {2, 2, true, 0},   // COPY
    {2, 1, true, 0},   // FILL: addr[1] is the pattern
    {3, 3, true, 2},   // REDUCE
    {2, 3, true, 1},   // RDMA: key[2] is the channel; addr[2] an immediate
    {0, 0, false, 0},  // FENCE
    {1, 1, false, 0},  // TIMESTAMP
    {1, 0, false, 0},  // SIGNAL: addr[0] is the amount
};
static_assert(std::size(kFields) == WEFT_OP_SIGNAL + 1);

}  // namespace

CommandQueue::CommandQueue(QueueOwner& owner, QueueServices& services, const weft_queue_entry& entry,
                           std::uint64_t token_base)
    : owner_(owner),
      services_(services),
      context_(entry.ctx),
      number_(entry.queue),
      ring_key_(entry.ring_key),
      entries_(entry.entries),
      ring_address_(entry.ring_addr),
      token_base_(token_base) {
  for (Command& command : window_) {
    command.queue = this;
    for (Wait& wait : command.wait) wait.command = &command;
    free_.push_back(command);
  }
}

void CommandQueue::Wait::reached() {
  if (--command->unmet == 0) {
    command->queue->ready_.push_back(*command);
    command->queue->owner_.activate(*command->queue);
  }
}

void CommandQueue::ring(std::uint64_t producer) {
  if (halted()) return;
  if (producer - fetched_ > entries_ || producer - fetched_ < producer_ - fetched_) {
    overrun_ = true;  // further ahead than the ring is long, or back
  } else {
    producer_ = producer;
  }
  decode_more_ = true;
  owner_.activate(*this);
}

std::uint64_t CommandQueue::turn(std::uint64_t budget) {
  std::uint64_t spent = 0;
  if (overrun_ && !halted()) halt(WEFT_ERR_OVERRUN, fetched_);
  while (!halted() && spent < budget) {
    spent += decode();
    if (halted()) break;
    if (!ready_.empty()) {
      spent += execute(ready_.front(), budget - std::min(budget, spent));
    } else if (!decode_more_) {
      break;
    }
  }
  return spent;
}

// Moves commands from the stage to the scoreboard, while there are any and they may come in.
std::uint64_t CommandQueue::decode() {
  std::uint64_t cost = 0;
  decode_more_ = false;
  for (std::uint32_t commands = 0; !halted(); ++commands) {
    if (free_.empty() || (fenced_ && in_flight_ != 0)) break;
    fenced_ = false;
    if (!stage_next(cost)) break;
    const weft_cmd& cmd = stage_[stage_begin_].cmd;
    const bool fence = cmd.op == WEFT_OP_FENCE || (cmd.flags & WEFT_CMD_FENCED) != 0;
    if (fence && in_flight_ != 0) break;
    if (commands == kStage) {
      decode_more_ = true;
      break;
    }
    const bool extended = (cmd.flags & WEFT_CMD_EXT) != 0;
    const std::uint64_t slot = fetched_ - staged();
    const weft_cmd_ext* ext = extended ? &stage_[stage_begin_ + 1].ext : nullptr;
    stage_begin_ += extended ? 2 : 1;
    accept(cmd, ext, slot);
  }
  return cost;
}

// True when a whole command, with its extension, is in the stage. Reads the ring at most twice (it may end in between).
bool CommandQueue::stage_next(std::uint64_t& cost) {
  for (;;) {
    const std::uint64_t have = staged();
    if (have >= 2 || (have == 1 && (stage_[stage_begin_].cmd.flags & WEFT_CMD_EXT) == 0)) return true;
    if (have == 1) stage_[0] = stage_[stage_begin_];
    stage_begin_ = 0;
    stage_end_ = static_cast<std::uint32_t>(have);
    const std::uint64_t index = fetched_ % entries_;
    const std::uint64_t slots = std::min({producer_ - fetched_, entries_ - index, kStage - have});
    if (slots == 0) return false;
    const std::uint64_t address = ring_address_ + sizeof(weft_ring_head) + index * sizeof(Slot);
    const std::uint64_t bytes = slots * sizeof(Slot);
    const Region* region = nullptr;
    Error error = services_.memory.find({context_, WEFT_RIGHT_READ}, {ring_key_, address, bytes}, region);
    if (error == WEFT_ERR_OK) {
      const auto into = std::as_writable_bytes(std::span(stage_).subspan(have, slots));
      error = services_.memory.load(*region, address, into, WEFT_ABI_DMA_CONTROL);
    }
    if (error != WEFT_ERR_OK) {
      halt(error, fetched_ - have);
      return false;
    }
    stage_end_ += static_cast<std::uint32_t>(slots);
    fetched_ += slots;
    cost += slots * kFetchCost;
    owner_.head_changed(*this);
  }
}

Error CommandQueue::check_fields(const weft_cmd& cmd, const weft_cmd_ext* ext) const {
  if (cmd.version != WEFT_CMD_VERSION) return WEFT_ERR_BAD_VERSION;
  if (cmd.op >= std::size(kFields)) return WEFT_ERR_BAD_OP;
  if (cmd.op == WEFT_OP_RDMA && cmd.arg0 > WEFT_RDMA_SEND) return WEFT_ERR_BAD_OP;
  if (cmd.flags & ~(WEFT_CMD_EXT | WEFT_CMD_FENCED)) return WEFT_ERR_BAD_FIELD;
  if (cmd.op == WEFT_OP_REDUCE && (dtype_bytes(cmd.arg0) == 0 || cmd.arg1 >= WEFT_REDOPS)) return WEFT_ERR_BAD_TYPE;
  const Contexts& contexts = services_.contexts;
  if (cmd.wait_id != WEFT_SYNC_NONE && !contexts.valid(context_, cmd.wait_id)) return WEFT_ERR_BAD_SYNC;
  if (cmd.signal_id != WEFT_SYNC_NONE && !contexts.valid(context_, cmd.signal_id)) return WEFT_ERR_BAD_SYNC;
  if (cmd.signal_id == WEFT_SYNC_NONE && cmd.op == WEFT_OP_SIGNAL) return WEFT_ERR_BAD_SYNC;

  const Fields& used = kFields[cmd.op];
  const bool immediate = cmd.op == WEFT_OP_RDMA && cmd.arg0 == WEFT_RDMA_WRITE_IMM;
  if (immediate && cmd.addr[2] > UINT32_MAX) return WEFT_ERR_BAD_FIELD;
  for (int i = 0; i < 3; ++i) {
    if (cmd.addr[i] != 0 && i >= used.addresses + (immediate ? 1 : 0)) return WEFT_ERR_BAD_FIELD;
    if (cmd.key[i] != 0 && i >= used.keys) return WEFT_ERR_BAD_FIELD;
  }
  if ((cmd.length != 0 && !used.length) || (cmd.arg0 != 0 && used.args < 1) || (cmd.arg1 != 0 && used.args < 2) ||
      (cmd.wait_value != 0 && cmd.wait_id == WEFT_SYNC_NONE) ||
      (cmd.signal_add != 0 && (cmd.signal_id == WEFT_SYNC_NONE || cmd.op == WEFT_OP_SIGNAL))) {
    return WEFT_ERR_BAD_FIELD;
  }
  if (ext == nullptr) return WEFT_ERR_OK;
  if (ext->version != WEFT_CMD_VERSION) return WEFT_ERR_BAD_VERSION;
  if (ext->waits > 2 || ext->reserved0 != 0 || ext->reserved1 != 0) return WEFT_ERR_BAD_FIELD;
  for (int i = 0; i < 3; ++i) {
    if (ext->dim[i] != 0 || ext->stride[i] != 0) return WEFT_ERR_BAD_FIELD;
  }
  if (ext->arg16 != 0 && (cmd.op != WEFT_OP_REDUCE || cmd.arg1 != WEFT_AVG)) return WEFT_ERR_BAD_FIELD;
  for (std::uint32_t i = 0; i < 2; ++i) {
    if (i >= ext->waits && (ext->wait_id[i] != 0 || ext->wait_value[i] != 0)) return WEFT_ERR_BAD_FIELD;
    if (i < ext->waits && !contexts.valid(context_, ext->wait_id[i])) return WEFT_ERR_BAD_SYNC;
  }
  return WEFT_ERR_OK;
}

void CommandQueue::accept(const weft_cmd& cmd, const weft_cmd_ext* ext, std::uint64_t slot) {
  if (Error error = check_fields(cmd, ext); error != WEFT_ERR_OK) return halt(error, slot);
  Command& command = free_.front();
  free_.pop_front();
  command.cmd = cmd;
  command.arg16 = ext ? ext->arg16 : 0;
  command.with_nic = false;
  command.slot = slot;
  command.done = 0;
  command.live = true;
  command.unmet = 0;
  ++in_flight_;
  fenced_ = cmd.op == WEFT_OP_FENCE;

  const auto wait_for = [&](std::size_t which, std::uint32_t sync, std::uint64_t value) {
    command.wait[which].value = value;
    if (!services_.contexts.wait(context_, sync, command.wait[which])) ++command.unmet;
  };
  if (cmd.wait_id != WEFT_SYNC_NONE) wait_for(0, cmd.wait_id, cmd.wait_value);
  for (std::uint32_t i = 0; ext && i < ext->waits; ++i) wait_for(1 + i, ext->wait_id[i], ext->wait_value[i]);
  if (command.unmet == 0) ready_.push_back(command);
}

// Works on the first ready command; returns what it cost.
std::uint64_t CommandQueue::execute(Command& command, std::uint64_t budget) {
  DataMover::Slice slice{.finished = true};
  switch (command.cmd.op) {
    case WEFT_OP_COPY:
      slice = services_.mover.copy(context_, command.cmd, command.done, budget);
      break;
    case WEFT_OP_FILL:
      slice = services_.mover.fill(context_, command.cmd, command.done, budget);
      break;
    case WEFT_OP_REDUCE:
      slice = services_.mover.reduce(context_, command.cmd, command.arg16, command.done, budget);
      break;
    case WEFT_OP_RDMA:
      if (Error error = start_rdma(command); error != WEFT_ERR_OK) halt(error, command.slot);
      return kCommandCost;
    case WEFT_OP_TIMESTAMP:
      slice.error = timestamp(command.cmd);
      break;
    default:  // NOP, FENCE, SIGNAL: what follows completion is all that they do
      break;
  }
  if (slice.error != WEFT_ERR_OK) {
    halt(slice.error, command.slot);
  } else if (slice.finished) {
    complete(command);
  } else {
    command.done += slice.bytes;
    return slice.bytes;
  }
  return kCommandCost + slice.bytes;
}

Error CommandQueue::start_rdma(Command& command) {
  const weft_cmd& cmd = command.cmd;
  const auto op = static_cast<weft_rdma_op>(cmd.arg0);
  const std::uint32_t right = op == WEFT_RDMA_READ ? WEFT_RIGHT_WRITE : WEFT_RIGHT_READ;
  const Range local{cmd.key[0], cmd.addr[0], cmd.length};
  const Region* region = nullptr;
  if (Error error = services_.memory.find({context_, right}, local, region); error != WEFT_ERR_OK) return error;
  WorkRequest request;
  request.token = token_base_ + static_cast<std::uint64_t>(&command - window_.data());
  request.context = context_;
  request.op = op;
  request.local = local;
  request.remote_key = cmd.key[1];
  request.remote_address = cmd.addr[1];
  request.immediate = op == WEFT_RDMA_WRITE_IMM ? static_cast<std::uint32_t>(cmd.addr[2]) : 0;
  if (Error error = services_.nic->post(cmd.key[2], request); error != WEFT_ERR_OK) return error;
  command.list.unlink();
  command.with_nic = true;
  ++rdma_in_flight_;
  return WEFT_ERR_OK;
}

Error CommandQueue::timestamp(const weft_cmd& cmd) {
  if (cmd.addr[0] % 8 != 0) return WEFT_ERR_BAD_ALIGN;
  const Region* region = nullptr;
  const Range range{cmd.key[0], cmd.addr[0], sizeof(std::uint64_t)};
  if (Error error = services_.memory.find({context_, WEFT_RIGHT_WRITE}, range, region); error != WEFT_ERR_OK) {
    return error;
  }
  const std::uint64_t now = services_.host.now_ns();
  return services_.memory.store(*region, cmd.addr[0], std::as_bytes(std::span(&now, 1)), WEFT_ABI_DMA_PAYLOAD);
}

void CommandQueue::rdma_completed(std::uint32_t index, Error error) {
  Command& command = window_[index];
  if (!command.with_nic) return;
  command.with_nic = false;
  --rdma_in_flight_;
  if (halted()) return;
  if (error != WEFT_ERR_OK) return halt(error, command.slot);
  services_.counters.add(WEFT_CTR_rdma_bytes, command.cmd.length);
  complete(command);
}

void CommandQueue::complete(Command& command) {
  Counters& counters = services_.counters;
  counters.add(WEFT_CTR_commands);
  switch (command.cmd.op) {
    case WEFT_OP_COPY:
      counters.add(WEFT_CTR_copy_ops);
      break;
    case WEFT_OP_FILL:
      counters.add(WEFT_CTR_fill_ops);
      break;
    case WEFT_OP_REDUCE:
      counters.add(WEFT_CTR_reduce_ops);
      break;
    case WEFT_OP_RDMA:
      counters.add(WEFT_CTR_rdma_ops);
      break;
    default:
      break;
  }
  const std::uint64_t add = command.cmd.op == WEFT_OP_SIGNAL ? command.cmd.addr[0] : command.cmd.signal_add;
  const std::uint32_t signal = command.cmd.signal_id;
  command.live = false;
  if (command.list.is_linked()) command.list.unlink();
  free_.push_front(command);
  --in_flight_;
  ++completed_;
  owner_.head_changed(*this);
  decode_more_ = true;  // a place in the window is free, and a fence may be met
  owner_.activate(*this);
  if (signal != WEFT_SYNC_NONE) services_.contexts.signal(context_, signal, add);
}

void CommandQueue::abort(Error error) {
  if (!halted()) halt(error, oldest_slot());
}

std::uint64_t CommandQueue::oldest_slot() const {
  std::uint64_t oldest = fetched_ - staged();
  for (const Command& command : window_) {
    if (command.live) oldest = std::min(oldest, command.slot);
  }
  return oldest;
}

void CommandQueue::halt(Error error, std::uint64_t slot) {
  state_ = WEFT_QUEUE_HALTED;
  error_ = error;
  error_slot_ = slot;
  for (Command& command : window_) {
    for (Wait& wait : command.wait) {
      if (wait.waiting()) wait.forget();
    }
  }
  ready_.clear();
  decode_more_ = false;
  if (error != WEFT_ERR_ABORTED) services_.counters.add(WEFT_CTR_commands_failed);  // an abort is the host's own wish
  services_.counters.error(error);
  services_.events.post(WEFT_EVENT_QUEUE_ERROR, context_, number_, error, slot);
  const std::uint64_t values[] = {context_, number_, static_cast<std::uint64_t>(error), slot};
  services_.host.log(WEFT_ABI_LOG_WARNING, "queue_halted", values);
  owner_.head_changed(*this);
}

void CommandQueue::write_head() {
  const weft_ring_head head{.fetched = fetched_,
                            .completed = completed_,
                            .state = state_,
                            .error = static_cast<std::uint32_t>(error_),
                            .error_index = error_slot_,
                            .error_program = 0,
                            .error_iteration = 0,
                            .error_pc = 0,
                            .error_depth = 0,
                            .reserved = 0};
  constexpr std::size_t kPublished = offsetof(weft_ring_head, error_index);
  const auto bytes = std::as_bytes(std::span(&head, 1));
  const Region* region = nullptr;
  Error error = services_.memory.find({context_, WEFT_RIGHT_WRITE}, {ring_key_, ring_address_, sizeof(head)}, region);
  if (error == WEFT_ERR_OK && halted()) {
    error =
        services_.memory.store(*region, ring_address_ + kPublished, bytes.subspan(kPublished), WEFT_ABI_DMA_CONTROL);
  }
  // Whoever sees the state sees where the error is, and whoever sees a command completed sees what it did.
  std::atomic_thread_fence(std::memory_order_release);
  if (error == WEFT_ERR_OK) {
    error = services_.memory.store(*region, ring_address_, bytes.first(kPublished), WEFT_ABI_DMA_CONTROL);
  }
  if (error != WEFT_ERR_OK && !halted()) halt(error, oldest_slot());
}

}  // namespace weft::model
