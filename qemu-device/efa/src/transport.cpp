// SPDX-License-Identifier: MIT
#include "transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::efa {

namespace {

constexpr std::uint64_t kNever = UINT64_MAX;
constexpr unsigned kBurst = 8;            // frames of a peer before the next one's turn
constexpr std::uint32_t kRotate = 16;     // segments of a transfer before the next one's turn
constexpr std::uint32_t kRotateSelf = 2;  // the same, to a queue of this very device
constexpr std::size_t kSprayChoice = 16;  // transfers among which spray draws
constexpr std::uint32_t kResendsAtOnce = 32;
constexpr std::uint64_t kFirstRoundTripNs = 25'000'000;

constexpr std::array<std::uint8_t, 2> kEthertypeBytes = {wire::kEthertype >> 8, wire::kEthertype & 0xff};

bool sequenced(wire::Type type) { return type >= wire::Type::kSend && type <= wire::Type::kReadData; }

}  // namespace

Transport::Transport(Host& host, Client& client, const Mac& mac, bool spray)
    : host_(host), client_(client), mac_(mac), spray_(spray) {
  reset();
}

void Transport::reset() {
  peers_.clear();
  round_.clear();
  ack_due_.clear();
  pending_.used = false;
  if (!down_) stalled_since_ns_ = kNever;
  do {
    epoch_ = static_cast<std::uint32_t>(host_.random());
  } while (epoch_ == 0);
}

Peer* Transport::peer(const Mac& mac) {
  const auto known = peers_.find(mac);
  if (known != peers_.end()) return known->second.get();
  if (peers_.size() >= kPeersMax) {
    host_.report(Event::kTooManyPeers, {peers_.size()});
    return nullptr;
  }
  auto made = std::make_unique<Peer>();
  made->mac = mac;
  made->self = mac == mac_;
  made->status.fill(wire::kNothingYet);
  return peers_.emplace(mac, std::move(made)).first->second.get();
}

std::uint32_t Transport::segment_bytes(const Peer& peer, std::uint32_t mtu) const {
  if (peer.self) return kLocalSegment;
  return mtu >= hw::kPage ? mtu & ~static_cast<std::uint32_t>(hw::kPage - 1) : mtu;  // whole pages
}

void Transport::submit(Transfer& transfer, bool first) {
  Peer& to = *transfer.peer;
  if (first) {
    to.work.push_front(transfer.id);
  } else {
    to.work.push_back(transfer.id);
  }
  list(to);
}

void Transport::list(Peer& peer) {
  if (peer.listed) return;
  peer.listed = true;
  round_.push_back(&peer);
}

// ---- Sending

// Index in `work` of the transfer whose turn it is.
std::uint32_t Transport::choose(Peer& peer) {
  if (!spray_ || peer.work.size() < 2) return 0;
  return static_cast<std::uint32_t>(host_.random() % std::min(peer.work.size(), kSprayChoice));
}

void Transport::prepare(const Peer& peer, wire::Head& head) {
  head.version = wire::kVersion;
  head.source_epoch = epoch_;
  head.destination_epoch = peer.epoch;
  head.base = peer.base;
}

// Hand a frame to the link. False: it waits in `pending_` (data) or was not taken (control).
bool Transport::push(const Peer& peer, const wire::Head& head, std::span<const std::byte> payload, unsigned cls) {
  wire::Ethernet ethernet{peer.mac, mac_, {kEthertypeBytes[0], kEthertypeBytes[1]}};
  std::array<std::byte, wire::kHeadBytes> heads;
  std::memcpy(heads.data(), &ethernet, sizeof(ethernet));
  std::memcpy(heads.data() + sizeof(ethernet), &head, sizeof(head));
  const std::array<std::span<const std::byte>, 2> segments = {std::span<const std::byte>(heads), payload};
  const int result = host_.link_send(cls, std::span(segments).first(payload.empty() ? 1 : 2));
  if (result == 0) {
    client_.sent(heads.size() + payload.size());
    return true;
  }
  if (result == -EAGAIN) {
    blocked_[cls] = true;
    if (cls == wire::kDataClass) {
      pending_.used = true;
      pending_.head = heads;
      pending_.payload.assign(payload.begin(), payload.end());
      stalled(host_.now_ns());
    }
    return false;
  }
  down_ = true;  // the frame is lost, as on a cable that is not there
  stalled(host_.now_ns());
  return cls == wire::kDataClass;
}

