// SPDX-License-Identifier: MIT
#include "transmit.hpp"

#include <cerrno>
#include <vector>

#include "packet.hpp"

namespace weft::model::nic {
namespace {

using Segment = std::span<const std::byte>;

// Opcode of a request's packet, without the service.
std::uint8_t request_opcode(const WorkRequest& request, Part part) {
  const unsigned base = request.op == WEFT_RDMA_SEND ? kSendFirst : kWriteFirst;
  const unsigned immediate = request.op == WEFT_RDMA_WRITE_IMM ? 1 : 0;
  switch (part) {
    case Part::kFirst:
      return static_cast<std::uint8_t>(base);
    case Part::kMiddle:
      return static_cast<std::uint8_t>(base + 1);
    case Part::kLast:
      return static_cast<std::uint8_t>(base + 2 + immediate);
    case Part::kOnly:
      break;
  }
  return static_cast<std::uint8_t>(base + 4 + immediate);
}

}  // namespace

// ---- Lists ----

void Transmitter::schedule(QueuePair& qp) {
  timers_.arm(qp.entry.qpn, qp.timer, qp.requester.deadline());
  if (qp.parked) return;
  if (!qp.wants_answer && qp.responder.answer_due()) {
    qp.wants_answer = true;
    answers_.push_back(qp.entry.qpn);
  }
  if (!qp.wants_data && qp.sends() && qp.requester.can_send()) {
    qp.wants_data = true;
    data_.push_back(qp.entry.qpn);
  }
}

void Transmitter::detach(QueuePair& qp) {
  const std::uint32_t qpn = qp.entry.qpn;
  if (qp.wants_data) std::erase(data_, qpn);
  if (qp.wants_answer) std::erase(answers_, qpn);
  if (qp.parked) std::erase(port_of(qp).parked[qp.cls], qpn);
  qp.wants_data = qp.wants_answer = qp.parked = false;
}

void Transmitter::fail(QueuePair& qp, Error error, Error oldest) {
  qp.entry.state = WEFT_QPS_ERR;
  qp.entry.error = error;
  port_of(qp).count(WEFT_PCTR_qp_errors);
  Channel owner = owner_of(qp);
  qp.requester.flush(oldest, owner);
  Notice notice;
  notice.kind = Notice::Kind::kQueuePairFailed;
  notice.error = error;
  notice.context = qp.entry.ctx;
  notice.number = qp.entry.qpn;
  notices_.push_back(notice);
}

void Transmitter::park(QueuePair& qp) {
  if (qp.parked) return;
  qp.parked = true;
  port_of(qp).parked[qp.cls].push_back(qp.entry.qpn);
}

void Transmitter::unpark(Port& port, std::uint32_t cls) {
  port.stalled &= ~(1u << cls);
  const std::vector<std::uint32_t> parked = std::exchange(port.parked[cls], {});
  for (const std::uint32_t qpn : parked) {
    QueuePair& qp = *queue_pairs_.find(qpn);
    qp.parked = false;
    schedule(qp);
  }
}

void Transmitter::reset() {
  data_.clear();
  answers_.clear();
  timers_.clear();
}

// ---- Frames ----

Transmitter::Sent Transmitter::transmit(QueuePair& qp, std::span<const Segment> segments) {
  Port& port = port_of(qp);
  std::size_t bytes = 0;
  for (const Segment segment : segments) bytes += segment.size();
  if (qp.cls == kLoopback) {
    std::vector<std::byte> frame;
    if (!port.spare.empty()) {
      frame = std::move(port.spare.back());
      port.spare.pop_back();
    }
    frame.clear();
    frame.reserve(bytes);
    for (const Segment segment : segments) frame.insert(frame.end(), segment.begin(), segment.end());
    port.loopback.push_back(std::move(frame));
    if (port.loopback.size() >= kLoopbackFrames) port.stalled |= 1u << kLoopback;
  } else {
    const int result = host_.link_send(qp.entry.av.port, qp.cls, segments);
    if (result == -EAGAIN) {
      port.count(WEFT_PCTR_tx_stalls);
      port.stalled |= 1u << qp.cls;
      park(qp);
      return Sent::kStalled;
    }
    if (result != 0) return Sent::kLost;
  }
  port.count(WEFT_PCTR_tx_frames);
  port.count(WEFT_PCTR_tx_bytes, bytes);
  return Sent::kSent;
}

void Transmitter::send_answer(QueuePair& qp) {
  Port& port = port_of(qp);
  if (!qp.responder.answer_due()) return;
  if (!port.active()) return qp.responder.answered();  // lost
  if (port.stalled >> qp.cls & 1) return park(qp);
  const Responder::Answer answer = qp.responder.answer();
  Bth bth;
  bth.opcode = kServiceRc | kAcknowledge;
  bth.pkey = qp.entry.pkey;
  bth.dest_qpn = qp.entry.dest_qpn;
  bth.psn = answer.psn;
  Extensions ext;
  ext.syndrome = answer.syndrome;
  ext.msn = answer.msn;
  const Head head = qp.path.head(bth, ext, 0, port.ip_id);
  const Tail tail = make_tail(head, {});
  const std::array<Segment, 2> segments{head.span(), tail.span()};
  switch (transmit(qp, segments)) {
    case Sent::kStalled:
      return;
    case Sent::kSent:
      ++port.ip_id;
      port.count(answer.syndrome == kAckUnlimited ? WEFT_PCTR_tx_acks : WEFT_PCTR_tx_naks);
      break;
    case Sent::kLost:
      break;
  }
  qp.responder.answered();
}

// Copies the packet's payload out of the sender's memory. A CPU may store there meanwhile: all that follows, the ICRC
// first, uses the copy.
Error Transmitter::gather(const QueuePair& qp, const Requester::Packet& packet, std::span<std::byte> payload) {
  Memory& memory = host_.memory();
  const Access who{qp.entry.ctx, WEFT_RIGHT_READ, qp.entry.pd};
  const Range& local = packet.request->local;
  if (local.length == 0) return WEFT_ERR_OK;
  // Nothing of a message leaves that is not allowed as a whole.
  if (packet.offset == 0 && !packet.again) {
    if (const Error error = memory.check(who, local); error != WEFT_ERR_OK) return error;
  }
  return memory.read(who, {local.key, local.address + packet.offset, packet.length}, payload);
}

std::uint64_t Transmitter::send_packet(QueuePair& qp) {
  Port& port = port_of(qp);
  if (!qp.sends()) return 0;
  const auto packet = qp.requester.next();
  if (!packet) return 0;
  if (port.active() && (port.stalled >> qp.cls & 1) != 0) {
    park(qp);
    return 0;
  }
  Sent result = Sent::kLost;
  if (port.active()) {
    const auto payload = std::span(payload_).first(packet->length);
    if (const Error error = gather(qp, *packet, payload); error != WEFT_ERR_OK) {
      qp.requester.local_error(*packet, error);
      if (qp.requester.due_error() != WEFT_ERR_OK) fail(qp, error, error);
      return kPacketCost;
    }
    const WorkRequest& request = *packet->request;
    Bth bth;
    bth.opcode = kServiceRc | request_opcode(request, packet->part);
    bth.pkey = qp.entry.pkey;
    bth.dest_qpn = qp.entry.dest_qpn;
    bth.ack_request = packet->ack_request;
    bth.psn = packet->psn;
    Extensions ext;
    ext.address = request.remote_address;
    ext.key = request.remote_key;
    ext.length = static_cast<std::uint32_t>(request.local.length);
    ext.immediate = request.immediate;
    const Head head = qp.path.head(bth, ext, payload.size(), port.ip_id);
    const Tail tail = make_tail(head, payload);
    const std::array<Segment, 3> segments{head.span(), payload, tail.span()};
    result = transmit(qp, segments);
    if (result == Sent::kStalled) return 0;
  }
  if (result == Sent::kSent) {
    ++port.ip_id;
    port.count(WEFT_PCTR_tx_payload_bytes, packet->length);
    if (packet->again) port.count(WEFT_PCTR_retransmits);
  }
  qp.requester.sent(*packet, host_.now_ns());
  schedule(qp);
  return kPacketCost + packet->length;
}

// ---- Work ----

void Transmitter::run_timers() {
  const std::uint64_t now = host_.now_ns();
  while (const std::uint32_t qpn = timers_.due(now, timed())) {
    QueuePair& qp = *queue_pairs_.find(qpn);
    const std::uint64_t timeouts = qp.requester.timeouts();
    const Error error = qp.requester.timer(now, port_of(qp).active());
    port_of(qp).count(WEFT_PCTR_timeouts, qp.requester.timeouts() - timeouts);
    if (error != WEFT_ERR_OK) fail(qp, error, error);
    schedule(qp);
  }
}

std::uint64_t Transmitter::deadline() { return timers_.next(timed()); }

std::uint64_t Transmitter::send_answers(std::uint64_t budget) {
  std::uint64_t spent = 0;
  for (bool first = true; !answers_.empty() && (first || spent < budget); first = false) {
    QueuePair& qp = *queue_pairs_.find(answers_.front());
    answers_.pop_front();
    qp.wants_answer = false;
    send_answer(qp);
    spent += kPacketCost;
  }
  return spent;
}

std::uint64_t Transmitter::send_data(std::uint64_t budget) {
  std::uint64_t spent = 0;
  for (bool first = true; !data_.empty() && (first || spent < budget); first = false) {
    QueuePair& qp = *queue_pairs_.find(data_.front());
    data_.pop_front();
    qp.wants_data = false;
    spent += send_packet(qp);
  }
  return spent;
}

}  // namespace weft::model::nic
