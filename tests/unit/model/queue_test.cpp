// SPDX-License-Identifier: MIT
// Command queues: order, waits, fences, the window, the ring, and how a queue ends.
#include <numeric>
#include <set>
#include <string>

#include "board.hpp"

namespace weft::test {
namespace {

class QueueTest : public testing::Test {
 protected:
  void SetUp() override {
    board.start();
    board.make_event_queue(256);
    board.run();
    board.events();  // what waited for it
    data = board.hbm_region(0, 16u << 20);
    queue = board.make_queue();
  }
  template <class T>
  T* at(std::uint64_t offset) {
    return board.hbm.at<T>(offset);
  }
  std::uint32_t state() { return queue.head().state; }

  Board board;
  Place data;
  Board::Queue queue;
};

TEST_F(QueueTest, HeadIsThereAfterCreation) {
  EXPECT_EQ(queue.head().state, static_cast<std::uint32_t>(WEFT_QUEUE_RUNNING));
  EXPECT_EQ(queue.head().fetched, 0u);
  EXPECT_EQ(queue.head().completed, 0u);
}

TEST_F(QueueTest, CopyFillReduceTimestampSignal) {
  std::iota(at<float>(0), at<float>(0) + 1000, 1.0f);
  board.host.now = 0x1122334455667788;
  weft_cmd stamp = command(WEFT_OP_TIMESTAMP);
  stamp.addr[0] = data.va + 65536;
  stamp.key[0] = data.key;
  queue.submit({then(copy(data + 8192, data, 4000), 1), then(fill(data + 16384, 0x0102030405060708, 64), 1),
                then(after(reduce(WEFT_F32, WEFT_SUM, data + 32768, data, data + 8192, 1000), 1, 2), 2, 7),
                after(stamp, 2, 7), add_to(3, 0x1'0000'0000)});
  board.run();
  EXPECT_EQ(0, std::memcmp(at<float>(8192), at<float>(0), 4000));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(at<std::uint64_t>(16384)[i], 0x0102030405060708u);
  EXPECT_EQ(at<std::uint64_t>(16384)[8], 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(at<float>(32768)[i], 2.0f * static_cast<float>(i + 1));
  EXPECT_EQ(*at<std::uint64_t>(65536), 0x1122334455667788u);
  EXPECT_EQ(board.shadow(1), 2u);
  EXPECT_EQ(board.shadow(2), 7u);
  EXPECT_EQ(board.shadow(3), 0x1'0000'0000u);
  EXPECT_EQ(queue.head().fetched, 5u);
  EXPECT_EQ(queue.head().completed, 5u);
}

TEST_F(QueueTest, OverlappingCopiesAreMemmove) {
  for (std::uint64_t distance : {1u, 8u, 100u, 300'000u}) {
    std::vector<std::uint8_t> wanted(2u << 20);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      at<std::uint8_t>(0)[i] = wanted[i] = static_cast<std::uint8_t>(i * 7 >> 3);
    std::memmove(wanted.data() + distance, wanted.data(), 1'000'000);
    std::memmove(wanted.data(), wanted.data() + distance, 900'000);
    queue.submit({copy(data + distance, data, 1'000'000)});
    board.run();
    queue.submit({copy(data, data + distance, 900'000)});
    board.run(100000, 10'000);
    ASSERT_EQ(0, std::memcmp(wanted.data(), at<std::uint8_t>(0), wanted.size())) << distance;
  }
}

TEST_F(QueueTest, WaitingCommandDoesNotBlockLaterOnes) {
  queue.submit({then(after(command(WEFT_OP_NOP), 50, 1), 1), then(command(WEFT_OP_NOP), 2)});
  board.run();
  EXPECT_EQ(board.shadow(1), 0u);
  EXPECT_EQ(board.shadow(2), 1u);
  EXPECT_EQ(queue.head().completed, 1u);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(queue.head().completed, 2u);
}

TEST_F(QueueTest, ThreeWaitsMustAllBeMet) {
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  ext.waits = 2;
  ext.wait_id[0] = 51;
  ext.wait_id[1] = 52;
  ext.wait_value[0] = 2;
  ext.wait_value[1] = 3;
  queue.submit(then(after(command(WEFT_OP_NOP), 50, 1), 1), ext);
  for (std::uint32_t sync : {52u, 50u, 51u, 51u}) {
    board.run();
    EXPECT_EQ(board.shadow(1), 0u);
    board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(sync, sync == 52 ? 3 : 1));
  }
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(queue.head().fetched, 2u);
  EXPECT_EQ(queue.head().completed, 1u);
}

TEST_F(QueueTest, WaitsAreForAtLeast64BitValues) {
  queue.submit({then(after(command(WEFT_OP_NOP), 50, 0x1'0000'0001), 1)});
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));  // the low half alone does not do
  board.run();
  EXPECT_EQ(board.shadow(1), 0u);
  queue.submit({add_to(50, 0x1'0000'0005)});
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
}

TEST_F(QueueTest, FullWindowStopsTheFetchAndAnotherQueueGoesOn) {
  constexpr std::uint32_t kWindow = model::CommandQueue::kWindow;
  EXPECT_EQ(board.read32(WEFT_REG_WINDOW), kWindow);
  for (std::uint32_t i = 0; i < kWindow + 10; ++i) {
    const weft_cmd cmd = then(after(command(WEFT_OP_NOP), 50, i < kWindow ? i + 1 : 0), 1);
    queue.put(&cmd);
  }
  queue.ring();
  board.run();
  // The ten behind need not wait for anything, but have no place.
  EXPECT_EQ(board.shadow(1), 0u);
  Board::Queue other = board.make_queue(3);
  other.submit({then(command(WEFT_OP_NOP), 2)});
  board.run();
  EXPECT_EQ(board.shadow(2), 1u);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));
  board.run();
  EXPECT_EQ(board.shadow(1), 11u);  // one left, and the ten came after it through its place
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, kWindow));
  board.run();
  EXPECT_EQ(board.shadow(1), kWindow + 10);
  EXPECT_EQ(queue.head().completed, kWindow + 10);
}

TEST_F(QueueTest, RingWrapsManyTimesAlsoInsideAnExtendedCommand) {
  Board::Queue small = board.make_queue(1, 16);
  std::uint64_t commands = 0;
  for (int i = 0; i < 200; ++i) {
    // Three slots a round and 16 in the ring: extensions come to lie on both sides of the end.
    weft_cmd_ext ext{};
    ext.version = WEFT_CMD_VERSION;
    weft_cmd first = then(command(WEFT_OP_NOP), 1);
    small.put(&first);
    small.submit(then(command(WEFT_OP_NOP), 2), ext);
    commands += 2;
    board.run();
    ASSERT_EQ(small.head().fetched, small.producer);
    ASSERT_EQ(small.head().completed, commands);
  }
  EXPECT_EQ(board.shadow(1), 200u);
  EXPECT_EQ(board.shadow(2), 200u);
  EXPECT_EQ(small.head().state, static_cast<std::uint32_t>(WEFT_QUEUE_RUNNING));
}

TEST_F(QueueTest, HalfAnExtendedCommandWaitsForTheOtherHalf) {
  weft_cmd cmd = then(command(WEFT_OP_NOP), 1);
  cmd.flags = WEFT_CMD_EXT;
  queue.put(&cmd);
  queue.ring();
  board.run();
  EXPECT_EQ(board.shadow(1), 0u);
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  queue.put(&ext);
  queue.ring();
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
}

TEST_F(QueueTest, FenceWaitsForAllEarlierAndHoldsAllLater) {
  queue.submit(
      {then(after(command(WEFT_OP_NOP), 50, 1), 1), then(command(WEFT_OP_FENCE), 2), then(command(WEFT_OP_NOP), 3)});
  board.run();
  EXPECT_EQ(board.shadow(2), 0u);
  EXPECT_EQ(board.shadow(3), 0u);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(board.shadow(2), 1u);
  EXPECT_EQ(board.shadow(3), 1u);
}

TEST_F(QueueTest, FenceThatWaitsHoldsLaterOnes) {
  queue.submit({then(after(command(WEFT_OP_FENCE), 50, 1), 1), then(command(WEFT_OP_NOP), 2)});
  board.run();
  EXPECT_EQ(board.shadow(2), 0u);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));
  board.run();
  EXPECT_EQ(board.shadow(2), 1u);
}

