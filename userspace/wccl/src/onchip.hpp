// SPDX-License-Identifier: MIT
// The on-chip executor: a schedule becomes commands of one queue, which the device runs without the host.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "connection.hpp"
#include "sched/lower.hpp"
#include "sched/schedule.hpp"
#include "wccl/wccl.h"

namespace weft::ccl {

// Memory as commands name it.
struct Operand {
  weft_va va = 0;
  std::uint32_t key = 0;
};

// One execution of a schedule on this rank.
struct Work {
  const Source* source = nullptr;
  const Layout* layout = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t element_bytes = 1;
  wcclDataType_t type = wcclUint8;
  wcclRedOp_t op = wcclSum;
  std::function<Operand(const Place&)> resolve;
  std::string name;  // in messages: "all-reduce 12"
};

class OnchipExecutor {
 public:
  // Throws Failure.
  OnchipExecutor(weft_device* device, std::uint32_t queue_entries, std::uint32_t slots);

  Connection* find(std::uint32_t peer, std::uint32_t lane);
  Connection& add(Connection connection);
  const std::map<std::uint64_t, Connection>& connections() const { return connections_; }

  enum class Submit { kDone, kNoRoom, kFailed };
  // Lowers and submits with one doorbell. Throws Failure for work that does not fit the ring at all. kNoRoom: wait for
  // earlier work; nothing has changed. kFailed: the queue is halted.
  Submit submit(const Work& work);

  std::uint64_t submitted() const { return tickets_; }
  // Work 1..ticket is complete.
  bool complete(std::uint64_t ticket) const { return done_.value(0) - done_base_ >= ticket; }
  std::uint64_t completed() const { return done_.value(0) - done_base_; }
  // For weft_sync_wait.
  weft_wait_item wait_item(std::uint64_t ticket) const { return {done_.first(), 0, done_base_ + ticket}; }
  std::uint32_t queue_number() const { return weft_queue_number(queue_.get()); }

  // The first message of the oldest incomplete work that is waited for: its peer, and a text that tells step and
  // direction.
  struct Blame {
    std::uint32_t peer = 0;
    std::uint32_t lane = 0;
    std::uint64_t order = 0;  // ticket << 32 | step
    std::string text;
  };
  std::optional<Blame> blame() const;
  // A channel in the error state: whom it leads to and why.
  std::optional<Blame> broken_channel() const;
  bool owns_channel(std::uint32_t qpn) const;
  std::string oldest_work() const;
  std::uint64_t progress() const;

  // Empty writes to the peers of these connections, on a queue of their own, to see whether they answer. The rank that
  // does not is thrown as Failure.
  void probe(const std::vector<Connection*>& connections, std::uint64_t limit_ns);

  struct Totals {
    std::uint64_t bytes = 0, messages = 0, doorbells = 0, commands = 0;
  };
  const Totals& totals() const { return totals_; }
  std::uint32_t sync_objects() const;

 private:
  struct Expected {
    std::uint32_t step = 0, peer = 0, lane = 0;
    bool receive = false;
    std::uint64_t last = 0;  // slice
  };
  struct Pending {
    std::uint64_t ticket = 0;
    std::uint32_t steps = 0;
    std::string name;
    std::vector<Expected> expected;
  };

  void lower(const Work& work, Flows& flows, Pending& pending, Totals& totals);
  void append(const Work& work, const Step& step);
  std::pair<std::uint32_t, std::uint64_t> wait_of(const WaitFor& wait) const;
  const Connection& at(std::uint32_t peer, std::uint32_t lane) const;
  void retire();

  weft_device* device_;
  const std::uint32_t slots_, entries_;
  std::map<std::uint64_t, Connection> connections_;  // by flow_key()
  SyncRun done_, locals_;
  std::uint64_t done_base_ = 0;
  std::array<std::uint64_t, kLocalObjects> local_value_{};   // after all that was submitted
  std::array<std::uint64_t, kLocalObjects> local_raised_{};  // by the work being lowered
  Flows flows_;
  std::vector<weft_cmd> commands_;
  std::deque<Pending> pending_;
  std::uint64_t tickets_ = 0;
  Totals totals_;
  QueuePtr queue_;  // last: destroyed first, before what its commands name
};

}  // namespace weft::ccl
