// SPDX-License-Identifier: MIT
// An open device and shorthands for what tests do with it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

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

class Device : public ::testing::Test {
 protected:
  explicit Device(const char* spec = "null") : spec_(spec) {}
  void SetUp() override { ASSERT_EQ(weft_device_open(spec_, &device), 0) << weft_last_error(); }
  void TearDown() override {
    if (device != nullptr) weft_device_close(device);
  }

  weft_mem* alloc(std::size_t bytes, unsigned flags = 0) {
    weft_mem* mem = nullptr;
    EXPECT_EQ(weft_mem_alloc(device, bytes, flags, &mem), 0) << weft_last_error();
    return mem;
  }
  weft_queue* queue(std::uint32_t entries = 64, unsigned flags = 0) {
    weft_queue* made = nullptr;
    EXPECT_EQ(weft_queue_create(device, entries, flags, &made), 0) << weft_last_error();
    return made;
  }
  std::uint32_t sync(std::uint32_t count = 1) {
    std::uint32_t first = 0;
    EXPECT_EQ(weft_sync_alloc(device, count, 0, &first), 0) << weft_last_error();
    return first;
  }
  int wait(std::uint32_t id, std::uint64_t value, std::int64_t timeout_ns = 5'000'000'000,
           weft_failure* failure = nullptr) {
    const weft_sync_event event{id, 0, value};
    return weft_sync_wait(device, &event, 1, timeout_ns, nullptr, nullptr, failure);
  }

  weft_device* device = nullptr;

 private:
  const char* spec_;
};

}  // namespace weft::test
