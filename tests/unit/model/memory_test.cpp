// SPDX-License-Identifier: MIT
// Regions: what a key names, page lists in host memory, other devices' memory, the sync aperture, atomics.
#include <random>

#include "board.hpp"

namespace weft::test {
namespace {

class MemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    board.start();
    queue = board.make_queue();
    hbm = board.hbm_region(0, 16u << 20);
  }
  // Copies `bytes` and returns the queue's error; the queue is made anew after a failure.
  std::uint32_t copied(Place to, Place from, std::uint32_t bytes, std::uint32_t budget = 1u << 20) {
    queue.submit({copy(to, from, bytes)});
    board.run(100000, budget);
    const std::uint32_t error = queue.head().error;
    if (error != WEFT_ERR_OK) {
      EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, 0}), WEFT_ERR_OK);
      queue = board.make_queue();
    }
    return error;
  }
  // A region over pages that lie scattered: backwards, with gaps, some in a row. `skew`: offset of va in its page.
  Place scattered(std::uint8_t levels, std::uint8_t shift, std::uint64_t skew, std::uint64_t length,
                  std::vector<std::uint64_t>& pages) {
    const std::uint64_t size = std::uint64_t{1} << shift;
    const std::uint64_t count = (skew + length + size - 1) / size;
    const std::uint64_t raw = board.host.alloc((count * 2 + 3) * size);
    const std::uint64_t first = (raw + size - 1) & ~(size - 1);
    for (std::uint64_t i = 0; i < count; ++i) {
      pages.push_back(first + size * (i % 5 < 2 ? i : count + 1 + (count - 1 - i)));
    }
    weft_region_entry entry =
        board.entry(1, WEFT_REGION_HOST, WEFT_VA_HOST + (std::uint64_t{++areas_} << 32) + skew, length, 0, Board::kAll);
    entry.page_shift = shift;
    entry.levels = levels;
    entry.pages = count;
    if (levels == 1) {
      entry.base = board.host.alloc(count * 8);
      std::memcpy(board.host.find(entry.base, count * 8), pages.data(), count * 8);
    } else {
      const std::uint64_t lists = (count + 511) / 512;
      entry.base = board.host.alloc(lists * 8);
      for (std::uint64_t i = 0; i < lists; ++i) {
        const std::uint64_t list = board.host.alloc(4096);
        *board.host.at<std::uint64_t>(entry.base + 8 * i) = list;
        const std::uint64_t part = std::min<std::uint64_t>(512, count - 512 * i);
        std::memcpy(board.host.find(list, part * 8), pages.data() + 512 * i, part * 8);
      }
    }
    EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_OK);
    last = entry;
    return {entry.key, entry.va};
  }
  // Byte `offset` of such a region.
  std::byte& byte(const std::vector<std::uint64_t>& pages, std::uint8_t shift, std::uint64_t skew,
                  std::uint64_t offset) {
    const std::uint64_t place = skew + offset;
    return *board.host.find(pages[place >> shift] + (place & ((std::uint64_t{1} << shift) - 1)), 1);
  }

  Board board;
  Board::Queue queue;
  Place hbm;
  weft_region_entry last{};

 private:
  std::uint32_t areas_ = 0;
};

struct PageCase {
  std::uint8_t levels;
  std::uint8_t shift;
  std::uint64_t skew;
  std::uint64_t length;
  std::size_t map_max;
};
class Pages : public MemoryTest, public testing::WithParamInterface<PageCase> {};