TEST_F(QueueTest, FencedCommandWaitsForEarlierOnesOnly) {
  weft_cmd fenced = then(after(command(WEFT_OP_NOP), 51, 1), 2);
  fenced.flags = WEFT_CMD_FENCED;
  queue.submit({then(after(command(WEFT_OP_NOP), 50, 1), 1), fenced, then(command(WEFT_OP_NOP), 3)});
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(51, 1));
  board.run();
  EXPECT_EQ(board.shadow(2), 0u);
  EXPECT_EQ(board.shadow(3), 0u);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));
  board.run();
  EXPECT_EQ(board.shadow(2), 1u);
  EXPECT_EQ(board.shadow(3), 1u);

  // Its own wait does not hold who comes after it.
  fenced.wait_value = 5;
  queue.submit({fenced, then(command(WEFT_OP_NOP), 3)});
  board.run();
  EXPECT_EQ(board.shadow(2), 1u);
  EXPECT_EQ(board.shadow(3), 2u);
}

TEST_F(QueueTest, LongCommandsLeaveAStepBoundedAndTurnsFair) {
  Board::Queue other = board.make_queue(1);
  queue.submit({then(copy(data + (8u << 20), data, 8u << 20), 1)});
  other.submit({then(command(WEFT_OP_NOP), 2)});
  const std::uint64_t before = board.counter(WEFT_CTR_copy_bytes);
  const weft_abi_step step = board.step(64 * 1024);
  EXPECT_EQ(step.more, 1u);
  EXPECT_LE(board.counter(WEFT_CTR_copy_bytes) - before, 256u * 1024);
  for (int i = 0; i < 8; ++i) board.step(64 * 1024);
  EXPECT_EQ(board.shadow(2), 1u) << "the other queue had no turn";
  EXPECT_EQ(board.shadow(1), 0u);
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(board.counter(WEFT_CTR_copy_bytes), 8u << 20);
}

