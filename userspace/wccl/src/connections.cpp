// SPDX-License-Identifier: MIT
// The communicator's connections: the first ones at set-up, others when a call needs them.
//
// Either rank may begin, at any time: it opens its end and offers it; who gets an offer opens its own end if it has
// none, offers that, connects, and says that it is ready. A connection is usable when both is done: it is connected and
// the peer is ready to receive. A rank serves offers whenever it is in a call, also one that waits for somebody else.
#include <algorithm>

#include "bytes.hpp"
#include "communicator.hpp"

namespace weft::ccl {
namespace {

constexpr std::uint32_t kFullSlotRanks = 8;  // more ranks: smaller slots for peers that are not neighbours
constexpr std::uint32_t kLanesMax = 64;      // that a peer may ask for

// Before each offer of a connection's end.
struct OfferHead {
  std::uint32_t to = 0;  // rank
  std::uint32_t lane = 0;
  std::uint32_t bytes = 0;  // 0: no offer, but "ready"
};

}  // namespace

std::uint32_t Communicator::slot_bytes_for(std::uint32_t peer) const {
  const std::uint32_t distance = (peer + ranks_ - rank_) % ranks_;
  if (ranks_ <= kFullSlotRanks || distance == 1 || distance + 1 == ranks_) return slot_bytes_;
  const std::uint64_t share = static_cast<std::uint64_t>(slot_bytes_) * kFullSlotRanks / ranks_ / 4096 * 4096;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(share, std::min(slot_bytes_, 32u * 1024)));
}

std::vector<std::uint64_t> Communicator::first_connections() const {
  std::set<std::uint64_t> keys;
  for (std::uint32_t lane = 0; lane < lanes_ && ranks_ > 1; ++lane) {
    keys.insert(flow_key((rank_ + 1) % ranks_, lane));
    keys.insert(flow_key((rank_ + ranks_ - 1) % ranks_, lane));
  }
  return {keys.begin(), keys.end()};
}

Bytes Communicator::make_offers(const std::vector<std::uint64_t>& keys) {
  Bytes out;
  for (const std::uint64_t key : keys) {
    const auto peer = static_cast<std::uint32_t>(key >> 32), lane = static_cast<std::uint32_t>(key);
    const Bytes offer = executor_->open(peer, lane, slot_bytes_for(peer));
    put(out, OfferHead{peer, lane, static_cast<std::uint32_t>(offer.size())});
    out.insert(out.end(), offer.begin(), offer.end());
  }
  return out;
}

// Takes those offers of `peer` that are meant for this rank.
void Communicator::accept_offers(std::uint32_t peer, const Bytes& offers) {
  for (std::size_t at = 0; at < offers.size();) {
    const auto head = take<OfferHead>(offers, at);
    if (offers.size() - at < head.bytes) throw Failure(wcclInternalError, "a rank sent too little");
    const std::span offer(offers.data() + at, head.bytes);
    at += head.bytes;
    if (head.to != rank_ || executor_->connected(peer, head.lane)) continue;
    if (!executor_->opened(peer, head.lane)) {
      throw Failure(wcclInternalError, "rank " + std::to_string(peer) + " is no neighbour", static_cast<int>(peer));
    }
    executor_->connect(peer, head.lane, offer);
  }
}

void Communicator::send_offer(std::uint64_t key) {
  rendezvous_->send(static_cast<std::uint32_t>(key >> 32), make_offers({key}));
}

void Communicator::handle(std::uint32_t peer, const Bytes& message) {
  std::size_t at = 0;
  const auto head = take<OfferHead>(message, at);
  if (head.to != rank_ || head.lane >= kLanesMax || message.size() - at != head.bytes) {
    throw Failure(wcclInternalError, "rank " + std::to_string(peer) + " sent an offer that is none",
                  static_cast<int>(peer));
  }
  const std::uint64_t key = flow_key(peer, head.lane);
  if (head.bytes == 0) {
    half_open_.erase(key);
    return;
  }
  if (executor_->connected(peer, head.lane)) return;
  if (!executor_->opened(peer, head.lane)) send_offer(key);
  half_open_.insert(key);
  executor_->connect(peer, head.lane, std::span(message).subspan(at));
  Bytes ready;
  put(ready, OfferHead{peer, head.lane, 0});
  rendezvous_->send(peer, ready);
}

// Does what peers ask for.
void Communicator::serve() {
  if (!rendezvous_ || !executor_ || failed_ != wcclSuccess) return;
  try {
    while (const auto message = rendezvous_->receive()) handle(message->first, message->second);
  } catch (const Failure& failure) {
    const Note note{rank_, "rank " + std::to_string(rank_) + ": " + failure.what()};
    fail(note, failure.result());
    tell(note);
  }
}

bool Communicator::usable(std::uint64_t key) const {
  return !half_open_.contains(key) &&
         executor_->connected(static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key));
}

void Communicator::ensure(const Source& source, Lock& lock) {
  std::set<std::uint64_t> missing;
  OpView view;
  const std::uint32_t count = source.ops(rank_);
  for (std::uint32_t index = 0; index < count; ++index) {
    source.op(rank_, index, view);
    if (view.op.code > WCCL_OP_RECV_REDUCE) continue;
    if (const std::uint64_t key = flow_key(view.op.peer, view.op.lane); !usable(key)) missing.insert(key);
  }
  if (missing.empty()) return;
  if (!rendezvous_) {
    for (const std::uint64_t key : missing) {
      const auto peer = static_cast<std::uint32_t>(key >> 32);
      const auto other = family_->members[peer].lock();
      if (!other || !other->executor_) {
        throw Failure(wcclInvalidUsage, "rank " + std::to_string(peer) + " has ended", static_cast<int>(peer));
      }
      const std::uint64_t back = flow_key(rank_, static_cast<std::uint32_t>(key));
      const Bytes mine = make_offers({key}), theirs = other->make_offers({back});
      accept_offers(peer, theirs);
      other->accept_offers(rank_, mine);
    }
    return;
  }
  for (const std::uint64_t key : missing) {
    if (!executor_->opened(static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key))) send_offer(key);
  }
  Patience patience(options_.settings.timeout);
  const auto done = [&] {
    serve();
    if (failed_ != wcclSuccess) throw_failure();
    // The peer may be a rank whose turn comes after ours, in this very thread.
    for (const auto& weak : family_->members) {
      const auto member = weak.lock();
      if (!member || member.get() == this || !member->rendezvous_) continue;
      member->poll_rendezvous();
    }
    std::erase_if(missing, [this](std::uint64_t key) { return usable(key); });
    return missing.empty();
  };
  const std::uint64_t first = *missing.begin() >> 32;
  try {
    meet(lock, patience, done, "rank " + std::to_string(first), static_cast<int>(first));
  } catch (const Failure& failure) {
    if (aborted_) throw;
    const Note note{failure.culprit() < 0 ? kNobody : static_cast<std::uint32_t>(failure.culprit()),
                    failure.result() == wcclTimeout ? "rank " + std::to_string(*missing.begin() >> 32) +
                                                          " makes no call: its first connection to rank " +
                                                          std::to_string(rank_) + " does not come about"
                                                    : failure.what()};
    fail(note, failure.result());
    if (failure.result() == wcclTimeout) tell(note);
    throw_failure();
  }
}

}  // namespace weft::ccl
