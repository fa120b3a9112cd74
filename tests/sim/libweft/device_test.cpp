// SPDX-License-Identifier: MIT
// One simulated device: memory, copies, reductions, queues, errors; the same device paths as behind the kernel's
// driver.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "sim_fixture.hpp"

namespace {

using namespace weft::test;
using ::testing::HasSubstr;

bool all(const std::vector<std::byte>& bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [value](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

class SimDevice : public ::testing::Test {
 protected:
  Sim sim{{.devices = 1}};
  Accel accel{0};
};

TEST_F(SimDevice, TellsWhatItIs) {
  struct weft_device_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(accel.get(), &info), 0) << weft_last_error();
  EXPECT_STREQ(info.backend, "sim");
  EXPECT_STREQ(info.serial, "SIM0");
  EXPECT_STREQ(info.bdf, "sim:0");
  EXPECT_EQ(info.ports, 1u);
  EXPECT_EQ(info.hw_version >> 16, 2u);
  EXPECT_EQ(info.hbm_bytes, 256u << 20);
  EXPECT_EQ(info.hbm_used, 0u);
  EXPECT_EQ(info.caps & (WEFT_CAP_REDUCE | WEFT_CAP_CHANNELS), std::uint32_t{WEFT_CAP_REDUCE | WEFT_CAP_CHANNELS});
  weft_mbox_port port{};
  ASSERT_EQ(weft_port(accel.get(), 0, &port), 0) << weft_last_error();
  EXPECT_EQ(port.state, std::uint32_t{WEFT_PORT_ACTIVE});
  EXPECT_EQ(port.mac[0], 0x02);
  EXPECT_EQ(weft_port(accel.get(), 1, &port), -EINVAL);
  weft_mbox_sensors sensors{};
  ASSERT_EQ(weft_sensors(accel.get(), &sensors), 0) << weft_last_error();
  EXPECT_GT(sensors.temperature_mc, 0u);
  std::array<weft_log_record, 64> records{};
  const int count = weft_log(accel.get(), 1, records.data(), records.size());
  ASSERT_GT(count, 0) << "the firmware logs its start: " << weft_last_error();
  for (int i = 1; i < count; ++i) EXPECT_EQ(records[i].number, records[i - 1].number + 1);
}

TEST_F(SimDevice, MemoryIsZeroWhenHandedOutAgain) {
  weft_mem* mem = accel.alloc(1u << 20);
  const auto va = weft_mem_va(mem);
  EXPECT_TRUE(all(accel.bytes(mem), 0));
  ASSERT_EQ(weft_fill(accel.get(), va, 0xffffffffffffffffull, 1u << 20), 0) << weft_last_error();
  EXPECT_TRUE(all(accel.bytes(mem), 0xff));
  weft_mem_free(mem);
  mem = accel.alloc(1u << 20);
  EXPECT_EQ(weft_mem_va(mem), va) << "first fit gives the same place";
  EXPECT_TRUE(all(accel.bytes(mem), 0));
}

TEST_F(SimDevice, HbmRunsOutAndComesBack) {
  weft_mem* all = accel.alloc(256u << 20);
  weft_mem* more = nullptr;
  EXPECT_EQ(weft_mem_alloc(accel.get(), 4096, 0, &more), -ENOMEM);
  EXPECT_THAT(weft_last_error(), HasSubstr("no free range of 4096 bytes"));
  weft_mem_free(all);
  accel.alloc(256u << 20);
}

TEST_F(SimDevice, CopiesOfEveryAlignmentAndBothMappings) {
  constexpr std::size_t kBytes = 3u << 20;
  weft_mem* from = accel.alloc(kBytes);
  weft_mem* to = accel.alloc(kBytes);
  const auto bytes = noise(kBytes, 1);
  accel.fill(from, bytes);
  EXPECT_EQ(std::memcmp(weft_mem_map(from), bytes.data(), kBytes), 0)
      << "the CPU's mapping shows what the device wrote";
  auto expected = std::vector<std::byte>(kBytes);
  std::uint64_t at = 0;
  for (std::uint64_t length : {1ull, 7ull, 64ull, 4096ull, 65537ull, 1000003ull}) {
    at += 13;
    ASSERT_EQ(weft_copy(accel.get(), weft_mem_va(to) + at + 5, weft_mem_va(from) + at, length), 0) << weft_last_error();
    std::memcpy(expected.data() + at + 5, bytes.data() + at, length);
    at += length;
  }
  EXPECT_EQ(accel.bytes(to), expected);
}

TEST_F(SimDevice, RegisteredMemoryOfOneAndTwoLevels) {
  for (std::size_t bytes : {100ul, 70000ul, 5ul << 20}) {
    std::vector<std::byte> host = noise(bytes + 64, bytes), back(bytes + 64);
    weft_mem* from = nullptr;
    weft_mem* to = nullptr;
    // Not at a page's start.
    ASSERT_EQ(weft_mem_register(accel.get(), host.data() + 17, bytes, WEFT_MEM_READ_ONLY, &from), 0)
        << weft_last_error();
    ASSERT_EQ(weft_mem_register(accel.get(), back.data() + 40, bytes, 0, &to), 0) << weft_last_error();
    ASSERT_EQ(weft_copy(accel.get(), weft_mem_va(to), weft_mem_va(from), bytes), 0) << weft_last_error();
    EXPECT_EQ(std::memcmp(back.data() + 40, host.data() + 17, bytes), 0);
    EXPECT_EQ(back[39], std::byte{0});
    EXPECT_EQ(back[40 + bytes], std::byte{0});
    EXPECT_EQ(weft_copy(accel.get(), weft_mem_va(from), weft_mem_va(to), 8), -EIO);
    EXPECT_THAT(weft_last_error(), HasSubstr("region does not grant the access"));
    weft_mem_free(from);
    weft_mem_free(to);
  }
}

TEST_F(SimDevice, ReducesAsALoopDoes) {
  constexpr std::uint32_t kElements = 100001;
  weft_mem* a = accel.alloc(kElements * 4);
  weft_mem* b = accel.alloc(kElements * 4);
  std::vector<float> x(kElements), y(kElements);
  for (std::uint32_t i = 0; i < kElements; ++i) {
    x[i] = static_cast<float>(i) * 0.25f;
    y[i] = 1000.0f - static_cast<float>(i);
  }
  weft_queue* queue = accel.queue();
  const std::uint32_t done = accel.sync();
  std::uint64_t value = 0;
  for (const weft_redop op : {WEFT_SUM, WEFT_PROD, WEFT_MAX, WEFT_MIN}) {
    ASSERT_EQ(weft_write(accel.get(), weft_mem_va(a), x.data(), kElements * 4), 0);
    ASSERT_EQ(weft_write(accel.get(), weft_mem_va(b), y.data(), kElements * 4), 0);
    weft_cmd cmd = command(WEFT_OP_REDUCE);
    cmd.arg0 = WEFT_F32;
    cmd.arg1 = static_cast<std::uint8_t>(op);
    operand(cmd, 0, a);
    operand(cmd, 1, a);
    operand(cmd, 2, b);
    cmd.length = kElements;
    cmd.signal_id = done;
    cmd.signal_add = 1;
    ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0) << weft_last_error();
    ASSERT_EQ(accel.wait(done, ++value), 0) << weft_last_error();
    std::vector<float> got(kElements);
    ASSERT_EQ(weft_read(accel.get(), got.data(), weft_mem_va(a), kElements * 4), 0);
    for (std::uint32_t i = 0; i < kElements; ++i) {
      const float expected = op == WEFT_SUM    ? x[i] + y[i]
                             : op == WEFT_PROD ? x[i] * y[i]
                             : op == WEFT_MAX  ? std::max(x[i], y[i])
                                               : std::min(x[i], y[i]);
      ASSERT_EQ(got[i], expected) << "op " << op << " element " << i;
    }
  }
}

TEST_F(SimDevice, RingsInHbmAndWrapping) {
  weft_mem* mem = accel.alloc(4096);
  for (unsigned flags : {0u, WEFT_QUEUE_HBM}) {
    weft_queue* queue = accel.queue(16, flags);
    const std::uint32_t done = accel.sync();
    for (std::uint64_t round = 0; round < 40; ++round) {
      std::array<weft_cmd, 7> cmds;
      for (std::size_t i = 0; i < cmds.size(); ++i) {
        cmds[i] = command(WEFT_OP_FILL);
        operand(cmds[i], 0, mem, 8 * i);
        cmds[i].addr[1] = round * 100 + i;
        cmds[i].length = 8;
        cmds[i].signal_id = done;
        cmds[i].signal_add = 1;
      }
      ASSERT_EQ(weft_queue_submit(queue, cmds.data(), cmds.size()), 0) << weft_last_error();
      ASSERT_EQ(accel.wait(done, (round + 1) * cmds.size()), 0) << weft_last_error();
      const auto* words = static_cast<const std::uint64_t*>(weft_mem_map(mem));
      for (std::size_t i = 0; i < cmds.size(); ++i) ASSERT_EQ(words[i], round * 100 + i);
    }
    weft_queue_destroy(queue);
  }
}

TEST_F(SimDevice, ChainOfWaitsRunsWithOneDoorbell) {
  weft_mem* mem = accel.alloc(4096);
  weft_queue* queue = accel.queue();
  const std::uint32_t step = accel.sync();
  std::array<weft_cmd, 20> cmds;
  // Written last first: each waits for the one behind it.
  for (std::size_t i = 0; i < cmds.size(); ++i) {
    const std::size_t order = cmds.size() - 1 - i;
    cmds[i] = command(WEFT_OP_FILL);
    operand(cmds[i], 0, mem);
    cmds[i].addr[1] = order;
    cmds[i].length = 8;
    cmds[i].wait_id = step;
    cmds[i].wait_value = order;
    cmds[i].signal_id = step;
    cmds[i].signal_add = 1;
  }
  const auto doorbells = accel.counter(WEFT_CTR_doorbells);
  ASSERT_EQ(weft_queue_submit(queue, cmds.data(), cmds.size()), 0);
  ASSERT_EQ(accel.wait(step, cmds.size()), 0) << weft_last_error();
  EXPECT_EQ(*static_cast<const std::uint64_t*>(weft_mem_map(mem)), cmds.size() - 1);
  EXPECT_EQ(accel.counter(WEFT_CTR_doorbells), doorbells + 1);
}

TEST_F(SimDevice, AFailedCommandHaltsItsQueueAlone) {
  weft_mem* mem = accel.alloc(4096);
  weft_queue* bad = accel.queue();
  weft_queue* good = accel.queue();
  const std::uint32_t done = accel.sync(2);
  weft_cmd cmd = command(WEFT_OP_FILL);
  operand(cmd, 0, mem);
  cmd.length = 8192;
  cmd.signal_id = done;
  cmd.signal_add = 1;
  ASSERT_EQ(weft_queue_submit(bad, &cmd, 1), 0);
  weft_failure failure{};
  EXPECT_EQ(accel.wait(done, 1, 1'000'000'000, &failure), -EIO);
  EXPECT_EQ(failure.error, WEFT_ERR_BAD_RANGE) << weft_error_text(failure.error);
  EXPECT_EQ(failure.type, std::uint32_t{WEFT_EVENT_QUEUE_ERROR});
  EXPECT_EQ(failure.object, weft_queue_number(bad));
  EXPECT_EQ(failure.value, 0u);
  EXPECT_EQ(weft_queue_submit(bad, &cmd, 1), -EIO);
  cmd.length = 8;
  cmd.signal_id = done + 1;
  ASSERT_EQ(weft_queue_submit(good, &cmd, 1), 0);
  std::vector<std::byte> bytes(64);
  EXPECT_EQ(weft_read(accel.get(), bytes.data(), weft_mem_va(mem), 64), 0) << "copies go on: " << weft_last_error();
  weft_queue_destroy(bad);
  EXPECT_EQ(accel.wait(done + 1, 1), 0) << weft_last_error();
  EXPECT_EQ(accel.wait(done, 1, 1000), -ETIME) << "the failure went with its queue";
}

TEST_F(SimDevice, FreedMemoryIsNotReached) {
  weft_mem* mem = accel.alloc(4096);
  weft_queue* queue = accel.queue();
  const std::uint32_t done = accel.sync();
  weft_cmd cmd = command(WEFT_OP_FILL);
  operand(cmd, 0, mem);
  cmd.length = 8;
  cmd.signal_id = done;
  cmd.signal_add = 1;
  weft_mem_free(mem);
  weft_mem* next = accel.alloc(4096);
  EXPECT_EQ(weft_mem_va(next), cmd.addr[0]);
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0);
  weft_failure failure{};
  EXPECT_EQ(accel.wait(done, 1, 1'000'000'000, &failure), -EIO);
  EXPECT_EQ(failure.error, WEFT_ERR_BAD_KEY);
  EXPECT_TRUE(all(accel.bytes(next), 0));
}

TEST_F(SimDevice, ContextsShareADeviceApart) {
  Accel other(0);
  weft_mem* mine = accel.alloc(4096);
  weft_queue* queue = other.queue();
  const std::uint32_t done = other.sync();
  weft_cmd cmd = command(WEFT_OP_FILL);
  operand(cmd, 0, mine);
  cmd.length = 8;
  cmd.signal_id = done;
  cmd.signal_add = 1;
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0);
  weft_failure failure{};
  EXPECT_EQ(other.wait(done, 1, 1'000'000'000, &failure), -EIO);
  EXPECT_EQ(failure.error, WEFT_ERR_BAD_KEY);
  EXPECT_EQ(accel.wait(accel.sync(), 1, 1000), -ETIME) << "another context's failure is not mine";
}

TEST_F(SimDevice, WaitsEndInVirtualTime) {
  const std::uint32_t id = accel.sync();
  const auto before = weft_sim_time();
  EXPECT_EQ(accel.wait(id, 1, 3'000'000'000), -ETIME);
  EXPECT_EQ(weft_sim_time(), before + 3'000'000'000);
  EXPECT_EQ(accel.wait(id, 1, -1), -ETIME) << "nothing can ever raise it: a deadlock, told at once";
  ASSERT_EQ(weft_sync_signal(accel.get(), id, 1), 0);
  EXPECT_EQ(accel.wait(id, 1, -1), 0);
  EXPECT_GT(accel.counter(WEFT_CTR_interrupts), 0u);
}

TEST_F(SimDevice, ClosingWithACommandInFlightIsSafe) {
  {
    Accel other(0);
    weft_queue* queue = other.queue();
    const std::uint32_t id = other.sync();
    std::array<weft_cmd, 40> cmds;
    cmds.fill(command(WEFT_OP_NOP));
    for (auto& cmd : cmds) {
      cmd.wait_id = id;
      cmd.wait_value = 1;
    }
    ASSERT_EQ(weft_queue_submit(queue, cmds.data(), cmds.size()), 0);
  }
  EXPECT_EQ(accel.wait(accel.sync(), 1, 1000), -ETIME);
}

TEST_F(SimDevice, PollingGetsOn) {
  weft_mem* mem = accel.alloc(4096);
  weft_queue* queue = accel.queue(16);
  const std::uint32_t done = accel.sync();
  weft_cmd cmd = command(WEFT_OP_FILL);
  operand(cmd, 0, mem);
  cmd.length = 8;
  cmd.signal_id = done;
  cmd.signal_add = 1;
  for (int i = 0; i < 500; ++i) {
    int result;
    int tries = 0;
    while ((result = weft_queue_submit(queue, &cmd, 1)) == -EAGAIN && ++tries < 1000) continue;
    ASSERT_EQ(result, 0) << weft_last_error();
  }
  int looks = 0;
  while (weft_sync_value(accel.get(), done) < 500 && ++looks < 10000) continue;
  EXPECT_EQ(weft_sync_value(accel.get(), done), 500u);
}

const char* firmware_image() {
#ifdef WEFT_TEST_FIRMWARE
  return WEFT_TEST_FIRMWARE;
#else
  return nullptr;
#endif
}

// The image on the RISC-V core says what the native firmware says.
TEST(SimFirmware, ImageBootsAndServes) {
  const char* image = firmware_image();
  if (image == nullptr) GTEST_SKIP() << "no firmware image was built (no riscv64-unknown-elf compiler)";
  Sim sim({.devices = 1, .firmware = image});
  Accel accel(0);
  struct weft_device_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(accel.get(), &info), 0);
  EXPECT_EQ(info.fw_version >> 16, 2u);
  EXPECT_STRNE(info.fw_name, "native");
  EXPECT_STRNE(info.fw_name, "");
  weft_mem* mem = accel.alloc(4096);
  ASSERT_EQ(weft_fill(accel.get(), weft_mem_va(mem), 0x0101010101010101ull, 4096), 0) << weft_last_error();
  EXPECT_TRUE(all(accel.bytes(mem), 1));
}

TEST(SimFirmware, ADamagedImageIsRefusedByName) {
  const char* image = firmware_image();
  if (image == nullptr) GTEST_SKIP() << "no firmware image was built (no riscv64-unknown-elf compiler)";
  std::ifstream file(image, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_GT(bytes.size(), 1000u);
  bytes[900] ^= 0x10;
  const std::string path = ::testing::TempDir() + "weft_damaged.bin";
  std::ofstream(path, std::ios::binary) << bytes;
  Sim sim({.devices = 1, .firmware = path});
  weft_device* device = nullptr;
  EXPECT_EQ(weft_device_open("sim:0", &device), -EIO);
  EXPECT_THAT(weft_last_error(), HasSubstr("damaged (CRC)"));
  EXPECT_EQ(weft_device_open("sim:0", &device), -EIO) << "and again";
  std::remove(path.c_str());
}

TEST(SimStart, BadConfigurationsAreNamed) {
  weft_sim_config config{};
  EXPECT_EQ(weft_sim_start(&config), -EINVAL);
  config.size = sizeof(config);
  config.devices = 257;
  config.ports = 1;
  EXPECT_EQ(weft_sim_start(&config), -EINVAL);
  EXPECT_THAT(weft_last_error(), HasSubstr("257 devices"));
  config.devices = 1;
  config.loss = 1.5;
  EXPECT_EQ(weft_sim_start(&config), -EINVAL);
  config.loss = 0;
  config.firmware = "/no/such/image";
  EXPECT_EQ(weft_sim_start(&config), -EINVAL);
  EXPECT_THAT(weft_last_error(), HasSubstr("/no/such/image"));
  config.firmware = nullptr;
  ASSERT_EQ(weft_sim_start(&config), 0) << weft_last_error();
  EXPECT_EQ(weft_sim_start(&config), -EEXIST);
  EXPECT_EQ(weft_device_count("sim"), 1);
  weft_device* device = nullptr;
  EXPECT_EQ(weft_device_open("sim:1", &device), -ENODEV);
  EXPECT_THAT(weft_last_error(), HasSubstr("1 devices"));
  EXPECT_EQ(weft_device_open("sim:x", &device), -EINVAL);
  ASSERT_EQ(weft_device_open("sim", &device), 0) << weft_last_error();
  EXPECT_EQ(weft_sim_stop(), -EBUSY);
  weft_device_close(device);
  EXPECT_EQ(weft_sim_stop(), 0);
}

}  // namespace