void Transport::stalled(std::uint64_t now_ns) {
  if (stalled_since_ns_ == kNever) stalled_since_ns_ = now_ns;
}

bool Transport::flush_pending() {
  if (!pending_.used) return true;
  if (blocked_[wire::kDataClass]) return false;
  const std::array<std::span<const std::byte>, 2> segments = {std::span<const std::byte>(pending_.head),
                                                              pending_.payload};
  const int result = host_.link_send(wire::kDataClass, std::span(segments).first(pending_.payload.empty() ? 1 : 2));
  if (result == -EAGAIN) {
    blocked_[wire::kDataClass] = true;
    return false;
  }
  pending_.used = false;
  if (result == 0) {
    client_.sent(pending_.head.size() + pending_.payload.size());
    stalled_since_ns_ = kNever;
  } else {
    down_ = true;
  }
  return true;
}

void Transport::send_acks() {
  std::size_t kept = 0;
  for (Peer* peer : ack_due_) {
    if (blocked_[wire::kControlClass]) {
      ack_due_[kept++] = peer;
      continue;
    }
    wire::Head head{};
    head.type = wire::Type::kAck;
    prepare(*peer, head);
    head.seq = peer->window;
    std::array<std::uint8_t, wire::kWindow> status;
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(peer->beyond - peer->window, wire::kWindow));
    for (std::uint32_t i = 0; i < count; ++i) status[i] = peer->status[(peer->window + i) % wire::kWindow];
    head.length = count;
    if (lose_acks_ > 0) {
      --lose_acks_;
    } else if (!push(*peer, head, std::as_bytes(std::span(status).first(count)), wire::kControlClass) &&
               blocked_[wire::kControlClass]) {
      ack_due_[kept++] = peer;
      continue;
    }
    peer->ack_due = false;
  }
  ack_due_.resize(kept);
}

// The next segment that may go to the peer, filled into `head` and the buffer; each transfer has `rotate` in a row.
// nullptr: none.
Transfer* Transport::take(Peer& peer, std::uint32_t rotate, std::uint32_t& segment, wire::Head& head) {
  while (!peer.work.empty()) {
    const auto at = peer.work.begin() + choose(peer);
    Transfer* transfer = client_.find(*at);
    bool filled = false;
    if (transfer != nullptr && transfer->next < transfer->ready()) {
      segment = transfer->segment(transfer->next);
      head = {};
      buffer_.clear();
      filled = client_.fill(*transfer, segment, head, buffer_);
    }
    if (!filled) {
      peer.work.erase(at);
      continue;
    }
    ++transfer->next;
    const bool more = transfer->next < transfer->ready();
    if (more && transfer->next % rotate != 0) return transfer;
    peer.work.erase(at);
    if (more) peer.work.push_back(transfer->id);
    return transfer;
  }
  return nullptr;
}

