// SPDX-License-Identifier: MIT
// A communicator: one rank's view of a set of ranks, its schedules, its executor and its state.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_objects.hpp"
#include "env.hpp"
#include "error.hpp"
#include "executor.hpp"
#include "path.hpp"
#include "rendezvous.hpp"
#include "wccl/wccl.h"

namespace weft::ccl {

class Communicator;

// The communicators that wcclCommInitAll made together. They reach each other by pointer, under one lock; nothing waits
// for another rank at set-up.
struct LocalGroup {
  std::mutex mutex;
  std::vector<std::weak_ptr<Communicator>> members;  // by rank
  std::optional<Note> note;
};

// One send or receive of a group.
struct PointToPoint {
  bool send = false;
  weft_va address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t peer = 0;
};

class Communicator {
 public:
  struct Options {
    weft_device* device = nullptr;
    std::string name;
    Settings settings;
  };

  // Over a rendezvous: blocks until the communicator works on all ranks. Throws Failure.
  static std::shared_ptr<Communicator> join(const Options& options, std::uint32_t rank, std::uint32_t ranks,
                                            std::unique_ptr<Rendezvous> rendezvous);
  // All ranks of this process at once.
  static std::vector<std::shared_ptr<Communicator>> make_all(const std::vector<Options>& options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::uint32_t rank() const { return rank_; }
  std::uint32_t ranks() const { return ranks_; }
  weft_device* device() const { return options_.device; }
  // The device is closed with the communicator.
  void own_device() { owns_device_ = true; }

  // Work; all throw Failure. They return when it is enqueued.
  void all_reduce(weft_va send, weft_va receive, std::uint64_t count, wcclDataType_t type, wcclRedOp_t op);
  void barrier();
  void point_to_point(const std::vector<PointToPoint>& ops);

  // Waits for what was submitted before. Throws Failure: what the communicator failed with, or wcclSystemError on a
  // signal.
  void wait();
  // Without blocking: wcclSuccess, wcclInProgress or the failure.
  wcclResult_t async_error();
  std::string last_error() const;

  void finalize();
  // Frees what it holds on the device, whatever is under way; other ranks are told unless it was finalized.
  void shut_down() noexcept;

  PathChoice path(std::uint32_t peer) const;
  void stats(wcclStats_t& out) const;

 private:
  struct Hello;
  using Lock = std::unique_lock<std::mutex>;
  Communicator(const Options& options, std::uint32_t rank, std::uint32_t ranks, std::shared_ptr<LocalGroup> group);

  // Set-up in phases, so that one thread can take all ranks of a process through them. Each path that is tried:
  // prepare, then offers, then a probe.
  Bytes hello() const;
  PathSearch settle(const std::vector<Bytes>& hellos);
  std::string prepare(const Way& way);                   // makes the executor; or what is in the way
  std::vector<std::uint64_t> first_connections() const;  // flow keys
  Bytes make_offers(const std::vector<std::uint64_t>& keys);
  void accept_offers(std::uint32_t peer, const Bytes& offers);
  std::string probe(Clock::time_point deadline);
  void load_schedules();

  std::uint32_t slot_bytes_for(std::uint32_t peer) const;
  void ensure(const Source& source);
  // Those that take the lock give it up while they wait.
  void execute(Work& work, Lock& lock);
  void flush(Lock& lock);
  void wait_for(std::uint64_t ticket, Lock& lock);
  void tell(const Note& note) noexcept;
  std::optional<Suspicion> suspicion() const;
  bool suspect(wcclResult_t result, bool definite_only);
  void check_usable();
  void fail(const Note& note, wcclResult_t result);
  [[noreturn]] void throw_failure();
  void look_for_failure(int wait_error, const weft_failure& failure);
  bool poll_rendezvous();
  Operand memory(weft_va address, std::uint64_t bytes, const char* what) const;

  const Options options_;
  const std::uint32_t rank_, ranks_;
  bool owns_device_ = false;
  std::shared_ptr<LocalGroup> group_;       // or
  std::unique_ptr<Rendezvous> rendezvous_;  // this
  PathChoice path_;
  std::vector<std::uint32_t> ports_up_;
  std::uint32_t onchip_lanes_ = 1, lanes_ = 1, slots_ = 4, asked_slot_bytes_ = 0, slot_bytes_ = 0, least_slice_ = 0,
                entries_ = 0;
  std::uint32_t tag_ = 0;  // of this communicator's messages
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Source> all_reduce_, barrier_;
  MemPtr scratch_;
  std::uint64_t collectives_ = 0, groups_ = 0, barriers_ = 0;

  mutable std::mutex own_mutex_;
  std::mutex& mutex_;  // the group's or the own one: of all state but the constants of set-up
  wcclResult_t failed_ = wcclSuccess;
  std::string failure_text_;
  bool finalized_ = false;
  std::uint64_t flushed_ = 0;  // ticket of the last work without ops
  std::atomic<bool> aborted_{false};
  std::atomic<int> waiters_{0};
};

std::uint32_t type_bytes(wcclDataType_t type);  // 0: no such type

}  // namespace weft::ccl
