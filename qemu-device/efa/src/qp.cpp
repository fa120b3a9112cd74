// SPDX-License-Identifier: MIT
// Queue pairs: their commands, their states, their doorbells.
#include <algorithm>
#include <bit>
#include <vector>

#include "datapath.hpp"

namespace weft::efa {

using hw::QpState;
using hw::Status;

namespace {

// The verbs' state table (IBTA 10.3.1) as the driver keeps it.
bool transition_allowed(QpState from, QpState to) {
  if (to == QpState::kReset || to == QpState::kError) return true;
  switch (from) {
    case QpState::kReset:
      return to == QpState::kInit;
    case QpState::kInit:
      return to == QpState::kInit || to == QpState::kRtr;
    case QpState::kRtr:
      return to == QpState::kRts;
    case QpState::kRts:
      return to == QpState::kRts || to == QpState::kSqd;
    case QpState::kSqd:
      return to == QpState::kRts || to == QpState::kSqd;
    case QpState::kSqe:
      return to == QpState::kRts;
    case QpState::kError:
      return false;
  }
  return false;
}

}  // namespace

hw::AdminStatus DataPath::create_qp(const hw::CreateQpCommand& command, hw::CreateQpReply& reply) {
  using enum hw::AdminStatus;
  if (command.type != hw::QpType::kUd && command.type != hw::QpType::kSrd) return kIllegalParameter;
  if (command.flags & (hw::kSqVirtual | hw::kRqVirtual)) return kUnsupported;
  CompletionQueue* send_cq = completions_.cq(command.send_cq);
  CompletionQueue* receive_cq = completions_.cq(command.receive_cq);
  if (send_cq == nullptr || receive_cq == nullptr) return kIllegalParameter;
  const std::uint32_t sq_entries = command.sq_bytes / hw::kWqeBytes;
  const std::uint32_t rq_entries = command.rq_bytes / sizeof(hw::ReceiveDescriptor);
  const auto ring = [](std::uint32_t entries, std::uint32_t most) {
    return entries == 0 || (std::has_single_bit(entries) && entries <= most);
  };
  if (command.sq_bytes % hw::kWqeBytes != 0 || !ring(sq_entries, hw::kSendDepth)) return kIllegalParameter;
  if (command.rq_bytes % sizeof(hw::ReceiveDescriptor) != 0 || !ring(rq_entries, hw::kReceiveEntriesMax)) {
    return kIllegalParameter;
  }
  if (rq_entries != 0 &&
      (command.rq_base % sizeof(hw::ReceiveDescriptor) != 0 || command.rq_base > UINT64_MAX - command.rq_bytes)) {
    return kIllegalParameter;
  }

  // Number 0 and, in IB, 1 are special; leave 0 out. A number is reused as late as possible.
  std::uint32_t number = 0;
  for (std::uint32_t i = 0; i < hw::kQueuePairs; ++i) {
    const std::uint32_t at = (next_qp_ + i) % hw::kQueuePairs;
    if (at != 0 && !qps_[at].used) {
      number = at;
      break;
    }
  }
  if (number == 0) return kNoResource;
  next_qp_ = number + 1;
  QueuePair& pair = qps_[number];
  const bool listed = pair.listed;
  pair = {};
  pair.listed = listed;
  pair.used = true;
  pair.type = command.type;
  pair.unsolicited = (command.flags & hw::kUnsolicitedWrite) != 0;
  pair.pd = command.pd;
  pair.send_cq = command.send_cq;
  pair.receive_cq = command.receive_cq;
  pair.sq_entries = sq_entries;
  pair.rq_entries = rq_entries;
  pair.rq_base = command.rq_base;
  ++send_cq->users;
  ++receive_cq->users;
  const auto page = static_cast<std::uint32_t>(number * hw::kPage);
  reply = {.handle = number,
           .number = static_cast<std::uint16_t>(number),
           .reserved = 0,
           .send_sub_cq = 0,
           .receive_sub_cq = 0,
           .send_doorbell = page + hw::kSendDoorbell,
           .receive_doorbell = page + hw::kReceiveDoorbell,
           .send_queue = number * hw::kSendQueueStride};
  return kSuccess;
}

hw::AdminStatus DataPath::modify_qp(const hw::ModifyQpCommand& command) {
  using enum hw::AdminStatus;
  QueuePair* pair = qp(command.handle);
  if (pair == nullptr || (command.mask & ~hw::kModifyAll) != 0) return kIllegalParameter;
  QpState to = pair->state;
  if (command.mask & hw::kModifyState) {
    if (command.state > static_cast<std::uint32_t>(QpState::kError)) return kIllegalParameter;
    to = static_cast<QpState>(command.state);
    if ((command.mask & hw::kModifyCurrentState) && command.current_state != static_cast<std::uint32_t>(pair->state)) {
      return kIllegalParameter;
    }
    if (!transition_allowed(pair->state, to)) return kIllegalParameter;
  }
  if ((command.mask & hw::kModifyRnrRetry) && command.rnr_retry > 7) return kIllegalParameter;
  if (command.mask & hw::kModifyQkey) pair->qkey = command.qkey;
  if (command.mask & hw::kModifyPsn) pair->psn = command.psn;
  if (command.mask & hw::kModifyRnrRetry) pair->rnr_retry = command.rnr_retry;
  if (command.mask & hw::kModifyState) {
    pair->state = to;
    if (to == QpState::kError) {
      flush(*pair);
    } else if (to == QpState::kReset) {
      drop_transfers(*pair);
      pair->sq_head = pair->sq_tail = pair->rq_head = pair->rq_tail = 0;
    } else if (to == QpState::kRts) {
      list(*pair);
    }
  }
  return kSuccess;
}

hw::AdminStatus DataPath::query_qp(std::uint32_t handle, hw::QueryQpReply& reply) {
  const QueuePair* pair = qp(handle);
  if (pair == nullptr) return hw::AdminStatus::kIllegalParameter;
  const bool draining = pair->state == QpState::kSqd && pair->outstanding > 0;
  reply = {static_cast<std::uint32_t>(pair->state), pair->qkey, pair->psn, draining, pair->rnr_retry, 0};
  return hw::AdminStatus::kSuccess;
}

int DataPath::destroy_qp(std::uint32_t handle) {
  QueuePair* pair = qp(handle);
  if (pair == nullptr) return -1;
  drop_transfers(*pair);
  --completions_.cq(pair->send_cq)->users;
  --completions_.cq(pair->receive_cq)->users;
  const int pd = pair->pd;
  const bool listed = pair->listed;
  *pair = {};
  pair->listed = listed;
  return pd;
}

// Requests in flight vanish without a completion; whoever reads from this queue pair is told.
void DataPath::drop_transfers(QueuePair& pair) {
  const std::uint16_t mine = number(pair);
  for (auto it = transfers_.begin(); it != transfers_.end();) {
    Transfer& transfer = it->second;
    if (transfer.qp != mine || transfer.kind == TransferKind::kAnswer) {
      if (transfer.qp == mine) transfer.cancelled = true;
      ++it;
      continue;
    }
    erase((it++)->second);
  }
  pair.outstanding = 0;
}

// Everything posted completes as flushed (IBTA 10.3.1.6); the order among requests is that of their ends.
void DataPath::flush(QueuePair& pair) {
  const std::uint16_t mine = number(pair);
  std::vector<std::uint32_t> ids;
  for (auto& [id, transfer] : transfers_) {
    if (transfer.qp != mine) continue;
    if (transfer.kind == TransferKind::kAnswer) {
      transfer.cancelled = true;
    } else {
      ids.push_back(id);
    }
  }
  std::ranges::sort(ids);
  for (const std::uint32_t id : ids) {
    if (Transfer* transfer = find(id)) finish(*transfer, Status::kFlushed);
  }
  list(pair);
  const std::uint32_t waiting =
      std::min<std::uint32_t>(static_cast<std::uint16_t>(pair.rq_tail - pair.rq_head), pair.rq_entries);
  for (std::uint32_t i = 0; i < waiting; ++i) {
    hw::ReceiveDescriptor descriptor;
    const std::uint64_t at = pair.rq_base + (pair.rq_head & (pair.rq_entries - 1)) * sizeof(descriptor);
    ++pair.rq_head;
    if (!host_.read(at, std::as_writable_bytes(std::span(&descriptor, 1)), WEFT_ABI_DMA_CONTROL)) break;
    if ((descriptor.lkey_control & hw::kReceiveLast) == 0) continue;
    hw::Cqe cqe{};
    cqe.request = descriptor.request;
    cqe.status = Status::kFlushed;
    cqe.flags = hw::kCqeReceive;
    cqe.qp = mine;
    cqe.ah = hw::kNoAh;
    completions_.post(pair.receive_cq, cqe);
  }
  pair.rq_head = pair.rq_tail;
}

// The guest's queue makes no sense any more.
void DataPath::break_queue(QueuePair& pair) {
  host_.report(Event::kQueueBroken, {number(pair)});
  pair.state = QpState::kError;
  flush(pair);
}

void DataPath::list(QueuePair& pair) {
  if (pair.listed) return;
  pair.listed = true;
  round_.push_back(number(pair));
}

void DataPath::ring_send(std::uint32_t index, std::uint16_t tail) {
  QueuePair* pair = qp(index);
  if (pair == nullptr) return;
  if (static_cast<std::uint16_t>(tail - pair->sq_head) > pair->sq_entries) {
    host_.report(Event::kBadDoorbell, {index, tail, pair->sq_head});
    return;
  }
  pair->sq_tail = tail;
  list(*pair);
}

void DataPath::ring_receive(std::uint32_t index, std::uint16_t tail) {
  QueuePair* pair = qp(index);
  if (pair == nullptr) return;
  if (static_cast<std::uint16_t>(tail - pair->rq_head) > pair->rq_entries) {
    host_.report(Event::kBadDoorbell, {index, tail, pair->rq_head});
    return;
  }
  pair->rq_tail = tail;
  buffers_came_ = true;
  if (pair->state == QpState::kError) list(*pair);
}

}  // namespace weft::efa
