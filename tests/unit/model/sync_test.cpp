// SPDX-License-Identifier: MIT
// Sync objects: shadows, doorbell signals, and interrupts at a value.
#include "board.hpp"

namespace weft::test {
namespace {

class SyncTest : public testing::Test {
 protected:
  void SetUp() override {
    board.start();
    board.run();
    board.host.interrupts.clear();
    board.host.writes.clear();
  }
  void signal(std::uint32_t sync, std::uint32_t add) { board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(sync, add)); }
  void arm(std::uint32_t sync, std::uint64_t value) { board.doorbell(1, WEFT_DB_ARM, WEFT_DB_ARM_VALUE(sync, value)); }
  // Interrupts on the context's vector since the last look.
  std::size_t interrupts() {
    board.run();
    const auto count =
        static_cast<std::size_t>(std::count(board.host.interrupts.begin(), board.host.interrupts.end(), 1u));
    EXPECT_EQ(count, board.host.interrupts.size());
    board.host.interrupts.clear();
    return count;
  }

  Board board;
};

TEST_F(SyncTest, ShadowsAreWrittenOnceAStep) {
  for (int i = 0; i < 100; ++i) signal(5, 2);
  EXPECT_EQ(board.shadow(5), 0u) << "a doorbell only takes a note";
  EXPECT_GT(board.host.wakes, 0u);
  board.run();
  EXPECT_EQ(board.shadow(5), 200u);
  EXPECT_EQ(board.host.writes.size(), 1u);
  EXPECT_EQ(board.counter(WEFT_CTR_host_signals), 100u);
  EXPECT_EQ(board.counter(WEFT_CTR_sync_signals), 0u);
}

TEST_F(SyncTest, NeighboursGoInOneWrite) {
  for (std::uint32_t sync = 10; sync < 20; ++sync) signal(sync, sync);
  board.run();
  for (std::uint32_t sync = 10; sync < 20; ++sync) EXPECT_EQ(board.shadow(sync), sync);
  EXPECT_EQ(board.host.writes.size(), 1u);
}

TEST_F(SyncTest, OnlyNotifyOnesAreMirrored) {
  ASSERT_EQ(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{1, 7, 1, 0}), WEFT_ERR_OK);
  signal(7, 9);
  board.run();
  EXPECT_EQ(board.shadow(7), 0u);
  // Mirrored from now on, with what is there.
  ASSERT_EQ(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{1, 7, 1, WEFT_SYNC_NOTIFY}), WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(board.shadow(7), 9u);
}

TEST_F(SyncTest, ArmFiresOnceWhenReached) {
  arm(3, 2);
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 1u);
  EXPECT_EQ(board.shadow(3), 2u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 0u);
}

TEST_F(SyncTest, ArmFiresAtOnceWhenAlreadyReached) {
  signal(3, 5);
  EXPECT_EQ(interrupts(), 0u);
  arm(3, 5);
  EXPECT_EQ(interrupts(), 1u);
  arm(3, 4);
  EXPECT_EQ(interrupts(), 1u);
}

TEST_F(SyncTest, ArmComparesAsSerialNumbers) {
  Board::Queue queue = board.make_queue();
  queue.submit({add_to(3, (std::uint64_t{1} << 52) - 2)});
  EXPECT_EQ(interrupts(), 0u);
  arm(3, (std::uint64_t{1} << 52) + 1);  // three ahead, over the end of what the doorbell holds
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 2);
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 1u);
  arm(3, (std::uint64_t{1} << 52) - 5);  // behind
  EXPECT_EQ(interrupts(), 1u);
}

// However far one signal goes past an armed value, the interrupt comes.
TEST_F(SyncTest, ArmIsNotLostByALargeSignal) {
  Board::Queue queue = board.make_queue();
  std::uint32_t sync = 3;
  for (const std::uint64_t past : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, (std::uint64_t{1} << 51) + 5,
                                   std::uint64_t{1} << 52, (std::uint64_t{1} << 63) + 7, UINT64_MAX - 5}) {
    arm(++sync, 5);
    EXPECT_EQ(interrupts(), 0u);
    queue.submit({add_to(sync, 5 + past)});
    EXPECT_EQ(interrupts(), 1u) << past;
    queue.submit({add_to(sync, 0)});
    EXPECT_EQ(interrupts(), 0u) << "it is told once";
  }
}

TEST_F(SyncTest, ArmReachesFarAhead) {
  Board::Queue queue = board.make_queue();
  arm(3, WEFT_ARM_AHEAD_MAX);
  EXPECT_EQ(interrupts(), 0u);
  queue.submit({add_to(3, WEFT_ARM_AHEAD_MAX - 1)});
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 1u);
  arm(4, WEFT_ARM_AHEAD_MAX + 1);  // more than can be said: counts as behind
  EXPECT_EQ(interrupts(), 1u);
}

TEST_F(SyncTest, TwoArmsFireEach) {
  arm(3, 10);
  arm(3, 5);  // another thread waits for less
  signal(3, 4);
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 1u);
  signal(3, 4);
  EXPECT_EQ(interrupts(), 0u);
  signal(3, 1);
  EXPECT_EQ(interrupts(), 1u);
  signal(3, 100);
  EXPECT_EQ(interrupts(), 0u);
}

