// SPDX-License-Identifier: MIT
#include "sched/check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "interpret.hpp"
#include "sched/algorithms.hpp"

namespace weft::ccl {
namespace {

using test::interpret;
using test::Number;

Schedule build(wccl_sched_collective collective, std::string_view name, AlgorithmParams params) {
  return Schedule(*find_algorithm(collective, name)->make(params));
}
Schedule ring(std::uint32_t ranks, std::uint32_t lanes = 1) {
  return build(WCCL_COLL_ALLREDUCE, "ring", {ranks, lanes, 0});
}

std::string text(const Report& report) {
  std::string out;
  for (const Finding& f : report.findings) {
    out += std::string(fault_name(f.fault)) + " rank " + std::to_string(f.rank) + " op " + std::to_string(f.op) + ": " +
           f.text + '\n';
  }
  return out;
}

TEST(Check, AcceptsEveryAlgorithmUpTo64Ranks) {
  for (const Algorithm& algorithm : algorithms()) {
    for (std::uint32_t ranks = 1; ranks <= 64; ++ranks) {
      for (const std::uint32_t lanes : {1u, 3u}) {
        for (const std::uint32_t root : {0u, 1u, 5u}) {
          if (root && algorithm.collective != WCCL_COLL_SENDRECV) continue;
          const auto source = algorithm.make({ranks, lanes, root});
          const Report report = check(*source);
          EXPECT_TRUE(report.ok()) << algorithm.name << ' ' << ranks << " ranks\n" << text(report);
        }
      }
    }
  }
}

// Bandwidth optimality: each rank sends 2 (n - 1) of n parts.
TEST(Check, RingMovesTheLeastData) {
  for (const std::uint32_t ranks : {2u, 3u, 8u, 64u}) {
    const Report report = check(ring(ranks));
    EXPECT_EQ(report.message_chunks, 2ull * (ranks - 1) * ranks);
  }
}

TEST(Check, DisseminationBarrierTakesLogRounds) {
  const auto rounds = [](std::uint32_t ranks) {
    return build(WCCL_COLL_BARRIER, "dissemination", {ranks, 1, 0}).shape().steps;
  };
  EXPECT_EQ(rounds(1), 0u);
  EXPECT_EQ(rounds(2), 1u);
  EXPECT_EQ(rounds(5), 3u);
  EXPECT_EQ(rounds(8), 3u);
  EXPECT_EQ(rounds(9), 4u);
}

// What Shape says of a computed source is what its ops are.
TEST(Algorithms, BoundsAreThoseOfTheOps) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const std::uint32_t ranks : {1u, 2u, 3u, 4u, 7u, 16u}) {
      const auto source = algorithm.make({ranks, 2, 1});
      Schedule stored(*source);
      EXPECT_EQ(stored.shape().max_ops, source->shape().max_ops) << algorithm.name << ranks;
      EXPECT_TRUE(stored.shape().neighbours_only || !source->shape().neighbours_only) << algorithm.name << ranks;
      std::uint32_t steps = 0;
      for (const auto& rank : stored.mutable_ranks()) {
        for (const wccl_sched_op& op : rank.ops) steps = std::max(steps, op.step + 1);
      }
      EXPECT_EQ(steps, stored.shape().max_ops ? source->shape().steps : 0u) << algorithm.name << ranks;
    }
  }
}

TEST(Algorithms, RefuseWhatTheFormatCannotHold) {
  EXPECT_THROW(ring(0), std::invalid_argument);
  EXPECT_THROW(find_algorithm(WCCL_COLL_ALLREDUCE)->make({2, 1000, 0}), std::invalid_argument);
  EXPECT_THROW(find_algorithm(WCCL_COLL_ALLREDUCE)->make({70000, 1, 0}), std::invalid_argument);
}

void expect_fault(const Schedule& schedule, Fault fault, std::string_view words) {
  const Report report = check(schedule);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.findings[0].fault, fault) << text(report);
  EXPECT_NE(text(report).find(words), std::string::npos) << text(report);
}

// The ring of 4: op 2k is the SEND of step k, 2k + 1 its receive.
TEST(Mutants, EachFaultIsNamed) {
  {
    Schedule s = ring(4);
    s.mutable_ranks()[1].ops[2].peer = 9;
    expect_fault(s, Fault::kStructure, "is not another rank");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[1].ops[3].dst_chunk = 4;
    expect_fault(s, Fault::kStructure, "outside the buffer");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[2].ops[2].peer = 1;  // to the left instead of to the right
    expect_fault(s, Fault::kMatch, "no receive for op 2 of rank 2 -> rank 1");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[2].ops.pop_back();
    expect_fault(s, Fault::kMatch, "no receive for op");
  }
  {
    Schedule s = ring(4);
    std::swap(s.mutable_ranks()[0].ops[2].step, s.mutable_ranks()[0].ops[4].step);
    expect_fault(s, Fault::kOrder, "step");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[0].ops[2].deps = 0;  // sends a part before it is reduced
    expect_fault(s, Fault::kRace, "races with op 1 on output[3]");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[0].ops[7].deps = 0;  // in place only: overwrites input[0], which step 0 sends
    expect_fault(s, Fault::kRace, "races with op 0 on output[0] in place");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[3].ops[5].flags = 0;
    expect_fault(s, Fault::kValue, "no FINAL op made");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[3].ops[3].flags = WCCL_OP_FINAL;
    expect_fault(s, Fault::kValue, "FINAL");
  }
  {
    Schedule s = ring(4);
    s.mutable_ranks()[3].ops[3].code = WCCL_OP_RECV;  // forgets its own contribution
    s.mutable_ranks()[3].ops[3].src_buffer = 0;
    s.mutable_ranks()[3].ops[3].src_chunk = 0;
    expect_fault(s, Fault::kValue, "ends with");
  }
  {
    Schedule s = build(WCCL_COLL_BARRIER, "dissemination", {5, 1, 0});
    for (auto& op : s.mutable_ranks()[2].ops) op.deps = 0;  // passes on less than it heard
    expect_fault(s, Fault::kValue, "heard of no more");
  }
}

