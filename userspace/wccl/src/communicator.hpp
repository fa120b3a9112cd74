// SPDX-License-Identifier: MIT
// A communicator: one rank's view of a set of ranks, its schedules, its executor and its state.
// setup.cpp: how it comes about; connections.cpp: connections made later; communicator.cpp: work;
// wait.cpp: waits, failures, the end.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device_objects.hpp"
#include "env.hpp"
#include "error.hpp"
#include "executor.hpp"
#include "group_source.hpp"
#include "path.hpp"
#include "rendezvous.hpp"
#include "wccl/wccl.h"

namespace weft::ccl {

class Communicator;

// Those ranks of a communicator that are in this process. They reach each other by pointer, under one lock, so that one
// thread can take all of them through a call, one after the other, in any order.
struct Family {
  std::mutex mutex;
  std::vector<std::weak_ptr<Communicator>> members;
  std::optional<Note> note;  // without a rendezvous: what one of them failed with

  // That of the meeting `key` in this process.
  static std::shared_ptr<Family> find(const std::string& key);
};

// An all-reduce or a barrier, as the caller says it.
struct Collective {
  bool barrier = false;
  weft_va send = 0, receive = 0;
  std::uint64_t count = 0;
  wcclDataType_t type = wcclUint8;
  wcclRedOp_t op = wcclSum;
};

class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct Options {
    weft_device* device = nullptr;
    std::string name;
    Settings settings;
  };

  // Over a rendezvous: blocks until the communicator works on all ranks. Throws Failure.
  static std::shared_ptr<Communicator> join(const Options& options, std::uint32_t rank, std::uint32_t ranks,
                                            std::unique_ptr<Rendezvous> rendezvous, std::shared_ptr<Family> family);
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

  // Work; all throw Failure. validate() starts nothing; run() returns when the work is enqueued.
  void validate(const Collective& call);
  void validate(const std::vector<PointToPoint>& ops);
  void run(const Collective& call);
  void run(const std::vector<PointToPoint>& ops);

  // Waits for what was submitted before. Throws Failure: what the communicator failed with. Signals do not end it.
  void wait();
  // Without blocking: wcclSuccess, wcclInProgress or the failure.
  wcclResult_t async_error();
  std::string last_error() const;

  // Waits until what was submitted is done on all ranks. For its other ranks in this process too: they need not come.
  void finalize();
  // Frees what it holds on the device, whatever is under way; other ranks are told unless it was finalized. Other
  // threads that are in a call come back with an error.
  void shut_down() noexcept;

  PathChoice path(std::uint32_t peer) const;
  void stats(wcclStats_t& out) const;

 private:
  struct Hello;
  class Patience;
  // Says that a call has given up the lock, so that the executor stays.
  struct Counted {
    int& n;
    explicit Counted(int& counter) : n(counter) { ++n; }
    ~Counted() { --n; }
  };
  using Lock = std::unique_lock<std::mutex>;
  Communicator(const Options& options, std::uint32_t rank, std::uint32_t ranks, std::shared_ptr<Family> family);

  // Set-up in phases, so that one thread can take all ranks of a process through them. Each path that is tried:
  // prepare, then offers, then a probe.
  Bytes hello() const;
  PathSearch settle(const std::vector<Bytes>& hellos);
  std::string prepare(const Way& way);  // makes the executor and the first connections' ends; or what is in the way
  std::string make_executor(const Way& way);
  void load_schedules();
  std::string probe(const Patience& patience);
  void set_path(const PathChoice& choice);

  std::vector<std::uint64_t> first_connections() const;  // flow keys
  std::uint32_t slot_bytes_for(std::uint32_t peer) const;
  Bytes make_offers(const std::vector<std::uint64_t>& keys);
  void accept_offers(std::uint32_t peer, const Bytes& offers);
  void send_offer(std::uint64_t key);
  void serve();
  void handle(std::uint32_t peer, const Bytes& message);
  bool usable(std::uint64_t key) const;
  void ensure(const Source& source, Lock& lock);
  // Waits, without the lock, until `done` finds what the others send. Throws Failure.
  template <class Done>
  void meet(Lock& lock, Patience& patience, Done done, const std::string& whom, int culprit = -1);
  std::vector<Bytes> all_gather(std::span<const std::byte> mine, Lock& lock, Patience& patience);