TEST_F(QueueTest, ManyCommandsAreFetchedInFewReads) {
  const std::uint64_t before = board.host.counters.read_bytes[WEFT_ABI_DMA_CONTROL][0];
  for (int i = 0; i < 512; ++i) {
    const weft_cmd cmd = then(command(WEFT_OP_NOP), 1);
    queue.put(&cmd);
  }
  queue.ring();
  board.run();
  EXPECT_EQ(board.shadow(1), 512u);
  EXPECT_EQ(board.host.counters.read_bytes[WEFT_ABI_DMA_CONTROL][0] - before, 512u * 64);
}

TEST_F(QueueTest, RingInHbm) {
  weft_queue_entry entry{};
  entry.ctx = 1;
  entry.queue = 5;
  entry.entries = 16;
  entry.ring_key = data.key;
  entry.ring_addr = data.va + 4096;
  ASSERT_EQ(board.mailbox(WEFT_MBOX_QUEUE_CREATE, entry), WEFT_ERR_OK);
  *at<weft_cmd>(4096 + 64) = then(command(WEFT_OP_NOP), 1);
  board.doorbell(1, WEFT_DB_QUEUE(5), 1);
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(at<weft_ring_head>(4096)->completed, 1u);
  EXPECT_EQ(at<weft_ring_head>(4096)->state, static_cast<std::uint32_t>(WEFT_QUEUE_RUNNING));
}

TEST_F(QueueTest, RdmaCompletesByToken) {
  queue.submit({then(rdma_write(0x40, data, {0x1234, 0x5678}, 4096), 1),
                then(rdma_write(0x40, data + 4096, {0x1234, 0x9abc}, 100, 17), 2), then(command(WEFT_OP_NOP), 3)});
  board.run();
  ASSERT_EQ(board.nic->posted.size(), 2u);
  EXPECT_EQ(board.nic->posted[0].op, WEFT_RDMA_WRITE);
  EXPECT_EQ(board.nic->posted[0].remote_key, 0x1234u);
  EXPECT_EQ(board.nic->posted[0].remote_address, 0x5678u);
  EXPECT_EQ(board.nic->posted[0].local.address, data.va);
  EXPECT_EQ(board.nic->posted[0].local.length, 4096u);
  EXPECT_EQ(board.nic->posted[1].op, WEFT_RDMA_WRITE_IMM);
  EXPECT_EQ(board.nic->posted[1].immediate, 17u);
  EXPECT_EQ(board.shadow(3), 1u);  // in flight does not block
  EXPECT_EQ(board.shadow(1), 0u);
  std::swap(board.nic->posted[0], board.nic->posted[1]);
  board.nic->end(WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(board.shadow(1), 0u);
  EXPECT_EQ(board.shadow(2), 1u);
  board.nic->end(WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(board.counter(WEFT_CTR_rdma_bytes), 4196u);
  EXPECT_EQ(board.counter(WEFT_CTR_rdma_ops), 2u);
}

TEST_F(QueueTest, FailedRdmaHaltsTheQueueAndLaterEndsAreIgnored) {
  queue.submit(
      {command(WEFT_OP_NOP), then(rdma_write(0x40, data, {1, 0}, 64), 1), then(rdma_write(0x40, data, {1, 0}, 64), 2)});
  board.run();
  board.nic->end(WEFT_ERR_RETRY_EXCEEDED);
  board.nic->end(WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(state(), static_cast<std::uint32_t>(WEFT_QUEUE_HALTED));
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_RETRY_EXCEEDED));
  EXPECT_EQ(queue.head().error_index, 1u);
  EXPECT_EQ(board.shadow(1), 0u);
  EXPECT_EQ(board.shadow(2), 0u);
  EXPECT_EQ(board.counter(WEFT_CTR_err_other), 1u);
}

TEST_F(QueueTest, DestroyTakesRequestsBackFromTheNic) {
  queue.submit({rdma_write(0x40, data, {1, 0}, 64), after(command(WEFT_OP_NOP), 50, 1)});
  Board::Queue other = board.make_queue(1);
  other.submit({then(rdma_write(0x40, data, {1, 0}, 64), 5)});
  board.run();
  ASSERT_EQ(board.nic->posted.size(), 2u);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, 0}), WEFT_ERR_OK);
  EXPECT_EQ(board.nic->posted.size(), 1u);
  EXPECT_EQ(board.nic->cancels, 1u);
  // Its number is free again, and nothing of the former queue reaches the new one.
  queue = board.make_queue(0);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(50, 1));
  board.nic->end(WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(queue.head().completed, 0u);
  EXPECT_EQ(board.shadow(5), 1u);
}

