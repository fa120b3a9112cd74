// SPDX-License-Identifier: MIT
// A guest that writes anything anywhere: the device stays alive, inside its memory and within its steps. The sanitizers
// are the judges; the fuzzers go further.
#include <random>

#include "board.hpp"

namespace weft::test {
namespace {

class Garbage : public testing::TestWithParam<unsigned> {
 protected:
  std::uint64_t any() {
    static constexpr std::uint64_t kEdges[] = {0,
                                               1,
                                               7,
                                               8,
                                               63,
                                               64,
                                               4095,
                                               4096,
                                               0x7fffffff,
                                               0x80000000,
                                               0xffffffff,
                                               0x100000000,
                                               WEFT_VA_HBM,
                                               WEFT_VA_HOST,
                                               WEFT_VA_SYNC,
                                               UINT64_MAX,
                                               FakeHost::kRamBase};
    switch (random_() % 4) {
      case 0:
        return kEdges[random_() % std::size(kEdges)];
      case 1:
        return kEdges[random_() % std::size(kEdges)] + random_() % 64 - 32;
      case 2:
        return random_() % 4096;
      default:
        return random_();
    }
  }
  template <class T>
  T garbage() {
    T value;
    std::uint64_t words[(sizeof(T) + 7) / 8];
    for (std::uint64_t& word : words) word = any();
    std::memcpy(&value, words, sizeof(T));
    return value;
  }
  std::mt19937_64 random_{GetParam()};
};

TEST_P(Garbage, InRegistersMailboxAndDoorbells) {
  Board board{model::DeviceParts{model::make_nic, model::boot_image, model::boot_native}};
  board.start();
  for (int i = 0; i < 3000; ++i) {
    const std::uint32_t bytes = 1u << random_() % 4;
    switch (random_() % 8) {
      case 0:
        board.device->region_write(static_cast<std::uint32_t>(any()), any(), any(), bytes);
        break;
      case 1:
        board.device->region_read(0, any() % (WEFT_REGS_SIZE + 64), bytes);
        break;
      case 2:
        board.doorbell(static_cast<std::uint32_t>(any() % 256), static_cast<std::uint32_t>(any() % 4096 & ~7u), any());
        break;
      case 3: {  // any mailbox operation with any payload; the firmware must answer
        if (board.read32(WEFT_REG_STATUS) != WEFT_DEV_READY) break;
        const auto payload = garbage<std::array<std::uint8_t, 64>>();
        board.mailbox(static_cast<weft_mbox_op>(random_() % 40), payload);
        break;
      }
      case 4:
        board.device->link_state(static_cast<std::uint32_t>(any()), random_() & 1);
        break;
      case 5: {
        const auto frame = garbage<std::array<std::byte, 256>>();
        board.device->link_receive(0, static_cast<std::uint32_t>(any() % 9), std::span(frame).first(random_() % 257));
        break;
      }
      case 6:
        board.host.now += any() % 1'000'000'000;
        break;
      default:
        board.step(static_cast<std::uint32_t>(any() % (1u << 22)));
    }
  }
  board.device->reset(WEFT_ABI_RESET_FLR);
  board.run();
  board.host.interrupts.clear();
  board.start();
}

TEST_P(Garbage, InRings) {
  Board board;
  board.start();
  const Place data = board.hbm_region(1u << 20, 4u << 20);
  const Place host = board.host_region(board.host.alloc(1u << 20), 1u << 20);
  // A guard around what the context may write.
  std::memset(board.hbm.data(), 0x5a, 1u << 20);
  std::memset(board.hbm.data() + (5u << 20), 0x5a, 1u << 20);
  for (int round = 0; round < 60; ++round) {
    Board::Queue queue = board.make_queue(static_cast<std::uint32_t>(random_() % 16), 64);
    for (int i = 0; i < 40; ++i) {
      // Mostly right, so that it comes far; then some of its bytes are anything.
      weft_cmd cmd = command(static_cast<weft_cmd_op>(random_() % 8));
      const auto place = [&] {
        const bool in_hbm = random_() % 2;
        return Place{in_hbm ? data.key : host.key,
                     (in_hbm ? data.va : host.va) + (random_() % (1u << 19) & ~std::uint64_t{63})};
      };
      const std::uint32_t length = random_() % (1u << 16) & ~7u;
      if (cmd.op == WEFT_OP_COPY) cmd = copy(place(), place(), length);
      if (cmd.op == WEFT_OP_FILL) cmd = fill(place(), random_(), length);
      if (cmd.op == WEFT_OP_REDUCE) {
        cmd = reduce(static_cast<weft_dtype>(random_() % WEFT_F8E4M3), static_cast<weft_redop>(random_() % WEFT_REDOPS),
                     place(), place(), place(), length);
      }
      if (cmd.op == WEFT_OP_RDMA) cmd = rdma_write(0x40, place(), place(), length);
      if (cmd.op == WEFT_OP_TIMESTAMP) {
        const Place to = place();
        cmd.addr[0] = to.va;
        cmd.key[0] = to.key;
      }
      cmd.flags = random_() % 8 == 0 ? WEFT_CMD_FENCED : 0;
      if (random_() % 4 == 0) {
        cmd.wait_id = static_cast<std::uint32_t>(random_() % 8);
        cmd.wait_value = random_() % 4;
      }
      cmd.signal_id = static_cast<std::uint32_t>(random_() % 8);
      cmd.signal_add = cmd.op != WEFT_OP_SIGNAL;
      if (random_() % 64 == 0) {
        const std::uint64_t bytes = any();
        const std::size_t at = random_() % sizeof(cmd),
                          count = std::min<std::size_t>(1 + random_() % 8, sizeof(cmd) - at);
        std::memcpy(reinterpret_cast<std::byte*>(&cmd) + at, &bytes, count);
      }
      queue.put(&cmd);
    }
    board.doorbell(1, WEFT_DB_QUEUE(queue.number), random_() % 8 ? queue.producer : any());
    board.run(100000, 1 + static_cast<std::uint32_t>(any() % (1u << 20)));
    if (!board.nic->posted.empty()) board.nic->end(random_() % 2 ? WEFT_ERR_OK : WEFT_ERR_FLUSHED);
    board.run();
    EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, queue.number}), WEFT_ERR_OK);
    board.mailbox(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{queue.key, 0});
  }
  EXPECT_GT(board.counter(WEFT_CTR_commands), 300u) << "the garbage does not come far";
  EXPECT_GT(board.counter(WEFT_CTR_commands_failed), 10u);
  for (std::size_t i = 0; i < 1u << 20; ++i) {
    ASSERT_EQ(board.hbm.data()[i], std::byte{0x5a});
    ASSERT_EQ(board.hbm.data()[(5u << 20) + i], std::byte{0x5a});
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Garbage, testing::Range(1u, 9u));

}  // namespace
}  // namespace weft::test
