// SPDX-License-Identifier: MIT
#include "transport.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace weft::efa {

namespace {

constexpr unsigned kBurst = 8;            // frames of a peer before the next one's turn
constexpr std::uint32_t kRotate = 16;     // segments of a transfer before the next one's turn
constexpr std::uint32_t kRotateSelf = 2;  // the same, to a queue of this very device
constexpr std::size_t kSprayChoice = 16;  // transfers among which spray draws
constexpr unsigned kResendsAtOnce = 32;   // frames a round, while the peer may still be there
constexpr unsigned kResendsQuick = 4;     // rounds like that; later one frame a round
constexpr std::uint64_t kFirstRoundTripNs = 25'000'000;
constexpr std::size_t kBufferBytes = std::max<std::size_t>(Transport::kLocalSegment, wire::kPayloadMax);

}  // namespace

Transport::Transport(Host& host, Client& client, const Mac& mac, bool spray)
    : host_(host),
      client_(client),
      mac_(mac),
      spray_(spray),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {
  reset();
}

void Transport::reset() {
  peers_.clear();
  self_ = {};
  self_.mac = mac_;
  self_.self = true;
  self_.peer_epoch = 1;  // known
  for (auto& order : order_) order.clear();
  timers_.clear();
  round_.clear();
  ack_due_.clear();
  pending_.clear();
}

// ---- Peers

std::uint32_t Transport::draw_epoch() {
  std::uint32_t epoch;
  do {
    epoch = static_cast<std::uint32_t>(host_.random());
  } while (epoch == 0);
  return epoch;
}

Peer* Transport::find(const Mac& mac) {
  if (mac == mac_) return &self_;
  const auto known = peers_.find(mac);
  return known == peers_.end() ? nullptr : known->second.get();
}

Peer* Transport::peer(const Mac& mac, bool traffic) {
  if (Peer* known = find(mac)) return known;
  if (peers_.size() >= kPeersMax && !evict(traffic)) {
    host_.report(Event::kTooManyPeers, {peers_.size()});
    return nullptr;
  }
  auto made = std::make_unique<Peer>();
  made->mac = mac;
  made->epoch = draw_epoch();
  made->status.fill(wire::kNothingYet);
  made->place = order_[0].insert(order_[0].end(), made.get());
  return peers_.emplace(mac, std::move(made)).first->second.get();
}

// Make room. Anybody can name a peer that does not exist, so those that were never heard go first, for traffic of ours
// even with what waits for them. One that was heard goes only while nothing is under way; at its next request it
// notices, as after a reset.
bool Transport::evict(bool traffic) {
  for (unsigned order = 0; order < 3; ++order) {
    if (order_[order].empty() || (order == 1 && !traffic)) continue;
    Peer& victim = *order_[order].front();
    host_.report(Event::kPeerEvicted, {victim.heard, victim.transfers.size()});
    give_up(victim, hw::Status::kUnreachable);
    if (victim.listed) std::erase(round_, &victim);
    if (victim.ack_due) std::erase(ack_due_, &victim);
    order_[victim.order].erase(victim.place);
    peers_.erase(Mac(victim.mac));
    return true;
  }
  return false;
}

void Transport::touch(Peer& peer) {
  if (peer.self) return;
  auto& from = order_[peer.order];
  peer.order = (peer.heard ? 2 : 0) + (peer.transfers.empty() ? 0 : 1);
  order_[peer.order].splice(order_[peer.order].end(), from, peer.place);
}

void Transport::attach(const Transfer& transfer) {
  transfer.peer->transfers.insert(transfer.id);
  touch(*transfer.peer);
}