// Two ranks that both send before they receive, where the receive waits for the send: works with buffers, not without.
TEST(Mutants, DependenceOnBufferingIsADeadlock) {
  Shape shape;
  shape.collective = WCCL_COLL_SENDRECV;
  shape.flags = WCCL_SCHED_NO_STEPS;
  shape.ranks = 2;
  shape.root = 1;
  shape.input_chunks = shape.output_chunks = 1;
  Schedule s(shape, std::vector<Schedule::Rank>(2));
  for (std::uint32_t r = 0; r < 2; ++r) {
    wccl_sched_op op{};
    op.code = WCCL_OP_SEND;
    op.peer = 1 - r;
    op.chunks = 1;
    s.append(r, op);
    op.code = WCCL_OP_RECV;
    op.dst_buffer = WCCL_BUF_OUTPUT;
    s.append(r, op, std::vector<std::uint32_t>{0});
  }
  Schedule free = s;
  std::string error;
  EXPECT_FALSE(assign_steps(s, error));
  EXPECT_NE(error.find("deadlock"), std::string::npos);
  for (auto& rank : free.mutable_ranks()) rank.ops[1].deps = 0;
  EXPECT_TRUE(assign_steps(free, error));
  EXPECT_TRUE(check(free).ok()) << text(check(free));
}

// Steps that the reader finds are as good as those that the builder gave.
TEST(Steps, AreFoundAgain) {
  for (const Algorithm& algorithm : algorithms()) {
    for (const std::uint32_t ranks : {1u, 2u, 5u, 8u}) {
      Schedule s(*algorithm.make({ranks, 2, 1}));
      const std::uint32_t want = s.shape().steps;
      for (auto& rank : s.mutable_ranks()) {
        for (auto& op : rank.ops) op.step = 0;
      }
      std::string error;
      ASSERT_TRUE(assign_steps(s, error)) << error;
      EXPECT_EQ(s.shape().steps, want) << algorithm.name << ranks;
      EXPECT_TRUE(check(s).ok()) << text(check(s));
    }
  }
}

void mutate(Schedule& s, std::mt19937_64& random) {
  auto& rank = s.mutable_ranks()[random() % s.shape().ranks];
  const std::size_t at = random() % rank.ops.size();
  wccl_sched_op& op = rank.ops[at];
  const auto other = [&](std::uint32_t& value, std::uint32_t bound) {
    value = static_cast<std::uint32_t>((value + 1 + random() % std::max(bound - 1, 1u)) % bound);
  };
  switch (random() % 9) {
    case 0:
      if (op.deps) --op.deps;
      break;
    case 1:
      other(op.peer, s.shape().ranks);
      break;
    case 2:
      other(op.src_chunk, s.shape().input_chunks);
      break;
    case 3:
      other(op.dst_chunk, s.shape().output_chunks);
      break;
    case 4:
      op.flags ^= WCCL_OP_FINAL;
      break;
    case 5:
      std::swap(op, rank.ops[random() % rank.ops.size()]);
      break;
    case 6:
      if (!rank.deps.empty()) rank.deps[random() % rank.deps.size()] = static_cast<std::uint32_t>(random() % (at + 1));
      break;
    case 7:
      rank.ops.erase(rank.ops.begin() + static_cast<std::ptrdiff_t>(at));
      break;
    case 8:
      op.src_buffer ^= 1;
      break;
  }
}

// Whatever the checker accepts must be right in every order that we try; most mutants it must refuse.
TEST(Mutants, ThousandRandomOnes) {
  std::mt19937_64 random(20250917);
  int accepted = 0, wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto ranks = static_cast<std::uint32_t>(2 + random() % 4);
    const auto lanes = static_cast<std::uint32_t>(1 + random() % 2);
    Schedule s = ring(ranks, lanes);
    mutate(s, random);
    s.update_bounds();
    if (!check(s).ok()) continue;
    ++accepted;
    for (int trial = 0; trial < 12; ++trial) {
      std::vector<std::vector<Number>> inputs(ranks, std::vector<Number>(s.shape().input_chunks));
      std::vector<Number> want(s.shape().output_chunks);
      for (auto& rank : inputs) {
        for (std::size_t c = 0; c < rank.size(); ++c) {
          rank[c].sum = random();
          want[c].sum += rank[c].sum;
          want[c].finals = 1;
        }
      }
      const auto outcome = interpret(s, inputs, trial % 2, random);
      bool good = outcome.finished;
      for (const auto& output : outcome.outputs) good = good && output == want;
      if (!good) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0);
  // Equivalent ones exist: a dependency that in-place order needs twice, a swap with itself, a dep replaced by itself.
  EXPECT_LT(accepted, 250);
  EXPECT_GT(accepted, 0);
}

// The interpreter can see what the checker must refuse: else the test above proves nothing.
TEST(Mutants, InterpreterSeesARace) {
  std::mt19937_64 random(7);
  Schedule s = ring(4);
  s.mutable_ranks()[0].ops[2].deps = 0;
  int wrong = 0;
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<std::vector<Number>> inputs(4, std::vector<Number>(4));
    std::vector<Number> want(4);
    for (auto& rank : inputs) {
      for (std::size_t c = 0; c < 4; ++c) want[c].sum += rank[c].sum = random();
    }
    for (Number& n : want) n.finals = 1;
    for (const auto& output : interpret(s, inputs, false, random).outputs) wrong += output != want;
  }
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace weft::ccl
