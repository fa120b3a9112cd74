// SPDX-License-Identifier: MIT
// Frames of peers: is it theirs, is it of now, was it here before.
#include <algorithm>
#include <cstring>

#include "transport.hpp"

namespace weft::efa {

void Transport::receive(std::span<const std::byte> frame) {
  wire::Ethernet ethernet;
  wire::Head head;
  const auto bad = [&](std::uint64_t what) {
    host_.report(Event::kBadFrame, {what, frame.size()});
    client_.dropped();
  };
  if (frame.size() < sizeof(ethernet)) return bad(0);
  std::memcpy(&ethernet, frame.data(), sizeof(ethernet));
  // Frames to others reach every port that the switch floods: they are nobody's error.
  if (ethernet.destination != mac_) return;
  if (ethernet.ethertype != wire::kEthertype || frame.size() < wire::kHeadBytes) return bad(1);
  std::memcpy(&head, frame.data() + sizeof(ethernet), sizeof(head));
  const auto payload = frame.subspan(wire::kHeadBytes);
  if (head.check != wire::checksum(frame.first<wire::kHeadBytes>(), payload)) {
    host_.report(Event::kBadChecksum, {frame.size()});
    return client_.dropped();
  }
  if (head.version != wire::kVersion || head.length != payload.size()) return bad(2);
  if ((ethernet.source[0] & 1) != 0 || ethernet.source == mac_) return bad(3);
  if (wire::sequenced(head.type) || head.type == wire::Type::kDatagram) {
    if (std::uint64_t{head.offset} + head.length > head.total || head.total > hw::kRdmaBytes) return bad(4);
  }
  if (head.type < wire::Type::kDatagram || head.type > wire::Type::kNoAnswer) return bad(5);
  client_.received(frame.size());

  if (head.type == wire::Type::kDatagram) return client_.receive_datagram(ethernet.source, head, payload);
  if (head.source_epoch == 0) return bad(6);
  if (head.type == wire::Type::kHello) return handle_hello(ethernet.source, head);
  Peer* from = accept(ethernet.source, head);
  if (from == nullptr) return client_.dropped();
  if (head.type == wire::Type::kAck) {
    handle_ack(*from, head, payload);
  } else if (head.type == wire::Type::kAsk) {
    if (!client_.answering(*from, head.op)) push_control(*from, wire::Type::kNoAnswer, head.op);
  } else if (head.type == wire::Type::kNoAnswer) {
    client_.no_answer(*from, head.op);
  } else {
    handle_sequenced(*from, head, payload);
  }
}

// The peer that sent a frame, if the frame is between the present lives of both ends.
Peer* Transport::accept(const Mac& mac, const wire::Head& head) {
  Peer* from = find(mac);
  if (from == nullptr || head.destination_epoch != from->epoch) {
    // Whoever really sent it hears our epoch and comes again; a forged frame ends here.
    host_.report(Event::kStaleFrame, {head.destination_epoch});
    if (!wire::sequenced(head.type) && head.type != wire::Type::kAsk) return nullptr;
    if (from == nullptr) from = peer(mac, false);
    if (from != nullptr) push_control(*from, wire::Type::kHello, head.destination_epoch, head.source_epoch);
    return nullptr;
  }
  if (head.source_epoch != from->peer_epoch) {
    if (head.source_epoch == from->former_epoch) return nullptr;  // late, of its former life
    learn(*from, head.source_epoch, hw::Status::kRemoteAbort);
  }
  hear(*from);
  return from;
}

// The peer could not carry out a frame of ours because it does not know us; it repeats both numbers of that frame.
void Transport::handle_hello(const Mac& mac, const wire::Head& head) {
  Peer* from = find(mac);
  if (from == nullptr || head.destination_epoch != from->epoch || head.op != from->peer_epoch ||
      head.source_epoch == from->peer_epoch) {
    return client_.dropped();
  }
  learn(*from, head.source_epoch, hw::Status::kUnknownPeer);
  hear(*from);
}

// The peer lives: it has shown our epoch.
void Transport::hear(Peer& peer) {
  peer.heard = true;
  peer.gone = false;
  touch(peer);
}

// The peer is met for the first time, or was reset: then what we had with it fails, both flows start anew.
void Transport::learn(Peer& peer, std::uint32_t epoch, hw::Status status) {
  if (peer.peer_epoch != 0) {
    host_.report(Event::kPeerReset, {peer.peer_epoch, epoch});
    give_up(peer, status);
    peer.former_epoch = peer.peer_epoch;
    peer.window = peer.beyond = 0;
    peer.status.fill(wire::kNothingYet);
  }
  peer.peer_epoch = epoch;
  peer.resends = 0;
  if (!peer.work.empty()) list(peer);
}

void Transport::handle_sequenced(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) {
  if (head.base > head.seq || head.seq - head.base >= wire::kWindow) {
    host_.report(Event::kBadFrame, {7, head.seq, head.base});
    return client_.dropped();
  }
  if (head.base > peer.window) {
    const std::uint64_t gone = std::min<std::uint64_t>(head.base - peer.window, wire::kWindow);
    for (std::uint64_t i = 0; i < gone; ++i) peer.status[(peer.window + i) % wire::kWindow] = wire::kNothingYet;
    peer.window = head.base;
    peer.beyond = std::max(peer.beyond, peer.window);
  }
  if (head.seq < peer.window || head.seq - peer.window >= wire::kWindow) return client_.dropped();  // late
  std::uint8_t& status = peer.status[head.seq % wire::kWindow];
  if (status == wire::kNothingYet) {
    status = client_.receive(peer, head, payload);
    peer.beyond = std::max(peer.beyond, head.seq + 1);
  }
  if (!peer.ack_due) {
    peer.ack_due = true;
    ack_due_.push_back(&peer);
  }
}

void Transport::handle_ack(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) {
  if (payload.size() > wire::kWindow) return client_.dropped();
  const std::uint64_t now = host_.now_ns();
  std::uint64_t turn = 0;
  for (std::size_t i = 0; i < payload.size(); ++i) {
    const std::uint64_t number = head.seq + i;
    if (number < peer.base || number - peer.base >= peer.sent.size()) continue;
    Peer::Sent& entry = peer.sent[number - peer.base];
    const auto status = static_cast<std::uint8_t>(payload[i]);
    if (status == wire::kNothingYet || entry.done) continue;
    entry.done = true;
    peer.resends = 0;
    peer.progress_ns = now;
    turn = std::max(turn, entry.turn);
    if (entry.first_ns == entry.last_ns) {  // Karn: not of what was sent twice
      const std::uint64_t sample = now - entry.first_ns;
      peer.round_trip_ns = peer.round_trip_ns == 0 ? sample + 1 : (7 * peer.round_trip_ns + sample) / 8 + 1;
    }
    const std::uint32_t segment = entry.segment;
    if (Transfer* transfer = client_.find(entry.transfer)) client_.arrived(*transfer, segment, status);
  }
  for (std::size_t i = 0; i < peer.sent.size(); ++i) {
    if (peer.sent[i].turn + kReorder < turn) resend(peer, i);
  }
  advance(peer);
  if (peer.sent.empty()) {
    stop_timer(peer);
  } else {
    set_timer(peer, peer.progress_ns + resend_after(peer));
  }
  if (!peer.work.empty() || !peer.again.empty()) list(peer);
}

// What is done at the front leaves the window.
void Transport::advance(Peer& peer) {
  while (!peer.sent.empty() && (peer.sent.front().done || client_.find(peer.sent.front().transfer) == nullptr)) {
    peer.sent.pop_front();
    ++peer.base;
  }
}

// False: it needs none, or waits for it already.
bool Transport::resend(Peer& peer, std::size_t index) {
  Peer::Sent& entry = peer.sent[index];
  if (entry.done || entry.again) return false;
  entry.again = true;
  peer.again.push_back(peer.base + index);
  list(peer);
  return true;
}

}  // namespace weft::efa
