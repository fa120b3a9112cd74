// SPDX-License-Identifier: MIT
// The null backend's order of commands: the memory model's rules, which other backends keep too.
#include <array>
#include <cerrno>

#include "fixture.hpp"

namespace {

using weft::test::command;

class Null : public weft::test::Device {};

TEST_F(Null, AWaitingCommandDoesNotBlockALaterOne) {
  weft_queue* ring = queue();
  const std::uint32_t ids = sync(2);
  std::array<weft_cmd, 2> cmds{command(WEFT_OP_NOP), command(WEFT_OP_NOP)};
  cmds[0].wait_id = ids;  // what only the second gives
  cmds[0].wait_value = 1;
  cmds[0].signal_id = ids + 1;
  cmds[0].signal_add = 1;
  cmds[1].signal_id = ids;
  cmds[1].signal_add = 1;
  ASSERT_EQ(weft_queue_submit(ring, cmds.data(), 2), 0);
  EXPECT_EQ(wait(ids + 1, 1, 0), 0);
}

TEST_F(Null, AFenceHoldsWhatComesBehind) {
  weft_queue* ring = queue();
  const std::uint32_t ids = sync(2);
  std::array<weft_cmd, 3> cmds{command(WEFT_OP_NOP), command(WEFT_OP_FENCE), command(WEFT_OP_NOP)};
  cmds[0].wait_id = ids;
  cmds[0].wait_value = 1;
  cmds[2].signal_id = ids + 1;
  cmds[2].signal_add = 1;
  ASSERT_EQ(weft_queue_submit(ring, cmds.data(), 3), 0);
  EXPECT_EQ(wait(ids + 1, 1, 0), -ETIME);
  ASSERT_EQ(weft_sync_signal(device, ids, 1), 0);
  EXPECT_EQ(wait(ids + 1, 1, 0), 0);
}

TEST_F(Null, QueuesSignalEachOther) {
  weft_queue* one = queue();
  weft_queue* other = queue();
  const std::uint32_t ids = sync(3);
  weft_cmd ping = command(WEFT_OP_NOP), pong = command(WEFT_OP_SIGNAL);
  ping.wait_id = ids + 1;
  ping.wait_value = 1ull << 40;
  ping.signal_id = ids + 2;
  ping.signal_add = 1;
  pong.wait_id = ids;
  pong.wait_value = 1;
  pong.signal_id = ids + 1;
  pong.addr[0] = 1ull << 40;  // more than signal_add holds
  ASSERT_EQ(weft_queue_submit(one, &ping, 1), 0);
  ASSERT_EQ(weft_queue_submit(other, &pong, 1), 0);
  EXPECT_EQ(wait(ids + 2, 1, 0), -ETIME);
  ASSERT_EQ(weft_sync_signal(device, ids, 1), 0);
  EXPECT_EQ(wait(ids + 2, 1, 0), 0);
}

TEST_F(Null, ErrorsHaveTheDevicesNames) {
  weft_mem* mem = alloc(4096);
  struct Case {
    weft_cmd cmd;
    weft_error error;
  };
  std::array<Case, 7> cases{};
  for (auto& entry : cases) {
    entry.cmd = command(WEFT_OP_FILL);
    weft::test::operand(entry.cmd, 0, mem);
    entry.cmd.length = 8;
  }
  cases[0].cmd.op = 200, cases[0].error = WEFT_ERR_BAD_OP;
  cases[1].cmd.version = 9, cases[1].error = WEFT_ERR_BAD_VERSION;
  cases[2].cmd.key[0] ^= 0x10000, cases[2].error = WEFT_ERR_BAD_KEY;
  cases[3].cmd.addr[0] -= 8, cases[3].error = WEFT_ERR_BAD_RANGE;
  cases[4].cmd.length = 12, cases[4].error = WEFT_ERR_BAD_ALIGN;
  cases[5].cmd.wait_id = 100000, cases[5].error = WEFT_ERR_BAD_SYNC;
  cases[6].cmd.op = WEFT_OP_RDMA, cases[6].error = WEFT_ERR_BAD_CHANNEL;
  for (const Case& entry : cases) {
    weft_queue* ring = queue();
    const std::uint32_t id = sync();
    ASSERT_EQ(weft_queue_submit(ring, &entry.cmd, 1), 0);
    weft_failure failure{};
    EXPECT_EQ(wait(id, 1, 0, &failure), -EIO);
    EXPECT_EQ(failure.error, entry.error) << weft_error_text(failure.error);
    weft_queue_destroy(ring);
  }
}

}  // namespace