TEST_F(SyncTest, ManyArmsLoseNoTarget) {
  for (std::uint32_t target : {12u, 4u, 8u, 6u, 12u}) arm(3, target);
  std::vector<std::uint64_t> told;
  for (int i = 0; i < 20; ++i) {
    signal(3, 1);
    if (interrupts() != 0) told.push_back(board.shadow(3));
  }
  for (std::uint64_t target : {4u, 6u, 8u, 12u}) {
    EXPECT_NE(std::find(told.begin(), told.end(), target), told.end()) << target;
  }
  EXPECT_EQ(told.front(), 4u);
  EXPECT_EQ(told.back(), 12u);
}

TEST_F(SyncTest, OneMessageForManyObjectsOfAStep) {
  for (std::uint32_t sync = 0; sync < 50; ++sync) {
    arm(sync, 1);
    signal(sync, 1);
  }
  EXPECT_EQ(interrupts(), 1u);
  EXPECT_EQ(board.counter(WEFT_CTR_interrupts), 1u + 0u);
}

// The race of a waiter: it looks, sees too little, arms; whatever comes between is not lost.
TEST_F(SyncTest, NoWakeupIsLostWhereverTheSignalFalls) {
  for (int when = 0; when < 4; ++when) {
    const std::uint32_t sync = 20 + static_cast<std::uint32_t>(when);
    if (when == 0) signal(sync, 1);
    if (when == 1) {
      signal(sync, 1);
      board.run();
    }
    board.host.interrupts.clear();
    arm(sync, 1);
    if (when == 2) signal(sync, 1);
    board.run();
    if (when == 3) signal(sync, 1);
    board.run();
    EXPECT_EQ(board.host.interrupts.size(), 1u) << when;
    EXPECT_EQ(board.shadow(sync), 1u) << when;
  }
}

TEST_F(SyncTest, BadNumbersAreCountedAndIgnored) {
  signal(WEFT_SYNCS_PER_CONTEXT, 1);
  board.doorbell(200, WEFT_DB_ARM, WEFT_DB_ARM_VALUE(0, 1));
  board.doorbell(200, WEFT_DB_SIGNAL, WEFT_DB_PAIR(0, 1));
  board.run();
  EXPECT_EQ(board.counter(WEFT_CTR_err_bad_sync), 3u);
}

TEST_F(SyncTest, ContextsAndConfigurationsAreChecked) {
  const auto made = [&](std::uint32_t ctx, std::uint32_t vector, std::uint64_t shadow, std::uint32_t syncs,
                        std::uint32_t flags) {
    return board.mailbox(WEFT_MBOX_CTX_CREATE, weft_mbox_ctx{ctx, vector, shadow, syncs, flags, 0});
  };
  EXPECT_NE(made(WEFT_CONTEXTS_MAX, 1, 0, 1, 0), WEFT_ERR_OK);
  EXPECT_NE(made(2, WEFT_VECTORS, 0, 1, 0), WEFT_ERR_OK);
  EXPECT_EQ(made(2, 1, 4, 1, 0), WEFT_ERR_BAD_ALIGN);
  EXPECT_EQ(made(2, 1, UINT64_MAX - 7, 1, 0), WEFT_ERR_BAD_RANGE);
  EXPECT_NE(made(2, 1, 0, 0, 0), WEFT_ERR_OK);
  EXPECT_NE(made(2, 1, 0, WEFT_SYNCS_PER_CONTEXT + 1, 0), WEFT_ERR_OK);
  EXPECT_NE(made(2, 1, 0, 1, 1), WEFT_ERR_OK);
  EXPECT_EQ(made(1, 1, 0, 1, 0), WEFT_ERR_MBOX_BUSY);
  EXPECT_EQ(made(2, 1, 0, 16, 0), WEFT_ERR_OK);
  EXPECT_NE(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{2, 0, 16, WEFT_SYNC_NOTIFY}), WEFT_ERR_OK)
      << "no shadow array";
  EXPECT_EQ(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{2, 0, 16, 0}), WEFT_ERR_OK);
  EXPECT_NE(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{2, 1, 16, 0}), WEFT_ERR_OK);
  EXPECT_NE(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{2, UINT32_MAX, 2, 0}), WEFT_ERR_OK);
  EXPECT_NE(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{3, 0, 1, 0}), WEFT_ERR_OK);
}

TEST_F(SyncTest, ShadowThatIsNotMemoryIsCounted) {
  ASSERT_EQ(board.mailbox(WEFT_MBOX_CTX_CREATE, weft_mbox_ctx{2, 1, 0x1000, 16, 0, 0}), WEFT_ERR_OK);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{2, 0, 16, WEFT_SYNC_NOTIFY}), WEFT_ERR_OK);
  board.run();
  EXPECT_EQ(board.counter(WEFT_CTR_err_dma), 1u);
}

}  // namespace
}  // namespace weft::test
