// SPDX-License-Identifier: MIT
// From measurements made up here to findings: each planted fault gives its finding and no other.
#include "judge.hpp"

#include <gtest/gtest.h>

#include "report.hpp"

namespace weft::doctor {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

// Sizes and a bandwidth in GB/s that grows to `gbps`.
Trial done(wcclPath_t path, const char* transport, double gbps, double copies) {
  Trial t;
  t.outcome = Outcome::kDone;
  t.path = path;
  t.transport = transport;
  t.reason = "first choice";
  for (const std::uint64_t bytes : {std::uint64_t{4096}, kMiB, 32 * kMiB}) {
    Sample s;
    s.bytes = bytes;
    s.one_way_us = 50 + static_cast<double>(bytes) / gbps / 1e3;
    s.all_reduce_us = s.one_way_us;
    t.samples.push_back(s);
  }
  t.host_copies = copies;
  return t;
}

Trial impossible(const std::string& why) {
  Trial t;
  t.outcome = Outcome::kImpossible;
  t.error = why;
  return t;
}

Survey healthy(std::uint32_t ranks) {
  Survey s;
  s.accel = "sim";
  s.launcher = "test";
  s.sizes = {4096, kMiB, 32 * kMiB};
  for (std::uint32_t r = 0; r < ranks; ++r) s.nodes.push_back({"node" + std::to_string(r), 1, "kernel", ""});
  for (std::uint32_t a = 0; a < ranks; ++a) {
    for (std::uint32_t b = a + 1; b < ranks; ++b) {
      Pair p;
      p.a = a;
      p.b = b;
      p.way(Way::kOnchip) = done(wcclPathOnchip, "roce", 1, 0);
      p.way(Way::kPeer) = done(wcclPathPeer, "efa-direct", 0.8, 0);
      p.way(Way::kStagedEfa) = done(wcclPathStaged, "efa-direct", 0.3, 2);
      p.way(Way::kStagedTcp) = done(wcclPathStaged, "tcp", 0.1, 2);
      p.automatic = p.way(Way::kOnchip);
      p.automatic.samples.clear();
      s.pairs.push_back(p);
    }
  }
  if (ranks > 2) s.world = done(wcclPathOnchip, "roce", 1, 0);
  return s;
}

void take(Pair& pair, Way way, const std::string& reason) {
  pair.automatic = pair.way(way);
  pair.automatic.samples.clear();
  pair.automatic.host_copies.reset();
  pair.automatic.reason = reason;
}

std::vector<Finding> only(const Survey& s, Kind kind, const Criteria& c = {}) {
  auto found = judge(s, c);
  EXPECT_EQ(found.size(), 1u);
  if (!found.empty()) {
    EXPECT_EQ(found[0].kind, kind) << found[0].text;
  }
  found.resize(1);
  return found;
}

TEST(Judge, IsSilentOnAHealthyCluster) {
  for (const std::uint32_t ranks : {2u, 3u, 8u}) {
    for (const auto expect : {std::optional<wcclPath_t>{}, {wcclPathOnchip}, {wcclPathPeer}, {wcclPathStaged}}) {
      Criteria c;
      c.expect = expect;
      const auto found = judge(healthy(ranks), c);
      EXPECT_TRUE(found.empty()) << found[0].text;
      EXPECT_EQ(exit_code(found, c), 0);
    }
  }
  EXPECT_NE(text_report(healthy(2), {}).find("\nhealthy\n"), std::string::npos);
}

TEST(Judge, NamesTheDetourInTheIssuesForm) {
  Survey s = healthy(2);
  s.pairs[0].way(Way::kOnchip) = impossible("ports down");
  s.pairs[0].way(Way::kPeer) = impossible("NIC behind another root port");
  take(s.pairs[0], Way::kStagedEfa, "NIC behind another root port");
  const auto found = only(s, Kind::kDetour);
  EXPECT_EQ(found[0].text, "32 MiB node0->node1: staged over efa-direct, 2 host copies; NIC behind another root port");
  EXPECT_EQ(found[0].ranks, (std::vector<std::uint32_t>{0, 1}));
}

// The table of the order onchip, peer, staged against what is expected; 3 where it is worse.
TEST(Judge, ExpectsAPath) {
  const std::pair<Way, wcclPath_t> taken[] = {
      {Way::kOnchip, wcclPathOnchip}, {Way::kPeer, wcclPathPeer}, {Way::kStagedTcp, wcclPathStaged}};
  const int table[3][3] = {{0, 0, 0}, {3, 0, 0}, {3, 3, 0}};  // [taken][expected]
  for (int t = 0; t < 3; ++t) {
    for (int e = 0; e < 3; ++e) {
      Survey s = healthy(2);
      take(s.pairs[0], taken[t].first, "because");
      Criteria c;
      c.expect = taken[e].second;
      EXPECT_EQ(exit_code(judge(s, c), c), table[t][e]) << t << ' ' << e;
    }
  }
}

TEST(Judge, WithoutExpectationADetourIsNamedAndNoFailure) {
  Survey s = healthy(2);
  take(s.pairs[0], Way::kPeer, "not onchip: no port is up");
  const auto found = only(s, Kind::kDetour);
  EXPECT_EQ(exit_code(found, {}), 0);
  EXPECT_NE(found[0].text.find("peer, 0 host copies; not onchip: no port is up"), std::string::npos) << found[0].text;
  // An accelerator without ports is made for peer-direct.
  s.nodes[1].ports = 0;
  EXPECT_TRUE(judge(s, {}).empty());
  take(s.pairs[0], Way::kStagedTcp, "no host NIC");
  only(s, Kind::kDetour);
}

TEST(Judge, FindsWhatIsBroken) {
  Survey s = healthy(2);
  s.pairs[0].way(Way::kPeer).outcome = Outcome::kFailed;
  s.pairs[0].way(Way::kPeer).error = "rank 1 was silent";
  EXPECT_EQ(exit_code(only(s, Kind::kBroken), {}), 1);

  s = healthy(2);
  s.pairs[0].automatic = impossible("no path between the ranks");
  only(s, Kind::kBroken);

  s = healthy(3);
  s.nodes[2].error = "did not come";
  EXPECT_EQ(only(s, Kind::kBroken)[0].text, "node2: did not come");

  s = healthy(2);
  s.pairs[0].way(Way::kOnchip).samples[1].wrong = 7;
  EXPECT_NE(only(s, Kind::kBroken)[0].text.find("1 MiB arrive wrong"), std::string::npos);

  s = healthy(2);
  s.cut_short = "too slow";
  only(s, Kind::kBroken);

  s = healthy(3);
  s.world->outcome = Outcome::kFailed;
  s.world->error = "broke";
  only(s, Kind::kBroken);

  // A path that is not there is a fact, not a fault.
  s = healthy(2);
  s.pairs[0].way(Way::kPeer) = impossible("no host NIC");
  EXPECT_TRUE(judge(s, {}).empty());
}

TEST(Judge, FindsARegistrationForEachTransfer) {
  Survey s = healthy(2);
  for (Sample& sample : s.pairs[0].way(Way::kPeer).samples) {
    sample.registrations = 2;
    sample.registration_us = 40;
  }
  const auto found = only(s, Kind::kRegistration);
  // It weighs most at the smallest size.
  EXPECT_NE(found[0].text.find("2 registrations for each transfer, 40 us of"), std::string::npos) << found[0].text;
  EXPECT_NE(found[0].text.find("at 4 KiB"), std::string::npos) << found[0].text;
  EXPECT_EQ(exit_code(found, {}), 0);
  Criteria c;
  c.expect = wcclPathPeer;
  EXPECT_EQ(exit_code(found, c), 3);
  // Now and then one is what a cache does.
  for (Sample& sample : s.pairs[0].way(Way::kPeer).samples) sample.registrations = 0.1;
  EXPECT_TRUE(judge(s, {}).empty());
}

TEST(Judge, FindsBandwidthThatFallsWithSize) {
  Criteria c;
  c.size_fall = 4;
  for (const auto& [gbps, fell] : {std::pair{0.20, true}, {0.30, false}}) {
    Survey s = healthy(2);
    auto& samples = s.pairs[0].way(Way::kOnchip).samples;
    samples[1].one_way_us = static_cast<double>(samples[1].bytes) / 1e3;  // 1 GB/s
    samples[2].one_way_us = static_cast<double>(samples[2].bytes) / gbps / 1e3;
    const auto found = judge(s, c);
    ASSERT_EQ(found.size(), fell ? 1u : 0u) << gbps;
    if (fell) {
      EXPECT_EQ(found[0].kind, Kind::kFallsWithSize);
      EXPECT_EQ(found[0].text, "node0-node1, onchip: 1 GB/s at 1 MiB but 0.2 GB/s at 32 MiB (more than 4 times less)");
      c.expect = wcclPathOnchip;
      EXPECT_EQ(exit_code(found, c), 0);
    }
  }
}

TEST(Judge, FindsScalingThatFallsWithRanks) {
  // 4 ranks: bus bandwidth is 1.5 times size over time. The pairs have about 1 GB/s.
  const auto world = [](double busbw, const char* accel) {
    Survey s = healthy(4);
    s.accel = accel;
    Sample& largest = s.world->samples.back();
    largest.all_reduce_us = 1.5 * static_cast<double>(largest.bytes) / busbw / 1e3;
    return judge(s, {});
  };
  EXPECT_TRUE(world(0.9, "sim").empty());
  EXPECT_TRUE(world(0.4, "sim").empty());  // within 3 times
  ASSERT_EQ(world(0.2, "sim").size(), 1u);
  EXPECT_EQ(world(0.2, "sim")[0].kind, Kind::kFallsWithRanks);
  EXPECT_TRUE(world(0.2, "tcg").empty());  // 4 emulated nodes share what 2 had
  EXPECT_EQ(world(0.1, "tcg").size(), 1u);
}

TEST(Judge, WorstFirst) {
  Survey s = healthy(2);
  take(s.pairs[0], Way::kStagedTcp, "because");
  s.pairs[0].way(Way::kPeer).outcome = Outcome::kFailed;
  const auto found = judge(s, {});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, Kind::kBroken);
  EXPECT_EQ(found[1].kind, Kind::kDetour);
}

