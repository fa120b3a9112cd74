// SPDX-License-Identifier: MIT
// One device model behind the model ABI, hosted in virtual time: any model, as far as it is concerned a machine of its
// own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "event_log.hpp"
#include "host_memory.hpp"
#include "link.hpp"
#include "random.hpp"
#include "scheduler.hpp"
#include "weft/abi/model.h"

namespace weft::sim {

// What devices of one simulation share.
struct World {
  Scheduler scheduler;
  FramePool frames;
  EventLog log;
  std::uint64_t changes = 0;    // writes to watched memory and interrupts: something a wait may be for
  std::uint64_t effect_at = 0;  // when a device last did something that another could see; its own timers are not

  void effect() { effect_at = scheduler.now(); }
};

struct Unmap {
  std::size_t bytes = 0;
  void operator()(std::byte* base) const;
};

class Device {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  // Makes the model; throws std::runtime_error with the model's own words when it refuses.
  Device(World& world, std::uint32_t number, const weft_abi_model& model, const Options& options, std::uint64_t seed);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  std::uint32_t number() const { return number_; }
  std::uint32_t links() const { return static_cast<std::uint32_t>(ports_.size()); }
  // The device's end of a link, to be joined to something.
  LinkEnd& link(std::uint32_t port);
  // Tells the model that the link, joined by now, is up.
  void plug(std::uint32_t port);

  std::uint64_t read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes);
  void write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes);
  // Memory of a RAM BAR, empty where there is none.
  std::span<std::byte> ram(std::uint32_t bar) const { return {ram_[bar].get(), ram_[bar].get_deleter().bytes}; }

  HostMemory& host() { return host_memory_; }
  const weft_abi_dma_counters& dma() const { return dma_; }

  // Called as an event of its own, never from inside the model.
  void on_interrupt(std::function<void(std::uint32_t vector)> handler) { handler_ = std::move(handler); }
  int fault(const char* name, std::span<const std::uint64_t> values);

 private:
  class StepTask;
  class InterruptTask;
  class Port;
  struct Callbacks;

  void wake();
  void step(std::uint64_t argument);
  void schedule(std::uint64_t time, bool timer);
  World& world_;
  const std::uint32_t number_;
  const weft_abi_model& model_;
  weft_abi_host callbacks_{};
  weft_abi_info info_{};
  HostMemory host_memory_;
  std::array<std::unique_ptr<std::byte, Unmap>, WEFT_ABI_BARS> ram_;
  std::vector<std::unique_ptr<Port>> ports_;
  weft_abi_dma_counters dma_{};
  Random random_;
  std::function<void(std::uint32_t)> handler_;
  std::unique_ptr<StepTask> step_task_;
  std::unique_ptr<InterruptTask> interrupt_task_;
  bool inside_ = false;                    // in step()
  bool woken_ = false;                     // during that step
  std::uint64_t due_ = Scheduler::kNever;  // of the scheduled step
  bool due_timer_ = false;
  std::uint64_t ticket_ = 0;                         // names the scheduled step: earlier ones are void
  std::unique_ptr<void, void (*)(void*)> instance_;  // last: it goes first
};

}  // namespace weft::sim