Transport::Outcome Transport::send_next(Peer& peer, std::uint64_t now_ns, std::size_t& bytes) {
  while (!peer.again.empty()) {
    const std::uint64_t number = peer.again.front();
    peer.again.pop_front();
    if (number < peer.base) continue;
    Peer::Sent& entry = peer.sent[number - peer.base];
    entry.again = false;
    if (entry.done) continue;
    Transfer* transfer = client_.find(entry.transfer);
    wire::Head head{};
    buffer_.clear();
    if (transfer == nullptr || !client_.fill(*transfer, entry.segment, head, buffer_)) {
      entry.done = true;
      continue;
    }
    entry.last_ns = now_ns;
    entry.turn = ++turns_;
    prepare(peer, head);
    head.seq = number;
    bytes = wire::kHeadBytes + buffer_.size();
    host_.report(Event::kResend, {number, head.op});
    push(peer, head, buffer_, wire::kDataClass);
    return Outcome::kSent;
  }
  settle(peer);
  if (peer.sent.size() >= wire::kWindow) return Outcome::kNothing;
  wire::Head head{};
  std::uint32_t segment = 0;
  Transfer* transfer = take(peer, kRotate, segment, head);
  if (transfer == nullptr) return Outcome::kNothing;
  transfer->touched_ns = now_ns;
  prepare(peer, head);
  bytes = wire::kHeadBytes + buffer_.size();
  if (transfer->kind == TransferKind::kDatagram) {
    push(peer, head, buffer_, wire::kDataClass);
    client_.arrived(*transfer, segment, static_cast<std::uint8_t>(hw::Status::kOk));
  } else {
    head.seq = peer.base + peer.sent.size();
    peer.sent.push_back({transfer->id, segment, now_ns, now_ns, ++turns_, false, false});
    push(peer, head, buffer_, wire::kDataClass);
  }
  return Outcome::kSent;
}

Transport::Outcome Transport::serve_self(Peer& peer, std::size_t& bytes) {
  wire::Head head{};
  std::uint32_t segment = 0;
  Transfer* transfer = take(peer, kRotateSelf, segment, head);
  if (transfer == nullptr) return Outcome::kNothing;
  const std::uint32_t id = transfer->id;
  bytes = wire::kHeadBytes + buffer_.size();
  client_.sent(bytes);
  client_.received(bytes);
  const std::uint8_t status = client_.receive(peer, head, buffer_);
  transfer = client_.find(id);  // what was received may have ended it
  if (transfer != nullptr) {
    client_.arrived(*transfer, segment,
                    transfer->kind == TransferKind::kDatagram ? static_cast<std::uint8_t>(hw::Status::kOk) : status);
  }
  return Outcome::kSent;
}

bool Transport::run(std::uint64_t budget, std::uint64_t now_ns) {
  if (!down_) {
    flush_pending();
    send_acks();
  }
  std::uint64_t used = 0;
  std::size_t idle = 0;  // peers in a row that could not send
  while (!round_.empty() && idle < round_.size()) {
    if (used >= budget) return true;
    Peer& peer = *round_.front();
    round_.pop_front();
    peer.listed = false;
    bool more = true;
    bool progress = false;
    for (unsigned i = 0; i < kBurst && more && used < budget; ++i) {
      if (!peer.self && (down_ || pending_.used)) break;
      std::size_t bytes = 0;
      const Outcome outcome = peer.self ? serve_self(peer, bytes) : send_next(peer, now_ns, bytes);
      more = outcome == Outcome::kSent;
      progress |= more;
      used += bytes;
    }
    if (more) list(peer);
    idle = progress ? 0 : more ? idle + 1 : idle;
  }
  if (!down_) send_acks();
  return false;
}

// ---- Receiving

