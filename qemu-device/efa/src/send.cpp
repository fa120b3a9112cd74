// SPDX-License-Identifier: MIT
// Send queues into transfers, and those into frames.
#include <algorithm>
#include <cstring>
#include <utility>

#include "datapath.hpp"
#include "status.hpp"

namespace weft::efa {

using hw::QpState;
using hw::Status;

namespace {

constexpr unsigned kFetch = 16;  // work requests of a queue before the next one's turn

}  // namespace

bool DataPath::run_send_queues() {
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
  // Made when all else is right: only a request that goes out is worth a peer.
  const auto find_peer = [&] {
    transfer.peer = transport_.peer(*mac, true);
    return transfer.peer != nullptr ? Status::kOk : Status::kUnreachable;
  };

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
    return find_peer();
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
  const Status status = find_peer();
  if (status == Status::kOk && op == hw::SendOp::kWrite) {
    transfer.segment_bytes = transport_.segment_bytes(*transfer.peer, options_.mtu);
    transfer.segments =
        std::max(1u, static_cast<std::uint32_t>((std::uint64_t{transfer.length} + transfer.segment_bytes - 1) /
                                                transfer.segment_bytes));
    // Drawn among the segments that may go in any order.
    const std::uint32_t free = transfer.has_immediate ? transfer.segments - 1 : transfer.segments;
    transfer.order = options_.spray ? Order::drawn(free, host_.random()) : Order::natural(free);
  }
  return status;
}

bool DataPath::fill(Transfer& transfer, std::uint32_t segment, wire::Head& head, std::span<std::byte> payload) {
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
    const Region* region = regions_.remote(transfer.rkey);
    if (region == nullptr || !region->allows(pair.pd, transfer.remote, transfer.length, hw::kRemoteRead) ||
        !regions_.read(*region, transfer.remote + head.offset, payload.first(bytes))) {
      // The memory went while it was read.
      head.length = 0;
      head.status = code(Status::kRemoteBadAddress);
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
    if (!regions_.read(*region, buffer.address + skip, payload.subspan(done, piece))) {
      host_.report(Event::kPayloadDma, {buffer.address + skip, piece});
      finish(transfer, Status::kInternalError);
      return false;
    }
    done += piece;
    skip = 0;
  }
  return true;
}

}  // namespace weft::efa
