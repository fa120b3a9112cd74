// SPDX-License-Identifier: MIT
// The other side of a request: frames of peers into receive queues, memory and completions.
#include <algorithm>
#include <cstring>
#include <utility>

#include "datapath.hpp"
#include "status.hpp"

namespace weft::efa {

using hw::QpState;
using hw::Status;

namespace {

bool receives(const QueuePair& pair) {
  return pair.state == QpState::kRtr || pair.state == QpState::kRts || pair.state == QpState::kSqd ||
         pair.state == QpState::kSqe;
}

}  // namespace

// The next work request of the receive queue; to consume it, the caller moves rq_head on.
DataPath::Found DataPath::peek_receive(QueuePair& pair, ReceiveBuffers& buffers) {
  const auto waiting = static_cast<std::uint16_t>(pair.rq_tail - pair.rq_head);
  if (waiting == 0) return Found::kNone;
  for (std::uint16_t i = 0; i < waiting; ++i) {
    if (buffers.count == buffers.buffer.size()) return Found::kBroken;  // longer than we said
    hw::ReceiveDescriptor descriptor;
    const std::uint64_t at =
        pair.rq_base + ((pair.rq_head + std::uint32_t{i}) & (pair.rq_entries - 1)) * sizeof(descriptor);
    if (!host_.read(at, std::as_writable_bytes(std::span(&descriptor, 1)), WEFT_ABI_DMA_CONTROL)) return Found::kBroken;
    buffers.buffer[buffers.count++] = {descriptor.address.value(), descriptor.lkey_control & hw::kLkeyMask,
                                       descriptor.length};
    buffers.bytes += descriptor.length;
    buffers.request = descriptor.request;
    ++buffers.descriptors;
    if (descriptor.lkey_control & hw::kReceiveLast) return Found::kYes;
  }
  return Found::kBroken;  // the doorbell came in the middle of a request
}

hw::Cqe DataPath::receive_cqe(const QueuePair& pair, const Mac& from, const wire::Head& head, hw::SendOp op,
                              std::uint32_t length) {
  const Gid gid = gid_of(from);
  hw::Cqe cqe{};
  cqe.flags = static_cast<std::uint8_t>(hw::kCqeReceive | static_cast<unsigned>(op) << hw::kCqeOpShift);
  cqe.qp = number(pair);
  cqe.length = static_cast<std::uint16_t>(length);
  cqe.ah = addresses_.number(pair.pd, gid);  // ours, of our domain
  cqe.source_qp = head.source_qp;
  if (head.flags & wire::kImmediate) {
    cqe.flags |= hw::kCqeImmediate;
    cqe.immediate = head.immediate;
  }
  const CompletionQueue* cq = completions_.cq(pair.receive_cq);
  if (op == hw::SendOp::kWrite) {
    cqe.length_high = static_cast<std::uint16_t>(length >> 16);
  } else if (cqe.ah == hw::kNoAh && cq != nullptr && cq->source_address) {
    cqe.source_address = gid;
  }
  return cqe;
}

// The queue pair that the frame is for; null: there is none of that type that receives.
QueuePair* DataPath::receiver(const wire::Head& head, hw::QpType type) {
  QueuePair* pair = qp(head.destination_qp);
  if (pair != nullptr && pair->type == type && receives(*pair)) return pair;
  host_.report(Event::kReceiveRefused, {head.destination_qp, static_cast<std::uint64_t>(head.type)});
  ++statistics_.basic.rx_drops;
  return nullptr;
}

void DataPath::receive_datagram(const Mac& from, const wire::Head& head, std::span<const std::byte> payload) {
  if (QueuePair* pair = receiver(head, hw::QpType::kUd)) receive_send(from, *pair, head, payload);
}

std::uint8_t DataPath::receive(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) {
  if (head.type == wire::Type::kReadData) return receive_read_data(peer, head, payload);
  QueuePair* pair = receiver(head, hw::QpType::kSrd);
  if (pair == nullptr) return code(Status::kRemoteBadQpn);
  switch (head.type) {
    case wire::Type::kSend:
      return receive_send(peer.mac, *pair, head, payload);
    case wire::Type::kWrite:
      return receive_write(peer.mac, *pair, head, payload);
    case wire::Type::kRead:
      return receive_read(peer, *pair, head);
    default:
      return code(Status::kRemoteBadStatus);
  }
}

std::uint8_t DataPath::receive_send(const Mac& from, QueuePair& pair, const wire::Head& head,
                                    std::span<const std::byte> payload) {
  const bool datagram = pair.type == hw::QpType::kUd;
  const auto refuse = [&](Status status) {
    ++statistics_.basic.rx_drops;
    return code(status);
  };
  if (head.qkey != pair.qkey || head.offset != 0 || head.length != head.total) {
    host_.report(Event::kReceiveRefused, {number(pair), static_cast<std::uint64_t>(head.type)});
    return refuse(Status::kRemoteBadQpn);
  }
  ReceiveBuffers buffers;
  switch (peek_receive(pair, buffers)) {
    case Found::kNone:
      host_.report(Event::kReceiveNoBuffer, {number(pair)});
      return refuse(Status::kRemoteRnr);
    case Found::kBroken:
      break_queue(pair);
      return refuse(Status::kRemoteBadQpn);
    case Found::kYes:
      break;
  }
  const std::size_t room = datagram ? hw::kGrhBytes : 0;
  if (payload.size() + room > buffers.bytes) return refuse(Status::kRemoteBadLength);
  pair.rq_head = static_cast<std::uint16_t>(pair.rq_head + buffers.descriptors);

  hw::Cqe cqe = receive_cqe(pair, from, head, hw::SendOp::kSend, static_cast<std::uint32_t>(payload.size() + room));
  cqe.request = buffers.request;
  std::size_t skip = room;
  std::size_t done = 0;
  for (std::uint32_t i = 0; i < buffers.count && done < payload.size(); ++i) {
    const LocalBuffer& buffer = buffers.buffer[i];
    const std::size_t ahead = std::min<std::size_t>(skip, buffer.length);
    const std::size_t piece = std::min<std::size_t>(buffer.length - ahead, payload.size() - done);
    skip -= ahead;
    if (piece == 0) continue;
    const Region* region = regions_.local(buffer.lkey);
    if (region == nullptr || !region->allows(pair.pd, buffer.address, ahead + piece, hw::kLocalWrite)) {
      cqe.status = Status::kInvalidLkey;
      break;
    }
    if (!regions_.write(*region, buffer.address + ahead, payload.subspan(done, piece))) {
      host_.report(Event::kPayloadDma, {buffer.address + ahead, piece});
      cqe.status = Status::kInternalError;
      break;
    }
    done += piece;
  }
  if (cqe.status == Status::kOk) {
    ++statistics_.messages.receives;
    statistics_.messages.receive_bytes += payload.size();
  }
  const bool ok = cqe.status == Status::kOk;
  completions_.post(pair.receive_cq, cqe);
  return ok ? kOk : code(Status::kRemoteBadAddress);
}

std::uint8_t DataPath::receive_write(const Mac& from, QueuePair& pair, const wire::Head& head,
                                     std::span<const std::byte> payload) {
  if (head.total > 0) {
    // The whole write must be allowed, so that the first segment tells.
    const Region* region = regions_.remote(head.rkey);
    if (region == nullptr || !region->allows(pair.pd, head.remote, head.total, hw::kRemoteWrite)) {
      host_.report(Event::kReceiveRefused, {number(pair), head.rkey, head.remote, head.total});
      return code(Status::kRemoteBadAddress);
    }
    if (!regions_.write(*region, head.remote + head.offset, payload)) {
      host_.report(Event::kPayloadDma, {head.remote + head.offset, payload.size()});
      return code(Status::kRemoteBadAddress);
    }
    statistics_.writes.receive_bytes += payload.size();
  }
  if ((head.flags & wire::kImmediate) == 0) return kOk;

  hw::Cqe cqe = receive_cqe(pair, from, head, hw::SendOp::kWrite, head.total);
  if (pair.unsolicited) {
    cqe.flags |= hw::kCqeUnsolicited;
  } else {
    ReceiveBuffers buffers;
    switch (peek_receive(pair, buffers)) {
      case Found::kNone:
        host_.report(Event::kReceiveNoBuffer, {number(pair)});
        return code(Status::kRemoteRnr);
      case Found::kBroken:
        break_queue(pair);
        return code(Status::kRemoteBadQpn);
      case Found::kYes:
        pair.rq_head = static_cast<std::uint16_t>(pair.rq_head + buffers.descriptors);
        cqe.request = buffers.request;
    }
  }
  completions_.post(pair.receive_cq, cqe);
  return kOk;
}

std::uint8_t DataPath::receive_read(Peer& peer, QueuePair& pair, const wire::Head& head) {
  if (head.length != 0) return code(Status::kRemoteBadLength);
  if (head.total > 0) {
    const Region* region = regions_.remote(head.rkey);
    if (region == nullptr || !region->allows(pair.pd, head.remote, head.total, hw::kRemoteRead)) {
      host_.report(Event::kReceiveRefused, {number(pair), head.rkey, head.remote, head.total});
      return code(Status::kRemoteBadAddress);
    }
  }
  if (peer.answers >= kAnswersMax) return wire::kBusy;
  ++peer.answers;
  Transfer answer;
  answer.kind = TransferKind::kAnswer;
  answer.peer = &peer;
  answer.qp = number(pair);
  answer.destination_qp = head.source_qp;
  answer.remote_op = head.op;
  answer.rkey = head.rkey;
  answer.remote = head.remote;
  answer.length = head.total;
  answer.segment_bytes = transport_.segment_bytes(peer, options_.mtu);
  answer.segments = std::max(
      1u, static_cast<std::uint32_t>((std::uint64_t{answer.length} + answer.segment_bytes - 1) / answer.segment_bytes));
  answer.order = options_.spray ? Order::drawn(answer.segments, host_.random()) : Order::natural(answer.segments);
  transport_.submit(add(std::move(answer)));
  return kOk;
}

std::uint8_t DataPath::receive_read_data(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) {
  Transfer* transfer = find(head.op);
  if (transfer == nullptr || transfer->kind != TransferKind::kRead || transfer->peer != &peer ||
      transfer->qp != head.destination_qp) {
    return code(Status::kRemoteAbort);  // its queue pair is gone: the answer may stop
  }
  if (head.status != kOk) {
    finish(*transfer, remote_status(head.status));
    return code(Status::kRemoteAbort);
  }
  if (head.total != transfer->length || payload.size() > transfer->length - transfer->received) {
    finish(*transfer, Status::kRemoteBadStatus);
    return code(Status::kRemoteAbort);
  }
  if (!payload.empty()) {
    const LocalBuffer& buffer = transfer->local[0];
    const Region* region = regions_.local(buffer.lkey);
    const std::uint64_t at = buffer.address + head.offset;
    if (region == nullptr || !region->allows(qps_[transfer->qp].pd, at, payload.size(), hw::kLocalWrite)) {
      finish(*transfer, Status::kInvalidLkey);
      return code(Status::kRemoteAbort);
    }
    if (!regions_.write(*region, at, payload)) {
      host_.report(Event::kPayloadDma, {at, payload.size()});
      finish(*transfer, Status::kInternalError);
      return code(Status::kRemoteAbort);
    }
  }
  transfer->touched_ns = host_.now_ns();
  transfer->received += static_cast<std::uint32_t>(payload.size());
  if (transfer->received == transfer->length) finish(*transfer, Status::kOk);
  return kOk;
}

}  // namespace weft::efa
