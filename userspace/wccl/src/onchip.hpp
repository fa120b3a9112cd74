// SPDX-License-Identifier: MIT
// The on-chip executor: a schedule becomes commands of one queue, which the device runs without the host.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "executor.hpp"
#include "onchip_connection.hpp"

namespace weft::ccl {

class OnchipExecutor final : public Executor {
 public:
  struct Setup : ExecutorSetup {
    std::vector<std::uint32_t> ports;             // that are up; lane i goes through one of them
    std::uint8_t rc_timeout = 0, rc_retries = 0;  // 0: the device's
  };
  // Throws Failure.
  explicit OnchipExecutor(Setup setup);

  Bytes open(std::uint32_t peer, std::uint32_t lane, std::uint32_t slot_bytes) override;
  bool opened(std::uint32_t peer, std::uint32_t lane) const override { return find(peer, lane) != nullptr; }
  bool connected(std::uint32_t peer, std::uint32_t lane) const override;
  void connect(std::uint32_t peer, std::uint32_t lane, std::span<const std::byte> offer) override;
  // Empty writes on a queue of their own.
  std::string probe(const std::vector<std::uint64_t>& keys, std::int64_t limit_ns) override;

  // Lowers and submits with one doorbell.
  Submit submit(const Work& work) override;
  std::uint64_t submitted() const override { return tickets_; }
  std::uint64_t completed() const override { return done_.value(0) - done_base_; }
  CallBook::Answer agreement(std::uint64_t ticket) override;
  int wait(std::uint64_t ticket, std::int64_t timeout_ns, weft_failure* failure) override;

  std::optional<Blame> blame() const override;
  std::optional<Blame> broken() const override;
  std::string oldest_work() const override;
  std::uint64_t progress() const override;
  void stats(wcclStats_t& out) const override;

 protected:
  bool owns(const weft_failure& failure) const override;

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
    std::uint64_t first_record = 0;  // of those in records_
  };

  struct Totals {
    std::uint64_t bytes = 0, messages = 0, doorbells = 0, commands = 0;
  };

  void lower(const Work& work, Flows& flows, Pending& pending, Totals& totals, CallBook::Draft& draft);
  void append(const Work& work, const Step& step);
  void append_record(const Step& step, const CallRecord& record, std::uint64_t index);
  // Records that lie in records_ at a time: each has a SEND behind it in the queue.
  std::uint64_t record_room() const { return setup_.entries / 2; }
  std::uint64_t record_offset(std::uint64_t index) const { return index % record_room() * sizeof(CallRecord); }
  SyncWait wait_of(const WaitFor& wait) const;
  const Connection* find(std::uint32_t peer, std::uint32_t lane) const;
  const Connection& at(std::uint32_t peer, std::uint32_t lane) const;
  std::uint32_t port_of(std::uint32_t lane) const { return setup_.ports[lane % setup_.ports.size()]; }
  void retire();

  const Setup setup_;
  std::map<std::uint64_t, Connection> connections_;  // by flow_key()
  SyncRun done_, locals_;
  std::uint64_t done_base_ = 0;
  std::array<std::uint64_t, kLocalObjects> local_value_{};   // after all that was submitted
  std::array<std::uint64_t, kLocalObjects> local_raised_{};  // by the work being lowered
  Flows flows_;
  CallBook book_;
  MemPtr records_;  // that are sent, in HBM; of completed work they are free again
  std::byte* records_base_ = nullptr;
  std::uint64_t records_sent_ = 0;
  std::vector<weft_cmd> commands_;
  std::deque<Pending> pending_;
  std::uint64_t tickets_ = 0;
  Totals totals_;
  QueuePtr queue_;  // last: destroyed first, before what its commands name
};

}  // namespace weft::ccl
