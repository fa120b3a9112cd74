// SPDX-License-Identifier: MIT
// A simulator a test, devices of it, and channels between them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weft/hw/regs.h"
#include "weft/sim.h"
#include "weft/weft.h"

namespace weft::test {

inline weft_cmd command(weft_cmd_op op) {
  weft_cmd cmd{};
  cmd.op = static_cast<std::uint8_t>(op);
  cmd.version = WEFT_CMD_VERSION;
  cmd.wait_id = WEFT_SYNC_NONE;
  cmd.signal_id = WEFT_SYNC_NONE;
  return cmd;
}

inline void operand(weft_cmd& cmd, int which, const weft_mem* mem, std::uint64_t offset = 0) {
  cmd.addr[which] = weft_mem_va(mem) + offset;
  cmd.key[which] = weft_mem_key(mem);
}

struct SimOptions {
  std::uint32_t devices = 2;
  std::uint32_t ports = 1;
  std::uint64_t hbm_bytes = 256u << 20;
  std::uint64_t seed = 1;
  double loss = 0;
  std::string log{}, capture{}, firmware{};
};

// Starts and stops the process's simulator.
class Sim {
 public:
  explicit Sim(const SimOptions& options = {});
  ~Sim();
  Sim(const Sim&) = delete;
  Sim& operator=(const Sim&) = delete;
};

// An open device of it.
class Accel {
 public:
  explicit Accel(unsigned number);
  ~Accel();
  Accel(const Accel&) = delete;
  Accel& operator=(const Accel&) = delete;

  weft_device* get() const { return device_; }
  weft_mem* alloc(std::size_t bytes, unsigned flags = 0);
  weft_queue* queue(std::uint32_t entries = 64, unsigned flags = 0);
  std::uint32_t sync(std::uint32_t count = 1);
  int wait(std::uint32_t id, std::uint64_t value, std::int64_t timeout_ns = 10'000'000'000,
           weft_failure* failure = nullptr);
  std::vector<std::byte> bytes(const weft_mem* mem);
  void fill(const weft_mem* mem, const std::vector<std::byte>& bytes);
  std::uint64_t counter(weft_counter which);
  std::uint64_t port_counter(weft_port_counter which, int port = 0);

 private:
  weft_device* device_ = nullptr;
};

// A connected channel: one end.
struct End {
  weft_channel* channel = nullptr;
  std::uint32_t arrivals = 0;  // sync object that the peer's immediate 0 raises
};

// Both ends, on `port` of each; `timeout` and `retry` as weft_channel_connect has them.
void connect(Accel& one, End& at_one, Accel& other, End& at_other, std::uint8_t timeout = 0, std::uint8_t retry = 0,
             std::uint32_t port = 0);

// WRITE with immediate 0 of `bytes` from `from` to (key, va) of the peer.
weft_cmd write_imm(const End& end, const weft_mem* from, std::uint64_t offset, std::uint32_t bytes, std::uint64_t to_va,
                   std::uint32_t to_key);

std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed);

}  // namespace weft::test
