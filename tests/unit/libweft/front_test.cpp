// SPDX-License-Identifier: MIT
// libweft's front: memory objects, queues and copies, over the null backend.
#include <gmock/gmock.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "fixture.hpp"

namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class Front : public weft::test::Device {};

TEST_F(Front, InfoFillsNoMoreThanTheCallerHas) {
  struct weft_device_info info;
  std::memset(&info, 0xee, sizeof(info));
  info.size = 8;  // a caller from before all other fields
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_EQ(info.size, 8u);
  EXPECT_EQ(info.ports, 0u);
  EXPECT_EQ(info.hw_version, 0xeeeeeeeeu);
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_STREQ(info.backend, "null");
  info.size = 0;
  EXPECT_EQ(weft_device_info(device, &info), -EINVAL);
}

TEST_F(Front, MemoryIsRoundedToPagesZeroedAndCounted) {
  weft_mem* mem = alloc(5000);
  EXPECT_EQ(weft_mem_bytes(mem), 8192u);
  auto* base = static_cast<unsigned char*>(weft_mem_map(mem));
  ASSERT_NE(base, nullptr);
  EXPECT_THAT(std::vector<unsigned char>(base, base + 8192), Each(0));
  struct weft_device_info info;
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_EQ(info.hbm_used, 8192u);
  weft_mem_free(mem);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_EQ(info.hbm_used, 0u);
}

TEST_F(Front, GenerationsAndKeysAreNotUsedTwice) {
  weft_mem* first = alloc(4096);
  const auto generation = weft_mem_generation(first);
  const auto key = weft_mem_key(first);
  weft_mem_free(first);
  weft_mem* second = alloc(4096);
  EXPECT_NE(weft_mem_generation(second), generation);
  EXPECT_NE(weft_mem_key(second), key);
}

TEST_F(Front, FindGivesTheObjectThatHoldsTheWholeRange) {
  std::vector<weft_mem*> mems;
  for (int i = 0; i < 200; ++i) mems.push_back(alloc(4096 * (1 + i % 3)));
  for (weft_mem* mem : mems) {
    const auto va = weft_mem_va(mem);
    const auto bytes = weft_mem_bytes(mem);
    weft_mem_info info{};
    info.size = sizeof(info);
    for (const auto& [at, length] : {std::pair(va, bytes), std::pair(va + bytes - 1, std::size_t{1})}) {
      EXPECT_EQ(weft_mem_find(device, at, length, &info), 0);
      EXPECT_EQ(info.va, va);
      EXPECT_EQ(info.bytes, bytes);
      EXPECT_EQ(info.key, weft_mem_key(mem));
      EXPECT_EQ(info.generation, weft_mem_generation(mem));
    }
    EXPECT_EQ(weft_mem_find(device, va + 1, bytes, &info), -ENOENT);
    EXPECT_EQ(weft_mem_find(device, va, SIZE_MAX, &info), -ENOENT);
  }
  const auto gone = weft_mem_va(mems[7]);
  weft_mem_free(mems[7]);
  weft_mem_info info{};
  info.size = sizeof(info);
  EXPECT_EQ(weft_mem_find(device, gone, 1, &info), -ENOENT);
  EXPECT_EQ(weft_mem_find(device, 0, 1, &info), -ENOENT);
}

TEST_F(Front, RegisteredMemoryIsFoundAndCopied) {
  std::vector<std::uint32_t> host(3000);
  std::iota(host.begin(), host.end(), 1u);
  weft_mem* from = nullptr;
  ASSERT_EQ(weft_mem_register(device, host.data(), host.size() * 4, WEFT_MEM_READ_ONLY, &from), 0);
  EXPECT_EQ(weft_mem_map(from), nullptr);
  weft_mem* to = alloc(host.size() * 4);
  ASSERT_EQ(weft_copy(device, weft_mem_va(to), weft_mem_va(from), host.size() * 4), 0) << weft_last_error();
  std::vector<std::uint32_t> back(host.size());
  ASSERT_EQ(weft_read(device, back.data(), weft_mem_va(to), back.size() * 4), 0) << weft_last_error();
  EXPECT_EQ(back, host);
  EXPECT_EQ(weft_copy(device, weft_mem_va(from), weft_mem_va(to), 64), -EIO) << "the device may only read it";
  EXPECT_THAT(weft_last_error(), HasSubstr("region does not grant the access"));
  EXPECT_EQ(weft_copy(device, weft_mem_va(to), weft_mem_va(from), 64), 0)
      << "a new queue took over: " << weft_last_error();
}

