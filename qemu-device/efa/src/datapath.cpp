// SPDX-License-Identifier: MIT
#include "datapath.hpp"

#include <algorithm>
#include <utility>

#include "status.hpp"

namespace weft::efa {

using hw::Status;

namespace {

constexpr std::uint64_t kAskNs = 1'000'000'000;

hw::SendOp op_of(TransferKind kind) {
  return kind == TransferKind::kRead    ? hw::SendOp::kRead
         : kind == TransferKind::kWrite ? hw::SendOp::kWrite
                                        : hw::SendOp::kSend;
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

void DataPath::clear() {
  transfers_.clear();
  retries_.clear();
  reads_waiting_ = 0;
  round_.clear();
  qps_.fill({});
  transport_.reset();
}

// ---- Work

bool DataPath::run(std::uint64_t budget) {
  const std::uint64_t now = host_.now_ns();
  retry(now);
  ask_for_reads(now);
  const bool fetch = run_send_queues();
  const bool send = transport_.run(budget, now);
  return fetch || send;
}

std::uint64_t DataPath::deadline() const {
  std::uint64_t due = transport_.deadline();
  if (!retries_.empty()) due = std::min(due, retries_.begin()->first);
  if (reads_waiting_ > 0) due = std::min(due, next_ask_ns_);
  return due;
}

Transfer& DataPath::add(Transfer&& transfer) {
  do {
    ++next_id_;
  } while (next_id_ == 0 || transfers_.contains(next_id_));
  transfer.id = next_id_;
  transfer.touched_ns = host_.now_ns();
  Transfer& added = transfers_.emplace(next_id_, std::move(transfer)).first->second;
  transport_.attach(added);
  return added;
}

void DataPath::erase(const Transfer& transfer) {
  if (transfer.kind == TransferKind::kRead && transfer.waiting) --reads_waiting_;
  transport_.detach(transfer);
  transfers_.erase(std::uint32_t{transfer.id});
}

Transfer* DataPath::find(std::uint32_t id) {
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? nullptr : &found->second;
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
    return erase(transfer);
  }
  QueuePair& pair = qps_[transfer.qp];
  const hw::SendOp op = op_of(transfer.kind);
  const std::uint16_t request = transfer.request;
  if (status != Status::kOk && status != Status::kFlushed) {
    if (op == hw::SendOp::kRead) ++statistics_.reads.read_errors;
    if (op == hw::SendOp::kWrite) ++statistics_.writes.write_errors;
  }
  erase(transfer);
  --pair.outstanding;
  complete(pair, request, op, status);
  if (pair.sq_head != pair.sq_tail) list(pair);
}

void DataPath::fail_all(Peer& peer, Status status) {
  while (!peer.transfers.empty()) finish(*find(*peer.transfers.begin()), status);
}

void DataPath::arrived(Transfer& transfer, std::uint32_t segment, std::uint8_t status) {
  transfer.touched_ns = host_.now_ns();
  if (transfer.kind == TransferKind::kAnswer) {
    // Whatever the requester thinks of it: it has it. Counted here, since what is sent again is no more of an answer.
    if (status == kOk) statistics_.reads.response_bytes += transfer.bytes(segment);
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
      if (reads_waiting_++ == 0) next_ask_ns_ = transfer.touched_ns + kAskNs;
    }
    return;
  }
  ++transfer.done;
  if (transfer.done >= transfer.segments) {
    finish(transfer, Status::kOk);
  } else if (transfer.has_immediate && transfer.done + 1 == transfer.segments) {
    transport_.submit(transfer, true);  // now its last
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

// The data of a read that its peer has taken on may be long in coming; but a peer that was reset, or has given the read
// up, never says so by itself.
void DataPath::ask_for_reads(std::uint64_t now_ns) {
  if (reads_waiting_ == 0 || now_ns < next_ask_ns_) return;
  next_ask_ns_ = now_ns + kAskNs;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer.kind == TransferKind::kRead && transfer.waiting && !transfer.peer->self &&
        now_ns - transfer.touched_ns >= kAskNs) {
      transport_.ask(*transfer.peer, id);
    }
  }
}

bool DataPath::answering(const Peer& peer, std::uint32_t op) {
  return std::ranges::any_of(peer.transfers, [&](std::uint32_t id) {
    const Transfer& transfer = *find(id);
    return transfer.kind == TransferKind::kAnswer && transfer.remote_op == op;
  });
}

void DataPath::no_answer(Peer& peer, std::uint32_t op) {
  Transfer* transfer = find(op);
  if (transfer == nullptr || transfer->kind != TransferKind::kRead || transfer->peer != &peer || !transfer->waiting) {
    return;
  }
  finish(*transfer, Status::kRemoteAbort);
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
