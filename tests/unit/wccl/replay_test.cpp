// SPDX-License-Identifier: MIT
#include "model/replay.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "sched/algorithms.hpp"

namespace weft::ccl::model {
namespace {

std::unique_ptr<Source> ring(std::uint32_t ranks, std::uint32_t lanes = 1) {
  return find_algorithm(WCCL_COLL_ALLREDUCE)->make({ranks, lanes, 0});
}

// A machine whose memory and engines cost nothing, without framing, and with slots that hold a whole part: then the
// textbook formula is exact. Its latency a is what one step adds to the bytes: the receiving command, the credit that
// is dispatched before the next send, that send, and the wire.
Profile ideal() {
  Profile p;
  p.link_gbps = 800;  // 100 GB/s
  p.mtu = 1 << 20;
  p.packet_bytes = p.message_bytes = 0;
  p.hbm_GBps = p.reduce_GBps = p.copy_GBps = 1e9;
  p.wire_ns = 1500;
  p.command_ns = 5;
  p.slots = 4;
  p.slot_bytes = 1u << 30;
  return p;
}

// T = 2 (n - 1) / n * S / B + 2 (n - 1) a, and once the way back of the last acknowledgement, before which no rank may
// say that its input is free.
TEST(Replay, RingIsTheClosedForm) {
  const Profile p = ideal();
  const double a_us = (p.wire_ns + 3 * p.command_ns) / 1000, B = 100e3;  // bytes a us
  for (const std::uint32_t n : {2u, 3u, 8u, 16u, 64u}) {
    const auto source = ring(n);
    for (std::uint64_t bytes = 4096; bytes <= (1ull << 30); bytes *= 8) {
      Request request;
      request.count = bytes / 4;
      request.slice_bytes = 1u << 30;
      const Result result = replay(*source, request, p);
      const double want = 2.0 * (n - 1) / n * static_cast<double>(bytes) / B + 2.0 * (n - 1) * a_us + p.wire_ns / 1000;
      EXPECT_NEAR(result.modelled_us, want, want * 0.01) << n << " ranks, " << bytes << " bytes";
    }
  }
}

// With slices the wire is busy while engines work: large messages come at the wire's rate, framing included.
TEST(Replay, LargeRingIsBoundByTheWire) {
  const Profile p = load_profile("gaudi2");
  const std::uint32_t n = 8;
  const auto source = ring(n, p.links);
  Request request;
  request.count = (1ull << 30) / 4;
  const Result result = replay(*source, request, p);
  const double framing = 8192.0 / (8192 + 82);
  const double busbw = 2.0 * (n - 1) / n * (1ull << 30) / result.modelled_us / 1e3;  // GB/s
  EXPECT_NEAR(busbw, 3 * 12.5 * framing, 3 * 12.5 * framing * 0.01);
}

// Bytes follow from the algorithm: 2 (n - 1) parts sent a rank, half of them reduced, half copied.
TEST(Replay, CountsEveryByte) {
  for (const std::uint32_t n : {1u, 2u, 5u, 8u}) {
    const std::uint64_t bytes = 1000 * 4;
    Request request;
    request.count = 1000;
    const Usage u = replay(*ring(n), request, load_profile("weft")).usage;
    if (n == 1) {
      EXPECT_EQ(u.copy_bytes, bytes);
      EXPECT_EQ(u.rdma_bytes, 0u);
      continue;
    }
    EXPECT_EQ(u.rdma_bytes, 2 * (n - 1) * bytes);
    EXPECT_EQ(u.reduce_bytes, (n - 1) * bytes);
    EXPECT_EQ(u.copy_bytes, (n - 1) * bytes);
    EXPECT_EQ(u.hbm_read_bytes, 2 * (n - 1) * bytes + 2 * (n - 1) * bytes + (n - 1) * bytes);
    EXPECT_EQ(u.hbm_write_bytes, 2 * (n - 1) * bytes + (n - 1) * bytes + (n - 1) * bytes);
    EXPECT_EQ(u.reduce_ops, std::uint64_t{n} * (n - 1));
  }
}

TEST(Replay, IsReproducible) {
  Request request;
  request.count = 1 << 20;
  const Result a = replay(*ring(7), request, load_profile("dl1")), b = replay(*ring(7), request, load_profile("dl1"));
  EXPECT_EQ(a.modelled_us, b.modelled_us);
  EXPECT_EQ(a.steps, b.steps);
}

TEST(Replay, BarrierTakesRoundsOfLatency) {
  const Profile p = ideal();
  const auto source = find_algorithm(WCCL_COLL_BARRIER)->make({64, 1, 0});
  const double us = replay(*source, {}, p).modelled_us;
  EXPECT_GT(us, 6 * p.wire_ns / 1000);
  EXPECT_LT(us, 8 * (p.wire_ns + 5 * p.command_ns) / 1000);
}

// Memory is a window a rank, not the schedule: 300 ranks have half a million steps. (wccl-sched time --ranks 1000 takes
// some seconds.)
TEST(Replay, HundredsOfRanks) {
  Request request;
  request.count = (64u << 20) / 4;
  const Profile p = load_profile("gaudi2");
  const Result result = replay(*ring(300), request, p);
  EXPECT_EQ(result.usage.rdma_bytes, 2ull * 299 * (64u << 20));
  EXPECT_GT(result.modelled_us, 598 * p.wire_ns / 1000);
}

TEST(Profile, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(parse_profile("[]"), std::invalid_argument);
  EXPECT_THROW(parse_profile("{"), std::invalid_argument);
  EXPECT_THROW(parse_profile(R"({"schema": 2})"), std::invalid_argument);
  EXPECT_THROW(parse_profile(R"({"schema": 1, "speed": 3})"), std::invalid_argument);
  EXPECT_THROW(parse_profile(R"({"schema": 1, "link_gbps": 0})"), std::invalid_argument);
  EXPECT_THROW(parse_profile(R"({"schema": 1, "slots": 1.5})"), std::invalid_argument);
  EXPECT_THROW(load_profile("no-such-profile"), std::invalid_argument);
  for (const std::string& name : builtin_profiles()) {
    EXPECT_EQ(load_profile(name).name, name);
    EXPECT_FALSE(load_profile(name).sources.empty());
  }
}

}  // namespace
}  // namespace weft::ccl::model
