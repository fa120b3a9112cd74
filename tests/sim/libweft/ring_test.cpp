// SPDX-License-Identifier: MIT
// A ring all-reduce of 8 ranks written in plain commands: one doorbell a rank, no host in between, exact result.
// WEFT_TEST_BYTES: bytes a rank, to see how fast the simulator is.
#include <cstdlib>
#include <memory>

#include "sim_fixture.hpp"

namespace {

using namespace weft::test;

constexpr unsigned kRanks = 8;

std::size_t bytes_a_rank() {
  const char* text = std::getenv("WEFT_TEST_BYTES");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1u << 20;
}

float input(unsigned rank, std::size_t i) { return static_cast<float>((i * 7 + rank * 13) % 101); }

struct Rank {
  std::unique_ptr<Accel> accel;
  weft_mem* data = nullptr;
  weft_mem* inbox = nullptr;  // a chunk for each step of the reduce-scatter, so that nothing waits for room
  weft_queue* queue = nullptr;
  std::uint32_t ready = 0;  // chunks that may be sent on
  End left, right;
};

// kRanks - 1 steps of reduce-scatter, then as many of all-gather. Step s sends chunk (rank - s); what arrives in step s
// is chunk (rank - s - 1), which the next step sends.
std::vector<weft_cmd> program(const std::vector<Rank>& ranks, unsigned me, std::size_t chunk) {
  const Rank& here = ranks[me];
  const Rank& next = ranks[(me + 1) % kRanks];
  std::vector<weft_cmd> cmds;
  for (unsigned step = 0; step < 2 * (kRanks - 1); ++step) {
    const bool reducing = step < kRanks - 1;
    const std::size_t out = (me + 2 * kRanks - step) % kRanks * chunk;
    const std::size_t in = (me + 2 * kRanks - step - 1) % kRanks * chunk;
    weft_mem* target = reducing ? next.inbox : next.data;
    const std::size_t place = reducing ? step * chunk : out;
    weft_cmd send = write_imm(here.right, here.data, out, static_cast<std::uint32_t>(chunk),
                              weft_mem_va(target) + place, weft_mem_key(target));
    send.wait_id = here.ready;
    send.wait_value = step;
    cmds.push_back(send);
    weft_cmd take = command(reducing ? WEFT_OP_REDUCE : WEFT_OP_NOP);
    if (reducing) {
      take.arg0 = WEFT_F32;
      take.arg1 = WEFT_SUM;
      operand(take, 0, here.data, in);
      operand(take, 1, here.data, in);
      operand(take, 2, here.inbox, step * chunk);
      take.length = static_cast<std::uint32_t>(chunk / 4);
    }
    take.wait_id = here.left.arrivals;
    take.wait_value = step + 1;
    take.signal_id = here.ready;
    take.signal_add = 1;
    cmds.push_back(take);
  }
  return cmds;
}

void all_reduce(double loss, std::size_t bytes, const std::string& capture = {}) {
  Sim sim({.devices = kRanks, .hbm_bytes = 4 * bytes, .seed = 11, .loss = loss, .capture = capture});
  const std::size_t chunk = bytes / kRanks;
  std::vector<Rank> ranks(kRanks);
  std::vector<float> values(bytes / 4);
  for (unsigned r = 0; r < kRanks; ++r) {
    Rank& rank = ranks[r];
    rank.accel = std::make_unique<Accel>(r);
    rank.data = rank.accel->alloc(bytes, WEFT_MEM_REMOTE_WRITE);
    rank.inbox = rank.accel->alloc(bytes, WEFT_MEM_REMOTE_WRITE);
    rank.queue = rank.accel->queue();
    rank.ready = rank.accel->sync();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = input(r, i);
    ASSERT_EQ(weft_write(rank.accel->get(), weft_mem_va(rank.data), values.data(), bytes), 0) << weft_last_error();
  }
  for (unsigned r = 0; r < kRanks; ++r)
    connect(*ranks[r].accel, ranks[r].right, *ranks[(r + 1) % kRanks].accel, ranks[(r + 1) % kRanks].left, 8);
  const auto start = weft_sim_time();
  for (unsigned r = 0; r < kRanks; ++r) {
    const auto cmds = program(ranks, r, chunk);
    ASSERT_EQ(weft_queue_submit(ranks[r].queue, cmds.data(), static_cast<std::uint32_t>(cmds.size())), 0)
        << weft_last_error();
  }
  for (Rank& rank : ranks)
    ASSERT_EQ(rank.accel->wait(rank.ready, 2 * (kRanks - 1), 600'000'000'000), 0) << weft_last_error();
  // Each rank sends 2 (n - 1) / n of its bytes, at 100 Gb/s at best.
  const double wire_ns = 2.0 * (kRanks - 1) / kRanks * static_cast<double>(bytes) * 8 / 100;
  EXPECT_GT(static_cast<double>(weft_sim_time() - start), wire_ns);
  if (loss == 0) {
    EXPECT_LT(static_cast<double>(weft_sim_time() - start), wire_ns * 1.25);
  }
  for (Rank& rank : ranks) {
    ASSERT_EQ(weft_read(rank.accel->get(), values.data(), weft_mem_va(rank.data), bytes), 0) << weft_last_error();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      float sum = 0;
      for (unsigned r = 0; r < kRanks; ++r) sum += input(r, i);  // small integers: exact in any order
      wrong += values[i] != sum;
    }
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(rank.accel->counter(WEFT_CTR_commands_failed), 0u);
  }
}

TEST(SimRing, AllReduceIsExact) { all_reduce(0, bytes_a_rank()); }
TEST(SimRing, AllReduceIsExactWithLoss) { all_reduce(0.01, 1u << 20); }

// Leaves the capture for a checker with its own reading of the standard (tests/wire).
TEST(SimRing, Capture) {
  const char* file = std::getenv("WEFT_CAPTURE");
  all_reduce(0.01, 256u << 10, file != nullptr ? file : WEFT_TEST_CAPTURE);
}

}  // namespace
