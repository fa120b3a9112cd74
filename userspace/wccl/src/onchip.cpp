// SPDX-License-Identifier: MIT
#include "onchip.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.hpp"
#include "weft/hw/cmd.h"
#include "weft/hw/mem.h"

namespace weft::ccl {
namespace {

// wccl's numbers are the device's: nothing is translated.
static_assert(static_cast<int>(wcclInt8) == WEFT_I8 && static_cast<int>(wcclUint64) == WEFT_U64 &&
              static_cast<int>(wcclFloat16) == WEFT_F16 && static_cast<int>(wcclBfloat16) == WEFT_BF16 &&
              static_cast<int>(wcclFloat8e5m2) == WEFT_F8E5M2);
static_assert(static_cast<int>(wcclSum) == WEFT_SUM && static_cast<int>(wcclMax) == WEFT_MAX &&
              static_cast<int>(wcclMin) == WEFT_MIN && static_cast<int>(wcclAvg) == WEFT_AVG);

weft_cmd empty_command(weft_cmd_op op) {
  weft_cmd cmd{};
  cmd.op = static_cast<std::uint8_t>(op);
  cmd.version = WEFT_CMD_VERSION;
  cmd.wait_id = WEFT_SYNC_NONE;
  cmd.signal_id = WEFT_SYNC_NONE;
  return cmd;
}

void set_operand(weft_cmd& cmd, int i, weft_va va, std::uint32_t key) {
  cmd.addr[i] = va;
  cmd.key[i] = key;
}

// An empty message that raises a sync object of the peer. Both addresses are valid though nothing is read or written.
weft_cmd empty_message(const Connection& connection, std::uint32_t immediate) {
  weft_cmd cmd = empty_command(WEFT_OP_RDMA);
  cmd.arg0 = WEFT_RDMA_WRITE_IMM;
  set_operand(cmd, 0, connection.staging(0), connection.staging_key());
  set_operand(cmd, 1, connection.remote_staging(0), connection.remote_key());
  cmd.addr[2] = immediate;
  cmd.key[2] = connection.channel();
  return cmd;
}

}  // namespace

OnchipExecutor::OnchipExecutor(weft_device* device, std::uint32_t queue_entries, std::uint32_t slots)
    : device_(device), slots_(slots), entries_(queue_entries), done_(device, 1), locals_(device, kLocalObjects) {
  done_base_ = done_.value(0);
  for (std::uint32_t i = 0; i < kLocalObjects; ++i) local_value_[i] = locals_.value(i);
  weft_queue* queue = nullptr;
  if (weft_queue_create(device, queue_entries, 0, &queue) != 0) throw device_failure("no command queue");
  queue_.reset(queue);
}

Connection* OnchipExecutor::find(std::uint32_t peer, std::uint32_t lane) {
  const auto it = connections_.find(flow_key(peer, lane));
  return it == connections_.end() ? nullptr : &it->second;
}

Connection& OnchipExecutor::add(Connection connection) {
  const std::uint64_t key = flow_key(connection.peer(), connection.lane());
  return connections_.emplace(key, std::move(connection)).first->second;
}

const Connection& OnchipExecutor::at(std::uint32_t peer, std::uint32_t lane) const {
  return connections_.at(flow_key(peer, lane));
}

std::pair<std::uint32_t, std::uint64_t> OnchipExecutor::wait_of(const WaitFor& wait) const {
  if (wait.kind == EventKind::kLocal) return {locals_.first() + wait.peer, local_value_[wait.peer] + wait.seq};
  const Connection& connection = at(wait.peer, wait.lane);
  return {connection.object(wait.kind, wait.seq), connection.target(wait.kind, wait.seq)};
}

void OnchipExecutor::append(const Work& work, const Step& step) {
  weft_cmd cmd = empty_command(WEFT_OP_NOP);
  std::uint16_t divisor = 0;
  const auto reduction = [&] {
    cmd.op = WEFT_OP_REDUCE;
    cmd.arg0 = static_cast<std::uint8_t>(work.type);
    cmd.arg1 = static_cast<std::uint8_t>(work.op);
    if (work.op == wcclAvg) {
      cmd.arg1 = step.final ? WEFT_AVG : WEFT_SUM;
      divisor = step.final ? static_cast<std::uint16_t>(work.source->shape().ranks) : 0;
    }
    cmd.length = static_cast<std::uint32_t>(step.bytes / work.element_bytes);
  };
  const auto operand = [&](int i, const Place& place) {
    const Operand memory = work.resolve(place);
    set_operand(cmd, i, memory.va, memory.key);
  };
  const auto raise = [&](std::uint32_t object) {
    cmd.signal_id = object;
    cmd.signal_add = 1;
  };
  switch (step.kind) {
    case StepKind::kSend: {
      const Connection& connection = at(step.peer, step.lane);
      cmd = empty_message(connection, connection.arrival_immediate(step.seq));
      if (step.bytes) {
        operand(0, step.src);
        cmd.addr[1] = connection.remote_staging(step.seq);
        cmd.length = static_cast<std::uint32_t>(step.bytes);
      }
      raise(connection.object(EventKind::kSent, step.seq));
      break;
    }
    case StepKind::kCredit:
      cmd = empty_message(at(step.peer, step.lane), at(step.peer, step.lane).credit_immediate(step.seq));
      break;
    case StepKind::kRecvCopy:
    case StepKind::kRecvReduce: {
      const Connection& connection = at(step.peer, step.lane);
      if (step.kind == StepKind::kRecvReduce) {
        reduction();
        operand(0, step.dst);
        operand(1, step.src);
        set_operand(cmd, 2, connection.staging(step.seq), connection.staging_key());
      } else if (step.bytes) {
        cmd.op = WEFT_OP_COPY;
        operand(0, step.dst);
        set_operand(cmd, 1, connection.staging(step.seq), connection.staging_key());
        cmd.length = static_cast<std::uint32_t>(step.bytes);
      }
      raise(connection.object(EventKind::kDone, step.seq));
      break;
    }
    case StepKind::kCopy:
    case StepKind::kReduce:
      if (step.kind == StepKind::kReduce) {
        reduction();
        operand(2, step.src2);
      } else {
        cmd.op = WEFT_OP_COPY;
        cmd.length = static_cast<std::uint32_t>(step.bytes);
      }
      operand(0, step.dst);
      operand(1, step.src);
      if (step.local < kLocalObjects) {
        raise(locals_.first() + step.local);
        ++local_raised_[step.local];
      }
      break;
    case StepKind::kEnd:
      cmd.op = WEFT_OP_FENCE;
      raise(done_.first());
      break;
  }
  if (step.fenced && step.kind != StepKind::kEnd) cmd.flags |= WEFT_CMD_FENCED;
  if (step.waits > 0) std::tie(cmd.wait_id, cmd.wait_value) = wait_of(step.wait[0]);
  if (step.waits <= 1 && !divisor) {
    commands_.push_back(cmd);
    return;
  }
  cmd.flags |= WEFT_CMD_EXT;
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  ext.arg16 = divisor;
  ext.wait_id[0] = ext.wait_id[1] = WEFT_SYNC_NONE;
  for (std::uint8_t i = 1; i < step.waits; ++i) {
    std::tie(ext.wait_id[i - 1], ext.wait_value[i - 1]) = wait_of(step.wait[i]);
    ext.waits = i;
  }
  commands_.push_back(cmd);
  static_assert(sizeof ext == sizeof cmd);
  std::memcpy(&commands_.emplace_back(), &ext, sizeof ext);
}

void OnchipExecutor::lower(const Work& work, Flows& flows, Pending& pending, Totals& totals) {
  commands_.clear();
  local_raised_.fill(0);
  Lowering lowering(*work.source, work.rank, *work.layout, slots_, flows);
  Step step;
  std::uint32_t op = UINT32_MAX;
  OpView view;
  while (lowering.next(step)) {
    append(work, step);
    ++totals.commands;
    if (commands_.size() > entries_) {
      throw Failure(wcclInvalidUsage,
                    work.name + " needs more than the " + std::to_string(entries_) +
                        " slots of the command queue: raise WCCL_QUEUE_ENTRIES or WCCL_BUFFSIZE, or move less at once");
    }
    if (step.kind == StepKind::kSend) {
      totals.bytes += step.bytes;
      totals.messages += step.slice == 0;
    }
    if (step.kind >= StepKind::kCredit) continue;  // no message of its own
    // Slices of an op may alternate with those of others of its step: find its entry from the end.
    if (step.slice == 0) {
      if (step.op != op) work.source->op(work.rank, op = step.op, view);
      pending.expected.push_back({view.op.step, step.peer, step.lane, step.kind != StepKind::kSend, step.seq});
      continue;
    }
    for (auto it = pending.expected.rbegin(); it != pending.expected.rend(); ++it) {
      if (it->peer == step.peer && it->lane == step.lane && it->receive == (step.kind != StepKind::kSend)) {
        it->last = step.seq;
        break;
      }
    }
  }
}

OnchipExecutor::Submit OnchipExecutor::submit(const Work& work) {
  retire();
  Flows flows = flows_;
  Pending pending;
  pending.ticket = tickets_ + 1;
  pending.steps = work.source->shape().steps;
  pending.name = work.name;
  Totals totals = totals_;
  lower(work, flows, pending, totals);
  const int error = weft_queue_submit(queue_.get(), commands_.data(), static_cast<std::uint32_t>(commands_.size()));
  if (error == -EAGAIN) return Submit::kNoRoom;
  if (error != 0) return Submit::kFailed;
  ++totals.doorbells;
  totals_ = totals;
  flows_ = std::move(flows);
  for (std::uint32_t i = 0; i < kLocalObjects; ++i) local_value_[i] += local_raised_[i];
  pending_.push_back(std::move(pending));
  ++tickets_;
  return Submit::kDone;
}

void OnchipExecutor::retire() {
  const std::uint64_t done = completed();
  while (!pending_.empty() && pending_.front().ticket <= done) pending_.pop_front();
}

std::optional<OnchipExecutor::Blame> OnchipExecutor::blame() const {
  const std::uint64_t done = completed();
  for (const Pending& pending : pending_) {
    if (pending.ticket <= done) continue;
    const Expected* found = nullptr;
    for (const Expected& e : pending.expected) {
      const Connection& connection = at(e.peer, e.lane);
      if (connection.happened(e.receive ? EventKind::kArrival : EventKind::kSent, e.last)) continue;
      // Of the earliest step; there, a message that does not come before one that does not go.
      if (!found || e.step < found->step || (e.step == found->step && e.receive && !found->receive)) found = &e;
    }
    if (!found) return std::nullopt;
    return Blame{found->peer, found->lane, pending.ticket << 32 | found->step,
                 "rank " + std::to_string(found->peer) + " is silent: " + pending.name + ", step " +
                     std::to_string(found->step + 1) + " of " + std::to_string(pending.steps) +
                     (found->receive ? ": its message does not come" : ": it does not take our message")};
  }
  return std::nullopt;
}

std::optional<OnchipExecutor::Blame> OnchipExecutor::broken_channel() const {
  std::optional<Blame> found;
  for (const auto& [key, connection] : connections_) {
    std::uint32_t error = 0;
    if (!connection.failed(error)) continue;
    // What was merely flushed says less than a peer that did not answer.
    if (found && error == WEFT_ERR_FLUSHED) continue;
    found = Blame{connection.peer(), connection.lane(), 0,
                  "rank " + std::to_string(connection.peer()) + " does not answer on channel " +
                      std::to_string(connection.channel()) + ": " + weft_error_text(error)};
    if (error != WEFT_ERR_FLUSHED) break;
  }
  return found;
}

bool OnchipExecutor::owns_channel(std::uint32_t qpn) const {
  for (const auto& [key, connection] : connections_) {
    if (connection.channel() == qpn) return true;
  }
  return false;
}

std::string OnchipExecutor::oldest_work() const {
  const std::uint64_t done = completed();
  for (const Pending& pending : pending_) {
    if (pending.ticket > done) return pending.name;
  }
  return "nothing";
}

std::uint64_t OnchipExecutor::progress() const {
  std::uint64_t sum = completed();
  for (const auto& [key, connection] : connections_) sum += connection.progress();
  return sum;
}

std::uint32_t OnchipExecutor::sync_objects() const {
  std::uint32_t sum = done_.count() + locals_.count();
  for (const auto& [key, connection] : connections_) sum += connection.sync_objects();
  return sum;
}

void OnchipExecutor::probe(const std::vector<Connection*>& connections, std::uint64_t limit_ns) {
  if (connections.empty()) return;
  SyncRun answered(device_, 1);
  const std::uint64_t base = answered.value(0);
  std::uint32_t entries = 16;
  while (entries < connections.size()) entries *= 2;
  weft_queue* raw = nullptr;
  if (weft_queue_create(device_, entries, 0, &raw) != 0) throw device_failure("no command queue for the probe");
  const QueuePtr queue(raw);
  std::vector<weft_cmd> commands;
  for (const Connection* connection : connections) {
    weft_cmd cmd = empty_message(*connection, 0);
    cmd.arg0 = WEFT_RDMA_WRITE;
    cmd.addr[2] = 0;
    cmd.signal_id = answered.first();
    cmd.signal_add = 1;
    commands.push_back(cmd);
  }
  if (weft_queue_submit(queue.get(), commands.data(), static_cast<std::uint32_t>(commands.size())) != 0) {
    throw device_failure("probe");
  }
  const weft_wait_item item{answered.first(), 0, base + commands.size()};
  weft_failure failure{};
  const int error = weft_sync_wait(device_, &item, 1, static_cast<std::int64_t>(limit_ns), nullptr, &failure);
  if (error == 0) return;
  if (const auto broken = broken_channel()) {
    throw Failure(wcclRemoteError, "on-chip ports do not reach each other: " + broken->text,
                  static_cast<int>(broken->peer));
  }
  if (error == -ETIME) {
    std::string peers;
    for (const Connection* connection : connections) {
      peers += (peers.empty() ? "" : " or ") + std::to_string(connection->peer());
    }
    throw Failure(wcclTimeout, "on-chip ports do not reach each other: no answer from rank " + peers,
                  static_cast<int>(connections[0]->peer()));
  }
  throw device_failure("probe of the on-chip path");
}

}  // namespace weft::ccl
