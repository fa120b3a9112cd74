// SPDX-License-Identifier: MIT
// The NIC around its queue pairs: frames in, scheduling, frames out, mailbox operations.
//
// A frame is taken apart and its payload placed in link_receive(), where the link's own memory is at hand, so that
// payload is copied once. Everything that calls the device back (completions, events) or the link (answers, data,
// credit) waits for step().
#include "weft/model/nic.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "channel.hpp"
#include "packet.hpp"
#include "port.hpp"
#include "queue_pair.hpp"
#include "timers.hpp"
#include "weft/hw/regs.h"

namespace weft::model::nic {
namespace {

using Segment = std::span<const std::byte>;

constexpr std::uint32_t kFirstQpn = 2;  // 0 and 1 are the standard's (IBTA volume 1, section 3.9.2)
constexpr std::uint32_t kPathMtuMax = 8192;

// What a packet without payload counts of a step's budget.
constexpr std::uint64_t kPacketCost = 64;

// Opcode of a request's packet, without the service.
std::uint8_t request_opcode(const Message& message, Part part) {
  const unsigned base = message.verb == Verb::kWrite ? kWriteFirst : kSendFirst;
  const unsigned immediate = message.with_immediate ? 1 : 0;
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

bool unicast(const std::uint8_t (&mac)[6]) {
  return (mac[0] & 1) == 0 && std::any_of(std::begin(mac), std::end(mac), [](std::uint8_t b) { return b != 0; });
}

class Engine final : public Nic {
 public:
  Engine(NicHost& host, const NicConfig& config)
      : host_(host),
        serial_(config.serial),
        speed_mbps_(config.speed_mbps),
        ports_(std::clamp<std::uint32_t>(config.ports, 1, WEFT_PORTS_MAX)),
        queue_pairs_(std::clamp<std::uint32_t>(config.queue_pairs, kFirstQpn + 1, 1u << 24)) {
    for (std::size_t i = 0; i < ports_.size(); ++i) ports_[i].set_defaults(serial_, static_cast<std::uint32_t>(i));
  }

  Error port_get(weft_mbox_port& out) override;
  Error port_set(const weft_mbox_port_set& wanted) override;
  Error gid_get(weft_mbox_gid& gid) override;
  Error gid_set(const weft_mbox_gid& gid) override;
  std::span<const std::uint64_t> counters(std::uint32_t port) const override;

  Error qp_create(weft_qp_entry& entry) override;
  Error qp_modify(const weft_mbox_qp_modify& modify) override;
  Error qp_query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out) override;
  Error qp_destroy(std::uint32_t context, std::uint32_t qpn) override;
  void destroy_context(std::uint32_t context) override;

  Error post(std::uint32_t qpn, const RdmaRequest& request) override;
  void cancel(const std::function<bool(std::uint64_t)>& which) override;

  int link_receive(std::uint32_t port, std::uint32_t cls, Segment frame) override;
  void link_ready(std::uint32_t port, std::uint32_t cls) override;
  void link_state(std::uint32_t port, bool up) override;

  Progress step(std::uint32_t budget) override;
  void reset() override;

 private:
  enum class Sent : std::uint8_t {
    kSent,
    kLost,     // the port is down: gone, as on a cable that is not there
    kStalled,  // nothing taken; the queue pair is parked
  };

  QueuePair* find(std::uint32_t qpn) { return qpn < queue_pairs_.size() ? queue_pairs_[qpn].get() : nullptr; }
  QueuePair* find(std::uint32_t context, std::uint32_t qpn) {
    QueuePair* qp = find(qpn);
    return qp != nullptr && qp->entry.ctx == context ? qp : nullptr;
  }
  Port& port_of(const QueuePair& qp) { return ports_[qp.entry.av.port]; }
  Channel owner_of(QueuePair& qp) { return {qp.entry, host_.memory(), notices_}; }

  // Receiving.
  void receive(std::uint32_t number, Segment frame);
  void receive_request(QueuePair& qp, const Packet& packet);
  void receive_response(QueuePair& qp, const Packet& packet);

  // Sending.
  Sent transmit(QueuePair& qp, std::span<const Segment> segments);
  void send_answer(QueuePair& qp);
  std::uint64_t send_data(QueuePair& qp);
  // The packet's bytes: where they lie in HBM, or copied out of other memory.
  Error gather(const QueuePair& qp, const Requester::Packet& packet, Segment& payload);

  // Scheduling.
  void schedule(QueuePair& qp);
  void park(QueuePair& qp);
  void unpark(Port& port, std::uint32_t cls);
  void run_timers(std::uint64_t now);
  std::uint64_t run_loopback(std::uint64_t budget);
  void give_credit();
  void tell();
  auto timed() {
    return [this](std::uint32_t qpn) -> std::pair<Timers::Hook*, std::uint64_t> {
      QueuePair* qp = find(qpn);
      if (qp == nullptr) return {nullptr, kNever};
      return {&qp->timer, qp->requester.deadline()};
    };
  }

  // To the error state: the oldest request ends with `oldest`, the others are flushed.
  void fail(QueuePair& qp, Error error, Error oldest);
  // Out of all lists.
  void detach(QueuePair& qp);
  void port_state_changed(std::uint32_t number, bool was_active);

  NicHost& host_;
  std::string serial_;
  std::uint32_t speed_mbps_;
  std::vector<Port> ports_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  // by QPN
  std::uint32_t last_qpn_ = kFirstQpn - 1;
  std::deque<std::uint32_t> data_;     // queue pairs with data to send, a packet a turn
  std::deque<std::uint32_t> answers_;  // queue pairs with an answer to send
  Timers timers_;
  Notices notices_;
  std::vector<std::byte> bounce_;  // payload that does not lie in HBM
  std::uint64_t moved_ = 0;        // payload bytes since the last step
};

// ---- Ports ----

Error Engine::port_get(weft_mbox_port& out) {
  const std::uint32_t number = out.port;
  if (number >= ports_.size()) return WEFT_ERR_MBOX_NOT_FOUND;
  const Port& port = ports_[number];
  out = {};
  out.port = number;
  out.state = port.active() ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN;
  out.admin_up = port.admin_up ? 1 : 0;
  std::copy(port.mac.begin(), port.mac.end(), out.mac);
  for (std::size_t i = port.addresses.size(); i-- > 0;) {  // the first of each kind is written last
    const Gid& gid = port.addresses[i].gid;
    if (port.addresses[i].type == WEFT_GID_NONE) continue;
    ++out.gids;
    if (is_ipv4(gid)) {
      std::copy(gid.begin() + 12, gid.end(), out.ipv4);
    } else {
      std::copy(gid.begin(), gid.end(), out.ipv6);
    }
  }
  out.mtu = kPathMtuMax;
  out.speed_mbps = speed_mbps_;
  out.flaps = port.flaps;
  return WEFT_ERR_OK;
}

Error Engine::port_set(const weft_mbox_port_set& wanted) {
  if (wanted.port >= ports_.size()) return WEFT_ERR_MBOX_NOT_FOUND;
  const bool admin = (wanted.set & WEFT_PORT_SET_ADMIN) != 0;
  const bool mac = (wanted.set & WEFT_PORT_SET_MAC) != 0;
  const bool no_mac = std::all_of(std::begin(wanted.mac), std::end(wanted.mac), [](std::uint8_t b) { return b == 0; });
  if ((wanted.set & ~(WEFT_PORT_SET_ADMIN | WEFT_PORT_SET_MAC)) != 0 || wanted.admin_up > (admin ? 1 : 0) ||
      (mac ? !unicast(wanted.mac) : !no_mac)) {
    return WEFT_ERR_BAD_FIELD;
  }
  Port& port = ports_[wanted.port];
  if (mac) std::copy(std::begin(wanted.mac), std::end(wanted.mac), port.mac.begin());
  if (admin) {
    const bool was_active = port.active();
    port.admin_up = wanted.admin_up == 1;
    port_state_changed(wanted.port, was_active);
  }
  return WEFT_ERR_OK;
}

Error Engine::gid_get(weft_mbox_gid& out) {
  if (out.port >= ports_.size() || out.index >= WEFT_GIDS_PER_PORT) return WEFT_ERR_MBOX_NOT_FOUND;
  const Port& port = ports_[out.port];
  const weft_mbox_gid asked = out;
  out = {};
  out.port = asked.port;
  out.index = asked.index;
  if (out.index >= port.addresses.size() || port.addresses[out.index].type == WEFT_GID_NONE) return WEFT_ERR_OK;
  const Port::Address& address = port.addresses[out.index];
  out.type = static_cast<std::uint8_t>(address.type);
  out.vlan = address.vlan;
  std::copy(address.mac.begin(), address.mac.end(), out.mac);
  std::copy(address.gid.begin(), address.gid.end(), out.gid);
  return WEFT_ERR_OK;
}

Error Engine::gid_set(const weft_mbox_gid& wanted) {
  if (wanted.port >= ports_.size() || wanted.index >= WEFT_GIDS_PER_PORT) return WEFT_ERR_MBOX_NOT_FOUND;
  Port::Address address;
  if (const Error error = Port::make_address(wanted, address); error != WEFT_ERR_OK) return error;
  std::vector<Port::Address>& addresses = ports_[wanted.port].addresses;
  if (wanted.index >= addresses.size()) addresses.resize(wanted.index + 1);
  addresses[wanted.index] = address;
  while (!addresses.empty() && addresses.back().type == WEFT_GID_NONE) addresses.pop_back();
  return WEFT_ERR_OK;
}

std::span<const std::uint64_t> Engine::counters(std::uint32_t port) const {
  if (port >= ports_.size()) return {};
  return ports_[port].counters;
}

void Engine::port_state_changed(std::uint32_t number, bool was_active) {
  Port& port = ports_[number];
  if (port.active() == was_active) return;
  if (was_active) ++port.flaps;
  // Who waited for credit goes on: over the new link, or into the void, where its timer counts.
  for (std::uint32_t cls = 0; cls <= kLoopback; ++cls) unpark(port, cls);
  Notice notice;
  notice.kind = Notice::Kind::kPortChanged;
  notice.number = number;
  notice.state = port.active() ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN;
  notices_.push_back(notice);
}

// ---- Queue pairs ----

Error Engine::qp_create(weft_qp_entry& entry) {
  auto qp = std::make_unique<QueuePair>();
  const Error error = make_queue_pair(entry, static_cast<std::uint32_t>(ports_.size()), *qp);
  if (error != WEFT_ERR_OK) return error;
  // The number used longest ago, so that late packets of a former connection find nobody.
  const auto size = static_cast<std::uint32_t>(queue_pairs_.size());
  for (std::uint32_t i = kFirstQpn; i < size; ++i) {
    last_qpn_ = last_qpn_ + 1 < size ? last_qpn_ + 1 : kFirstQpn;
    if (queue_pairs_[last_qpn_] == nullptr) {
      qp->entry.qpn = last_qpn_;
      entry = qp->entry;
      queue_pairs_[last_qpn_] = std::move(qp);
      return WEFT_ERR_OK;
    }
  }
  return WEFT_ERR_MBOX_NO_ROOM;
}

Error Engine::qp_modify(const weft_mbox_qp_modify& modify) {
  QueuePair* found = find(modify.qp.ctx, modify.qp.qpn);
  if (found == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  QueuePair& qp = *found;
  const std::uint8_t from = qp.entry.state;
  if (const Error error = apply_modify(qp, modify, ports_); error != WEFT_ERR_OK) return error;
  qp.responder.set_access(qp.entry.access);
  if (qp.entry.state == from) return WEFT_ERR_OK;
  switch (qp.entry.state) {
    case WEFT_QPS_RTR:
      qp.responder.start({qp.entry.ctx, qp.mtu(), qp.entry.access, qp.entry.pd}, qp.entry.rq_psn);
      break;
    case WEFT_QPS_RTS:
      qp.requester.start({qp.mtu(), qp.entry.timeout, qp.entry.retry_cnt, qp.entry.rnr_retry}, qp.entry.sq_psn);
      break;
    case WEFT_QPS_RESET:
    case WEFT_QPS_ERR: {
      Channel owner = owner_of(qp);
      qp.requester.flush(WEFT_ERR_FLUSHED, owner);
      qp.responder.answered();
      detach(qp);
      qp.entry.error = qp.entry.state == WEFT_QPS_ERR ? WEFT_ERR_ABORTED : WEFT_ERR_OK;
      break;
    }
    default:
      break;
  }
  return WEFT_ERR_OK;
}

Error Engine::qp_query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out) {
  const QueuePair* qp = find(context, qpn);
  if (qp == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  out = qp->entry;
  if (qp->receives()) out.rq_psn = qp->responder.expected_psn();
  if (qp->sends()) out.sq_psn = qp->requester.next_psn();
  return WEFT_ERR_OK;
}

Error Engine::qp_destroy(std::uint32_t context, std::uint32_t qpn) {
  QueuePair* qp = find(context, qpn);
  if (qp == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  Channel owner = owner_of(*qp);
  qp->requester.flush(WEFT_ERR_FLUSHED, owner);
  std::erase_if(notices_, [&](const Notice& notice) {
    return notice.kind == Notice::Kind::kQueuePairFailed && notice.number == qpn;
  });
  detach(*qp);
  queue_pairs_[qpn].reset();
  return WEFT_ERR_OK;
}

void Engine::destroy_context(std::uint32_t context) {
  for (auto& qp : queue_pairs_) {
    if (qp == nullptr || qp->entry.ctx != context) continue;
    detach(*qp);
    qp.reset();
  }
  std::erase_if(notices_, [&](const Notice& notice) {
    return notice.kind != Notice::Kind::kPortChanged && notice.context == context;
  });
}

void Engine::detach(QueuePair& qp) {
  const std::uint32_t qpn = qp.entry.qpn;
  if (qp.wants_data) std::erase(data_, qpn);
  if (qp.wants_answer) std::erase(answers_, qpn);
  if (qp.parked) std::erase(port_of(qp).parked[qp.cls], qpn);
  qp.wants_data = qp.wants_answer = qp.parked = false;
}

void Engine::fail(QueuePair& qp, Error error, Error oldest) {
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

// ---- Requests ----

Error Engine::post(std::uint32_t qpn, const RdmaRequest& request) {
  if (request.op != WEFT_RDMA_WRITE && request.op != WEFT_RDMA_WRITE_IMM) return WEFT_ERR_BAD_OP;
  QueuePair* qp = find(request.context, qpn);
  if (qp == nullptr || qp->entry.type != WEFT_QP_CHANNEL) return WEFT_ERR_BAD_CHANNEL;
  if (qp->entry.state == WEFT_QPS_ERR) return WEFT_ERR_FLUSHED;
  if (!qp->sends()) return WEFT_ERR_BAD_CHANNEL;
  if (!port_of(*qp).admin_up) return WEFT_ERR_PORT_DOWN;
  if (request.local.length > kMessageMax) return WEFT_ERR_BAD_FIELD;
  Message message;
  message.token = request.token;
  message.verb = Verb::kWrite;
  message.with_immediate = request.op == WEFT_RDMA_WRITE_IMM;
  message.local = request.local;
  message.remote_key = request.remote_key;
  message.remote_address = request.remote_address;
  message.immediate = request.immediate;
  if (!qp->requester.post(message)) return WEFT_ERR_OVERRUN;
  schedule(*qp);
  return WEFT_ERR_OK;
}

void Engine::cancel(const std::function<bool(std::uint64_t)>& which) {
  std::erase_if(notices_,
                [&](const Notice& notice) { return notice.kind == Notice::Kind::kCompleted && which(notice.token); });
  for (const auto& qp : queue_pairs_) {
    if (qp != nullptr && !qp->requester.idle() && qp->requester.forget(which)) {
      fail(*qp, WEFT_ERR_ABORTED, WEFT_ERR_FLUSHED);
    }
  }
}

// ---- Receiving ----

int Engine::link_receive(std::uint32_t port, std::uint32_t cls, Segment frame) {
  if (port >= ports_.size() || cls >= kClasses) return -EINVAL;
  ++ports_[port].owed[cls];
  if (ports_[port].active()) receive(port, frame);
  return 0;
}

void Engine::receive(std::uint32_t number, Segment frame) {
  Port& port = ports_[number];
  port.count(WEFT_PCTR_rx_frames);
  port.count(WEFT_PCTR_rx_bytes, frame.size());
  if (frame.size() < kEthernetSize || frame.size() > kFrameMax) return port.count(WEFT_PCTR_drop_malformed);
  const bool group = (frame[0] & std::byte{1}) != std::byte{0};
  Mac dmac;
  std::memcpy(dmac.data(), frame.data(), dmac.size());
  if (!group && !port.owns(dmac)) return port.count(WEFT_PCTR_drop_not_mine);
  Packet packet;
  switch (parse(frame, packet)) {
    case Parsed::kNotRoce:
      return port.count(WEFT_PCTR_drop_not_roce);
    case Parsed::kMalformed:
      return port.count(WEFT_PCTR_drop_malformed);
    case Parsed::kOk:
      break;
  }
  if (group || !port.owns(packet.destination)) return port.count(WEFT_PCTR_drop_not_mine);
  if (!icrc_right(frame, packet)) return port.count(WEFT_PCTR_drop_icrc);
  if ((packet.traffic_class & 3) == 3) port.count(WEFT_PCTR_ecn_marked);  // RFC 3168: CE
  if (!packet.info.known) return port.count(WEFT_PCTR_drop_unsupported);
  if (packet.bth.opcode == kCnp) return port.count(WEFT_PCTR_cnp_received);

  QueuePair* qp = find(packet.bth.dest_qpn);
  if (qp == nullptr || qp->entry.av.port != number) return port.count(WEFT_PCTR_drop_no_qp);
  if ((packet.bth.opcode & kServiceMask) != kServiceRc) return port.count(WEFT_PCTR_drop_unsupported);
  if (packet.info.response ? !qp->sends() : !qp->receives()) return port.count(WEFT_PCTR_drop_state);
  if (packet.source != qp->dgid || packet.destination != qp->sgid || packet.vlan != qp->entry.vlan ||
      dmac != qp->smac) {
    return port.count(WEFT_PCTR_drop_peer);
  }
  // Membership in the partition counts, full or limited does not (IBTA volume 1, section 10.9.3).
  if (((packet.bth.pkey ^ qp->entry.pkey) & 0x7fff) != 0) return port.count(WEFT_PCTR_drop_pkey);

  if (packet.info.response) {
    receive_response(*qp, packet);
  } else {
    receive_request(*qp, packet);
  }
}

void Engine::receive_request(QueuePair& qp, const Packet& packet) {
  Port& port = port_of(qp);
  Channel owner = owner_of(qp);
  const Responder::Outcome outcome = qp.responder.request(packet, host_.memory(), owner);
  switch (outcome.event) {
    case Responder::Event::kAccepted:
      port.count(WEFT_PCTR_rx_payload_bytes, packet.payload.size());
      moved_ += packet.payload.size();
      break;
    case Responder::Event::kDuplicate:
      port.count(WEFT_PCTR_rx_duplicates);
      break;
    case Responder::Event::kOutOfOrder:
      port.count(WEFT_PCTR_rx_out_of_order);
      break;
    case Responder::Event::kRefused:
      fail(qp, outcome.error, WEFT_ERR_FLUSHED);
      break;
  }
  schedule(qp);
}

void Engine::receive_response(QueuePair& qp, const Packet& packet) {
  Port& port = port_of(qp);
  // READ and ATOMIC answers belong to requests that channels do not have.
  if (packet.bth.opcode != kAcknowledge) return port.count(WEFT_PCTR_drop_unsupported);
  const std::uint64_t now = host_.now_ns();
  const std::uint8_t syndrome = packet.ext.syndrome;
  Channel owner = owner_of(qp);
  Error error = WEFT_ERR_OK;
  if ((syndrome & 0xe0) == kSyndromeAck) {
    port.count(WEFT_PCTR_rx_acks);
    error = qp.requester.acknowledged(packet.bth.psn, now, owner);
  } else if ((syndrome & 0xe0) == kSyndromeRnr) {
    port.count(WEFT_PCTR_rx_rnr_naks);
    error = qp.requester.not_ready(packet.bth.psn, syndrome & 0x1f, now, owner);
  } else if (syndrome == kNakSequence) {
    port.count(WEFT_PCTR_rx_naks);
    error = qp.requester.sequence_error(packet.bth.psn, now, owner);
  } else if (syndrome > kNakSequence && syndrome <= kNakOperation) {
    port.count(WEFT_PCTR_rx_naks);
    error = qp.requester.refused(packet.bth.psn, syndrome, now, owner);
  } else {
    return port.count(WEFT_PCTR_drop_malformed);  // reserved syndromes, and invalid RD request
  }
  if (error != WEFT_ERR_OK) fail(qp, error, error);
  schedule(qp);
}

// ---- Sending ----

Engine::Sent Engine::transmit(QueuePair& qp, std::span<const Segment> segments) {
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

void Engine::send_answer(QueuePair& qp) {
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

Error Engine::gather(const QueuePair& qp, const Requester::Packet& packet, Segment& payload) {
  Memory& memory = host_.memory();
  const Access who{qp.entry.ctx, WEFT_RIGHT_READ, qp.entry.pd};
  const Range& local = packet.message->local;
  payload = {};
  if (local.length == 0) return WEFT_ERR_OK;
  // Nothing of a message leaves that is not allowed as a whole.
  if (packet.offset == 0 && !packet.again) {
    if (const Error error = memory.check(who, local); error != WEFT_ERR_OK) return error;
  }
  const Range range{local.key, local.address + packet.offset, packet.length};
  Error error = WEFT_ERR_OK;
  if (const std::byte* from = memory.hbm(who, range, error)) {
    payload = {from, packet.length};
    return WEFT_ERR_OK;
  }
  if (error != WEFT_ERR_OK) return error;
  bounce_.resize(kPathMtuMax);
  payload = std::span(bounce_).first(packet.length);
  return memory.read(who, range, std::span(bounce_).first(packet.length));
}

std::uint64_t Engine::send_data(QueuePair& qp) {
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
    Segment payload;
    if (const Error error = gather(qp, *packet, payload); error != WEFT_ERR_OK) {
      qp.requester.local_error(*packet, error);
      if (qp.requester.due_error() != WEFT_ERR_OK) fail(qp, error, error);
      return kPacketCost;
    }
    const Message& message = *packet->message;
    Bth bth;
    bth.opcode = kServiceRc | request_opcode(message, packet->part);
    bth.pkey = qp.entry.pkey;
    bth.dest_qpn = qp.entry.dest_qpn;
    bth.ack_request = packet->ack_request;
    bth.psn = packet->psn;
    Extensions ext;
    ext.address = message.remote_address;
    ext.key = message.remote_key;
    ext.length = static_cast<std::uint32_t>(message.local.length);
    ext.immediate = message.immediate;
    const Head head = qp.path.head(bth, ext, payload.size(), port.ip_id);
    const Tail tail = make_tail(head, {&payload, 1});
    const std::array<Segment, 3> segments{head.span(), payload, tail.span()};
    result = transmit(qp, segments);
    if (result == Sent::kStalled) return 0;
  }
  if (result == Sent::kSent) {
    ++port.ip_id;
    port.count(WEFT_PCTR_tx_payload_bytes, packet->length);
    moved_ += packet->length;
    if (packet->again) port.count(WEFT_PCTR_retransmits);
  }
  qp.requester.sent(*packet, host_.now_ns());
  schedule(qp);
  return kPacketCost + packet->length;
}

// ---- Scheduling ----

void Engine::schedule(QueuePair& qp) {
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

void Engine::park(QueuePair& qp) {
  if (qp.parked) return;
  qp.parked = true;
  port_of(qp).parked[qp.cls].push_back(qp.entry.qpn);
}

void Engine::unpark(Port& port, std::uint32_t cls) {
  port.stalled &= ~(1u << cls);
  const std::vector<std::uint32_t> parked = std::exchange(port.parked[cls], {});
  for (const std::uint32_t qpn : parked) {
    QueuePair& qp = *find(qpn);
    qp.parked = false;
    schedule(qp);
  }
}

void Engine::link_ready(std::uint32_t port, std::uint32_t cls) {
  if (port < ports_.size() && cls < kClasses) unpark(ports_[port], cls);
}

void Engine::link_state(std::uint32_t port, bool up) {
  if (port >= ports_.size()) return;
  const bool was_active = ports_[port].active();
  ports_[port].link_up = up;
  port_state_changed(port, was_active);
}

void Engine::run_timers(std::uint64_t now) {
  while (const std::uint32_t qpn = timers_.due(now, timed())) {
    QueuePair& qp = *find(qpn);
    const std::uint64_t timeouts = qp.requester.timeouts();
    const Error error = qp.requester.timer(now);
    port_of(qp).count(WEFT_PCTR_timeouts, qp.requester.timeouts() - timeouts);
    if (error != WEFT_ERR_OK) fail(qp, error, error);
    schedule(qp);
  }
}

std::uint64_t Engine::run_loopback(std::uint64_t budget) {
  std::uint64_t spent = 0;
  for (std::uint32_t number = 0; number < ports_.size(); ++number) {
    Port& port = ports_[number];
    while (!port.loopback.empty() && spent < budget) {
      std::vector<std::byte> frame = std::move(port.loopback.front());
      port.loopback.pop_front();
      spent += frame.size();
      if (port.active()) receive(number, frame);
      port.spare.push_back(std::move(frame));
    }
    if (port.stalled >> kLoopback & 1 && port.loopback.size() < kLoopbackFrames / 2) unpark(port, kLoopback);
  }
  return spent;
}

void Engine::give_credit() {
  for (std::uint32_t number = 0; number < ports_.size(); ++number) {
    for (std::uint32_t cls = 0; cls < kClasses; ++cls) {
      if (const std::uint32_t frames = std::exchange(ports_[number].owed[cls], 0))
        host_.link_credit(number, cls, frames);
    }
  }
}

void Engine::tell() {
  while (!notices_.empty()) {
    const Notice notice = notices_.front();
    notices_.pop_front();
    switch (notice.kind) {
      case Notice::Kind::kCompleted:
        host_.completed(notice.token, notice.error);
        break;
      case Notice::Kind::kQueuePairFailed:
        host_.qp_failed(notice.context, notice.number, notice.error);
        break;
      case Notice::Kind::kPortChanged:
        host_.port_changed(notice.number, notice.state);
        break;
    }
  }
}

Nic::Progress Engine::step(std::uint32_t budget) {
  give_credit();
  run_timers(host_.now_ns());
  std::uint64_t spent = run_loopback(budget);
  tell();
  // Answers first: they are short, and the peer's window waits for them.
  for (std::size_t n = answers_.size(); n > 0; --n) {
    QueuePair& qp = *find(answers_.front());
    answers_.pop_front();
    qp.wants_answer = false;
    send_answer(qp);
    spent += kPacketCost;
  }
  bool first = true;
  while (!data_.empty() && (first || spent < budget)) {
    first = false;
    QueuePair& qp = *find(data_.front());
    data_.pop_front();
    qp.wants_data = false;
    spent += send_data(qp);
  }
  tell();

  Progress progress;
  progress.bytes = std::exchange(moved_, 0);
  progress.more = !data_.empty() || !answers_.empty() ||
                  std::any_of(ports_.begin(), ports_.end(), [](const Port& port) { return !port.loopback.empty(); });
  progress.deadline_ns = timers_.next(timed());
  return progress;
}

void Engine::reset() {
  for (auto& qp : queue_pairs_) qp.reset();
  last_qpn_ = kFirstQpn - 1;
  data_.clear();
  answers_.clear();
  timers_.clear();
  notices_.clear();
  moved_ = 0;
  for (std::uint32_t number = 0; number < ports_.size(); ++number) {
    Port fresh;
    fresh.set_defaults(serial_, number);
    fresh.link_up = ports_[number].link_up;
    fresh.owed = ports_[number].owed;  // the sender's, whatever happens here
    ports_[number] = std::move(fresh);
  }
}

}  // namespace
}  // namespace weft::model::nic

namespace weft::model {

std::unique_ptr<Nic> make_nic(NicHost& host, const NicConfig& config) {
  return std::make_unique<nic::Engine>(host, config);
}

}  // namespace weft::model
