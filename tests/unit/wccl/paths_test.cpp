// SPDX-License-Identifier: MIT
// The time model's paths over a host NIC: closed forms, and the bytes that the schedule moves.
#include <gtest/gtest.h>

#include "model/overlap.hpp"
#include "model/surface.hpp"
#include "sched/algorithms.hpp"

namespace weft::ccl::model {
namespace {

std::unique_ptr<Source> ring(std::uint32_t ranks) { return find_algorithm(WCCL_COLL_ALLREDUCE)->make({ranks, 1, 0}); }

// A machine without latency, framing or cost but for the wire and the copies: 6.25 GB/s a card, as two share 100 Gb/s.
Profile bare(double copy_GBps) {
  Profile p;
  p.host_nic_gbps = 100;
  p.host_nic_sharers = 2;
  p.host_nic_mtu = 1 << 20;
  p.host_nic_packet_bytes = p.host_nic_message_bytes = 0;
  p.pcie_GBps = 1e6;
  p.pcie_packet_bytes = 0;
  p.hbm_GBps = p.reduce_GBps = p.copy_GBps = p.cpu_copy_GBps = 1e9;
  p.d2h_GBps = p.h2d_GBps = copy_GBps;
  p.slot_bytes = 1u << 30;
  return p;
}
constexpr double kWire = 6.25;  // GB/s

Result time(const Profile& p, Path path, std::uint32_t ranks, std::uint64_t bytes, std::uint32_t slots,
            std::uint32_t slice) {
  Request request;
  request.count = bytes / 4;
  request.path = path;
  request.slots = slots;
  request.slice_bytes = slice;
  return replay(*ring(ranks), request, p);
}

// Messages of one slice: each is copied, sent and copied before the next, which depends on it. T = 2 (n - 1) / n S (1 /
// B_wire + 1 / B_d2h + 1 / B_h2d).
TEST(Paths, WithoutOverlapEachCopyAddsItsTime) {
  for (const std::uint32_t n : {2u, 5u}) {
    for (const double copy : {3.0, 6.25, 12.5, 25.0}) {
      Profile p = bare(copy);
      p.h2d_GBps = copy * 2;
      for (const std::uint32_t slots : {1u, 4u}) {
        const std::uint64_t bytes = n * (8ull << 20);
        const Result peer = time(p, Path::kPeer, n, bytes, slots, 8u << 20);
        const Result staged = time(p, Path::kStagedEfa, n, bytes, slots, 8u << 20);
        const double moved = 2.0 * (n - 1) / n * static_cast<double>(bytes);
        EXPECT_NEAR(peer.modelled_us, moved / kWire / 1e3, peer.modelled_us * 1e-4);
        EXPECT_NEAR(staged.modelled_us / peer.modelled_us, 1 + kWire * (1 / copy + 1 / (copy * 2)), 1e-3);
        ASSERT_TRUE(staged.overlap());
        EXPECT_NEAR(*staged.overlap(), 0, 1e-9);
        EXPECT_FALSE(peer.overlap());
      }
    }
  }
}

// One slot at each end and many slices: while the peer's device takes a slice, the next one is copied out, but nothing
// is on the wire. A slice takes 1 / B_wire + max(1 / B_d2h, 1 / B_h2d); half of equal copies' time is hidden.
TEST(Paths, OneSlotOverlapsCopiesWithCopiesOnly) {
  for (const double copy : {3.0, 12.5}) {
    for (const double other : {copy, copy * 2}) {
      Profile p = bare(copy);
      p.h2d_GBps = other;
      const std::uint64_t bytes = 64u << 20, slice = 64u << 10;
      const Result staged = time(p, Path::kStagedEfa, 2, bytes, 1, slice);
      const double want = static_cast<double>(bytes) * (1 / kWire + 1 / copy) / 1e3;
      EXPECT_NEAR(staged.modelled_us, want, want * 5e-3);
      EXPECT_NEAR(*staged.overlap(), 1 - (1 / copy) / (1 / copy + 1 / other), 5e-3);
    }
  }
}

// Two slots or more hide copies that the wire outlasts: what is left is the first copy in and the last one out.
TEST(Paths, FullOverlapTendsToOne) {
  const Profile p = bare(40);
  double last = 2;
  for (const std::uint32_t pieces : {1u, 4u, 16u, 64u}) {
    const std::uint64_t bytes = 64u << 20;
    const std::uint32_t slice = static_cast<std::uint32_t>(bytes / 2 / pieces);
    const Result peer = time(p, Path::kPeer, 2, bytes, 4, slice),
                 staged = time(p, Path::kStagedEfa, 2, bytes, 4, slice);
    const double ratio = staged.modelled_us / peer.modelled_us;
    EXPECT_LT(ratio, last);
    last = ratio;
  }
  EXPECT_LT(last, 1.01);
}

// Whatever the pipelining: the wire's time and the copies' time that is not hidden make the whole, when all ranks do
// the same and nothing else costs. Copies slower than the wire bound the whole: ratio B_wire / B_copy.
TEST(Paths, OverlapExplainsTheRatio) {
  for (const double copy : {3.0, 5.0, 8.0, 12.5}) {
    for (const std::uint32_t slots : {1u, 2u, 3u, 8u}) {
      const std::uint64_t bytes = 64u << 20;
      const Profile p = bare(copy);
      const Result peer = time(p, Path::kPeer, 2, bytes, slots, 1 << 20);
      const Result staged = time(p, Path::kStagedEfa, 2, bytes, slots, 1 << 20);
      const double ratio = staged.modelled_us / peer.modelled_us;
      EXPECT_NEAR(ratio, 1 + (1 - *staged.overlap()) * kWire * 2 / copy, 1e-3)
          << copy << " GB/s, " << slots << " slots";
      if (slots == 8) {
        EXPECT_NEAR(ratio, std::max(1.0, kWire / copy), 0.05) << copy << " GB/s";
      }
    }
  }
}

// PCIe bounds a copy: 8 GB/s x 256 / (256 + 24), however fast the engine.
TEST(Paths, CopiesAreNoFasterThanPcie) {
  Profile p = bare(1000);
  p.pcie_GBps = 8;
  p.pcie_packet_bytes = 24;
  const double rate = 8 * 256.0 / 280;
  const Result staged = time(p, Path::kStagedEfa, 2, 16u << 20, 1, 8 << 20);
  EXPECT_NEAR(staged.modelled_us, static_cast<double>(16u << 20) / 1e3 * (1 / kWire + 2 / rate), 1);
}

// One core copies at each end for the socket, both directions of a rank in turn.
TEST(Paths, TcpIsBoundByTheCpu) {
  Profile p = bare(1000);
  p.cpu_copy_GBps = 2;
  const Result tcp = time(p, Path::kStagedTcp, 2, 64u << 20, 8, 1 << 20);
  const double each_way = 64u << 20;
  EXPECT_NEAR(tcp.modelled_us, 2 * each_way / 2 / 1e3, tcp.modelled_us * 0.03);
}

// A step costs the host's thread its time; a tiny message is bound by it. Barrier of 2: send and receive of a token.
TEST(Paths, HostStepsAreCharged) {
  Profile p = bare(1000);
  p.host_step_ns = 700;
  const auto source = find_algorithm(WCCL_COLL_BARRIER)->make({2, 1, 0});
  Request request;
  request.path = Path::kPeer;
  const Result r = replay(*source, request, p);
  EXPECT_EQ(r.usage.host_steps, r.steps);
  EXPECT_EQ(r.usage.commands, 0u);
  EXPECT_NEAR(r.modelled_us, 3 * 0.7, 1e-9);  // send, receive, end, in turn
}

TEST(Paths, CountTheScheduleBytes) {
  for (const std::uint32_t n : {2u, 3u, 8u}) {
    const std::uint64_t bytes = 1000003 * 4ull, moved = 2 * (n - 1) * bytes, reduced = (n - 1) * bytes;
    const auto usage = [&](Path path) { return time(load_profile("dl1"), path, n, bytes, 0, 65536).usage; };
    const Usage onchip = usage(Path::kOnchip);
    EXPECT_EQ(onchip.rdma_bytes, moved);
    EXPECT_EQ(onchip.host_payload_read_bytes + onchip.host_payload_write_bytes, 0u);

    const Usage peer = usage(Path::kPeer);
    EXPECT_EQ(peer.rdma_bytes, 0u);
    EXPECT_EQ(peer.nic_bytes, moved);
    EXPECT_EQ(peer.nic_ops, onchip.rdma_ops);  // the same messages and credits
    EXPECT_EQ(peer.peer_payload_read_bytes, moved);
    EXPECT_EQ(peer.peer_payload_write_bytes, moved);
    EXPECT_EQ(peer.pcie_up_bytes, moved);
    EXPECT_EQ(peer.pcie_down_bytes, moved);
    EXPECT_EQ(peer.host_payload_read_bytes + peer.host_payload_write_bytes, 0u);
    EXPECT_EQ(peer.reduce_bytes, reduced);
    EXPECT_EQ(peer.copy_bytes, reduced);
    EXPECT_EQ(peer.flushes, onchip.copy_ops + onchip.reduce_ops);  // one for each slice that came

    const Usage staged = usage(Path::kStagedEfa);
    EXPECT_EQ(staged.nic_bytes, moved);
    // The detour: in and out of host DRAM at both ends.
    EXPECT_EQ(staged.host_payload_read_bytes, 2 * moved);
    EXPECT_EQ(staged.host_payload_write_bytes, 2 * moved);
    EXPECT_EQ(staged.pcie_up_bytes, moved);
    EXPECT_EQ(staged.pcie_down_bytes, moved);
    EXPECT_EQ(staged.copy_bytes, moved + reduced);
    EXPECT_EQ(staged.reduce_bytes, reduced);
    EXPECT_EQ(staged.hbm_read_bytes, moved + reduced);
    EXPECT_EQ(staged.hbm_write_bytes, moved);
    EXPECT_EQ(staged.peer_payload_read_bytes + staged.peer_payload_write_bytes + staged.flushes, 0u);

    const Usage tcp = usage(Path::kStagedTcp);
    EXPECT_EQ(tcp.cpu_copy_bytes, 2 * moved);
    EXPECT_EQ(tcp.host_payload_read_bytes, moved);
    EXPECT_EQ(tcp.host_payload_write_bytes, moved);
  }
}

TEST(Paths, AreReproducible) {
  for (const Path path : kPaths) {
    EXPECT_EQ(find_path(path_name(path)), path);
    const Profile p = load_profile("dl1");
    EXPECT_EQ(time(p, path, 5, 1 << 20, 0, 0).modelled_us, time(p, path, 5, 1 << 20, 0, 0).modelled_us);
  }
  EXPECT_FALSE(find_path("staged"));
}

// The whole surface of a bare machine, whatever the pipelining: overlap and ratio obey the closed form, the marks are
// those of the intervals, and points that are consistent at all sizes are so at each.
TEST(Surface, MarksWhatThePublishedRatiosAllow) {
  SurfaceRequest request;
  request.bytes = {32u << 20, 256u << 20};
  Profile profile = bare(1);
  const auto published = profile.published = load_profile("dl1").published;
  ASSERT_EQ(published.size(), 2u);
  const auto points = surface(request, profile);
  ASSERT_EQ(points.size(), 2 * request.pipelinings.size() * request.copy_GBps.size());
  const std::size_t sheet = points.size() / 2;
  double most = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const SurfacePoint& p = points[i];
    EXPECT_NEAR(p.ratio, 1 + (1 - p.overlap) * kWire * 2 / p.copy_GBps, 1e-3);
    if (p.pipelining.slots == 1) {
      EXPECT_NEAR(p.overlap, 0, 1e-9);
    }
    most = std::max(most, p.overlap);
    const Published& figure = published[i < sheet ? 0 : 1];
    EXPECT_EQ(p.consistent, figure.low <= p.ratio && p.ratio <= figure.high);
    EXPECT_EQ(p.consistent_all, points[i % sheet].consistent && points[i % sheet + sheet].consistent);
  }
  EXPECT_GT(most, 0.95);
}

// DL1 as its profile says: without overlap, PCIe gen 3 x16 and 6.25 GB/s a card bound the ratio from below.
TEST(Surface, Dl1WithoutOverlapIsBoundByPcie) {
  SurfaceRequest request;
  request.bytes = {256u << 20};
  request.copy_GBps = {1000};
  request.pipelinings = {{1, 1}};
  const double wire = 6.25 * 8192 / (8192 + 82), copy = 15.754 * 256 / (256 + 24);
  const auto points = surface(request, load_profile("dl1"));
  EXPECT_NEAR(points.at(0).effective_GBps, copy, 1e-6);
  // The device's reductions, of both paths, are what the closed form leaves out.
  EXPECT_NEAR(points.at(0).ratio, 1 + 2 * wire / copy, 0.04);
}

TEST(Overlap, IsCopyTimeWithoutWire) {
  Overlap o;
  EXPECT_EQ(o.exposed(), 0u);
  o.wire(10, 20);
  o.copy(0, 15);   // 10 alone
  o.copy(5, 25);   // 5 more alone; with the first one until 10
  o.wire(18, 22);  // hides 2 of them
  o.copy(30, 30);
  EXPECT_EQ(o.copied(), 35u);
  EXPECT_EQ(o.exposed(), 10u + 3u);
}

}  // namespace
}  // namespace weft::ccl::model
