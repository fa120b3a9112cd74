// SPDX-License-Identifier: MIT
#include "link.hpp"

#include <algorithm>
#include <cstring>

namespace weft::sim {
namespace {

// Preamble, start delimiter, FCS and the smallest gap: what a frame takes on the wire beyond itself (IEEE 802.3 clause
// 3).
constexpr std::uint64_t kWireOverhead = 8 + 4 + 12;
constexpr std::uint64_t kFrameMin = 60;

}  // namespace

FramePool::Buffer* FramePool::take(std::span<const fabric::Segment> segments) {
  if (current_ != nullptr && segments.size() == 1 && segments[0].data() == current_->bytes.data() &&
      segments[0].size() == current_->length) {
    ++current_->holders;
    return current_;
  }
  std::size_t length = 0;
  for (const fabric::Segment& segment : segments) {
    if (segment.size() > fabric::kFrameMax - length) return nullptr;
    length += segment.size();
  }
  if (free_.empty()) {
    all_.push_back(std::make_unique<Buffer>());
    free_.push_back(all_.back().get());
  }
  Buffer* buffer = free_.back();
  free_.pop_back();
  std::byte* to = buffer->bytes.data();
  for (const fabric::Segment& segment : segments) to = std::copy(segment.begin(), segment.end(), to);
  buffer->length = static_cast<std::uint32_t>(length);
  buffer->holders = 1;
  return buffer;
}

LinkEnd::LinkEnd(Scheduler& scheduler, FramePool& pool, std::uint32_t device, LinkTiming timing)
    : scheduler_(scheduler), pool_(pool), device_(device), timing_(timing) {
  credits_.fill(kCredits);
}

void LinkEnd::join(LinkEnd& one, LinkEnd& other) {
  one.peer_ = &other;
  other.peer_ = &one;
}

void LinkEnd::set_state(bool up) {
  if (up == up_) return;
  for (LinkEnd* end : {this, peer_}) {
    if (!up) end->down();
    end->up_ = up;
  }
  for (LinkEnd* end : {this, peer_}) end->owner_->on_state(up);
}

void LinkEnd::down() {
  ++epoch_;
  for (const Arrival& arrival : arriving_) pool_.release(arrival.buffer);
  arriving_.clear();
  stations_.clear();
  credits_.fill(kCredits);
  stalled_.fill(false);
}

fabric::SendResult LinkEnd::send(unsigned cls, std::span<const fabric::Segment> segments) {
  if (!up_) return fabric::SendResult::kDown;
  if (cls >= fabric::kClasses) cls = fabric::kClasses - 1;
  if (credits_[cls] == 0) {
    stalled_[cls] = true;
    ++stalls_;
    return fabric::SendResult::kNoCredit;
  }
  FramePool::Buffer* buffer = pool_.take(segments);
  if (buffer == nullptr) return fabric::SendResult::kSent;  // giants end at the transmitter
  --credits_[cls];
  const std::uint64_t bytes = std::max<std::uint64_t>(buffer->length, kFrameMin) + kWireOverhead;
  free_at_ps_ = std::max(free_at_ps_, scheduler_.now() * 1000) + bytes * timing_.ps_per_byte;
  peer_->arriving_.push_back({buffer, cls});
  scheduler_.at((free_at_ps_ + 999) / 1000 + timing_.latency_ns, peer_->device_, peer_->deliver_task_, peer_->epoch_);
  return fabric::SendResult::kSent;
}

void LinkEnd::deliver(std::uint64_t epoch) {
  if (epoch != epoch_ || arriving_.empty()) return;
  const Arrival arrival = arriving_.front();
  arriving_.pop_front();
  pool_.set_current(arrival.buffer);
  owner_->on_frame(arrival.cls, {arrival.buffer->bytes.data(), arrival.buffer->length});
  pool_.set_current(nullptr);
  pool_.release(arrival.buffer);
}

// Behind the frames that were sent before.
void LinkEnd::station(const fabric::Mac& mac, bool up) {
  if (!up_) return;
  peer_->stations_.emplace_back(mac, up);
  const std::uint64_t sent = (std::max(free_at_ps_, scheduler_.now() * 1000) + 999) / 1000;
  scheduler_.at(sent + timing_.latency_ns, peer_->device_, peer_->station_task_, peer_->epoch_);
}

void LinkEnd::deliver_station(std::uint64_t epoch) {
  if (epoch != epoch_ || stations_.empty()) return;
  const auto [mac, up] = stations_.front();
  stations_.pop_front();
  owner_->on_station(mac, up);
}

void LinkEnd::release(unsigned cls, unsigned frames) {
  if (cls >= fabric::kClasses) return;
  peer_->credits_[cls] += std::min(frames, kCredits - peer_->credits_[cls]);  // what a cut took back is not given twice
  if (peer_->stalled_[cls] && peer_->up_ && frames > 0) {
    peer_->stalled_[cls] = false;
    scheduler_.at(scheduler_.now(), peer_->device_, peer_->ready_task_, cls);
  }
}

void LinkEnd::ready(unsigned cls) {
  if (up_) owner_->on_ready(cls);
}

void LinkEnd::pause(unsigned cls, bool stop) {
  if (cls < fabric::kClasses && up_) peer_->owner_->on_pause(cls, stop);
}

}  // namespace weft::sim