TEST_P(Pages, CopyBothWays) {
  const PageCase& c = GetParam();
  board.host.map_max = c.map_max;
  std::vector<std::uint64_t> pages;
  const Place host = scattered(c.levels, c.shift, c.skew, c.length, pages);
  std::mt19937 random(static_cast<unsigned>(c.length));
  for (std::uint64_t i = 0; i < c.length; ++i) board.hbm.data()[i] = static_cast<std::byte>(random());
  ASSERT_EQ(copied(host, hbm, static_cast<std::uint32_t>(c.length), 100'000), WEFT_ERR_OK);
  for (std::uint64_t i = 0; i < c.length; ++i) {
    ASSERT_EQ(byte(pages, c.shift, c.skew, i), board.hbm.data()[i]) << i;
  }
  // A part from the middle comes back.
  const std::uint64_t from = c.length / 3, bytes = c.length / 2;
  ASSERT_EQ(copied(hbm + (8u << 20), host + from, static_cast<std::uint32_t>(bytes)), WEFT_ERR_OK);
  EXPECT_EQ(0, std::memcmp(board.hbm.data() + (8u << 20), board.hbm.data() + from, bytes));
  EXPECT_EQ(board.counter(WEFT_CTR_host_payload_write_bytes), c.length);
  EXPECT_EQ(board.counter(WEFT_CTR_host_payload_read_bytes), bytes);
  EXPECT_EQ(board.counter(WEFT_CTR_hbm_read_bytes), c.length);
  EXPECT_EQ(board.counter(WEFT_CTR_hbm_write_bytes), bytes);
}
INSTANTIATE_TEST_SUITE_P(Shapes, Pages,
                         testing::Values(PageCase{1, 12, 0, 4096, 65536}, PageCase{1, 12, 4095, 2, 65536},
                                         PageCase{1, 12, 100, 300'001, 65536}, PageCase{1, 16, 7, 1'000'000, 65536},
                                         PageCase{1, 21, 0x12345, 3'000'000, 65536},
                                         PageCase{2, 12, 0, 512 * 4096, 65536}, PageCase{2, 12, 4000, 2'500'003, 65536},
                                         PageCase{1, 12, 100, 300'001, 0},     // nothing is mapped: calls instead
                                         PageCase{1, 16, 100, 300'001, 1000},  // less than was asked for
                                         PageCase{2, 12, 4000, 2'500'003, 0}));

TEST_F(MemoryTest, HostToHostAndReductionsOfHostMemory) {
  const std::uint64_t a = board.host.alloc(1u << 20), b = board.host.alloc(1u << 20), c = board.host.alloc(1u << 20);
  const Place pa = board.host_region(a, 1u << 20), pb = board.host_region(b, 1u << 20),
              pc = board.host_region(c, 1u << 20);
  constexpr std::uint32_t kElements = 100'001;
  for (std::uint32_t i = 0; i < kElements; ++i) {
    board.host.at<std::int64_t>(a)[i] = i;
    board.hbm.at<std::int64_t>(0)[i] = std::int64_t{1} << 40 | i;
  }
  ASSERT_EQ(copied(pb, pa, kElements * 8), WEFT_ERR_OK);
  queue.submit({reduce(WEFT_I64, WEFT_SUM, pc, pb, hbm, kElements)});
  board.run();
  for (std::uint32_t i = 0; i < kElements; ++i) {
    ASSERT_EQ(board.host.at<std::int64_t>(c)[i], (std::int64_t{1} << 40 | i) + i) << i;
  }
  // Overlapping in the same region: memmove.
  ASSERT_EQ(copied(pa + 8, pa, 500'000), WEFT_ERR_OK);
  for (std::uint32_t i = 0; i < 500'000 / 8; ++i) ASSERT_EQ(board.host.at<std::int64_t>(a)[i + 1], i);
}

TEST_F(MemoryTest, OtherDevicesMemoryIsAccountedApart) {
  weft_region_entry entry =
      board.entry(1, WEFT_REGION_PEER, WEFT_VA_HOST, 1u << 20, FakeHost::kPeerBase + 4096, Board::kAll);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_OK);
  *board.hbm.at<std::uint64_t>(0) = 0xabcdef;
  ASSERT_EQ(copied({entry.key, entry.va}, hbm, 100'000), WEFT_ERR_OK);
  ASSERT_EQ(copied(hbm + (1u << 20), {entry.key, entry.va}, 50'000), WEFT_ERR_OK);
  EXPECT_EQ(*board.host.at<std::uint64_t>(FakeHost::kPeerBase + 4096), 0xabcdefu);
  EXPECT_EQ(*board.hbm.at<std::uint64_t>(1u << 20), 0xabcdefu);
  EXPECT_EQ(board.counter(WEFT_CTR_peer_payload_write_bytes), 100'000u);
  EXPECT_EQ(board.counter(WEFT_CTR_peer_payload_read_bytes), 50'000u);
  EXPECT_EQ(board.counter(WEFT_CTR_host_payload_write_bytes), 0u);
}

TEST_F(MemoryTest, WhatIsNotDirectMemoryIsADmaError) {
  const Place nowhere = board.host_region(0x1000, 8192);
  EXPECT_EQ(copied(nowhere, hbm, 64), std::uint32_t{WEFT_ERR_DMA});
  EXPECT_EQ(copied(hbm, nowhere, 64), std::uint32_t{WEFT_ERR_DMA});
  EXPECT_EQ(board.counter(WEFT_CTR_err_dma), 2u);
  EXPECT_EQ(board.counter(WEFT_CTR_host_dma_errors), 2u);
  // Over the end of memory.
  const Place end = board.host_region(FakeHost::kRamBase + FakeHost::kRamBytes - 4096, 8192);
  EXPECT_EQ(copied(end, hbm, 4096), std::uint32_t{WEFT_ERR_OK});
  EXPECT_EQ(copied(end, hbm, 4097), std::uint32_t{WEFT_ERR_DMA});
}

TEST_F(MemoryTest, BrokenPageListsAreDmaErrors) {
  std::vector<std::uint64_t> pages;
  const Place one = scattered(1, 12, 0, 3 * 4096, pages);
  *board.host.at<std::uint64_t>(last.base + 8) = pages[1] | 1;  // not a page address
  EXPECT_EQ(copied(one, hbm, 4096), std::uint32_t{WEFT_ERR_OK});
  EXPECT_EQ(copied(one, hbm, 3 * 4096), std::uint32_t{WEFT_ERR_DMA});
  pages.clear();
  const Place two = scattered(2, 12, 0, 600 * 4096, pages);
  *board.host.at<std::uint64_t>(last.base + 8) += 8;  // list not on a page
  EXPECT_EQ(copied(two, hbm, 512 * 4096), std::uint32_t{WEFT_ERR_OK});
  EXPECT_EQ(copied(two, hbm, 513 * 4096), std::uint32_t{WEFT_ERR_DMA});
  *board.host.at<std::uint64_t>(last.base + 8) = 0x1000;  // list not in memory
  EXPECT_EQ(copied(two + 512 * 4096, hbm, 1), std::uint32_t{WEFT_ERR_DMA});
}

TEST_F(MemoryTest, StaleKeysAreCountedAndGenerationsDoNotRepeat) {
  weft_region_entry entry = board.entry(1, WEFT_REGION_HBM, WEFT_VA_HBM, 4096, 0, Board::kAll);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_OK);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_MBOX_BUSY);
  const Place old{entry.key, entry.va};
  EXPECT_EQ(copied(old, hbm, 64), std::uint32_t{WEFT_ERR_OK});
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{entry.key, 0}), WEFT_ERR_OK);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{entry.key, 0}), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(copied(old, hbm, 64), std::uint32_t{WEFT_ERR_BAD_KEY});
  EXPECT_EQ(board.counter(WEFT_CTR_dma_freed), 1u);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_BAD_KEY);
  ++entry.key;
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_OK);
  EXPECT_EQ(copied(old, hbm, 64), std::uint32_t{WEFT_ERR_BAD_KEY});
  EXPECT_EQ(board.counter(WEFT_CTR_dma_freed), 2u);
  EXPECT_EQ(copied({entry.key, entry.va}, hbm, 64), std::uint32_t{WEFT_ERR_OK});
}

TEST_F(MemoryTest, BoundsAreExact) {
  const Place small = board.hbm_region(1u << 20, 100);
  EXPECT_EQ(copied(small, hbm, 100), std::uint32_t{WEFT_ERR_OK});
  EXPECT_EQ(copied(small, hbm, 101), std::uint32_t{WEFT_ERR_BAD_RANGE});
  EXPECT_EQ(copied(small + 99, hbm, 1), std::uint32_t{WEFT_ERR_OK});
  EXPECT_EQ(copied(small + 100, hbm, 0), std::uint32_t{WEFT_ERR_OK});
  EXPECT_EQ(copied(small + 100, hbm, 1), std::uint32_t{WEFT_ERR_BAD_RANGE});
  EXPECT_EQ(copied(small + 101, hbm, 0), std::uint32_t{WEFT_ERR_BAD_RANGE});
  EXPECT_EQ(copied(small + UINT64_MAX, hbm, 2), std::uint32_t{WEFT_ERR_BAD_RANGE});
}

TEST_F(MemoryTest, ImpossibleRegionsAreRefused) {
  const auto refused = [&](auto spoil, std::uint64_t length = 8192) {
    weft_region_entry entry = board.entry(1, WEFT_REGION_HOST, WEFT_VA_HOST, length, FakeHost::kRamBase, Board::kAll);
    spoil(entry);
    return board.mailbox(WEFT_MBOX_REGION_CREATE, entry);
  };
  EXPECT_NE(refused([](auto& e) { e.key = WEFT_KEY(0, 1); }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.key = WEFT_KEY(0xffffff, 1); }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.type = WEFT_REGION_NONE; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.type = 5; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.rights = 0x40; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.ctx = 9; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.length = 0; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.va = UINT64_MAX - 4096; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.base = UINT64_MAX - 4096; }), WEFT_ERR_OK);
  EXPECT_NE(refused([](auto& e) { e.levels = 3; }), WEFT_ERR_OK);
  const auto paged = [](auto& e) {
    e.levels = 1;
    e.page_shift = 12;
    e.pages = 2;
  };
  EXPECT_EQ(refused(paged), WEFT_ERR_OK);
  EXPECT_NE(refused([&](auto& e) { paged(e), e.page_shift = 11; }), WEFT_ERR_OK);
  EXPECT_NE(refused([&](auto& e) { paged(e), e.page_shift = 31; }), WEFT_ERR_OK);
  EXPECT_NE(refused([&](auto& e) { paged(e), e.pages = 1; }), WEFT_ERR_OK);
  EXPECT_NE(refused([&](auto& e) { paged(e), e.va += 1; }), WEFT_ERR_OK);  // one byte in a third page
  EXPECT_NE(refused([&](auto& e) { paged(e), e.pages = UINT64_MAX; }), WEFT_ERR_OK);
  const auto in_hbm = [](auto& e) {
    e.type = WEFT_REGION_HBM;
    e.va = WEFT_VA_HBM;
    e.base = Board::kHbm - 8192;
  };
  EXPECT_EQ(refused(in_hbm), WEFT_ERR_OK);
  EXPECT_NE(refused([&](auto& e) { in_hbm(e), e.length += 1; }), WEFT_ERR_OK);
  EXPECT_NE(refused([&](auto& e) { in_hbm(e), e.base = UINT64_MAX - 63; }), WEFT_ERR_OK);
}

// The face that the NIC uses.
class NicMemory : public MemoryTest {
 protected:
  model::Memory& memory() { return board.nic->host.memory(); }
};

TEST_F(NicMemory, SyncApertureTakesAtomicAddsOnly) {
  weft_region_entry entry = board.entry(1, WEFT_REGION_SYNC, WEFT_VA_SYNC, 8 * 64, 8 * 100, Board::kAll);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_OK);
  std::uint64_t old = 99;
  EXPECT_EQ(memory().fetch_add({1, WEFT_RIGHT_REMOTE_ATOMIC}, entry.key, entry.va + 16, 5, old), WEFT_ERR_OK);
  EXPECT_EQ(old, 0u);
  EXPECT_EQ(memory().fetch_add({1, WEFT_RIGHT_REMOTE_ATOMIC}, entry.key, entry.va + 16, 1, old), WEFT_ERR_OK);
  EXPECT_EQ(old, 5u);
  board.run();
  EXPECT_EQ(board.shadow(102), 6u);
  EXPECT_EQ(memory().fetch_add({1, WEFT_RIGHT_REMOTE_ATOMIC}, entry.key, entry.va + 12, 1, old), WEFT_ERR_BAD_ALIGN);
  EXPECT_EQ(memory().fetch_add({1, WEFT_RIGHT_REMOTE_ATOMIC}, entry.key, entry.va + 8 * 64, 1, old),
            WEFT_ERR_BAD_RANGE);
  EXPECT_EQ(memory().fetch_add({2, WEFT_RIGHT_REMOTE_ATOMIC}, entry.key, entry.va, 1, old), WEFT_ERR_BAD_KEY);
  EXPECT_EQ(memory().compare_swap({1, WEFT_RIGHT_REMOTE_ATOMIC}, entry.key, entry.va, 0, 1, old), WEFT_ERR_BAD_RIGHTS);
  std::byte bytes[8] = {};
  EXPECT_EQ(memory().write({1, WEFT_RIGHT_REMOTE_WRITE}, {entry.key, entry.va, 8}, bytes), WEFT_ERR_BAD_RIGHTS);
  EXPECT_EQ(memory().read({1, WEFT_RIGHT_REMOTE_READ}, {entry.key, entry.va, 8}, bytes), WEFT_ERR_BAD_RIGHTS);
}

TEST_F(NicMemory, AtomicsInHbm) {
  *board.hbm.at<std::uint64_t>(64) = 10;
  std::uint64_t old = 0;
  const model::Access who{1, WEFT_RIGHT_REMOTE_ATOMIC};
  EXPECT_EQ(memory().fetch_add(who, hbm.key, hbm.va + 64, 5, old), WEFT_ERR_OK);
  EXPECT_EQ(old, 10u);
  EXPECT_EQ(memory().compare_swap(who, hbm.key, hbm.va + 64, 3, 77, old), WEFT_ERR_OK);
  EXPECT_EQ(old, 15u);
  EXPECT_EQ(*board.hbm.at<std::uint64_t>(64), 15u);
  EXPECT_EQ(memory().compare_swap(who, hbm.key, hbm.va + 64, 15, 77, old), WEFT_ERR_OK);
  EXPECT_EQ(old, 15u);
  EXPECT_EQ(*board.hbm.at<std::uint64_t>(64), 77u);
  const Place host = board.host_region(board.host.alloc(4096), 4096);
  EXPECT_EQ(memory().fetch_add(who, host.key, host.va, 1, old), WEFT_ERR_BAD_RIGHTS);
}

TEST_F(NicMemory, CopiesAreCounted) {
  std::array<std::byte, 1000> bytes{};
  board.hbm.data()[100 + 999] = std::byte{7};
  EXPECT_EQ(memory().read({1, WEFT_RIGHT_READ}, {hbm.key, hbm.va + 100, 1000}, bytes), WEFT_ERR_OK);
  EXPECT_EQ(bytes[999], std::byte{7});
  EXPECT_EQ(board.counter(WEFT_CTR_hbm_read_bytes), 1000u);
  EXPECT_EQ(memory().write({1, WEFT_RIGHT_REMOTE_WRITE}, {hbm.key, hbm.va, 10}, bytes), WEFT_ERR_OK);
  EXPECT_EQ(board.counter(WEFT_CTR_hbm_write_bytes), 10u);
  EXPECT_EQ(memory().read({1, WEFT_RIGHT_READ}, {hbm.key, hbm.va - 1, 10}, bytes), WEFT_ERR_BAD_RANGE);
  EXPECT_EQ(board.counter(WEFT_CTR_err_bad_range), 1u);
  EXPECT_EQ(memory().check({1, 0}, {hbm.key, hbm.va, 10}), WEFT_ERR_BAD_RIGHTS);
  EXPECT_EQ(memory().signal(1, WEFT_SYNCS_PER_CONTEXT, 1), WEFT_ERR_BAD_SYNC);
  EXPECT_EQ(memory().signal(77, 0, 1), WEFT_ERR_BAD_SYNC);
}

// Commands run in PD 0 of their context.
TEST_F(MemoryTest, ProtectionDomainIsChecked) {
  weft_region_entry entry = board.entry(1, WEFT_REGION_HBM, WEFT_VA_HBM + (20u << 20), 4096, 20u << 20, Board::kAll);
  entry.pd = WEFT_PD_MAX + 1;
  EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_BAD_FIELD);
  entry.pd = 7;
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, entry), WEFT_ERR_OK);
  std::memset(board.hbm.data() + (20u << 20), 0x11, 4096);
  std::memset(board.hbm.data(), 0x22, 4096);
  const Place other{entry.key, entry.va};
  EXPECT_EQ(copied(other, hbm, 64), WEFT_ERR_BAD_PD);
  EXPECT_EQ(copied(hbm, other, 64), WEFT_ERR_BAD_PD);
  EXPECT_EQ(board.hbm.data()[20u << 20], std::byte{0x11});
  EXPECT_EQ(board.hbm.data()[0], std::byte{0x22});
  EXPECT_EQ(board.counter(WEFT_CTR_err_bad_pd), 2u);
  EXPECT_EQ(board.counter(WEFT_CTR_err_bad_key), 0u);
  // Nor is it a queue's ring.
  weft_queue_entry queue{};
  queue.ctx = 1;
  queue.queue = 5;
  queue.ring_key = entry.key;
  queue.entries = 16;
  queue.ring_addr = entry.va;
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_CREATE, queue), WEFT_ERR_BAD_PD);
}