TEST(Survey, Figures) {
  Sample s;
  s.bytes = 1000000;
  s.one_way_us = 500;
  s.all_reduce_us = 1000;
  EXPECT_DOUBLE_EQ(one_way_gbps(s), 2);
  EXPECT_DOUBLE_EQ(busbw_gbps(s, 2), 1);  // 2 (n - 1) / n times size over time, as nccl-tests' PERFORMANCE.md has it
  EXPECT_DOUBLE_EQ(busbw_gbps(s, 4), 1.5);
  EXPECT_EQ(way_of(wcclPathStaged, "tcp"), Way::kStagedTcp);
  EXPECT_EQ(way_of(wcclPathStaged, "efa"), Way::kStagedEfa);
  EXPECT_EQ(way_of(wcclPathAuto, ""), std::nullopt);
}

TEST(Report, SaysWhyAPathIsMissing) {
  Survey s = healthy(3);
  s.pairs[1].way(Way::kPeer) = impossible("no host NIC (rank 2 on node2)");
  const auto text = text_report(s, {});
  EXPECT_NE(text.find("node0-node2    peer          impossible: no host NIC (rank 2 on node2)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("simulated time, not hardware"), std::string::npos);
  EXPECT_NE(svg_report(s).find("median of 3 pairs"), std::string::npos);
}

}  // namespace
}  // namespace weft::doctor
