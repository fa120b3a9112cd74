// SPDX-License-Identifier: MIT
// What the format carries before anything runs it: v-counts, roots bound later, classes of links.
#include <gmock/gmock.h>

#include "model/replay.hpp"
#include "sched/algorithms.hpp"
#include "sched/check.hpp"
#include "sched/file.hpp"
#include "sched/lower.hpp"

namespace weft::ccl {
namespace {

using ::testing::HasSubstr;

Shape shape_of(wccl_sched_collective collective, std::uint32_t ranks, std::uint32_t flags) {
  Shape shape;
  shape.collective = collective;
  shape.ranks = ranks;
  shape.flags = flags;
  shape.steps = ranks;
  shape.name = "direct";
  EXPECT_TRUE(chunk_counts(collective, ranks, 1, shape.input_chunks, shape.output_chunks));
  return shape;
}

// Everybody sends to everybody, in n - 1 rounds; step 0 copies what stays.
Schedule exchange(Shape shape) {
  const std::uint32_t n = shape.ranks;
  const bool pairs = shape.collective == WCCL_COLL_ALLTOALL;
  Schedule schedule(shape, std::vector<Schedule::Rank>(n));
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    wccl_sched_op copy{};
    copy.code = WCCL_OP_COPY;
    copy.chunks = 1;
    copy.dst_buffer = WCCL_BUF_OUTPUT;
    copy.dst_chunk = rank;
    copy.src_chunk = pairs ? rank : 0;
    schedule.append(rank, copy);
    for (std::uint32_t round = 1; round < n; ++round) {
      wccl_sched_op send{}, receive{};
      send.code = WCCL_OP_SEND;
      receive.code = WCCL_OP_RECV;
      send.chunks = receive.chunks = 1;
      send.step = receive.step = round;
      send.peer = (rank + round) % n;
      send.src_chunk = pairs ? send.peer : 0;
      receive.peer = (rank + n - round) % n;
      receive.dst_buffer = WCCL_BUF_OUTPUT;
      receive.dst_chunk = receive.peer;
      if (shape.link_classes > 1) send.link = receive.link = static_cast<std::uint8_t>(round % 2);
      schedule.append(rank, send);
      schedule.append(rank, receive);
    }
  }
  schedule.update_bounds();
  return schedule;
}

// The root sends its whole input to each.
Schedule broadcast(Shape shape) {
  Schedule schedule(shape, std::vector<Schedule::Rank>(shape.ranks));
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    wccl_sched_op op{};
    op.chunks = 1;
    op.dst_buffer = WCCL_BUF_OUTPUT;
    if (rank != shape.root) {
      op.code = WCCL_OP_RECV;
      op.peer = shape.root;
      schedule.append(rank, op);
      continue;
    }
    op.code = WCCL_OP_COPY;
    schedule.append(rank, op);
    for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
      wccl_sched_op send{};
      if (peer == rank) continue;
      send.code = WCCL_OP_SEND;
      send.chunks = 1;
      send.peer = peer;
      schedule.append(rank, send);
    }
  }
  schedule.update_bounds();
  return schedule;
}

std::vector<wccl_sched_count> pair_counts(std::uint32_t n) {
  std::vector<wccl_sched_count> counts(n * n);
  for (std::uint32_t s = 0; s < n; ++s) {
    for (std::uint32_t d = 0; d < n; ++d) counts[s * n + d] = {s + 2 * d, d * 100, s * 100};
  }
  return counts;
}

std::string first(const Report& report) { return report.ok() ? "ok" : report.findings[0].text; }

// Accepted by checker, writer and reader, the same after it; refused by lowering, in words.
void expect_carried(const Schedule& schedule, const char* refused) {
  EXPECT_EQ(first(check(schedule)), "ok");
  const auto bytes = write_schedule(schedule);
  std::string error;
  const auto read = read_schedule(bytes, error);
  ASSERT_TRUE(read) << error;
  EXPECT_EQ(write_schedule(*read), bytes);
  EXPECT_EQ(first(check(*read)), "ok");
  EXPECT_EQ(read->shape().link_classes, schedule.shape().link_classes);
  EXPECT_EQ(read->shape().counts.size(), schedule.shape().counts.size());
  EXPECT_THAT(not_lowered(read->shape()), HasSubstr(refused));
  Flows flows;
  const PartLayout layout(read->shape(), 0, 1000, 4, false, 4096);
  try {
    const Lowering lowering(*read, 0, layout, 4, flows);
    ADD_FAILURE() << "is lowered";
  } catch (const std::invalid_argument& thrown) {
    EXPECT_THAT(thrown.what(), HasSubstr(refused));
  }
  EXPECT_THROW(model::replay(*read, {}, model::load_profile("weft")), std::invalid_argument);
}

void expect_refused(const Schedule& schedule, const char* words) {
  EXPECT_THAT(first(check(schedule)), HasSubstr(words));
  std::string error;
  if (read_schedule(write_schedule(schedule), error)) return;  // a fault between ranks is the checker's to find
  EXPECT_THAT(error, HasSubstr(words));
}

