// SPDX-License-Identifier: MIT
// The executor of the paths over a host NIC: a progress thread takes the steps of a schedule, posts writes to the NIC,
// and queues copies and reductions of the device when what they wait for has come.
//
// Peer-direct: a slice is written from the buffer in HBM into a slot in the peer's HBM. Staged: the device copies it to
// host DRAM, the NIC (or the kernel, over tcp) carries it to a slot in the peer's host DRAM, the peer's device takes it
// from there. Nothing relies on the order of the NIC's writes: each carries its own immediate, and in HBM a read
// through the NIC makes it visible first.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "commands.hpp"
#include "executor.hpp"
#include "host_connection.hpp"
#include "host_nic.hpp"

namespace weft::ccl {

class HostExecutor final : public Executor {
 public:
  struct Setup : ExecutorSetup {
    bool staged = false;
    std::uint32_t communicator = 0;  // in immediates, 8 bits: the same on all ranks
  };
  // Throws Failure.
  HostExecutor(Setup setup, std::unique_ptr<HostNic> nic);
  ~HostExecutor() override;

  Bytes open(std::uint32_t peer, std::uint32_t lane, std::uint32_t slot_bytes) override;
  bool opened(std::uint32_t peer, std::uint32_t lane) const override { return find(peer, lane) != nullptr; }
  bool connected(std::uint32_t peer, std::uint32_t lane) const override;
  void connect(std::uint32_t peer, std::uint32_t lane, std::span<const std::byte> offer) override;
  // Empty writes.
  std::string probe(const std::vector<std::uint64_t>& keys, std::int64_t limit_ns) override;

  Submit submit(const Work& work) override;
  std::uint64_t submitted() const override { return tickets_; }
  std::uint64_t completed() const override { return completed_; }
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
  // What the NIC hands back with a completion.
  struct Context {
    enum class Kind : std::uint8_t { kStep, kFlush, kProbe, kNone } kind = Kind::kNone;
  };
  struct Wait {
    HostConnection* connection = nullptr;  // of kLocal: nullptr
    EventKind kind = EventKind::kLocal;
    std::uint64_t value = 0;  // slice; of kLocal the value to be reached
    std::uint32_t local = 0;
  };
  struct Job {
    std::uint64_t ticket = 0;
    std::uint32_t steps = 0;
    std::string name;
    std::vector<Registered> sources;  // peer-direct: where its messages come from
    std::deque<CallRecord> records;   // that it sends
  };
  struct Action : Context {
    enum class State : std::uint8_t { kWaiting, kOnDevice, kCopied, kOnNic, kDone } state = State::kWaiting;
    StepKind step = StepKind::kEnd;
    bool fenced = false;
    const CallRecord* record = nullptr;  // kSend: of this, not of a slice
    std::uint8_t waits = 0;
    std::array<Wait, 3> wait;
    HostConnection* connection = nullptr;
    std::uint64_t seq = 0, bytes = 0;
    std::uint32_t local = 0, order = 0;  // order: step of the schedule
    LocalCommand command;
    weft_ofi_mr* region = nullptr;  // kSend: where from
    std::uint64_t offset = 0;
    Job* job = nullptr;
  };
  struct Probe : Context {
    bool done = false;
    std::string problem;
  };
  struct Flush : Context {
    std::vector<std::pair<HostConnection*, std::uint64_t>> arrivals;  // become visible when it completes
    bool under_way = false;
  };
  struct Totals {
    std::uint64_t bytes = 0, messages = 0, doorbells = 0, commands = 0, flushes = 0, received = 0;
    std::uint64_t slices = 0;  // with data, in both directions
    std::uint64_t records = 0;
  };

  HostConnection* find(std::uint32_t peer, std::uint32_t lane) const;
  void lower(const Work& work, Flows& flows, Job& job, std::vector<Action>& actions, Totals& totals,
             CallBook::Draft& draft);
  Action record_of(const Step& step, const CallRecord& record, Job& job) const;
  Action action_of(const Work& work, const Step& step, Job& job);
  Wait wait_of(const WaitFor& wait) const;
  const Registered& registered(const Operand& source, std::uint64_t bytes, Job& job);

  // The progress thread; all with the lock.
  void run();
  bool poll_nic();
  bool poll_device();
  bool start_steps();
  bool start(Action& action);
  bool ready(const Action& action, bool credits) const;
  bool happened(const Wait& wait) const;
  bool put_on_device(Action& action);
  void ring();
  bool write(Action& action, bool credit);
  bool write_record(Action& action);
  bool posted(Action& action, int error);
  void arrive(const weft_ofi_completion& completion);
  void flush_arrivals();
  void failed(const weft_ofi_completion& completion, Context* context);
  void complete(Action& action);
  void retire();
  bool lost(int error, const weft_failure& failure);
  bool look_at_device();
  void rest(std::unique_lock<std::mutex>& lock, unsigned turn);

  const Setup setup_;
  std::unique_ptr<HostNic> nic_;
  std::map<std::uint64_t, HostConnection*> by_key_;
  std::vector<std::unique_ptr<HostConnection>> connections_;  // by number

  mutable std::mutex mutex_;  // of all below, and of connections
  std::condition_variable work_;
  int completion_event_ = -1;  // readable after a completion or a failure
  bool stop_ = false;
  std::deque<Action> actions_;
  std::list<Job> jobs_;
  std::uint64_t tickets_ = 0;
  std::atomic<std::uint64_t> completed_{0};
  std::optional<Blame> broken_;
  int device_error_ = 0;
  weft_failure device_failure_{};
  Flows flows_;
  CallBook book_;
  std::array<std::uint64_t, kLocalObjects> local_target_{};  // after all that was submitted
  std::array<std::uint64_t, kLocalObjects> local_{};
  Flush flush_;
  std::vector<std::pair<HostConnection*, std::uint64_t>> unflushed_;
  std::list<Probe> probes_;
  Totals totals_;
  std::uint64_t events_ = 0, strays_ = 0;
  std::uint32_t on_nic_ = 0;

  // The device's side: each command in flight has a sync object of its own, since commands complete in any order.
  static constexpr std::uint32_t kInFlight = 64;
  SyncRun done_;
  std::array<Action*, kInFlight> running_{};
  std::array<std::uint64_t, kInFlight> target_{};
  std::uint32_t on_device_ = 0;
  std::vector<weft_cmd> commands_;  // not yet submitted
  QueuePtr queue_;
  std::thread thread_;
};

}  // namespace weft::ccl