  // Those that take the lock give it up while they wait.
  void check(const Collective& call) const;
  void check(const std::vector<PointToPoint>& ops) const;
  void all_reduce(const Collective& call, Lock& lock);
  void barrier(const Call& call, Lock& lock);
  void execute(Work& work, Lock& lock);
  void flush(Lock& lock, const Communicator& caller);
  void quiesce(Lock& lock, const Communicator& caller);
  void wait_for(std::uint64_t ticket, Lock& lock, const Communicator& caller);
  void pause(Lock& lock);
  CallBook::State agreement(std::uint64_t ticket);
  bool others_disagree();
  void tell(const Note& note) noexcept;
  std::optional<Suspicion> suspicion() const;
  enum class Verdict { kNone, kPending, kFailed };
  Verdict suspect(wcclResult_t result, bool definite_only);
  void check_usable();
  void fail(const Note& note, wcclResult_t result);
  [[noreturn]] void throw_failure() const;
  Verdict look_for_failure(int wait_error, const weft_failure& failure);
  bool poll_rendezvous();
  Operand memory(weft_va address, std::uint64_t bytes, const char* what) const;
  void check_buffer(weft_va address, std::uint64_t bytes, std::uint32_t element, const char* what) const;

  const Options options_;
  const std::uint32_t rank_, ranks_;
  bool owns_device_ = false;
  const std::shared_ptr<Family> family_;
  std::unique_ptr<Rendezvous> rendezvous_;  // or none: all ranks are in this process
  PathChoice path_;
  std::vector<std::uint32_t> ports_up_;
  std::uint32_t onchip_lanes_ = 1, lanes_ = 1, slots_ = 4, asked_slot_bytes_ = 0, slot_bytes_ = 0, least_slice_ = 0,
                entries_ = 0;
  std::uint32_t tag_ = 0;  // of this communicator's messages
  std::unique_ptr<Executor> executor_;
  std::set<std::uint64_t> half_open_;  // flow keys: the peer may not be able to receive yet
  std::unique_ptr<Source> all_reduce_, barrier_;
  MemPtr scratch_;
  std::uint64_t collectives_ = 0, groups_ = 0, barriers_ = 0;

  std::mutex& mutex_;  // the family's: of all state but the constants of set-up
  std::atomic<wcclResult_t> failed_{wcclSuccess};
  mutable std::mutex text_mutex_;
  std::string failure_text_;
  std::optional<Clock::time_point> suspected_;  // since when the hub looks for who is to blame
  bool announced_ = false;                      // that nothing of ours is under way
  bool finalized_ = false;
  std::uint64_t flushed_ = 0;  // ticket of the last work without ops
  std::atomic<bool> aborted_{false};
  int waiters_ = 0;  // calls that have given up the lock for a while
};

// What is left of a communicator's time limit. A process that stood still (a stopped VM, a debugger) has not waited.
class Communicator::Patience {
 public:
  explicit Patience(std::chrono::nanoseconds limit) : left_(limit), last_(Clock::now()) {}
  // Takes off the time since the last call, or `waited` where that is longer: a simulator's time is not ours.
  void pass(std::chrono::nanoseconds waited = {}) {
    const Clock::time_point now = Clock::now();
    left_ -= std::max(waited, std::min<std::chrono::nanoseconds>(now - last_, kMost));
    last_ = now;
  }
  std::chrono::nanoseconds left() const { return left_; }
  bool over() const { return left_.count() <= 0; }

 private:
  static constexpr std::chrono::milliseconds kMost{200};
  std::chrono::nanoseconds left_;
  Clock::time_point last_;
};

template <class Done>
void Communicator::meet(Lock& lock, Patience& patience, Done done, const std::string& whom, int culprit) {
  const Counted counted(waiters_);
  for (;;) {
    if (aborted_) throw Failure(wcclRemoteError, "aborted");
    const std::optional<Note> note = rendezvous_->poll();
    if (done()) return;
    if (note) {
      throw Failure(note->refused ? wcclInvalidUsage : wcclRemoteError, note->text, static_cast<int>(note->culprit));
    }
    if (patience.over()) throw Failure(wcclTimeout, whom + " did not answer in time", culprit);
    const pollfd awaited = rendezvous_->awaited();
    lock.unlock();
    rest(awaited, std::chrono::milliseconds(20));
    lock.lock();
    patience.pass();
  }
}

std::uint32_t type_bytes(wcclDataType_t type);  // 0: no such type

}  // namespace weft::ccl