TEST_F(QueueTest, AbortNamesTheOldestCommandThatIsNotComplete) {
  queue.submit({command(WEFT_OP_NOP), after(command(WEFT_OP_NOP), 50, 1), command(WEFT_OP_NOP),
                then(after(command(WEFT_OP_NOP), 51, 1), 1)});
  board.run();
  ASSERT_EQ(board.mailbox(WEFT_MBOX_QUEUE_ABORT, weft_mbox_pair{1, 0}), WEFT_ERR_OK);
  EXPECT_EQ(state(), static_cast<std::uint32_t>(WEFT_QUEUE_HALTED));
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_ABORTED));
  EXPECT_EQ(queue.head().error_index, 1u);
  EXPECT_EQ(queue.head().completed, 2u);
  EXPECT_EQ(board.counter(WEFT_CTR_commands_failed), 0u);  // nothing failed: the host wished it
  const std::vector<weft_event> events = board.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, WEFT_EVENT_QUEUE_ERROR);
  EXPECT_EQ(events[0].error, WEFT_ERR_ABORTED);
  EXPECT_EQ(events[0].ctx, 1u);
  EXPECT_EQ(events[0].object, 0u);
  EXPECT_EQ(events[0].value, 1u);
  // Dead: signals, doorbells and a second abort change nothing.
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(51, 1));
  queue.submit({then(command(WEFT_OP_NOP), 1)});
  board.run();
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_ABORT, weft_mbox_pair{1, 0}), WEFT_ERR_OK);
  EXPECT_EQ(board.shadow(1), 0u);
  EXPECT_TRUE(board.events().empty());
}

TEST_F(QueueTest, DestroyInTheMiddleOfACopyIsQuick) {
  queue.submit({then(copy(data + (8u << 20), data, 8u << 20), 1)});
  board.step(64 * 1024);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, 0}), WEFT_ERR_OK);
  EXPECT_LT(board.counter(WEFT_CTR_copy_bytes), 8u << 20);
  const std::uint64_t then_ = board.counter(WEFT_CTR_copy_bytes);
  board.run();
  EXPECT_EQ(board.counter(WEFT_CTR_copy_bytes), then_);
}

TEST_F(QueueTest, RegionDestroyedInTheMiddleOfACopyEndsIt) {
  const Place from = board.hbm_region(32u << 20, 8u << 20);
  queue.submit({then(copy(data, from, 8u << 20), 1)});
  board.step(64 * 1024);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{from.key, 0}), WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_BAD_KEY));
  EXPECT_EQ(board.counter(WEFT_CTR_dma_freed), 1u);
  EXPECT_EQ(board.shadow(1), 0u);
}

TEST_F(QueueTest, HeadsComeBeforeShadowsAndBothBeforeTheInterrupt) {
  board.doorbell(1, WEFT_DB_ARM, WEFT_DB_PAIR(1, 1));
  board.run();
  board.host.writes.clear();
  queue.submit({then(command(WEFT_OP_NOP), 1)});
  board.run();
  ASSERT_EQ(board.host.writes.size(), 2u);
  EXPECT_EQ(board.host.writes[0], queue.iova);
  EXPECT_EQ(board.host.writes[1], board.shadows[1] + 8);
}

// Errors: each halts the queue at the failing slot, is counted under its kind and told by an event.
struct BadCommand {
  const char* name;
  weft_error error;
  weft_counter counter;
  void (*spoil)(weft_cmd&, weft_cmd_ext&);
  bool extended = false;
};

class BadCommands : public QueueTest, public testing::WithParamInterface<BadCommand> {};

TEST_P(BadCommands, HaltTheQueue) {
  const BadCommand& bad = GetParam();
  weft_cmd cmd = then(copy(data + 4096, data, 64), 1);
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  bad.spoil(cmd, ext);
  std::fill_n(at<std::uint8_t>(4096), 256, std::uint8_t{0x55});
  const std::uint64_t before = board.counter(bad.counter);
  queue.submit({then(command(WEFT_OP_NOP), 2)});
  board.run();
  if (bad.extended) {
    queue.submit(cmd, ext);
  } else {
    queue.submit({cmd});
  }
  board.run();
  queue.submit({then(command(WEFT_OP_NOP), 3)});
  board.run();
  EXPECT_EQ(state(), static_cast<std::uint32_t>(WEFT_QUEUE_HALTED));
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(bad.error));
  EXPECT_EQ(queue.head().error_index, 1u);
  EXPECT_EQ(queue.head().completed, 1u);
  EXPECT_EQ(board.counter(bad.counter), before + 1);
  EXPECT_EQ(board.counter(WEFT_CTR_commands_failed), 1u);
  EXPECT_EQ(board.counter(WEFT_CTR_commands), 1u);
  EXPECT_EQ(board.shadow(1), 0u);
  EXPECT_EQ(board.shadow(2), 1u);
  EXPECT_EQ(board.shadow(3), 0u);
  for (int i = 0; i < 256; ++i) ASSERT_EQ(at<std::uint8_t>(4096)[i], 0x55) << "written all the same";
  const std::vector<weft_event> events = board.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].error, bad.error);
  EXPECT_EQ(events[0].value, 1u);
}