TEST(Joints, VCounts) {
  Shape gather = shape_of(WCCL_COLL_ALLGATHER, 3, WCCL_SCHED_VCOUNTS);
  expect_carried(exchange(gather), "v-counts");  // bound when it runs
  gather.counts = {{5, 0, 0}, {0, 0, 5}, {7, 0, 9}};
  expect_carried(exchange(gather), "v-counts");
  Shape all = shape_of(WCCL_COLL_ALLTOALL, 3, WCCL_SCHED_VCOUNTS);
  all.counts = pair_counts(3);
  expect_carried(exchange(all), "v-counts");
}

TEST(Joints, WrongVCountsAreNamed) {
  Shape gather = shape_of(WCCL_COLL_ALLGATHER, 3, WCCL_SCHED_VCOUNTS);
  const auto with = [&](std::vector<wccl_sched_count> counts) {
    Shape shape = gather;
    shape.counts = std::move(counts);
    return exchange(shape);
  };
  expect_refused(with({{5, 0, 0}, {1, 0, 5}}), "2 v-counts, not 3");
  expect_refused(with({{5, 0, 0}, {1, 0, 4}, {7, 0, 9}}), "overlap in the output");
  expect_refused(with({{5, 1, 0}, {1, 0, 5}, {7, 0, 9}}), "unused offset");
  expect_refused(with({{5, 0, 0}, {1, 0, 5}, {7, 0, UINT64_MAX - 3}}), "too far out");
  expect_refused(with({{WCCL_SCHED_MAX_ELEMENTS + 1, 0, 0}, {0, 0, 0}, {0, 0, 0}}), "too far out");
  Shape all = shape_of(WCCL_COLL_ALLTOALL, 3, WCCL_SCHED_VCOUNTS);
  all.counts = pair_counts(3);
  all.counts[4].input_offset = all.counts[3].input_offset;
  all.counts[3].count = 1;
  expect_refused(exchange(all), "overlap in the input");
  Shape none = shape_of(WCCL_COLL_ALLGATHER, 3, 0);
  none.counts = {{5, 0, 0}, {1, 0, 5}, {7, 0, 9}};
  expect_refused(exchange(none), "counts without VCOUNTS");
  expect_refused(broadcast(shape_of(WCCL_COLL_BROADCAST, 3, WCCL_SCHED_VCOUNTS)), "which has no units");

  // A unit that goes to another one's place, whose size is another.
  Schedule moved = with({{5, 0, 0}, {1, 0, 5}, {7, 0, 9}});
  moved.mutable_ranks()[0].ops[2].dst_chunk = 1;
  expect_refused(moved, "receives");
  Schedule copied = with({{5, 0, 0}, {1, 0, 5}, {7, 0, 9}});
  copied.mutable_ranks()[0].ops[0].dst_chunk = 2;
  expect_refused(copied, "different units");
}

TEST(Joints, Roots) {
  for (const std::uint32_t root : {0u, 2u}) {
    Shape shape = shape_of(WCCL_COLL_BROADCAST, 3, WCCL_SCHED_NO_STEPS);
    shape.root = root;
    Schedule fixed = broadcast(shape);
    std::string error;
    ASSERT_TRUE(assign_steps(fixed, error)) << error;
    EXPECT_EQ(first(check(fixed)), "ok");
    EXPECT_EQ(not_lowered(fixed.shape()), "") << "a fixed root is lowered";
    fixed.mutable_shape().flags |= WCCL_SCHED_ANY_ROOT;
    if (root == 0) {
      expect_carried(fixed, "root is bound");
    } else {
      expect_refused(fixed, "ANY_ROOT");
    }
  }
  Schedule ring(*find_algorithm(WCCL_COLL_ALLREDUCE)->make({3, 1, 0}));
  ring.mutable_shape().root = 1;
  expect_refused(ring, "root of all_reduce");
  ring.mutable_shape().root = 0;
  ring.mutable_shape().flags |= WCCL_SCHED_ANY_ROOT;
  expect_refused(ring, "ANY_ROOT");
}

TEST(Joints, LinkClasses) {
  Shape shape = shape_of(WCCL_COLL_ALLGATHER, 4, 0);
  EXPECT_EQ(not_lowered(shape), "");
  shape.link_classes = 2;
  const Schedule good = exchange(shape);
  expect_carried(good, "classes of links");
  EXPECT_THAT(describe(good, 0, 1), HasSubstr("link 1"));
  Schedule bad = good;
  bad.mutable_ranks()[0].ops[1].link = 2;
  expect_refused(bad, "link class 2 of 2");
  bad = good;
  bad.mutable_ranks()[0].ops[1].link = 0;  // its receiver says 1
  expect_refused(bad, "receives");
  bad = good;
  bad.mutable_ranks()[0].ops[0].link = 1;
  expect_refused(bad, "link class on a local op");
  for (const std::uint32_t classes : {0u, WCCL_SCHED_MAX_LINKS + 1}) {
    bad = good;
    bad.mutable_shape().link_classes = classes;
    expect_refused(bad, "link classes out of range");
  }
}

}  // namespace
}  // namespace weft::ccl