TEST_F(MemoryTest, EveryPathComparesProtectionDomains) {
  FakeHost host;
  Memory memory(1u << 20);
  model::HostPort port(host.abi());
  model::Counters counters;
  model::Interrupts interrupts(port, counters);
  model::Contexts contexts(port, counters, interrupts);
  model::RegionTable table(port, counters, contexts);
  table.attach_hbm(memory.span());
  ASSERT_EQ(contexts.create({4, 1, 0, 16, 0, 0}), WEFT_ERR_OK);
  weft_region_entry entry{};
  entry.ctx = 4;
  entry.pd = 9;
  entry.rights = Board::kAll;
  entry.key = WEFT_KEY(1, 1);
  entry.type = WEFT_REGION_HBM;
  entry.length = 4096;
  ASSERT_EQ(table.create(entry), WEFT_ERR_OK);
  entry.key = WEFT_KEY(2, 1);
  entry.type = WEFT_REGION_SYNC;
  entry.length = 64;
  ASSERT_EQ(table.create(entry), WEFT_ERR_OK);
  std::uint64_t word = 0;
  const auto bytes = std::as_writable_bytes(std::span(&word, 1));
  unsigned refused = 0;
  for (const std::uint32_t pd : {9u, 0u, 8u, 10u}) {
    const model::Error want = pd == 9 ? WEFT_ERR_OK : WEFT_ERR_BAD_PD;
    const auto who = [pd](std::uint32_t right) { return model::Access{4, right, pd}; };
    const model::Range range{WEFT_KEY(1, 1), 0, 8};
    EXPECT_EQ(table.check(who(WEFT_RIGHT_READ), range), want);
    EXPECT_EQ(table.read(who(WEFT_RIGHT_READ), range, bytes), want);
    EXPECT_EQ(table.write(who(WEFT_RIGHT_REMOTE_WRITE), range, bytes), want);
    EXPECT_EQ(table.fetch_add(who(WEFT_RIGHT_REMOTE_ATOMIC), WEFT_KEY(2, 1), 8, 1, word), want);
    EXPECT_EQ(table.compare_swap(who(WEFT_RIGHT_REMOTE_ATOMIC), WEFT_KEY(1, 1), 8, 0, 1, word), want);
    if (pd != 9) refused += 5;
  }
  EXPECT_EQ(counters.get(WEFT_CTR_err_bad_pd), refused);
  EXPECT_EQ(contexts.value(4, 1), 1u);
}