void Transport::receive(unsigned cls, std::span<const std::byte> frame) {
  static_cast<void>(cls);
  wire::Ethernet ethernet;
  wire::Head head;
  // Frames of others reach every port that the switch floods: they are nobody's error.
  if (frame.size() < sizeof(ethernet)) return client_.dropped();
  std::memcpy(&ethernet, frame.data(), sizeof(ethernet));
  if (ethernet.destination != mac_ || !std::ranges::equal(ethernet.ethertype, kEthertypeBytes)) return;
  const auto bad = [&](std::uint64_t what) {
    host_.report(Event::kBadFrame, {what, frame.size()});
    client_.dropped();
  };
  if (frame.size() < wire::kHeadBytes) return bad(0);
  std::memcpy(&head, frame.data() + sizeof(ethernet), sizeof(head));
  const auto payload = frame.subspan(wire::kHeadBytes);
  if (head.version != wire::kVersion || head.length != payload.size()) return bad(1);
  if ((ethernet.source[0] & 1) != 0 || ethernet.source == mac_) return bad(2);
  if (sequenced(head.type) || head.type == wire::Type::kDatagram) {
    if (std::uint64_t{head.offset} + head.length > head.total || head.total > hw::kRdmaBytes) return bad(3);
  }
  Peer* from = peer(ethernet.source);
  if (from == nullptr) return client_.dropped();
  client_.received(frame.size());

  if (head.type == wire::Type::kDatagram) {
    client_.receive(*from, head, payload);
    return;
  }
  if (head.source_epoch == 0) return bad(4);
  if (head.type == wire::Type::kForgot) return handle_forgot(*from, head);
  if (!sequenced(head.type) && head.type != wire::Type::kAck) return bad(5);
  if (!accept_epoch(*from, head)) return client_.dropped();
  from->heard = true;
  if (head.type == wire::Type::kAck) {
    handle_ack(*from, head, payload);
  } else {
    handle_sequenced(*from, head, payload);
  }
}

// Is this frame between the present lives of both ends?
bool Transport::accept_epoch(Peer& peer, const wire::Head& head) {
  if (head.destination_epoch != 0 && head.destination_epoch != epoch_) {
    host_.report(Event::kStaleFrame, {head.destination_epoch, epoch_});
    if (sequenced(head.type)) {
      wire::Head answer{};
      answer.type = wire::Type::kForgot;
      prepare(peer, answer);
      answer.destination_epoch = head.source_epoch;
      answer.op = head.destination_epoch;
      push(peer, answer, {}, wire::kControlClass);
    }
    return false;
  }
  if (head.source_epoch == peer.epoch) return true;
  if (head.source_epoch == peer.former_epoch) return false;  // late, of its former life
  if (peer.epoch != 0) {
    host_.report(Event::kPeerReset, {peer.epoch, head.source_epoch});
    forget(peer, hw::Status::kRemoteAbort);
  }
  peer.epoch = head.source_epoch;
  return true;
}

void Transport::handle_forgot(Peer& peer, const wire::Head& head) {
  if (head.destination_epoch != epoch_ || head.op != peer.epoch || peer.epoch == 0) return client_.dropped();
  host_.report(Event::kPeerReset, {peer.epoch, head.source_epoch});
  forget(peer, hw::Status::kUnknownPeer);
  peer.epoch = head.source_epoch;
}

// The peer's former life is over: what we had with it fails, both flows start anew.
void Transport::forget(Peer& peer, hw::Status status) {
  client_.fail_all(peer, status);
  peer.base += peer.sent.size();
  peer.sent.clear();
  peer.again.clear();
  peer.work.clear();
  peer.former_epoch = peer.epoch;
  peer.epoch = 0;
  peer.window = peer.beyond = 0;
  peer.status.fill(wire::kNothingYet);
}

void Transport::handle_sequenced(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) {
  if (head.base > head.seq || head.seq - head.base >= wire::kWindow) {
    host_.report(Event::kBadFrame, {6, head.seq, head.base});
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
    peer.backoff = 0;
    turn = std::max(turn, entry.turn);
    if (entry.first_ns == entry.last_ns) {  // Karn: not of what was sent twice
      const std::uint64_t sample = now - entry.first_ns;
      peer.round_trip_ns = peer.round_trip_ns == 0 ? sample + 1 : (7 * peer.round_trip_ns + sample) / 8 + 1;
    }
    const std::uint32_t segment = entry.segment;
    if (Transfer* transfer = client_.find(entry.transfer)) client_.arrived(*transfer, segment, status);
  }
  for (std::size_t i = 0; i < peer.sent.size(); ++i) {
    const Peer::Sent& entry = peer.sent[i];
    if (!entry.done && !entry.again && entry.turn + kReorder < turn) resend(peer, peer.base + i);
  }
  settle(peer);
  if (!peer.work.empty() || !peer.again.empty()) list(peer);
}

