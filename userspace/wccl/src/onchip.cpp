// SPDX-License-Identifier: MIT
#include "onchip.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "error.hpp"
#include "weft/hw/cmd.h"
#include "weft/hw/mem.h"
#include "weft/hw/regs.h"

namespace weft::ccl {
namespace {

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

QueuePtr make_queue(weft_device* device, std::uint32_t entries) {
  weft_queue* queue = nullptr;
  if (weft_queue_create(device, entries, 0, &queue) == 0) return QueuePtr(queue);
  throw device_failure("no command queue (a device context has " + std::to_string(WEFT_QUEUES_PER_CONTEXT) +
                       ", each on-chip communicator takes one and one more at set-up: destroy those not needed, or " +
                       "open the device again for more)");
}

}  // namespace

OnchipExecutor::OnchipExecutor(Setup setup)
    : setup_(std::move(setup)), done_(setup_.device, 1), locals_(setup_.device, kLocalObjects) {
  done_base_ = done_.value(0);
  for (std::uint32_t i = 0; i < kLocalObjects; ++i) local_value_[i] = locals_.value(i);
  records_ = allocate(setup_.device, record_room() * sizeof(CallRecord), 0, "records of calls");
  records_base_ = map(records_.get());
  queue_ = make_queue(setup_.device, setup_.entries);
}

const Connection* OnchipExecutor::find(std::uint32_t peer, std::uint32_t lane) const {
  const auto it = connections_.find(flow_key(peer, lane));
  return it == connections_.end() ? nullptr : &it->second;
}

const Connection& OnchipExecutor::at(std::uint32_t peer, std::uint32_t lane) const {
  return connections_.at(flow_key(peer, lane));
}

Bytes OnchipExecutor::open(std::uint32_t peer, std::uint32_t lane, std::uint32_t slot_bytes) {
  const auto [it, added] = connections_.try_emplace(flow_key(peer, lane), setup_.device, port_of(lane), peer, lane,
                                                    setup_.slots, slot_bytes);
  const Offer offer = it->second.offer();
  const auto* at = reinterpret_cast<const std::byte*>(&offer);
  return {at, at + sizeof offer};
}

bool OnchipExecutor::connected(std::uint32_t peer, std::uint32_t lane) const {
  const Connection* connection = find(peer, lane);
  return connection && connection->connected();
}

void OnchipExecutor::connect(std::uint32_t peer, std::uint32_t lane, std::span<const std::byte> offer) {
  Offer remote;
  if (offer.size() != sizeof remote)
    throw Failure(wcclInternalError, "an offer of another size", static_cast<int>(peer));
  std::memcpy(&remote, offer.data(), sizeof remote);
  connections_.at(flow_key(peer, lane)).connect(remote, setup_.rc_timeout, setup_.rc_retries);
}

SyncWait OnchipExecutor::wait_of(const WaitFor& wait) const {
  if (wait.kind == EventKind::kLocal) return {locals_.first() + wait.peer, local_value_[wait.peer] + wait.seq};
  const Connection& connection = at(wait.peer, wait.lane);
  return {connection.object(wait.kind, wait.seq), connection.target(wait.kind, wait.seq)};
}

void OnchipExecutor::append(const Work& work, const Step& step) {
  LocalCommand made{empty_command(WEFT_OP_NOP), 0};
  weft_cmd& cmd = made.cmd;
  const auto raise = [&](std::uint32_t object) {
    cmd.signal_id = object;
    cmd.signal_add = 1;
  };
  switch (step.kind) {
    case StepKind::kSend: {
      const Connection& connection = at(step.peer, step.lane);
      cmd = empty_message(connection, connection.arrival_immediate(step.seq));
      if (step.bytes) {
        const Operand source = work.resolve(step.src);
        set_operand(cmd, 0, source.va, source.key);
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
      made = local_command(work, step, {connection.staging(step.seq), connection.staging_key()});
      raise(connection.object(EventKind::kDone, step.seq));
      break;
    }
    case StepKind::kCopy:
    case StepKind::kReduce:
      made = local_command(work, step, {});
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
  std::array<SyncWait, 3> waits;
  for (std::uint8_t i = 0; i < step.waits; ++i) waits[i] = wait_of(step.wait[i]);
  append_command(commands_, cmd, made.divisor, std::span(waits).first(step.waits));
}

// Ahead of its message on the same channel, which keeps their order.
void OnchipExecutor::append_record(const Step& step, const CallRecord& record, std::uint64_t index) {
  const Connection& connection = at(step.peer, step.lane);
  weft_cmd cmd = empty_command(WEFT_OP_RDMA);
  cmd.arg0 = WEFT_RDMA_WRITE;
  set_operand(cmd, 0, weft_mem_va(records_.get()) + record_offset(index), weft_mem_key(records_.get()));
  set_operand(cmd, 1, connection.remote_record(record.number), connection.remote_records_key());
  cmd.key[2] = connection.channel();
  cmd.length = sizeof record;
  const auto credit = std::find_if(step.wait.begin(), step.wait.begin() + step.waits,
                                   [](const WaitFor& wait) { return wait.kind == EventKind::kCredit; });
  if (credit == step.wait.begin() + step.waits) return append_command(commands_, cmd, 0, {});
  const SyncWait wait = wait_of(*credit);
  append_command(commands_, cmd, 0, std::span(&wait, 1));
}

void OnchipExecutor::lower(const Work& work, Flows& flows, Pending& pending, Totals& totals, CallBook::Draft& draft) {
  commands_.clear();
  local_raised_.fill(0);
  Lowering lowering(*work.source, work.rank, *work.layout, setup_.slots, flows);
  Step step;
  std::uint32_t op = UINT32_MAX;
  OpView view;
  while (lowering.next(step)) {
    if (book_.note(draft, work.call, step)) {
      append_record(step, draft.sent.back(), records_sent_ + draft.sent.size() - 1);
      ++totals.commands;
    }
    append(work, step);
    ++totals.commands;
    if (commands_.size() > setup_.entries) {
      throw Failure(wcclInvalidUsage,
                    work.name + " needs more than the " + std::to_string(setup_.entries) +
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
  CallBook::Draft draft;
  lower(work, flows, pending, totals, draft);
  pending.first_record = records_sent_;
  const std::uint64_t oldest = pending_.empty() ? records_sent_ : pending_.front().first_record;
  if (records_sent_ + draft.sent.size() - oldest > record_room()) return Submit::kNoRoom;
  std::uint64_t index = records_sent_;
  for (const CallRecord& record : draft.sent) {
    std::memcpy(records_base_ + record_offset(index++), &record, sizeof record);
  }
  const int error = weft_queue_submit(queue_.get(), commands_.data(), static_cast<std::uint32_t>(commands_.size()));
  if (error == -EAGAIN) return Submit::kNoRoom;
  if (error != 0) return Submit::kFailed;
  ++totals.doorbells;
  totals_ = totals;
  records_sent_ = index;
  book_.commit(pending.ticket, std::move(draft));
  flows_ = std::move(flows);
  for (std::uint32_t i = 0; i < kLocalObjects; ++i) local_value_[i] += local_raised_[i];
  pending_.push_back(std::move(pending));
  ++tickets_;
  return Submit::kDone;
}

CallBook::Answer OnchipExecutor::agreement(std::uint64_t ticket) {
  return book_.look(ticket, [this](std::uint64_t key) { return connections_.at(key).records(); });
}

void OnchipExecutor::retire() {
  const std::uint64_t done = completed();
  while (!pending_.empty() && pending_.front().ticket <= done) pending_.pop_front();
}

std::optional<Blame> OnchipExecutor::blame() const {
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
    return silent(found->peer, found->receive, pending.ticket, found->step, pending.steps, pending.name);
  }
  return std::nullopt;
}

std::optional<Blame> OnchipExecutor::broken() const {
  const Connection* found = nullptr;
  std::uint32_t why = 0;
  for (const auto& [key, connection] : connections_) {
    std::uint32_t error = 0;
    if (!connection.failed(error)) continue;
    // What was merely flushed says less than a peer that did not answer.
    if (found && error == WEFT_ERR_FLUSHED) continue;
    found = &connection;
    why = error;
    if (error != WEFT_ERR_FLUSHED) break;
  }
  if (!found) return std::nullopt;
  weft_mbox_port port{};
  const std::uint32_t number = port_of(found->lane());
  if (weft_port(setup_.device, number, &port) == 0 && port.state != WEFT_PORT_ACTIVE) {
    return Blame{setup_.rank, 0,
                 "port " + std::to_string(number) + " of rank " + std::to_string(setup_.rank) + " is down"};
  }
  return Blame{found->peer(), 0,
               "rank " + std::to_string(found->peer()) + " does not answer on channel " +
                   std::to_string(found->channel()) + ": " + weft_error_text(why) + " (rank " +
                   std::to_string(setup_.rank) + ", " + oldest_work() + ')'};
}

int OnchipExecutor::wait(std::uint64_t ticket, std::int64_t timeout_ns, weft_failure* failure) {
  const weft_sync_event item{done_.first(), 0, done_base_ + ticket};
  return weft_sync_wait(setup_.device, &item, 1, timeout_ns, nullptr, nullptr, failure);
}

bool OnchipExecutor::owns(const weft_failure& failure) const {
  if (failure.type == WEFT_EVENT_QUEUE_ERROR) return failure.object == weft_queue_number(queue_.get());
  if (failure.type != WEFT_EVENT_QP_ERROR) return false;
  for (const auto& [key, connection] : connections_) {
    if (connection.channel() == failure.object) return true;
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

void OnchipExecutor::stats(wcclStats_t& out) const {
  out.bytes[wcclPathOnchip] = totals_.bytes;
  out.messages[wcclPathOnchip] = totals_.messages;
  out.doorbells = totals_.doorbells;
  out.commands = totals_.commands;
  out.callRecords = records_sent_;
  out.connections = static_cast<std::uint32_t>(connections_.size());
  out.syncObjects = done_.count() + locals_.count();
  for (const auto& [key, connection] : connections_) {
    out.stagingBytes += connection.staging_bytes();
    out.syncObjects += connection.sync_objects();
  }
}

std::string OnchipExecutor::probe(const std::vector<std::uint64_t>& keys, std::int64_t limit_ns) {
  if (keys.empty()) return "";
  SyncRun answered(setup_.device, 1);
  const std::uint64_t base = answered.value(0);
  std::uint32_t entries = 16;
  while (entries < keys.size()) entries *= 2;
  const QueuePtr queue = make_queue(setup_.device, entries);
  std::vector<weft_cmd> commands;
  for (const std::uint64_t key : keys) {
    weft_cmd cmd = empty_message(connections_.at(key), 0);
    cmd.arg0 = WEFT_RDMA_WRITE;
    cmd.addr[2] = 0;
    cmd.signal_id = answered.first();
    cmd.signal_add = 1;
    commands.push_back(cmd);
  }
  if (weft_queue_submit(queue.get(), commands.data(), static_cast<std::uint32_t>(commands.size())) != 0) {
    throw device_failure("probe");
  }
  const weft_sync_event item{answered.first(), 0, base + commands.size()};
  weft_failure failure{};
  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(limit_ns);
  int error;
  do {
    error = weft_sync_wait(setup_.device, &item, 1, limit_ns, nullptr, nullptr, &failure);
    limit_ns = std::max<std::int64_t>((deadline - Clock::now()).count(), 0);
  } while (error == -EINTR);  // a signal is no answer
  if (error == 0) return "";
  const std::string what = "on-chip ports do not reach each other: ";
  if (const auto blame = broken()) return what + blame->text;
  if (error == -ETIME) {
    std::string peers;
    for (const std::uint64_t key : keys) peers += (peers.empty() ? "" : " or ") + std::to_string(key >> 32);
    return what + "no answer from rank " + peers;
  }
  throw device_failure("probe of the on-chip path");
}

}  // namespace weft::ccl
