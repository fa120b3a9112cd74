// SPDX-License-Identifier: MIT
// Steps on a toy machine: counters that only add, commands that start in any order inside a window, staging slots that
// really hold data.
#include "sched/lower.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "sched/algorithms.hpp"

namespace weft::ccl {
namespace {

struct Machine {
  struct Rank {
    std::vector<Step> steps;
    std::vector<bool> done;
    std::size_t head = 0;
    std::vector<std::uint32_t> memory[3];
    std::map<std::tuple<EventKind, std::uint32_t, std::uint32_t, std::uint64_t>, std::uint64_t>
        counter;  // kind, peer, lane, slot
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>, std::vector<std::uint32_t>> staging;
    Flows flows;
    std::map<std::uint32_t, std::uint64_t> local_base;
  };
  std::vector<Rank> ranks;
  std::uint32_t slots = 4, window = 256;
  std::mt19937_64 random{1};

  void load(const Source& source, std::uint64_t count, bool in_place, std::uint32_t slice_bytes) {
    ranks.resize(source.shape().ranks);
    for (std::uint32_t r = 0; r < ranks.size(); ++r) {
      Rank& rank = ranks[r];
      PartLayout layout(source.shape(), r, count, 4, in_place, slice_bytes);
      Lowering lowering(source, r, layout, slots, rank.flows);
      rank.steps.clear();
      Step step;
      while (lowering.next(step)) rank.steps.push_back(step);
      rank.done.assign(rank.steps.size(), false);
      rank.head = 0;
      for (auto it = rank.counter.begin(); it != rank.counter.end();) {
        it = std::get<0>(it->first) == EventKind::kLocal ? rank.counter.erase(it) : std::next(it);
      }
    }
  }

  std::uint64_t value(const Rank& rank, EventKind kind, std::uint32_t peer, std::uint32_t lane,
                      std::uint64_t slot) const {
    const auto it = rank.counter.find({kind, peer, lane, slot});
    return it == rank.counter.end() ? 0 : it->second;
  }

  bool met(const Rank& rank, const WaitFor& w) const {
    if (w.kind == EventKind::kLocal) return value(rank, w.kind, w.peer, 0, 0) >= w.seq;
    const std::uint64_t lap = w.seq / slots + (w.kind == EventKind::kCredit ? 0 : 1);
    return value(rank, w.kind, w.peer, w.lane, w.seq % slots) >= lap;
  }

  void execute(std::uint32_t r, const Step& s) {
    Rank& rank = ranks[r];
    const std::uint64_t slot = s.seq % slots, n = s.bytes / 4;
    const auto at = [&](const Place& p) { return rank.memory[p.buffer].data() + p.offset / 4; };
    auto& staged = rank.staging[{s.peer, s.lane, slot}];
    switch (s.kind) {
      case StepKind::kSend:
        ranks[s.peer].staging[{r, s.lane, slot}].assign(at(s.src), at(s.src) + n);
        ++ranks[s.peer].counter[{EventKind::kArrival, r, s.lane, slot}];
        ++rank.counter[{EventKind::kSent, s.peer, s.lane, slot}];
        break;
      case StepKind::kRecvCopy:
        ASSERT_EQ(staged.size(), n);
        std::copy(staged.begin(), staged.end(), at(s.dst));
        ++rank.counter[{EventKind::kDone, s.peer, s.lane, slot}];
        break;
      case StepKind::kRecvReduce:
        ASSERT_EQ(staged.size(), n);
        for (std::uint64_t i = 0; i < n; ++i) at(s.dst)[i] = at(s.src)[i] + staged[i];
        ++rank.counter[{EventKind::kDone, s.peer, s.lane, slot}];
        break;
      case StepKind::kCredit:
        ++ranks[s.peer].counter[{EventKind::kCredit, r, s.lane, slot}];
        break;
      case StepKind::kCopy:
        std::memmove(at(s.dst), at(s.src), s.bytes);
        ++rank.counter[{EventKind::kLocal, s.local, 0, 0}];
        break;
      case StepKind::kReduce:
        for (std::uint64_t i = 0; i < n; ++i) at(s.dst)[i] = at(s.src)[i] + at(s.src2)[i];
        ++rank.counter[{EventKind::kLocal, s.local, 0, 0}];
        break;
      case StepKind::kEnd:
        break;
    }
  }