TEST_F(Front, WriteReadAndFillLargerThanTheStagingBuffer) {
  constexpr std::size_t kBytes = (5u << 20) + 12;
  weft_mem* mem = alloc(kBytes);
  std::vector<unsigned char> bytes(kBytes), back(kBytes);
  std::mt19937 random(1);
  for (auto& byte : bytes) byte = static_cast<unsigned char>(random());
  ASSERT_EQ(weft_write(device, weft_mem_va(mem), bytes.data(), kBytes), 0) << weft_last_error();
  ASSERT_EQ(weft_read(device, back.data(), weft_mem_va(mem), kBytes), 0) << weft_last_error();
  EXPECT_EQ(back, bytes);
  ASSERT_EQ(weft_fill(device, weft_mem_va(mem) + 8, 0x1122334455667788ull, 16), 0) << weft_last_error();
  std::array<std::uint64_t, 4> words{};
  ASSERT_EQ(weft_read(device, words.data(), weft_mem_va(mem), sizeof(words)), 0);
  std::array<std::uint64_t, 4> expected;
  std::memcpy(expected.data(), bytes.data(), sizeof(expected));
  expected[1] = expected[2] = 0x1122334455667788ull;
  EXPECT_EQ(words, expected);
}

TEST_F(Front, BadArgumentsAreNamed) {
  weft_mem* mem = alloc(4096);
  weft_mem* none = nullptr;
  EXPECT_EQ(weft_mem_alloc(device, 0, 0, &none), -EINVAL);
  EXPECT_EQ(weft_mem_alloc(device, 4096, 1u << 9, &none), -EINVAL);
  EXPECT_EQ(weft_mem_alloc(device, SIZE_MAX, 0, &none), -ENOMEM);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(weft_write(device, weft_mem_va(mem) + 4090, "0123456789", 10), -EFAULT);
  EXPECT_THAT(weft_last_error(), HasSubstr("lies in no memory object"));
  EXPECT_EQ(weft_fill(device, weft_mem_va(mem) + 4, 0, 8), -EINVAL);
  EXPECT_EQ(weft_copy(device, weft_mem_va(mem), weft_mem_va(mem) + 8, 16), -EINVAL);
  weft_queue* queue = nullptr;
  for (std::uint32_t entries : {0u, 8u, 48u, 131072u})
    EXPECT_EQ(weft_queue_create(device, entries, 0, &queue), -EINVAL);
  EXPECT_EQ(weft_sync_wait(device, nullptr, 0, 0, nullptr, nullptr, nullptr), -EINVAL);
  weft_channel* channel = nullptr;
  EXPECT_EQ(weft_channel_create(device, 0, 0, 1, &channel, nullptr), -EOPNOTSUPP);
  int fd = 0;
  EXPECT_EQ(weft_mem_export(mem, 0, 4096, &fd), -EOPNOTSUPP);
  EXPECT_EQ(fd, -1);
}

