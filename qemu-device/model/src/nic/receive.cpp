// SPDX-License-Identifier: MIT
#include "receive.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "packet.hpp"

namespace weft::model::nic {

std::uint64_t Receiver::receive(std::uint32_t number, std::span<const std::byte> frame) {
  Port& port = ports_[number];
  const auto drop = [&](weft_port_counter why) -> std::uint64_t {
    port.count(why);
    return 0;
  };
  port.count(WEFT_PCTR_rx_frames);
  port.count(WEFT_PCTR_rx_bytes, frame.size());
  if (frame.size() < kEthernetSize || frame.size() > kFrameMax) return drop(WEFT_PCTR_drop_malformed);
  const bool group = (frame[0] & std::byte{1}) != std::byte{0};
  Mac dmac;
  std::memcpy(dmac.data(), frame.data(), dmac.size());
  if (!group && !port.owns(dmac)) return drop(WEFT_PCTR_drop_not_mine);
  Packet packet;
  switch (parse(frame, packet)) {
    case Parsed::kNotRoce:
      return drop(WEFT_PCTR_drop_not_roce);
    case Parsed::kMalformed:
      return drop(WEFT_PCTR_drop_malformed);
    case Parsed::kOk:
      break;
  }
  if (group || !port.owns(packet.destination)) return drop(WEFT_PCTR_drop_not_mine);
  if (!icrc_right(frame, packet)) return drop(WEFT_PCTR_drop_icrc);
  if ((packet.traffic_class & 3) == 3) port.count(WEFT_PCTR_ecn_marked);  // RFC 3168: CE
  if (!packet.info.known) return drop(WEFT_PCTR_drop_unsupported);
  if (packet.bth.opcode == kCnp) return drop(WEFT_PCTR_cnp_received);

  QueuePair* qp = queue_pairs_.find(packet.bth.dest_qpn);
  if (qp == nullptr || qp->entry.av.port != number) return drop(WEFT_PCTR_drop_no_qp);
  if ((packet.bth.opcode & kServiceMask) != kServiceRc) return drop(WEFT_PCTR_drop_unsupported);
  if (packet.info.response ? !qp->sends() : !qp->receives()) return drop(WEFT_PCTR_drop_state);
  if (packet.source != qp->dgid || packet.destination != qp->sgid || packet.vlan != qp->entry.vlan ||
      dmac != qp->smac) {
    return drop(WEFT_PCTR_drop_peer);
  }
  // Membership in the partition counts, full or limited does not (IBTA volume 1, section 10.9.3).
  if (((packet.bth.pkey ^ qp->entry.pkey) & 0x7fff) != 0) return drop(WEFT_PCTR_drop_pkey);

  std::uint64_t placed = 0;
  if (packet.info.response) {
    receive_response(*qp, packet);
  } else {
    placed = receive_request(*qp, packet);
  }
  transmitter_.schedule(*qp);
  return placed;
}

std::uint64_t Receiver::receive_request(QueuePair& qp, const Packet& packet) {
  Port& port = ports_[qp.entry.av.port];
  Channel owner = transmitter_.owner_of(qp);
  const Responder::Outcome outcome = qp.responder.request(packet, host_.memory(), owner);
  switch (outcome.event) {
    case Responder::Event::kAccepted:
      port.count(WEFT_PCTR_rx_payload_bytes, packet.payload.size());
      return packet.payload.size();
    case Responder::Event::kDuplicate:
      port.count(WEFT_PCTR_rx_duplicates);
      break;
    case Responder::Event::kOutOfOrder:
      port.count(WEFT_PCTR_rx_out_of_order);
      break;
    case Responder::Event::kRefused:
      transmitter_.fail(qp, outcome.error, WEFT_ERR_FLUSHED);
      break;
  }
  return 0;
}

void Receiver::receive_response(QueuePair& qp, const Packet& packet) {
  Port& port = ports_[qp.entry.av.port];
  // READ and ATOMIC answers belong to requests that channels do not have.
  if (packet.bth.opcode != kAcknowledge) return port.count(WEFT_PCTR_drop_unsupported);
  const std::uint64_t now = host_.now_ns();
  const std::uint8_t syndrome = packet.ext.syndrome;
  Channel owner = transmitter_.owner_of(qp);
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
  if (error != WEFT_ERR_OK) transmitter_.fail(qp, error, error);
}

std::uint64_t Receiver::receive_loopback(std::uint64_t budget) {
  std::uint64_t spent = 0;
  for (std::uint32_t number = 0; number < ports_.size(); ++number) {
    Port& port = ports_[number];
    while (!port.loopback.empty() && spent < budget) {
      std::vector<std::byte> frame = std::move(port.loopback.front());
      port.loopback.pop_front();
      spent += Transmitter::kPacketCost + frame.size();
      if (port.active()) receive(number, frame);
      port.spare.push_back(std::move(frame));
    }
    if (port.stalled >> kLoopback & 1 && port.loopback.size() < kLoopbackFrames / 2) {
      transmitter_.unpark(port, kLoopback);
    }
  }
  return spent;
}

bool Receiver::loopback_waits() const {
  return std::ranges::any_of(ports_.all(), [](const Port& port) { return !port.loopback.empty(); });
}

}  // namespace weft::model::nic