void Transport::detach(const Transfer& transfer) {
  transfer.peer->transfers.erase(transfer.id);
  touch(*transfer.peer);
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

// Everything with the peer fails. Its numbers are not used again: what it has of them it has carried out.
void Transport::give_up(Peer& peer, hw::Status status) {
  client_.fail_all(peer, status);
  peer.base += peer.sent.size();
  peer.sent.clear();
  peer.again.clear();
  peer.work.clear();
  peer.resends = 0;
  stop_timer(peer);
}

// ---- Sending

// The transfer in `work` whose turn it is; its end: none may go. To a peer that we do not know yet only datagrams may.
std::deque<std::uint32_t>::iterator Transport::choose(Peer& peer) {
  if (peer.peer_epoch == 0) {
    return std::ranges::find_if(peer.work, [&](std::uint32_t id) {
      const Transfer* transfer = client_.find(id);
      return transfer == nullptr || transfer->kind == TransferKind::kDatagram;
    });
  }
  if (!spray_ || peer.work.size() < 2) return peer.work.begin();
  return peer.work.begin() + static_cast<std::ptrdiff_t>(host_.random() % std::min(peer.work.size(), kSprayChoice));
}

// Hand a frame to the link. False: there is no credit. Without a link it is lost.
bool Transport::transmit(unsigned cls, std::span<const std::span<const std::byte>> segments) {
  const int result = host_.link_send(cls, segments);
  if (result == -EAGAIN) {
    blocked_[cls] = true;
    return false;
  }
  if (result != 0) {
    go_down();
    return true;
  }
  std::size_t bytes = 0;
  for (const auto& segment : segments) bytes += segment.size();
  client_.sent(bytes);
  return true;
}

// Complete a head and send the frame. False: there is no credit; data then waits in `pending_`.
bool Transport::push(const Peer& peer, wire::Head& head, std::span<const std::byte> payload, unsigned cls) {
  head.version = wire::kVersion;
  head.source_epoch = peer.epoch;
  if (head.type != wire::Type::kHello) head.destination_epoch = peer.peer_epoch;
  head.base = peer.base;
  const wire::Ethernet ethernet{peer.mac, mac_, wire::kEthertype};
  wire::Heads heads;
  std::memcpy(heads.data(), &ethernet, sizeof(ethernet));
  std::memcpy(heads.data() + sizeof(ethernet), &head, sizeof(head));
  head.check = wire::checksum(heads, payload);
  std::memcpy(heads.data() + heads.size() - sizeof(head.check), &head.check, sizeof(head.check));
  const std::array<std::span<const std::byte>, 2> segments = {std::span<const std::byte>(heads), payload};
  if (transmit(cls, std::span(segments).first(payload.empty() ? 1 : 2))) return true;
  if (cls == wire::kDataClass) {
    pending_.assign(heads.begin(), heads.end());
    pending_.insert(pending_.end(), payload.begin(), payload.end());
  }
  return false;
}

// These are not repeated by themselves: what asks for them is. False: there is no credit.
bool Transport::push_control(const Peer& peer, wire::Type type, std::uint32_t op, std::uint32_t destination_epoch) {
  if (down_ || blocked_[wire::kControlClass]) return false;
  wire::Head head{};
  head.type = type;
  head.op = op;
  head.destination_epoch = destination_epoch;
  return push(peer, head, {}, wire::kControlClass);
}

void Transport::ask(const Peer& peer, std::uint32_t op) { push_control(peer, wire::Type::kAsk, op); }

void Transport::flush_pending() {
  if (pending_.empty() || blocked_[wire::kDataClass]) return;
  const std::span<const std::byte> frame(pending_);
  if (transmit(wire::kDataClass, std::span(&frame, 1))) pending_.clear();
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
    head.seq = peer->window;
    std::array<std::uint8_t, wire::kWindow> status;
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(peer->beyond - peer->window, wire::kWindow));
    for (std::uint32_t i = 0; i < count; ++i) status[i] = peer->status[(peer->window + i) % wire::kWindow];
    head.length = count;
    if (lose_acks_ > 0) {
      --lose_acks_;
    } else if (!push(*peer, head, std::as_bytes(std::span(status).first(count)), wire::kControlClass)) {
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
    const auto at = choose(peer);
    if (at == peer.work.end()) return nullptr;
    Transfer* transfer = client_.find(*at);
    bool filled = false;
    if (transfer != nullptr && transfer->next < transfer->ready()) {
      segment = transfer->segment(transfer->next);
      head = {};
      filled = client_.fill(*transfer, segment, head, {buffer_.get(), kBufferBytes});
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

// Send one frame of those that were lost. False: none.
bool Transport::send_again(Peer& peer, std::uint64_t now_ns, std::size_t& bytes) {
  while (!peer.again.empty()) {
    const std::uint64_t number = peer.again.front();
    peer.again.pop_front();
    if (number < peer.base) continue;
    Peer::Sent& entry = peer.sent[number - peer.base];
    entry.again = false;
    if (entry.done) continue;
    Transfer* transfer = client_.find(entry.transfer);
    wire::Head head{};
    if (transfer == nullptr || !client_.fill(*transfer, entry.segment, head, {buffer_.get(), kBufferBytes})) {
      entry.done = true;
      continue;
    }
    entry.last_ns = now_ns;
    entry.turn = ++turns_;
    head.seq = number;
    bytes = wire::kHeadBytes + head.length;
    host_.report(Event::kResend, {number, head.op});
    push(peer, head, payload(head), wire::kDataClass);
    return true;
  }
  return false;
}

bool Transport::send_next(Peer& peer, std::uint64_t now_ns, std::size_t& bytes) {
  if (send_again(peer, now_ns, bytes)) return true;
  advance(peer);
  if (peer.sent.size() >= wire::kWindow) return false;
  wire::Head head{};
  std::uint32_t segment = 0;
  Transfer* transfer = take(peer, kRotate, segment, head);
  if (transfer == nullptr) {
    if (!peer.work.empty() && !peer.timed) {  // get to know it
      ask(peer, 0);
      peer.progress_ns = now_ns;
      set_timer(peer, now_ns + resend_after(peer));
    }
    return false;
  }
  transfer->touched_ns = now_ns;
  bytes = wire::kHeadBytes + head.length;
  if (transfer->kind == TransferKind::kDatagram) {
    push(peer, head, payload(head), wire::kDataClass);
    client_.arrived(*transfer, segment, static_cast<std::uint8_t>(hw::Status::kOk));
    return true;
  }
  head.seq = peer.base + peer.sent.size();
  if (peer.sent.empty()) peer.progress_ns = now_ns;
  peer.sent.push_back({transfer->id, segment, now_ns, now_ns, ++turns_, false, false});
  if (!peer.timed) set_timer(peer, now_ns + resend_after(peer));
  push(peer, head, payload(head), wire::kDataClass);
  return true;
}

bool Transport::serve_self(std::size_t& bytes) {
  wire::Head head{};
  std::uint32_t segment = 0;
  Transfer* transfer = take(self_, kRotateSelf, segment, head);
  if (transfer == nullptr) return false;
  const std::uint32_t id = transfer->id;
  bytes = wire::kHeadBytes + head.length;
  client_.sent(bytes);
  client_.received(bytes);
  auto status = static_cast<std::uint8_t>(hw::Status::kOk);
  if (transfer->kind == TransferKind::kDatagram) {
    client_.receive_datagram(mac_, head, payload(head));
  } else {
    status = client_.receive(self_, head, payload(head));
  }
  transfer = client_.find(id);  // what was received may have ended it
  if (transfer != nullptr) client_.arrived(*transfer, segment, status);
  return true;
}

bool Transport::run(std::uint64_t budget, std::uint64_t now_ns) {
  while (!timers_.empty() && timers_.begin()->first <= now_ns) {
    Peer& peer = *timers_.begin()->second;
    timers_.erase(timers_.begin());
    peer.timed = false;
    expire(peer, now_ns);
  }
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
      if (!peer.self && down_) {
        give_up(peer, hw::Status::kUnreachable);
        more = false;
        break;
      }
      if (!peer.self && !pending_.empty()) break;
      std::size_t bytes = 0;
      more = peer.self ? serve_self(bytes) : send_next(peer, now_ns, bytes);
      progress |= more;
      used += bytes;
    }
    if (more) list(peer);
    idle = progress ? 0 : more ? idle + 1 : idle;
  }
  if (!down_) send_acks();
  return false;
}

// ---- Time and link

std::uint64_t Transport::resend_after(const Peer& peer) const {
  const std::uint64_t round_trip = peer.round_trip_ns != 0 ? peer.round_trip_ns : kFirstRoundTripNs;
  const std::uint64_t base = std::clamp(4 * round_trip, kResendMinNs, kResendMaxNs);
  return std::min(base << std::min(peer.resends, 7u), kResendMaxNs);
}

// Look after the peer at that time at the latest.
void Transport::set_timer(Peer& peer, std::uint64_t due_ns) {
  if (peer.timed) {
    if (peer.timer->first <= due_ns) return;
    timers_.erase(peer.timer);
  }
  peer.timed = true;
  peer.timer = timers_.emplace(due_ns, &peer);
}

void Transport::stop_timer(Peer& peer) {
  if (std::exchange(peer.timed, false)) timers_.erase(peer.timer);
}

void Transport::expire(Peer& peer, std::uint64_t now_ns) {
  advance(peer);
  const bool unknown = peer.peer_epoch == 0 && !peer.work.empty();
  if (peer.sent.empty() && !unknown) return;
  const std::uint64_t due = peer.progress_ns + resend_after(peer);
  if (now_ns < due) return set_timer(peer, due);
  if (peer.resends >= (peer.gone ? kResendsGone : peer.heard ? UINT_MAX : kResendsUnheard)) {
    host_.report(Event::kPeerTimeout, {peer.base, peer.resends});
    return give_up(peer, peer.heard ? hw::Status::kUnresponsive : hw::Status::kUnreachable);
  }
  unsigned frames = unknown && push_control(peer, wire::Type::kAsk, 0) ? 1 : 0;
  const unsigned most = peer.resends < kResendsQuick ? kResendsAtOnce : 1;
  for (std::size_t i = 0; i < peer.sent.size() && frames < most; ++i) frames += resend(peer, i);
  if (frames > 0 && peer.resends < UINT_MAX) ++peer.resends;
  peer.progress_ns = now_ns;
  set_timer(peer, now_ns + resend_after(peer));
}

void Transport::link_ready(unsigned cls) {
  if (cls < blocked_.size()) blocked_[cls] = false;
}

// Without a link nothing can arrive: what is under way ends in the next run().
void Transport::go_down() {
  if (!std::exchange(down_, true)) host_.report(Event::kLinkDown, {peers_.size()});
  pending_.clear();
  for (auto& [mac, peer] : peers_) {
    if (!peer->transfers.empty()) list(*peer);
  }
}

void Transport::link_state(bool up) {
  blocked_.fill(false);
  pending_.clear();  // lost with the connection; the flow sends it again
  if (!up) return go_down();
  down_ = false;
  // What the switch said of stations meanwhile was not heard.
  for (auto& [mac, peer] : peers_) peer->gone = false;
}

void Transport::link_station(const Mac& mac, bool up) {
  Peer* peer = find(mac);
  if (peer == nullptr || peer->self) return;
  peer->gone = !up;
  if (up) return;
  host_.report(Event::kPeerGone, {peer->transfers.size()});
  give_up(*peer, peer->heard ? hw::Status::kUnresponsive : hw::Status::kUnreachable);
}

}  // namespace weft::efa
