// SPDX-License-Identifier: MIT
// One end of a connection between two accelerators: a channel, the staging slots that the peer writes, and the counters
// of both directions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "call_book.hpp"
#include "device_objects.hpp"
#include "sched/lower.hpp"
#include "weft/weft.h"

namespace weft::ccl {

// What a rank tells its peer of its end.
struct Offer {
  std::uint32_t size = 0;  // of this structure
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t staging_key = 0;
  std::uint64_t staging_va = 0;
  std::uint64_t records_va = 0;  // its ring of CallRecord
  std::uint32_t records_key = 0;
  std::uint32_t reserved = 0;
  weft_endpoint endpoint{};
};

class Connection {
 public:
  // Makes this end: sync objects, staging, channel. Throws Failure.
  Connection(weft_device* device, std::uint32_t port, std::uint32_t peer, std::uint32_t lane, std::uint32_t slots,
             std::uint32_t slot_bytes);

  Offer offer() const;
  // Connects to the other end. Throws Failure when it does not fit.
  void connect(const Offer& remote, std::uint8_t rc_timeout, std::uint8_t rc_retries);

  std::uint32_t peer() const { return peer_; }
  std::uint32_t lane() const { return lane_; }
  std::uint32_t slots() const { return slots_; }
  std::uint32_t slot_bytes() const { return slot_bytes_; }
  bool connected() const { return connected_; }
  std::uint32_t channel() const { return weft_channel_number(channel_.get()); }
  // True when the channel is in the error state; `error` says why.
  bool failed(std::uint32_t& error) const;

  weft_va staging(std::uint64_t seq) const { return weft_mem_va(staging_.get()) + seq % slots_ * slot_bytes_; }
  std::uint32_t staging_key() const { return weft_mem_key(staging_.get()); }
  std::uint64_t staging_bytes() const { return weft_mem_bytes(staging_.get()); }
  weft_va remote_staging(std::uint64_t seq) const { return remote_.staging_va + seq % slots_ * slot_bytes_; }
  std::uint32_t remote_key() const { return remote_.staging_key; }
  // The peer's records of its calls; and where our record `number` goes.
  std::span<const std::byte> records() const { return {records_base_, CallBook::ring_bytes(slots_)}; }
  weft_va remote_record(std::uint64_t number) const {
    return remote_.records_va + number % CallBook::entries(slots_) * sizeof(CallRecord);
  }
  std::uint32_t remote_records_key() const { return remote_.records_key; }

  // The sync object of an event of slice `seq`, and the value that says it has happened.
  std::uint32_t object(EventKind kind, std::uint64_t seq) const {
    return syncs_.first() + index(kind) + static_cast<std::uint32_t>(seq % slots_);
  }
  std::uint64_t target(EventKind kind, std::uint64_t seq) const {
    const std::uint64_t laps = seq / slots_ + (kind == EventKind::kCredit ? 0 : 1);
    return base_[index(kind) + seq % slots_] + laps;
  }
  bool happened(EventKind kind, std::uint64_t seq) const {
    return syncs_.value(index(kind) + static_cast<std::uint32_t>(seq % slots_)) >= target(kind, seq);
  }
  // Immediates that raise the peer's objects.
  std::uint32_t arrival_immediate(std::uint64_t seq) const { return static_cast<std::uint32_t>(seq % slots_); }
  std::uint32_t credit_immediate(std::uint64_t seq) const { return slots_ + static_cast<std::uint32_t>(seq % slots_); }
  std::uint32_t sync_objects() const { return syncs_.count(); }
  // Grows with each event that the peer caused.
  std::uint64_t progress() const;

 private:
  // Order of the run: what the peer raises first.
  std::uint32_t index(EventKind kind) const {
    switch (kind) {
      case EventKind::kArrival:
        return 0;
      case EventKind::kCredit:
        return slots_;
      case EventKind::kDone:
        return 2 * slots_;
      default:
        return 3 * slots_;
    }
  }

  std::uint32_t peer_, lane_, slots_, slot_bytes_;
  SyncRun syncs_;
  std::vector<std::uint64_t> base_;  // values before first use
  MemPtr staging_, records_;
  const std::byte* records_base_ = nullptr;
  ChannelPtr channel_;
  weft_endpoint local_{};
  Offer remote_;
  bool connected_ = false;
};

}  // namespace weft::ccl