// Regions that work requests will register or bind exist from their making on, and grant nothing until then.
TEST_F(MemoryTest, AllocatedInvalidRegionsGrantNothing) {
  weft_region_entry fast = board.entry(1, WEFT_REGION_HOST, 0, 0, 0, Board::kAll);
  fast.flags = WEFT_REGION_FAST;
  fast.pages = 256;
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, fast), WEFT_ERR_OK);
  const weft_region_entry window = board.entry(1, WEFT_REGION_WINDOW, 0, 0, 0, 0);
  ASSERT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, window), WEFT_ERR_OK);
  for (const std::uint32_t key : {fast.key, window.key}) {
    EXPECT_EQ(copied({key, 0}, hbm, 8), WEFT_ERR_KEY_INVALID);
    EXPECT_EQ(copied(hbm, {key, 0}, 8), WEFT_ERR_KEY_INVALID);
  }
  EXPECT_EQ(board.counter(WEFT_CTR_err_key_invalid), 4u);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_CREATE, window), WEFT_ERR_MBOX_BUSY);
  for (const std::uint32_t key : {fast.key, window.key}) {
    EXPECT_EQ(board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{key, 0}), WEFT_ERR_OK);
    EXPECT_EQ(copied(hbm, {key, 0}, 8), WEFT_ERR_BAD_KEY);
  }
  const auto refused = [&](weft_region_entry entry, auto change) {
    entry.key = board.new_key();
    change(entry);
    return board.mailbox(WEFT_MBOX_REGION_CREATE, entry) == WEFT_ERR_BAD_FIELD;
  };
  for (const weft_region_entry& good : {fast, window}) {
    EXPECT_TRUE(refused(good, [](auto& e) { e.va = 4096; }));
    EXPECT_TRUE(refused(good, [](auto& e) { e.length = 4096; }));
    EXPECT_TRUE(refused(good, [](auto& e) { e.base = 4096; }));
    EXPECT_TRUE(refused(good, [](auto& e) { e.levels = 1; }));
    EXPECT_TRUE(refused(good, [](auto& e) { e.page_shift = 12; }));
    EXPECT_TRUE(refused(good, [](auto& e) { e.flags |= 2; }));
  }
  EXPECT_TRUE(refused(fast, [](auto& e) { e.pages = 0; }));
  EXPECT_TRUE(refused(fast, [](auto& e) { e.type = WEFT_REGION_HBM; }));
  EXPECT_TRUE(refused(window, [](auto& e) { e.rights = WEFT_RIGHT_REMOTE_READ; }));
  EXPECT_TRUE(refused(window, [](auto& e) { e.pages = 1; }));
}

