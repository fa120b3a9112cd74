// SPDX-License-Identifier: MIT
// N simulated devices, a switch between them, and who lets time pass.
//
// One lock guards everything. Virtual time passes only inside waiting calls: one of the waiting threads (the runner)
// runs events until its own wait is over, wakes others whose waits are over on the way, and hands on. From one thread
// the order of calls alone decides what happens. With several threads a thread outside may be about to bring work, so
// while one is, idle time (nothing left but timers) passes no faster than on the real clock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"
#include "driver.hpp"
#include "weft/fabric/capture.hpp"
#include "weft/fabric/switch.hpp"
#include "weft/sim.h"

namespace weft::sim {

struct Config {
  std::uint32_t devices = 8;
  std::uint32_t ports = 1;
  std::uint64_t hbm_bytes = 1ull << 30;
  std::uint64_t seed = 1;
  double loss = 0;
  std::string log, capture, firmware;  // files; empty: none, native
};

// The calling thread, as far as waiting goes.
struct ThreadState {
  std::atomic<bool> alive{true};
  std::atomic<int> waiting{0};
};

class Simulator {
 public:
  // Throws std::exception when a file cannot be used. `model` is what device numbers stand for.
  Simulator(const Config& config, const weft_abi_model& model);
  ~Simulator();
  Simulator(const Simulator&) = delete;
  Simulator& operator=(const Simulator&) = delete;

  // The lock, taken so that a runner makes room; leave() before it is given back, to tell waiting threads what changed.
  std::unique_lock<std::mutex> enter();
  void leave();

  const Config& config() const { return config_; }
  // Device `number` with its firmware running; nullptr with `why` set. Under the lock, as all that follows.
  Driver* driver(std::uint32_t number, std::string& why, int& error);
  int set_link(std::uint32_t device, std::uint32_t port, bool up);
  std::uint64_t hash() const { return world_.log.hash(); }
  std::uint64_t time() const { return world_.scheduler.now(); }
  World& world() { return world_; }
  const fabric::Switch& fabric() const { return *switch_; }

  // Run events until `done`, holding the lock throughout; false when `deadline_ns` of virtual time came first.
  bool run_until(const std::function<bool()>& done, std::uint64_t deadline_ns);
  // At most `events` events that are due without waiting for a timer.
  void get_on(std::uint32_t events);
  // Wait as a user's thread does: true when done, false at the deadline (virtual; kNever: none) or when nothing can
  // happen.
  bool wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, std::uint64_t deadline_ns);

  // Who has a device open: threads of users that call from outside count as busy.
  using User = std::shared_ptr<ThreadState>;
  User* add_user();
  void touch(User* user);  // the calling thread is the one that uses it now
  void remove_user(User* user);
  std::size_t users() const { return users_.size(); }

 private:
  enum class Result { kWaiting, kDone, kTimedOut };
  struct Waiter {
    const std::function<bool()>* done;
    std::uint64_t deadline;
    User thread;
    Result result = Result::kWaiting;
    std::condition_variable wake;

    // From here on its thread counts as busy, though it has not run yet.
    void finish(Result how) {
      result = how;
      thread->waiting.fetch_sub(1);
      wake.notify_one();
    }
  };
  class SwitchPort;
  struct Place;

  bool everybody_waits() const;
  void check_waiters();
  void expire_waiters();
  std::uint64_t first_deadline() const;
  void make_room(std::unique_lock<std::mutex>& lock);
  // One event, or idle time; false when nothing can ever happen.
  bool pass(std::unique_lock<std::mutex>& lock);

  const Config config_;
  const weft_abi_model& model_;
  World world_;
  std::vector<std::byte> image_;
  std::unique_ptr<fabric::Capture> capture_;
  std::unique_ptr<fabric::Switch> switch_;
  std::vector<std::unique_ptr<Place>> places_;  // by device number

  std::mutex lock_;
  std::atomic<unsigned> entering_{0};
  std::condition_variable entered_;
  std::condition_variable activity_;
  bool running_ = false;
  std::list<Waiter*> waiters_;
  std::uint64_t seen_changes_ = 0;
  std::uint64_t waited_at_ = 0;  // virtual time at which the newest wait began
  std::list<User> users_;
};

}  // namespace weft::sim
