// SPDX-License-Identifier: MIT
// Whether the ranks call the same. Ahead of the first message of a call on a connection, its sender writes a record of
// the call into the receiver's memory. The receiver compares it with its own call before that call counts as done.
//
// The records of a connection are numbered and lie in a ring. Each goes with a slice of its own and waits for the same
// credit, so the sender is at most `slots` records ahead of what the receiver has submitted: the newest record that the
// receiver expects is never overwritten. Each record has a hash of all calls up to it, so it stands for those before
// it, which may be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sched/lower.hpp"
#include "wccl/wccl.h"

namespace weft::ccl {

// A call, in what all ranks that take part must agree on.
struct Call {
  std::uint8_t collective = 0;  // enum wccl_sched_collective
  std::uint8_t type = 0;        // wcclDataType_t; of a message 0, it counts bytes
  std::uint8_t op = 0;          // wcclRedOp_t
  std::uint8_t reserved[5] = {};
  std::uint64_t count = 0;
  bool operator==(const Call&) const = default;
  std::string text() const;  // "all-reduce of 100 float32 (sum)"
};

// A hash comes first: protocol analyzers take a payload of a small number and zeros for one that an EtherType begins.
struct CallRecord {
  std::uint64_t chain = 0;   // hash of all calls up to this one
  std::uint64_t number = 0;  // on its connection, from 0
  Call call;
  std::uint64_t sum = 0;  // of the fields above: a record that is half written has another
};
static_assert(sizeof(CallRecord) == 40);

class CallBook {
  struct Last {
    std::uint64_t count = 0, chain = 0;
  };

 public:
  // What one execution adds. It counts when it is committed.
  struct Draft {
    std::deque<CallRecord> sent;                                 // in the order of note()
    std::vector<std::pair<std::uint64_t, CallRecord>> expected;  // with the flow's key
   private:
    friend class CallBook;
    std::map<std::uint64_t, Last> last[2];  // received, sent; by flow key
  };

  // A connection's ring of records.
  static std::uint64_t entries(std::uint32_t slots) { return slots + 1; }
  static std::size_t ring_bytes(std::uint32_t slots) { return entries(slots) * sizeof(CallRecord); }

  // For every step of an execution. True: ahead of this one, a SEND, goes the record draft.sent.back(). In a collective
  // the first message on a connection has one, of sends and receives each message.
  bool note(Draft& draft, Call call, const Step& step) const;
  // The work `ticket` is submitted.
  void commit(std::uint64_t ticket, Draft&& draft);

  enum class State { kAgreed, kPending, kDisagreed };
  struct Answer {
    State state = State::kAgreed;
    // Of kDisagreed:
    std::uint32_t peer = 0;
    Call theirs, ours;
    bool earlier = false;  // it was a call before these; which one is no longer known
  };
  // The memory that the peer of a flow (key) writes its records to.
  using Rings = std::function<std::span<const std::byte>(std::uint64_t)>;
  // Have all records come that work up to `ticket` expects, and are they as expected?
  Answer look(std::uint64_t ticket, const Rings& rings);

 private:
  struct Expected {
    std::uint64_t ticket = 0;
    CallRecord record;
  };
  // Forgets what has been seen to agree.
  static Answer compare(std::deque<Expected>& expected, std::span<const std::byte> ring);

  std::map<std::uint64_t, Last> last_[2];                   // as in Draft
  std::map<std::uint64_t, std::deque<Expected>> expected_;  // by flow key; none is empty
};

}  // namespace weft::ccl