void as_reduce(weft_cmd& cmd) {
  cmd.op = WEFT_OP_REDUCE;
  cmd.arg0 = WEFT_F32;
  cmd.addr[2] = cmd.addr[1];
  cmd.key[2] = cmd.key[1];
  cmd.length = 16;
}
void as_rdma(weft_cmd& cmd) {
  cmd.op = WEFT_OP_RDMA;
  cmd.key[2] = 0x40;
}

const BadCommand kBad[] = {
    {"Op", WEFT_ERR_BAD_OP, WEFT_CTR_err_bad_op, [](weft_cmd& c, weft_cmd_ext&) { c.op = 8; }},
    {"OpGemm", WEFT_ERR_BAD_OP, WEFT_CTR_err_bad_op, [](weft_cmd& c, weft_cmd_ext&) { c.op = WEFT_OP_GEMM; }},
    {"OpRdma", WEFT_ERR_BAD_OP, WEFT_CTR_err_bad_op,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_rdma(c);
       c.arg0 = 4;
     }},
    {"Version", WEFT_ERR_BAD_VERSION, WEFT_CTR_err_bad_field,
     [](weft_cmd& c, weft_cmd_ext&) { c.version = WEFT_CMD_VERSION + 1; }},
    {"VersionBefore", WEFT_ERR_BAD_VERSION, WEFT_CTR_err_bad_field,
     [](weft_cmd& c, weft_cmd_ext&) { c.version = WEFT_CMD_VERSION - 1; }},
    {"Flags", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd& c, weft_cmd_ext&) { c.flags = 8; }},
    {"Arg0", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd& c, weft_cmd_ext&) { c.arg0 = 1; }},
    {"Arg1", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd& c, weft_cmd_ext&) { c.arg1 = 1; }},
    {"Immediate", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_rdma(c);
       c.arg0 = WEFT_RDMA_WRITE_IMM;
       c.addr[2] = 0x1'0000'0000;
     }},
    {"ExtVersion", WEFT_ERR_BAD_VERSION, WEFT_CTR_err_bad_field, [](weft_cmd&, weft_cmd_ext& e) { e.version = 9; },
     true},
    {"ExtWaits", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd&, weft_cmd_ext& e) { e.waits = 3; }, true},
    {"ExtReserved", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd&, weft_cmd_ext& e) { e.reserved1 = 1; },
     true},
    {"ExtStride", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd&, weft_cmd_ext& e) { e.stride[2] = 1; },
     true},
    {"ExtArg16", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field, [](weft_cmd&, weft_cmd_ext& e) { e.arg16 = 2; }, true},
    {"ExtWaitId", WEFT_ERR_BAD_SYNC, WEFT_CTR_err_bad_sync,
     [](weft_cmd&, weft_cmd_ext& e) {
       e.waits = 1;
       e.wait_id[0] = WEFT_SYNCS_PER_CONTEXT;
     },
     true},
    {"Wait", WEFT_ERR_BAD_SYNC, WEFT_CTR_err_bad_sync,
     [](weft_cmd& c, weft_cmd_ext&) { c.wait_id = WEFT_SYNCS_PER_CONTEXT; }},
    {"Signal", WEFT_ERR_BAD_SYNC, WEFT_CTR_err_bad_sync, [](weft_cmd& c, weft_cmd_ext&) { c.signal_id = 0xfffffffe; }},
    {"SignalNone", WEFT_ERR_BAD_SYNC, WEFT_CTR_err_bad_sync,
     [](weft_cmd& c, weft_cmd_ext&) {
       c.op = WEFT_OP_SIGNAL;
       c.signal_id = WEFT_SYNC_NONE;
     }},
    {"Type", WEFT_ERR_BAD_TYPE, WEFT_CTR_err_bad_field,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_reduce(c);
       c.arg0 = WEFT_F8E4M3;
     }},
    {"Redop", WEFT_ERR_BAD_TYPE, WEFT_CTR_err_bad_field,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_reduce(c);
       c.arg1 = WEFT_REDOPS;
     }},
    {"KeyZero", WEFT_ERR_BAD_KEY, WEFT_CTR_err_bad_key, [](weft_cmd& c, weft_cmd_ext&) { c.key[0] = 0; }},
    {"KeyUnknown", WEFT_ERR_BAD_KEY, WEFT_CTR_err_bad_key, [](weft_cmd& c, weft_cmd_ext&) { c.key[1] = 0xffffffff; }},
    {"KeyStale", WEFT_ERR_BAD_KEY, WEFT_CTR_dma_freed, [](weft_cmd& c, weft_cmd_ext&) { c.key[1] ^= 1; }},
    {"RangeBelow", WEFT_ERR_BAD_RANGE, WEFT_CTR_err_bad_range,
     [](weft_cmd& c, weft_cmd_ext&) { c.addr[1] = WEFT_VA_HBM - 8; }},
    {"RangeAbove", WEFT_ERR_BAD_RANGE, WEFT_CTR_err_bad_range,
     [](weft_cmd& c, weft_cmd_ext&) { c.addr[1] = WEFT_VA_HBM + (16u << 20) - 63; }},
    {"RangeWraps", WEFT_ERR_BAD_RANGE, WEFT_CTR_err_bad_range,
     [](weft_cmd& c, weft_cmd_ext&) { c.addr[1] = UINT64_MAX - 31; }},
    {"RangeLength", WEFT_ERR_BAD_RANGE, WEFT_CTR_err_bad_range,
     [](weft_cmd& c, weft_cmd_ext&) { c.length = UINT32_MAX; }},
    {"RangeReduce", WEFT_ERR_BAD_RANGE, WEFT_CTR_err_bad_range,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_reduce(c);
       c.length = 0x4000'0010;  // times 4 is 64 in 32 bits
     }},
    {"AlignReduce", WEFT_ERR_BAD_ALIGN, WEFT_CTR_err_other,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_reduce(c);
       c.addr[2] += 2;
     }},
    {"OverlapReduce", WEFT_ERR_BAD_FIELD, WEFT_CTR_err_bad_field,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_reduce(c);
       c.addr[2] = c.addr[0] - 4;
     }},
    {"AlignFill", WEFT_ERR_BAD_ALIGN, WEFT_CTR_err_other,
     [](weft_cmd& c, weft_cmd_ext&) { c = then(fill({c.key[0], c.addr[0] + 4}, 0, 64), 1); }},
    {"AlignFillLength", WEFT_ERR_BAD_ALIGN, WEFT_CTR_err_other,
     [](weft_cmd& c, weft_cmd_ext&) { c = then(fill({c.key[0], c.addr[0]}, 0, 60), 1); }},
    {"AlignTimestamp", WEFT_ERR_BAD_ALIGN, WEFT_CTR_err_other,
     [](weft_cmd& c, weft_cmd_ext&) {
       const Place place{c.key[0], c.addr[0] + 4};
       c = then(command(WEFT_OP_TIMESTAMP), 1);
       c.addr[0] = place.va;
       c.key[0] = place.key;
     }},
    {"Channel", WEFT_ERR_BAD_CHANNEL, WEFT_CTR_err_bad_channel,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_rdma(c);
       c.key[2] = 0x41;
     }},
    {"RdmaLocal", WEFT_ERR_BAD_RANGE, WEFT_CTR_err_bad_range,
     [](weft_cmd& c, weft_cmd_ext&) {
       as_rdma(c);
       c.length = 32u << 20;
     }},
};
INSTANTIATE_TEST_SUITE_P(All, BadCommands, testing::ValuesIn(kBad),
                         [](const auto& info) { return std::string(info.param.name); });