  // Runs one startable command after the other; false: none is left that could start.
  bool run() {
    for (;;) {
      std::vector<std::pair<std::uint32_t, std::size_t>> can;
      bool left = false;
      for (std::uint32_t r = 0; r < ranks.size(); ++r) {
        Rank& rank = ranks[r];
        while (rank.head < rank.steps.size() && rank.done[rank.head]) ++rank.head;
        left = left || rank.head < rank.steps.size();
        std::uint32_t held = 0;
        bool all_before = true;
        for (std::size_t i = rank.head; i < rank.steps.size() && held < window; ++i) {
          if (rank.done[i]) continue;
          ++held;
          const Step& s = rank.steps[i];
          if (s.fenced && !all_before) break;
          all_before = false;
          const bool fence = s.kind == StepKind::kEnd;
          bool ready = true;
          for (std::uint32_t w = 0; w < s.waits; ++w) ready = ready && met(rank, s.wait[w]);
          if (ready) can.emplace_back(r, i);
          if (fence) break;
        }
      }
      if (can.empty()) return !left;
      const auto [r, i] = can[random() % can.size()];
      ranks[r].done[i] = true;
      execute(r, ranks[r].steps[i]);
      if (testing::Test::HasFatalFailure()) return false;
    }
  }
};

// Every window, also of one command, every number of slots, slices of any size: right, and no deadlock.
TEST(Lowering, RunsInAnyWindow) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 100; ++i) {
    const auto n = static_cast<std::uint32_t>(1 + random() % 6);
    const auto lanes = static_cast<std::uint32_t>(1 + random() % 2);
    const std::uint64_t count = random() % 5 == 0 ? random() % 4 : random() % 900;
    const bool in_place = random() % 2;
    const std::uint32_t slice = 4 * static_cast<std::uint32_t>(1 + random() % 40);
    const auto source = find_algorithm(WCCL_COLL_ALLREDUCE)->make({n, lanes, 0});
    Machine machine;
    machine.random.seed(random());
    machine.slots = static_cast<std::uint32_t>(1 + random() % 4);
    machine.window = random() % 3 ? static_cast<std::uint32_t>(1 + random() % 8) : 256;
    for (int round = 0; round < 3; ++round) {  // slices go on counting
      machine.load(*source, count, in_place, slice);
      std::vector<std::uint32_t> want(count, 0);
      for (auto& rank : machine.ranks) {
        rank.memory[WCCL_BUF_INPUT].assign(count, 0);
        rank.memory[WCCL_BUF_OUTPUT].assign(count, 0xdeadbeef);
        for (std::uint64_t e = 0; e < count; ++e) {
          want[e] += rank.memory[in_place ? WCCL_BUF_OUTPUT : WCCL_BUF_INPUT][e] = static_cast<std::uint32_t>(random());
        }
      }
      ASSERT_TRUE(machine.run()) << "deadlock: " << n << " ranks, window " << machine.window << ", slots "
                                 << machine.slots;
      for (const auto& rank : machine.ranks) ASSERT_EQ(rank.memory[WCCL_BUF_OUTPUT], want);
    }
  }
}