TEST_F(Front, LastErrorIsTheThreadsOwn) {
  weft_mem* none = nullptr;
  ASSERT_EQ(weft_mem_alloc(device, 0, 0, &none), -EINVAL);
  std::string other;
  std::thread([&] { other = weft_last_error(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_THAT(weft_last_error(), HasSubstr("0 bytes"));
}

TEST_F(Front, RingWrapsManyTimes) {
  weft_queue* ring = queue(16);
  const std::uint32_t done = sync();
  weft_mem* mem = alloc(4096);
  // 7 slots a submission: every place of the ring is once the first.
  for (std::uint64_t round = 0; round < 64; ++round) {
    std::array<weft_cmd, 7> cmds;
    for (std::size_t i = 0; i < cmds.size(); ++i) {
      cmds[i] = weft::test::command(WEFT_OP_FILL);
      weft::test::operand(cmds[i], 0, mem, 8 * i);
      cmds[i].addr[1] = round * 100 + i;
      cmds[i].length = 8;
      cmds[i].signal_id = done;
      cmds[i].signal_add = 1;
    }
    ASSERT_EQ(weft_queue_submit(ring, cmds.data(), cmds.size()), 0) << weft_last_error();
    ASSERT_EQ(wait(done, (round + 1) * cmds.size()), 0);
    auto* words = static_cast<std::uint64_t*>(weft_mem_map(mem));
    for (std::size_t i = 0; i < cmds.size(); ++i) EXPECT_EQ(words[i], round * 100 + i);
    weft_mem_unmap(mem);
  }
  EXPECT_EQ(weft_queue_space(ring), 16u);
}

TEST_F(Front, ExtensionSlotMayLieBehindTheWrap) {
  weft_queue* ring = queue(16);
  const std::uint32_t ids = sync(3);
  std::array<weft_cmd, 15> nops;
  nops.fill(weft::test::command(WEFT_OP_NOP));
  ASSERT_EQ(weft_queue_submit(ring, nops.data(), nops.size()), 0);
  struct {
    weft_cmd cmd;
    weft_cmd_ext ext;
  } wide{weft::test::command(WEFT_OP_NOP), {}};
  wide.cmd.flags = WEFT_CMD_EXT;
  wide.cmd.signal_id = ids + 2;
  wide.cmd.signal_add = 5;
  wide.ext.version = WEFT_CMD_VERSION;
  wide.ext.waits = 2;
  wide.ext.wait_id[0] = ids;
  wide.ext.wait_value[0] = 1;
  wide.ext.wait_id[1] = ids + 1;
  wide.ext.wait_value[1] = 1;
  ASSERT_EQ(weft_queue_submit(ring, &wide, 2), 0);
  EXPECT_EQ(weft_sync_value(device, ids + 2), 0u);
  ASSERT_EQ(weft_sync_signal(device, ids, 1), 0);
  EXPECT_EQ(weft_sync_value(device, ids + 2), 0u);
  ASSERT_EQ(weft_sync_signal(device, ids + 1, 1), 0);
  EXPECT_EQ(wait(ids + 2, 5), 0);
}

TEST_F(Front, FullRingTakesNothing) {
  weft_queue* ring = queue(256);
  const std::uint32_t ids = sync(2);
  std::vector<weft_cmd> cmds(256, weft::test::command(WEFT_OP_NOP));
  for (auto& cmd : cmds) {
    cmd.wait_id = ids;
    cmd.wait_value = 1;
    cmd.signal_id = ids + 1;
    cmd.signal_add = 1;
  }
  ASSERT_EQ(weft_queue_submit(ring, cmds.data(), 256), 0);
  // 64 are in the scoreboard; the others keep their slots.
  EXPECT_EQ(weft_queue_space(ring), 64u);
  EXPECT_EQ(weft_queue_submit(ring, cmds.data(), 65), -EAGAIN);
  EXPECT_EQ(weft_queue_submit(ring, cmds.data(), 257), -EINVAL);
  ASSERT_EQ(weft_sync_signal(device, ids, 1), 0);
  EXPECT_EQ(wait(ids + 1, 256), 0);
  EXPECT_EQ(weft_queue_space(ring), 256u);
}

TEST_F(Front, FailedQueueIsNamedAndGoesAway) {
  weft_queue* bad = queue();
  const std::uint32_t done = sync();
  weft_mem* mem = alloc(4096);
  std::array<weft_cmd, 3> cmds;
  cmds.fill(weft::test::command(WEFT_OP_FILL));
  for (auto& cmd : cmds) {
    weft::test::operand(cmd, 0, mem);
    cmd.length = 8;
    cmd.signal_id = done;
    cmd.signal_add = 1;
  }
  cmds[1].length = 8192;
  ASSERT_EQ(weft_queue_submit(bad, cmds.data(), 3), 0);
  weft_failure failure{};
  EXPECT_EQ(wait(done, 3, 1'000'000'000, &failure), -EIO);
  EXPECT_EQ(failure.error, WEFT_ERR_BAD_RANGE);
  EXPECT_EQ(failure.type, WEFT_EVENT_QUEUE_ERROR);
  EXPECT_EQ(failure.object, weft_queue_number(bad));
  EXPECT_EQ(failure.value, 1u);
  EXPECT_THAT(weft_last_error(), HasSubstr("slot 1"));
  EXPECT_EQ(weft_sync_value(device, done), 1u) << "what came before is done, what came behind is not";
  EXPECT_EQ(weft_queue_submit(bad, cmds.data(), 1), -EIO);
  weft_queue_destroy(bad);
  EXPECT_EQ(wait(done, 3, 0), -ETIME) << "the failure went with its queue";
}

TEST_F(Front, WaitAnyTellsWhich) {
  const std::uint32_t ids = sync(3);
  const weft_sync_event items[] = {{ids, 0, 1}, {ids + 1, 0, 1}, {ids + 2, 0, 1}};
  std::uint32_t which = 99;
  EXPECT_EQ(weft_sync_wait(device, items, 3, 0, nullptr, &which, nullptr), -ETIME);
  ASSERT_EQ(weft_sync_signal(device, ids + 1, 7), 0);
  EXPECT_EQ(weft_sync_wait(device, items, 3, -1, nullptr, &which, nullptr), 0);
  EXPECT_EQ(which, 1u);
  EXPECT_EQ(weft_sync_wait(device, items, 3, 1'000'000, nullptr, nullptr, nullptr), -ETIME);
}

TEST_F(Front, SignalFromAnotherThreadEndsAWait) {
  const std::uint32_t id = sync();
  std::thread other([&] { weft_sync_signal(device, id, 3); });
  EXPECT_EQ(wait(id, 3, -1), 0);
  other.join();
}

TEST_F(Front, CloseTakesWhatIsLeft) {
  alloc(4096);
  queue();
  std::vector<char> host(100);
  weft_mem* mem = nullptr;
  ASSERT_EQ(weft_mem_register(device, host.data(), host.size(), 0, &mem), 0);
  ASSERT_EQ(weft_write(device, weft_mem_va(mem), "x", 1), 0);
  weft_device_close(device);  // LeakSanitizer is the judge
  device = nullptr;
  EXPECT_EQ(host[0], 'x');
}

}  // namespace