// A field that an operation does not use is 0, so that it can have a meaning one day: each operation with each field.
TEST_F(QueueTest, UnusedFieldsAreRefused) {
  weft_cmd stamp = command(WEFT_OP_TIMESTAMP);
  stamp.addr[0] = data.va;
  stamp.key[0] = data.key;
  weft_cmd read = rdma_write(0x40, data, {1, 0}, 64);
  read.arg0 = WEFT_RDMA_READ;
  struct Case {
    weft_cmd cmd;
    std::set<std::string> uses;
  };
  const std::set<std::string> two{"addr0", "addr1", "key0", "key1", "length"};
  std::set<std::string> rdma = two, three = two, immediate, pattern = two;
  rdma.insert({"key2", "arg0"});
  immediate = rdma;
  immediate.insert("addr2");
  three.insert({"addr2", "key2", "arg0", "arg1"});
  pattern.erase("key1");
  const Case cases[] = {
      {command(WEFT_OP_NOP), {}},
      {copy(data, data + 4096, 64), two},
      {fill(data, 5, 64), pattern},
      {reduce(WEFT_I32, WEFT_SUM, data, data + 4096, data + 8192, 4), three},
      {rdma_write(0x40, data, {1, 0}, 64), rdma},
      {rdma_write(0x40, data, {1, 0}, 64, 3), immediate},
      {read, rdma},
      {command(WEFT_OP_FENCE), {}},
      {stamp, {"addr0", "key0"}},
      {add_to(1, 5), {"addr0"}},
  };
  struct Field {
    const char* name;
    void (*set)(weft_cmd&);
  };
  const Field fields[] = {
      {"addr0", [](weft_cmd& c) { c.addr[0] = 1; }},
      {"addr1", [](weft_cmd& c) { c.addr[1] = 1; }},
      {"addr2", [](weft_cmd& c) { c.addr[2] = 1; }},
      {"key0", [](weft_cmd& c) { c.key[0] = 1; }},
      {"key1", [](weft_cmd& c) { c.key[1] = 1; }},
      {"key2", [](weft_cmd& c) { c.key[2] = 1; }},
      {"length", [](weft_cmd& c) { c.length = 1; }},
      {"arg0", [](weft_cmd& c) { c.arg0 = 1; }},
      {"arg1", [](weft_cmd& c) { c.arg1 = 1; }},
      {"wait_value", [](weft_cmd& c) { c.wait_value = 1; }},
      {"signal_add", [](weft_cmd& c) { c.signal_add = 1; }},
  };
  const auto error_of = [&](const weft_cmd& cmd) {
    Board::Queue one = board.make_queue(1, 16);
    one.submit({cmd});
    board.run();
    const std::uint32_t error = one.head().error;
    EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, one.number}), WEFT_ERR_OK);
    board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{one.key, 0});
    return error;
  };
  for (const Case& c : cases) {
    EXPECT_EQ(error_of(c.cmd), std::uint32_t{WEFT_ERR_OK}) << "op " << unsigned{c.cmd.op};
    for (const Field& field : fields) {
      if (c.uses.contains(field.name)) continue;
      weft_cmd cmd = c.cmd;
      field.set(cmd);
      EXPECT_EQ(error_of(cmd), std::uint32_t{WEFT_ERR_BAD_FIELD}) << "op " << unsigned{cmd.op} << " " << field.name;
    }
  }
  // Of the extension, too.
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  ext.waits = 1;
  ext.wait_id[1] = 7;
  queue.submit(command(WEFT_OP_NOP), ext);
  board.run();
  EXPECT_EQ(queue.head().error, std::uint32_t{WEFT_ERR_BAD_FIELD});
}