// What is done at the front leaves the window.
void Transport::settle(Peer& peer) {
  while (!peer.sent.empty() && (peer.sent.front().done || client_.find(peer.sent.front().transfer) == nullptr)) {
    peer.sent.pop_front();
    ++peer.base;
  }
}

void Transport::resend(Peer& peer, std::uint64_t number) {
  peer.sent[number - peer.base].again = true;
  peer.again.push_back(number);
  list(peer);
}

// ---- Time and link

std::uint64_t Transport::resend_after(const Peer& peer) const {
  const std::uint64_t round_trip = peer.round_trip_ns != 0 ? peer.round_trip_ns : kFirstRoundTripNs;
  const std::uint64_t base = std::clamp(4 * round_trip, kResendMinNs, kResendMaxNs);
  return std::min(base << std::min(peer.backoff, 6u), kResendMaxNs);
}

void Transport::tick(std::uint64_t now_ns) {
  const bool dead = stalled_since_ns_ != kNever && now_ns - stalled_since_ns_ >= kTimeoutNs;
  for (auto& [mac, owned] : peers_) {
    Peer& peer = *owned;
    if (peer.self) continue;
    if (dead && !peer.work.empty()) {
      host_.report(Event::kLinkDead, {peer.work.size()});
      client_.fail_all(peer, hw::Status::kUnreachable);
      peer.work.clear();
    }
    settle(peer);
    if (peer.sent.empty()) continue;
    const std::uint64_t after = resend_after(peer);
    std::uint32_t resends = 0;
    for (std::size_t i = 0; i < peer.sent.size(); ++i) {
      Peer::Sent& entry = peer.sent[i];
      if (entry.done) continue;
      if (now_ns - entry.first_ns >= kTimeoutNs) {
        entry.done = true;
        if (Transfer* transfer = client_.find(entry.transfer)) {
          host_.report(Event::kPeerTimeout, {peer.base + i, transfer->id});
          client_.fail(*transfer, peer.heard ? hw::Status::kUnresponsive : hw::Status::kUnreachable);
        }
      } else if (!entry.again && now_ns - entry.last_ns >= after && resends < kResendsAtOnce) {
        resend(peer, peer.base + i);
        ++resends;
      }
    }
    if (resends > 0) ++peer.backoff;
    settle(peer);
    if (!peer.work.empty()) list(peer);
  }
}

std::uint64_t Transport::deadline(std::uint64_t now_ns) const {
  std::uint64_t due = kNever;
  for (const auto& [mac, peer] : peers_) {
    if (peer->self) continue;
    if (stalled_since_ns_ != kNever && !peer->work.empty()) due = std::min(due, stalled_since_ns_ + kTimeoutNs);
    if (peer->sent.empty()) continue;
    const std::uint64_t after = resend_after(*peer);
    for (const Peer::Sent& entry : peer->sent) {
      if (entry.done) continue;
      due = std::min(due, entry.first_ns + kTimeoutNs);
      if (!entry.again) due = std::min(due, entry.last_ns + after);
    }
  }
  return due == kNever ? due : std::max(due, now_ns + 1);
}

void Transport::link_ready(unsigned cls) {
  if (cls < blocked_.size()) blocked_[cls] = false;
}

void Transport::link_state(bool up) {
  blocked_.fill(false);
  down_ = !up;
  pending_.used = false;  // lost with the connection; the flow sends it again
  if (up) {
    stalled_since_ns_ = kNever;
  } else {
    stalled(host_.now_ns());
  }
}

}  // namespace weft::efa
