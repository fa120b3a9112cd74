// SPDX-License-Identifier: MIT
#include "datapath.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "status.hpp"

namespace weft::efa {

using hw::QpState;
using hw::Status;

namespace {

constexpr unsigned kFetch = 16;  // work requests of a queue before the next one's turn
constexpr std::uint64_t kExpiryNs = 1'000'000'000;
hw::SendOp op_of(TransferKind kind) {
  return kind == TransferKind::kRead    ? hw::SendOp::kRead
         : kind == TransferKind::kWrite ? hw::SendOp::kWrite
                                        : hw::SendOp::kSend;
}

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

DataPath::DataPath(Host& host, const Options& options, const Mac& mac, Regions& regions, Addresses& addresses,
                   Completions& completions)
    : host_(host),
      options_(options),
      regions_(regions),
      addresses_(addresses),
      completions_(completions),
      transport_(host, *this, mac, options.spray) {}

// ---- Queue pairs

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

void DataPath::clear() {
  transfers_.clear();
  retries_.clear();
  reads_waiting_ = 0;
  round_.clear();
  qps_.fill({});
  transport_.reset();
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
    if (transfer.kind == TransferKind::kRead && transfer.waiting) --reads_waiting_;
    it = transfers_.erase(it);
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

// ---- Work

bool DataPath::run(std::uint64_t budget) {
  const std::uint64_t now = host_.now_ns();
  retry(now);
  expire_reads(now);
  transport_.tick(now);
  const bool fetch = run_send_queues(now);
  const bool send = transport_.run(budget, now);
  return fetch || send;
}

std::uint64_t DataPath::deadline() const {
  std::uint64_t due = transport_.deadline(host_.now_ns());
  if (!retries_.empty()) due = std::min(due, retries_.begin()->first);
  if (reads_waiting_ > 0) due = std::min(due, next_expiry_ns_);
  return due;
}

bool DataPath::run_send_queues(std::uint64_t now_ns) {
  static_cast<void>(now_ns);
  for (std::size_t turns = round_.size(); turns > 0; --turns) {
    QueuePair& pair = qps_[round_.front()];
    round_.pop_front();
    pair.listed = false;
    if (!pair.used) continue;
    const bool flushing = pair.state == QpState::kError;
    if (flushing && pair.rq_head != pair.rq_tail) flush(pair);
    if (!flushing && pair.state != QpState::kRts) continue;  // becoming RTS lists it again
    for (unsigned i = 0; i < kFetch && pair.sq_head != pair.sq_tail; ++i) {
      if (pair.outstanding >= pair.sq_entries) break;
      hw::SendWqe wqe;
      const std::size_t at = std::size_t{number(pair)} * hw::kSendQueueStride +
                             std::size_t{pair.sq_head & (pair.sq_entries - 1)} * hw::kWqeBytes;
      std::memcpy(&wqe, send_queues_.data() + at, sizeof(wqe));  // once: the guest may change it meanwhile
      ++pair.sq_head;
      post(pair, wqe);
    }
    // With too many outstanding, a completion lists it again.
    if (pair.sq_head != pair.sq_tail && pair.outstanding < pair.sq_entries) list(pair);
  }
  return !round_.empty();
}

void DataPath::post(QueuePair& pair, const hw::SendWqe& wqe) {
  const auto op = static_cast<hw::SendOp>(wqe.control1 & hw::kSendOpMask);
  if (pair.state == QpState::kError) {
    complete(pair, wqe.request, op, Status::kFlushed);
    return;
  }
  Transfer transfer;
  const Status status = parse(pair, wqe, transfer);
  if (status != Status::kOk) {
    if (op == hw::SendOp::kRead) ++statistics_.reads.read_errors;
    if (op == hw::SendOp::kWrite) ++statistics_.writes.write_errors;
    complete(pair, wqe.request, op, status);
    return;
  }
  switch (op) {
    case hw::SendOp::kSend:
      ++statistics_.messages.sends;
      statistics_.messages.send_bytes += transfer.length;
      break;
    case hw::SendOp::kRead:
      ++statistics_.reads.reads;
      statistics_.reads.read_bytes += transfer.length;
      break;
    case hw::SendOp::kWrite:
      ++statistics_.writes.writes;
      statistics_.writes.write_bytes += transfer.length;
      break;
  }
  ++pair.outstanding;
  transport_.submit(add(std::move(transfer)));
}

Status DataPath::parse(const QueuePair& pair, const hw::SendWqe& wqe, Transfer& transfer) {
  const auto op = static_cast<hw::SendOp>(wqe.control1 & hw::kSendOpMask);
  const bool in_line = (wqe.control1 & hw::kSendInline) != 0;
  if ((wqe.control1 & hw::kSendMeta) == 0) return Status::kInvalidOp;
  if (op != hw::SendOp::kSend && op != hw::SendOp::kRead && op != hw::SendOp::kWrite) return Status::kInvalidOp;
  if (op != hw::SendOp::kSend && pair.type != hw::QpType::kSrd) return Status::kInvalidOp;

  transfer.qp = number(pair);
  transfer.request = wqe.request;
  transfer.destination_qp = wqe.destination_qp;
  transfer.has_immediate = (wqe.control1 & hw::kSendImmediate) != 0 && op != hw::SendOp::kRead;
  transfer.immediate = wqe.immediate;
  transfer.qkey = wqe.qkey;

  const Gid* gid = addresses_.find(wqe.ah, pair.pd);
  if (gid == nullptr) return Status::kInvalidAh;
  const auto mac = mac_of(*gid);
  if (!mac) return Status::kUnreachable;  // not an address that a NIC on this fabric can have
  transfer.peer = transport_.peer(*mac);
  if (transfer.peer == nullptr) return Status::kUnreachable;

  const auto local = [&](std::size_t i, const hw::SendBuffer& buffer) {
    transfer.local[i] = {buffer.address.value(), buffer.lkey & hw::kLkeyMask, buffer.length};
  };
  const auto allowed = [&](const LocalBuffer& buffer, std::uint32_t bytes, std::uint8_t rights) {
    if (bytes == 0) return true;
    const Region* region = regions_.local(buffer.lkey);
    return region != nullptr && region->allows(pair.pd, buffer.address, bytes, rights);
  };

  if (op == hw::SendOp::kSend) {
    transfer.kind = pair.type == hw::QpType::kUd ? TransferKind::kDatagram : TransferKind::kSend;
    if (in_line) {
      if (wqe.length > hw::kInlineBytes) return Status::kBadLength;
      transfer.has_inline = true;
      transfer.length = wqe.length;
      transfer.inline_data = wqe.inline_data;
    } else {
      if (wqe.length > hw::kSendBuffers) return Status::kBadLength;
      transfer.buffers = static_cast<std::uint8_t>(wqe.length);
      std::uint64_t total = 0;
      for (std::size_t i = 0; i < transfer.buffers; ++i) {
        local(i, wqe.buffer[i]);
        total += transfer.local[i].length;
      }
      if (total > options_.mtu) return Status::kBadLength;
      for (std::size_t i = 0; i < transfer.buffers; ++i) {
        if (!allowed(transfer.local[i], transfer.local[i].length, 0)) return Status::kInvalidLkey;
      }
      transfer.length = static_cast<std::uint32_t>(total);
    }
    if (transfer.length > options_.mtu) return Status::kBadLength;
    transfer.segment_bytes = std::max(transfer.length, 1u);
    return Status::kOk;
  }

  // rdma-core lets inline data of a write overwrite the remote address: there is no such request.
  if (in_line) return Status::kBadLength;
  if (wqe.length > 1) return Status::kBadLength;
  transfer.kind = op == hw::SendOp::kRead ? TransferKind::kRead : TransferKind::kWrite;
  transfer.length = wqe.rdma.remote.length;
  transfer.rkey = wqe.rdma.remote.rkey;
  transfer.remote = wqe.rdma.remote.address.value();
  transfer.buffers = static_cast<std::uint8_t>(wqe.length);
  if (transfer.length > hw::kRdmaBytes) return Status::kBadLength;
  if (wqe.length == 1) local(0, wqe.rdma.local);
  const std::uint32_t have = transfer.local[0].length;
  if (op == hw::SendOp::kWrite ? have != transfer.length : have < transfer.length) return Status::kBadLength;
  if (!allowed(transfer.local[0], transfer.length, op == hw::SendOp::kRead ? hw::kLocalWrite : 0)) {
    return Status::kInvalidLkey;
  }
  if (op == hw::SendOp::kWrite) {
    transfer.segment_bytes = transport_.segment_bytes(*transfer.peer, options_.mtu);
    transfer.segments =
        std::max(1u, static_cast<std::uint32_t>((std::uint64_t{transfer.length} + transfer.segment_bytes - 1) /
                                                transfer.segment_bytes));
    // Drawn among the segments that may go in any order.
    const std::uint32_t free = transfer.has_immediate ? transfer.segments - 1 : transfer.segments;
    transfer.order = options_.spray ? Order::drawn(free, host_.random()) : Order::natural(free);
  }
  return Status::kOk;
}

Transfer& DataPath::add(Transfer&& transfer) {
  do {
    ++next_id_;
  } while (next_id_ == 0 || transfers_.contains(next_id_));
  transfer.id = next_id_;
  transfer.touched_ns = host_.now_ns();
  return transfers_.emplace(next_id_, std::move(transfer)).first->second;
}

Transfer* DataPath::find(std::uint32_t id) {
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? nullptr : &found->second;
}

bool DataPath::fill(Transfer& transfer, std::uint32_t segment, wire::Head& head, std::vector<std::byte>& payload) {
  QueuePair& pair = qps_[transfer.qp];
  head.source_qp = transfer.qp;
  head.destination_qp = transfer.destination_qp;
  head.op = transfer.id;
  head.total = transfer.length;
  head.offset = static_cast<std::uint32_t>(transfer.offset(segment));
  head.rkey = transfer.rkey;
  head.remote = transfer.remote;
  head.qkey = transfer.qkey;

  if (transfer.kind == TransferKind::kRead) {
    head.type = wire::Type::kRead;
    return true;
  }
  const std::uint32_t bytes = transfer.bytes(segment);
  if (transfer.kind == TransferKind::kAnswer) {
    head.type = wire::Type::kReadData;
    head.op = transfer.remote_op;
    head.length = bytes;
    if (transfer.cancelled) {
      head.length = 0;
      head.status = code(Status::kRemoteAbort);
      return true;
    }
    if (bytes == 0) return true;
    payload.resize(bytes);
    const Region* region = regions_.remote(transfer.rkey);
    if (region == nullptr || !region->allows(pair.pd, transfer.remote, transfer.length, hw::kRemoteRead) ||
        !regions_.read(*region, transfer.remote + head.offset, payload)) {
      // The memory went while it was read.
      payload.clear();
      head.length = 0;
      head.status = code(Status::kRemoteBadAddress);
    } else {
      statistics_.reads.response_bytes += bytes;
    }
    return true;
  }

  head.type = transfer.kind == TransferKind::kDatagram ? wire::Type::kDatagram
              : transfer.kind == TransferKind::kSend   ? wire::Type::kSend
                                                       : wire::Type::kWrite;
  if (transfer.has_immediate && segment + 1 == transfer.segments) {
    head.flags |= wire::kImmediate;
    head.immediate = transfer.immediate;
  }
  head.length = bytes;
  if (bytes == 0) return true;
  payload.resize(bytes);
  if (transfer.has_inline) {
    std::copy_n(transfer.inline_data.begin(), bytes, payload.begin());
    return true;
  }
  std::uint64_t skip = head.offset;
  std::size_t done = 0;
  for (std::size_t i = 0; i < transfer.buffers && done < bytes; ++i) {
    const LocalBuffer& buffer = transfer.local[i];
    if (skip >= buffer.length) {
      skip -= buffer.length;
      continue;
    }
    const std::size_t piece = std::min<std::size_t>(bytes - done, buffer.length - skip);
    const Region* region = regions_.local(buffer.lkey);
    if (region == nullptr || !region->allows(pair.pd, buffer.address + skip, piece, 0)) {
      finish(transfer, Status::kInvalidLkey);
      return false;
    }
    if (!regions_.read(*region, buffer.address + skip, std::span(payload).subspan(done, piece))) {
      host_.report(Event::kPayloadDma, {buffer.address + skip, piece});
      finish(transfer, Status::kInternalError);
      return false;
    }
    done += piece;
    skip = 0;
  }
  return true;
}

// ---- How requests end

void DataPath::complete(QueuePair& pair, std::uint16_t request, hw::SendOp op, Status status) {
  hw::Cqe cqe{};
  cqe.request = request;
  cqe.status = status;
  cqe.flags = static_cast<std::uint8_t>(hw::kCqeSend | static_cast<unsigned>(op) << hw::kCqeOpShift);
  cqe.qp = number(pair);
  completions_.post(pair.send_cq, cqe);
}

void DataPath::finish(Transfer& transfer, Status status) {
  if (transfer.kind == TransferKind::kAnswer) {
    --transfer.peer->answers;
    transfers_.erase(transfer.id);
    return;
  }
  QueuePair& pair = qps_[transfer.qp];
  const hw::SendOp op = op_of(transfer.kind);
  const std::uint16_t request = transfer.request;
  if (transfer.kind == TransferKind::kRead && transfer.waiting) --reads_waiting_;
  if (status != Status::kOk && status != Status::kFlushed) {
    if (op == hw::SendOp::kRead) ++statistics_.reads.read_errors;
    if (op == hw::SendOp::kWrite) ++statistics_.writes.write_errors;
  }
  transfers_.erase(transfer.id);
  --pair.outstanding;
  complete(pair, request, op, status);
  if (pair.sq_head != pair.sq_tail) list(pair);
}

void DataPath::fail(Transfer& transfer, Status status) { finish(transfer, status); }

void DataPath::fail_all(Peer& peer, Status status) {
  std::vector<std::uint32_t> ids;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer.peer == &peer) ids.push_back(id);
  }
  std::ranges::sort(ids);
  for (const std::uint32_t id : ids) {
    if (Transfer* transfer = find(id)) finish(*transfer, status);
  }
}

void DataPath::arrived(Transfer& transfer, std::uint32_t segment, std::uint8_t status) {
  transfer.touched_ns = host_.now_ns();
  if (transfer.kind == TransferKind::kAnswer) {
    // Whatever the requester thinks of it: it has it.
    if (status != kOk || ++transfer.done == transfer.segments) finish(transfer, Status::kOk);
    return;
  }
  const bool again = status == wire::kBusy ? transfer.kind == TransferKind::kRead
                     : status == code(Status::kRemoteRnr)
                         ? transfer.kind == TransferKind::kSend || transfer.has_immediate
                         : false;
  if (again && segment + 1 == transfer.segments) {
    const std::uint8_t limit = qps_[transfer.qp].rnr_retry;
    if (status == wire::kBusy || limit == 7 || transfer.retries < limit) {
      if (transfer.retries < UINT8_MAX) ++transfer.retries;
      transfer.next = segment;  // alone: it is the last of its transfer that is missing
      retry_later(transfer);
      return;
    }
  }
  if (status != kOk) {
    finish(transfer, remote_status(status));
    return;
  }
  if (transfer.kind == TransferKind::kRead) {
    if (!transfer.waiting) {
      transfer.waiting = true;
      if (reads_waiting_++ == 0) next_expiry_ns_ = transfer.touched_ns + kExpiryNs;
    }
    return;
  }
  ++transfer.done;
  if (transfer.done >= transfer.segments) {
    finish(transfer, Status::kOk);
  } else if (transfer.has_immediate && transfer.next < transfer.ready()) {
    transport_.submit(transfer, true);
  }
}

void DataPath::retry_later(Transfer& transfer) {
  const std::uint64_t delay = std::min(kRetryNs << std::min<unsigned>(transfer.backoff, 8), kRetryMaxNs);
  if (transfer.backoff < 8) ++transfer.backoff;
  retries_.emplace(host_.now_ns() + delay, transfer.id);
}

void DataPath::retry(std::uint64_t now_ns) {
  // Buffers were posted here: who sends to this very device need not wait.
  if (std::exchange(buffers_came_, false)) {
    for (auto it = retries_.begin(); it != retries_.end();) {
      Transfer* transfer = find(it->second);
      if (transfer != nullptr && !transfer->peer->self) {
        ++it;
        continue;
      }
      if (transfer != nullptr) transport_.submit(*transfer, true);
      it = retries_.erase(it);
    }
  }
  while (!retries_.empty() && retries_.begin()->first <= now_ns) {
    const std::uint32_t id = retries_.begin()->second;
    retries_.erase(retries_.begin());
    if (Transfer* transfer = find(id)) transport_.submit(*transfer, true);
  }
}

// A read that its peer has taken on ends when data stops coming; its peer may have been reset meanwhile.
void DataPath::expire_reads(std::uint64_t now_ns) {
  if (reads_waiting_ == 0 || now_ns < next_expiry_ns_) return;
  next_expiry_ns_ = now_ns + kExpiryNs;
  std::vector<std::uint32_t> late;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer.kind == TransferKind::kRead && transfer.waiting && !transfer.peer->self &&
        now_ns - transfer.touched_ns >= 2 * Transport::kTimeoutNs) {
      late.push_back(id);
    }
  }
  std::ranges::sort(late);
  for (const std::uint32_t id : late) {
    host_.report(Event::kPeerTimeout, {id});
    finish(*find(id), Status::kUnresponsive);
  }
}

void DataPath::sent(std::size_t bytes) {
  ++statistics_.basic.tx_packets;
  statistics_.basic.tx_bytes += bytes;
}

void DataPath::received(std::size_t bytes) {
  ++statistics_.basic.rx_packets;
  statistics_.basic.rx_bytes += bytes;
}

}  // namespace weft::efa