// What this device does not offer is refused by name, whatever the operands; so is a step outside of a loop's body.
TEST_F(QueueTest, ProgramsAndTilesAreRefusedByName) {
  for (const weft_cmd_op op : {WEFT_OP_GEMM, WEFT_OP_LOOP, WEFT_OP_CALL, WEFT_OP_INDIRECT, WEFT_OP_HOST}) {
    Board::Queue one = board.make_queue(1, 16);
    weft_cmd cmd = copy(data, data + 4096, 64);
    cmd.op = static_cast<std::uint8_t>(op);
    one.submit({command(WEFT_OP_NOP), cmd, then(command(WEFT_OP_NOP), 1)});
    board.run();
    EXPECT_EQ(one.head().error, std::uint32_t{WEFT_ERR_BAD_OP}) << op;
    EXPECT_EQ(one.head().error_index, 1u);
    // In the ring itself, in no program.
    EXPECT_EQ(one.head().error_program, 0u);
    EXPECT_EQ(one.head().error_iteration, 0u);
    EXPECT_EQ(one.head().error_pc, 0u);
    EXPECT_EQ(one.head().error_depth, 0u);
    EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, one.number}), WEFT_ERR_OK);
  }
  EXPECT_EQ(board.shadow(1), 0u);
  weft_cmd cmd = command(WEFT_OP_NOP);
  cmd.flags = WEFT_CMD_STEP;
  queue.submit({cmd});
  board.run();
  EXPECT_EQ(queue.head().error, std::uint32_t{WEFT_ERR_BAD_FIELD});
}

// A driver that sees the state sees where the error is: that is written before.
TEST_F(QueueTest, ErrorIsWrittenBeforeTheStateThatTellsIt) {
  queue.submit({command(WEFT_OP_NOP)});
  board.run();
  board.host.writes.clear();
  weft_cmd bad = command(WEFT_OP_NOP);
  bad.arg0 = 1;
  queue.submit({bad});
  board.run();
  ASSERT_GE(board.host.writes.size(), 2u);
  EXPECT_EQ(board.host.writes[0], queue.iova + offsetof(weft_ring_head, error_index));
  EXPECT_EQ(board.host.writes[1], queue.iova);
}

TEST_F(QueueTest, RightsAreAskedForEachOperand) {
  const Place read_only = board.hbm_region(20u << 20, 4096, 1, WEFT_RIGHT_READ | WEFT_RIGHT_REMOTE_WRITE);
  const Place write_only = board.hbm_region(21u << 20, 4096, 1, WEFT_RIGHT_WRITE | WEFT_RIGHT_REMOTE_READ);
  std::uint32_t number = 1;
  weft_cmd read_into = rdma_write(0x40, read_only, {1, 0}, 64);
  read_into.arg0 = WEFT_RDMA_READ;
  for (const weft_cmd& cmd : {copy(read_only, data, 64), copy(data, write_only, 64), fill(read_only, 0, 64),
                              reduce(WEFT_I32, WEFT_SUM, read_only, data, data, 4),
                              reduce(WEFT_I32, WEFT_SUM, data, write_only, data + 4096, 4),
                              reduce(WEFT_I32, WEFT_SUM, data, data + 4096, write_only, 4),
                              rdma_write(0x40, write_only, {1, 0}, 64), read_into}) {
    Board::Queue bad = board.make_queue(number++);
    bad.submit({cmd});
    board.run();
    EXPECT_EQ(bad.head().error, static_cast<std::uint32_t>(WEFT_ERR_BAD_RIGHTS)) << number;
  }
  EXPECT_EQ(board.counter(WEFT_CTR_err_bad_rights), 8u);
}