// A stored schedule with scratch, local ops and runs of chunks: rank 1 gathers all in scratch, reduces there, sends the
// result to all.
TEST(Lowering, LocalOpsAndRunsOfChunks) {
  Shape shape;
  shape.collective = WCCL_COLL_ALLREDUCE;
  shape.flags = WCCL_SCHED_NO_STEPS | WCCL_SCHED_IN_PLACE;
  shape.ranks = 3;
  shape.parts = 2;
  shape.input_chunks = shape.output_chunks = 2;
  shape.scratch_chunks = 4;
  Schedule s(shape, std::vector<Schedule::Rank>(3));
  wccl_sched_op op{};
  const auto message = [&](std::uint8_t code, std::uint32_t peer, std::uint8_t buffer, std::uint32_t chunk) {
    op = {};
    op.code = code;
    op.peer = peer;
    op.chunks = 2;
    (code == WCCL_OP_SEND ? op.src_buffer : op.dst_buffer) = buffer;
    (code == WCCL_OP_SEND ? op.src_chunk : op.dst_chunk) = chunk;
    return op;
  };
  for (const std::uint32_t r : {0u, 2u}) {
    s.append(r, message(WCCL_OP_SEND, 1, WCCL_BUF_INPUT, 0));
    s.append(r, message(WCCL_OP_RECV, 1, WCCL_BUF_OUTPUT, 0), std::vector<std::uint32_t>{0});
  }
  s.append(1, message(WCCL_OP_RECV, 0, WCCL_BUF_SCRATCH, 0));
  s.append(1, message(WCCL_OP_RECV, 2, WCCL_BUF_SCRATCH, 2));
  for (std::uint32_t i = 0; i < 2; ++i) {
    op = {};
    op.code = WCCL_OP_REDUCE;
    op.chunks = 2;
    op.dst_buffer = op.src_buffer = i ? WCCL_BUF_OUTPUT : WCCL_BUF_SCRATCH;
    op.src2_buffer = WCCL_BUF_SCRATCH;
    op.src2_chunk = 2;
    if (i) {
      op.src_buffer = WCCL_BUF_INPUT;
      op.src2_chunk = 0;
      op.flags = WCCL_OP_FINAL;
    }
    s.append(1, op, i ? std::vector<std::uint32_t>{2} : std::vector<std::uint32_t>{0, 1});
  }
  s.append(1, message(WCCL_OP_SEND, 0, WCCL_BUF_OUTPUT, 0), std::vector<std::uint32_t>{3});
  s.append(1, message(WCCL_OP_SEND, 2, WCCL_BUF_OUTPUT, 0), std::vector<std::uint32_t>{3});
  std::string error;
  ASSERT_TRUE(assign_steps(s, error)) << error;
  s.update_bounds();
  std::mt19937_64 random(5);
  for (int i = 0; i < 60; ++i) {
    Machine machine;
    machine.random.seed(random());
    machine.slots = static_cast<std::uint32_t>(1 + random() % 3);
    machine.window = static_cast<std::uint32_t>(1 + random() % 6);
    const std::uint64_t count = 100;
    const bool in_place = i % 2;
    machine.load(s, count, in_place, 4 * static_cast<std::uint32_t>(1 + random() % 120));
    std::vector<std::uint32_t> want(count, 0);
    for (auto& rank : machine.ranks) {
      rank.memory[WCCL_BUF_INPUT].resize(count);
      rank.memory[WCCL_BUF_OUTPUT].resize(count);
      rank.memory[WCCL_BUF_SCRATCH].resize(2 * count);
      for (std::uint64_t e = 0; e < count; ++e) {
        want[e] += rank.memory[in_place ? WCCL_BUF_OUTPUT : WCCL_BUF_INPUT][e] = static_cast<std::uint32_t>(random());
      }
    }
    ASSERT_TRUE(machine.run());
    for (const auto& rank : machine.ranks) ASSERT_EQ(rank.memory[WCCL_BUF_OUTPUT], want);
  }
}

TEST(Lowering, PartsAreNearlyEqualAndCoverAll) {
  for (const std::uint64_t count : {0ull, 1ull, 5ull, 63ull, 64ull, 1000ull, 1048577ull, 1ull << 33}) {
    for (const std::uint32_t parts : {1u, 2u, 3u, 8u, 1000u}) {
      for (const std::uint32_t bytes : {1u, 2u, 8u}) {
        std::uint64_t least = UINT64_MAX, most = 0;
        ASSERT_EQ(PartLayout::part_begin(count, bytes, parts, 0), 0u);
        for (std::uint32_t i = 0; i < parts; ++i) {
          const std::uint64_t begin = PartLayout::part_begin(count, bytes, parts, i);
          const std::uint64_t end = PartLayout::part_begin(count, bytes, parts, i + 1);
          ASSERT_LE(begin, end);
          ASSERT_EQ(begin % bytes, 0u);
          least = std::min(least, end - begin);
          most = std::max(most, end - begin);
        }
        EXPECT_EQ(PartLayout::part_begin(count, bytes, parts, parts), count * bytes);
        EXPECT_LE(most - least, 128u);
      }
    }
  }
}

TEST(Lowering, SlicesFitTheRing) {
  const auto source = find_algorithm(WCCL_COLL_ALLREDUCE)->make({8, 1, 0});
  for (const std::uint64_t bytes : {4ull << 10, 32ull << 20, 1ull << 30}) {
    const std::uint64_t count = bytes / 4;
    const std::uint32_t slice = choose_slice(source->shape(), count, 4, 512 * 1024, 65536);
    ASSERT_NE(slice, 0u);
    std::uint64_t used = 0;
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      Flows flows;
      PartLayout layout(source->shape(), rank, count, 4, true, slice);
      Lowering lowering(*source, rank, layout, 4, flows);
      Step step;
      std::uint64_t slots = 0;
      while (lowering.next(step)) slots += command_slots(step, true);
      used = std::max(used, slots);
    }
    EXPECT_LE(used, 65536u) << bytes;
  }
  EXPECT_EQ(choose_slice(source->shape(), 1ull << 33, 4, 64 * 1024, 1024), 0u);
}

}  // namespace
}  // namespace weft::ccl
