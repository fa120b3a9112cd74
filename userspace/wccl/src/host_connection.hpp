// SPDX-License-Identifier: MIT
// One end of a connection over a host NIC: the slots that the peer writes, and the laps of both directions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "call_book.hpp"
#include "device_objects.hpp"
#include "executor.hpp"
#include "host_nic.hpp"
#include "sched/lower.hpp"

namespace weft::ccl {

// What a write tells the receiver, 32 bits: communicator 8, connection 10 (the receiver's number of it), credit 1,
// chunk 13 (number of the slice in its flow, from which step and chunk of the schedule follow; at most kSlotsMax are
// under way).
struct Immediate {
  std::uint32_t communicator = 0;
  std::uint32_t connection = 0;
  bool credit = false;
  std::uint32_t chunk = 0;

  static constexpr std::uint32_t kConnections = 1u << 10;
  static constexpr std::uint32_t kChunks = 1u << 13;
  std::uint32_t pack() const;
  static Immediate unpack(std::uint32_t value);
};

class HostConnection {
 public:
  // Where the slots lie. Peer-direct: in HBM, and messages go from the buffers themselves. Staged: in host DRAM, with
  // as many slots again for what is sent. Throws Failure.
  HostConnection(weft_device* device, HostNic& nic, bool staged, std::uint32_t number, std::uint32_t peer,
                 std::uint32_t lane, std::uint32_t slots, std::uint32_t slot_bytes);
  ~HostConnection();
  HostConnection(const HostConnection&) = delete;
  HostConnection& operator=(const HostConnection&) = delete;

  Bytes offer() const;
  // Throws Failure when the other end does not fit.
  void connect(std::span<const std::byte> offer);

  std::uint32_t peer() const { return peer_; }
  std::uint32_t lane() const { return lane_; }
  std::uint32_t number() const { return number_; }
  std::uint32_t slots() const { return slots_; }
  bool connected() const { return connected_; }
  std::uint64_t staging_bytes() const;

  // Events and their laps (sched/lower.hpp). kSent: the source may be overwritten.
  bool happened(EventKind kind, std::uint64_t seq) const {
    return laps_[index(kind)][seq % slots_] >= seq / slots_ + (kind == EventKind::kCredit ? 0 : 1);
  }
  void raise(EventKind kind, std::uint64_t seq) { ++laps_[index(kind)][seq % slots_]; }
  // The slice that `chunk` of an arrival or a credit names; nothing when none is due in its slot.
  std::optional<std::uint64_t> due(bool credit, std::uint32_t chunk);
  // Staged: the slot to send `seq` from is free again.
  bool outgoing_free(std::uint64_t seq) const { return gone_[seq % slots_] >= seq / slots_; }
  void outgoing_gone(std::uint64_t seq) { ++gone_[seq % slots_]; }

  // As the device names them: the slot that slice `seq` arrives in, and, staged, is sent from.
  Operand incoming(std::uint64_t seq) const;
  Operand outgoing(std::uint64_t seq) const;
  // As the NIC names them: the region of both, and offsets in it.
  weft_ofi_mr* region() const { return region_; }
  std::uint64_t incoming_offset(std::uint64_t seq) const { return seq % slots_ * slot_bytes_; }
  std::uint64_t outgoing_offset(std::uint64_t seq) const { return (slots_ + seq % slots_) * slot_bytes_; }
  // Of the other end.
  std::uint32_t nic_peer() const { return nic_peer_; }
  std::uint32_t remote_number() const { return remote_number_; }
  std::uint64_t remote_slot(std::uint64_t seq) const { return remote_address_ + seq % slots_ * slot_bytes_; }
  std::uint64_t remote_key() const { return remote_key_; }

  // The peer's records of its calls, and ours, which lie behind them in a region of host DRAM.
  std::span<const std::byte> records() const { return {record(0), CallBook::ring_bytes(slots_)}; }
  weft_ofi_mr* records_region() const { return records_region_; }
  // The one before in its place has gone. The NIC may deliver two writes in another order.
  bool record_free(std::uint64_t number) const { return records_gone_[number % entries()] >= number / entries(); }
  void record_gone(std::uint64_t number) { ++records_gone_[number % entries()]; }
  // Puts it where it is sent from: an offset in records_region().
  std::uint64_t put_record(const CallRecord& record);
  std::uint64_t remote_record(std::uint64_t number) const {
    return remote_records_ + number % entries() * sizeof(CallRecord);
  }
  std::uint64_t remote_records_key() const { return remote_records_key_; }

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(void* base) const;
  };
  using HostMemory = std::unique_ptr<void, Unmap>;
  static HostMemory map(std::size_t bytes, const std::string& what);
  static std::size_t index(EventKind kind) { return static_cast<std::size_t>(kind); }
  std::uint64_t entries() const { return CallBook::entries(slots_); }
  std::byte* record(std::uint64_t entry) const {
    return static_cast<std::byte*>(records_.get()) + entry * sizeof(CallRecord);
  }

  HostNic& nic_;
  const bool staged_;
  const std::uint32_t number_, peer_, lane_, slots_, slot_bytes_;
  HostMemory host_{nullptr, Unmap{0}}, records_{nullptr, Unmap{0}};
  MemPtr memory_;  // HBM, or the device's view of host_
  weft_ofi_mr *region_ = nullptr, *records_region_ = nullptr;
  std::array<std::vector<std::uint64_t>, 4> laps_;  // by EventKind, slot
  std::vector<std::uint64_t> gone_, records_gone_;
  std::uint64_t newest_[2] = {};  // slice that arrived, and that came back as a credit
  std::uint32_t nic_peer_ = 0, remote_number_ = 0;
  std::uint64_t remote_address_ = 0, remote_key_ = 0, remote_records_ = 0, remote_records_key_ = 0;
  bool connected_ = false;
};

}  // namespace weft::ccl