TEST_F(MemoryTest, FieldsWithoutMeaningAreRefused) {
  const auto refused = [&](weft_region_type type, auto change) {
    const bool sync = type == WEFT_REGION_SYNC;
    const std::uint64_t at = type == WEFT_REGION_HOST ? board.host.alloc(4096) : 0;
    weft_region_entry entry = board.entry(1, type, 0, sync ? 64 : 4096, at, Board::kAll);
    change(entry);
    return board.mailbox(WEFT_MBOX_REGION_CREATE, entry) == WEFT_ERR_BAD_FIELD;
  };
  for (const weft_region_type type : {WEFT_REGION_HBM, WEFT_REGION_HOST, WEFT_REGION_SYNC}) {
    EXPECT_FALSE(refused(type, [](auto&) {})) << type;
    EXPECT_TRUE(refused(type, [](auto& e) { e.page_shift = 12; })) << type;
    EXPECT_TRUE(refused(type, [](auto& e) { e.pages = 1; })) << type;
    EXPECT_TRUE(refused(type, [](auto& e) { e.flags = 2; })) << type;
    EXPECT_TRUE(refused(type, [](auto& e) { e.levels = 3; })) << type;
    EXPECT_TRUE(refused(type, [](auto& e) { e.rights = 1 << 6; })) << type;
    EXPECT_TRUE(refused(type, [](auto& e) { e.reserved = 1; })) << type;
  }
  for (const weft_region_type type : {WEFT_REGION_HBM, WEFT_REGION_SYNC}) {
    EXPECT_TRUE(refused(type, [](auto& e) {
      e.levels = 1;
      e.page_shift = 12;
      e.pages = 1;
    })) << type;
  }
}

}  // namespace
}  // namespace weft::test