TEST_F(QueueTest, ProducerBeyondTheRingIsAnOverrun) {
  queue.submit({command(WEFT_OP_NOP)});
  board.run();
  board.doorbell(1, WEFT_DB_QUEUE(0), 1 + 1024 + 1);
  board.run();
  EXPECT_EQ(state(), static_cast<std::uint32_t>(WEFT_QUEUE_HALTED));
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_OVERRUN));
  EXPECT_EQ(queue.head().error_index, 1u);
  Board::Queue other = board.make_queue(1);
  other.submit({command(WEFT_OP_NOP), command(WEFT_OP_NOP)});
  board.run();
  board.doorbell(1, WEFT_DB_QUEUE(1), 1);  // back
  board.run();
  EXPECT_EQ(other.head().error, static_cast<std::uint32_t>(WEFT_ERR_OVERRUN));
}

TEST_F(QueueTest, RingThatVanishedHaltsTheQueueWithAnEvent) {
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{queue.key, 0}), WEFT_ERR_OK);
  queue.submit({then(command(WEFT_OP_NOP), 1)});
  board.run();
  EXPECT_EQ(board.shadow(1), 0u);
  const std::vector<weft_event> events = board.events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].error, WEFT_ERR_BAD_KEY);
  EXPECT_GE(board.counter(WEFT_CTR_dma_freed), 1u);
}

TEST_F(QueueTest, ContextsDoNotReachEachOther) {
  board.make_context(2, 8);
  const Place foreign = board.hbm_region(0, 4096, 2);
  // Another context's key is no key.
  queue.submit({copy(data, foreign, 64)});
  board.run();
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_BAD_KEY));
  // Sync objects are the context's own, also with the same number.
  Board::Queue other = board.make_queue(0, 64, 2);
  other.submit({then(command(WEFT_OP_NOP), 7)});
  board.run();
  EXPECT_EQ(board.shadow(7, 1), 0u);
  EXPECT_EQ(board.shadow(7, 2), 1u);
  other.submit({then(command(WEFT_OP_NOP), 8)});
  board.run();
  EXPECT_EQ(other.head().error, static_cast<std::uint32_t>(WEFT_ERR_BAD_SYNC));
  // A doorbell page reaches its own context's queues only.
  Board::Queue third = board.make_queue(1, 64, 1);
  const weft_cmd cmd = then(command(WEFT_OP_NOP), 9);
  third.put(&cmd);
  board.doorbell(2, WEFT_DB_QUEUE(1), 1);
  board.run();
  EXPECT_EQ(third.head().fetched, 0u);
}

TEST_F(QueueTest, DestroyedContextIsGoneAndTheOtherGoesOn) {
  board.make_context(2);
  const Place foreign = board.hbm_region(1u << 20, 4096, 2);
  Board::Queue other = board.make_queue(0, 64, 2);
  other.submit({then(after(command(WEFT_OP_NOP), 3, 1), 4)});
  board.run();
  ASSERT_EQ(board.mailbox(WEFT_MBOX_CTX_DESTROY, weft_mbox_index{2, 0}), WEFT_ERR_OK);
  EXPECT_EQ(board.nic->destroyed, std::vector<std::uint32_t>{2});
  board.doorbell(2, WEFT_DB_SIGNAL, WEFT_DB_PAIR(3, 1));
  board.doorbell(2, WEFT_DB_QUEUE(0), 1);
  queue.submit({then(command(WEFT_OP_NOP), 1)});
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(board.shadow(4, 2), 0u);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{foreign.key, 0}), WEFT_ERR_MBOX_NOT_FOUND);
  // Made again, it starts from nothing.
  board.make_context(2);
  EXPECT_EQ(board.shadow(3, 2), 0u);
}

TEST_F(QueueTest, EmptyCommandsComplete) {
  queue.submit({then(copy(data, data + 64, 0), 1), then(fill(data, 1, 0), 1),
                then(reduce(WEFT_F64, WEFT_SUM, data, data, data, 0), 1)});
  board.run();
  EXPECT_EQ(board.shadow(1), 3u);
  EXPECT_EQ(board.counter(WEFT_CTR_hbm_write_bytes), 0u);
}

TEST_F(QueueTest, AverageDividesInTheLastStep) {
  for (int i = 0; i < 8; ++i) at<std::int32_t>(0)[i] = -10 - i;
  for (int i = 0; i < 8; ++i) at<std::int32_t>(4096)[i] = 3;
  queue.submit({then(reduce(WEFT_I32, WEFT_AVG, data + 8192, data, data + 4096, 8), 1)});
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  ext.arg16 = 2;
  queue.submit(then(reduce(WEFT_I32, WEFT_AVG, data + 12288, data, data + 4096, 8), 1), ext);
  board.run();
  ASSERT_EQ(board.shadow(1), 2u);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(at<std::int32_t>(8192)[i], -7 - i);
    EXPECT_EQ(at<std::int32_t>(12288)[i], (-7 - i) / 2);
  }
}

}  // namespace
}  // namespace weft::test
