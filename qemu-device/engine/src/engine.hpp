// SPDX-License-Identifier: MIT
#pragma once

#include <poll.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "dma.hpp"
#include "fair_mutex.hpp"
#include "log.hpp"
#include "port.hpp"
#include "weft/engine/engine.h"
#include "weft/fabric/socket_link.hpp"
#include "write_queue.hpp"

namespace weft::engine {

// See weft/engine/engine.h, whose functions these are. The constructor throws Refusal.
class Engine {
 public:
  struct Refusal {
    int error;
    std::string message;
  };

  explicit Engine(const weft_engine_config& config);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const weft_abi_info& info() const { return info_; }
  int attach_ram(std::uint32_t bar, void* base, std::uint64_t bytes, int fd);
  int start();
  void stop();

  std::uint64_t read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes);
  void write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes);
  int reset(weft_abi_reset kind);
  int quiesce();
  int resume();
  int fault(const char* name, std::span<const std::uint64_t> values);
  int link_fd(std::uint32_t link, fabric::Fd fd);
  void handed_over_pass();
  weft_engine_counters counters();
  int link_counters(std::uint32_t link, weft_engine_link_counters& counters);

 private:
  struct RamBar {
    std::byte* base = nullptr;
    std::uint64_t bytes = 0;
    int fd = -1;
  };

  void fill_abi_host();
  void check_info() const;

  void thread_main();
  void wait();
  void pass();
  void kick();

  // Under lock_.
  void drain();
  void end_of_call();
  int ram_discard(std::uint32_t bar, std::uint64_t offset, std::uint64_t bytes);

  weft_engine_host host_;
  const weft_abi_model& model_;
  const std::uint32_t budget_;
  weft_abi_host abi_{};
  weft_abi_info info_{};
  void* device_ = nullptr;

  FairMutex lock_;  // the model, and all down to the next blank line
  Dma dma_;
  Log log_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::array<RamBar, WEFT_ABI_BARS> ram_{};
  bool running_ = true;
  bool in_pass_ = false;
  weft_engine_counters counters_{};

  WriteQueue queue_;
  std::atomic<std::uint64_t> writes_{0};
  std::atomic<std::uint64_t> sleeps_{0};

  // Of the thread, or of whoever runs a pass for it.
  std::vector<pollfd> poll_;  // wake_fd_, then a port each
  bool more_ = false;
  std::uint64_t deadline_ns_ = 0;  // of step()
  Port::Clock::time_point attempt_ = Port::Clock::time_point::max();

  std::thread thread_;
  fabric::Fd wake_fd_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> work_{false};      // something happened since the last pass began
  std::atomic<bool> sleeping_{false};  // in poll(), or about to
  std::mutex hand_mutex_;
  std::condition_variable hand_back_;
  bool handed_ = false;
};

}  // namespace weft::engine
