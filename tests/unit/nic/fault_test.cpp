// SPDX-License-Identifier: MIT
// Wires that lose, double, reorder and corrupt; peers that are gone or refuse.
#include <gtest/gtest.h>

#include <string>

#include "dissect.hpp"
#include "harness.hpp"
#include "nic/packet.hpp"

namespace {

using namespace harness;
namespace nic = weft::model::nic;

struct Case {
  const char* name;
  Impairment impair;
};

class Impaired : public testing::TestWithParam<std::tuple<Case, unsigned>> {};

TEST_P(Impaired, EveryByteArrives) {
  const auto& [wire, seed] = GetParam();
  Net net(seed);
  net.impair = wire.impair;
  Params p;
  p.mtu = seed % 2 == 0 ? WEFT_MTU_1024 : WEFT_MTU_256;
  p.psn = 0xffffff - 50 * seed;
  const Pair pair = connect(net, p);
  constexpr std::size_t kSize = 100'000;
  constexpr unsigned kMessages = 20;
  regions(net.a(), net.b(), kSize * 2);
  for (unsigned i = 0; i < kMessages; ++i) {
    net.a().nic->post(pair.a, write_imm_request(i, i * kSize / kMessages, kSize / kMessages, i % kSyncCount));
  }
  net.a().nic->post(pair.a, write_request(kMessages, kSize, kSize));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), kMessages + 1u);
  for (unsigned i = 0; i <= kMessages; ++i) {
    EXPECT_EQ(net.a().completions[i].token, i);
    ASSERT_EQ(net.a().completions[i].error, WEFT_ERR_OK);
  }
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  std::uint64_t signals = 0;
  for (const auto& [sync, value] : net.b().mem.syncs) signals += value;
  EXPECT_EQ(signals, kMessages);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_rx_payload_bytes), 2 * kSize);
}

INSTANTIATE_TEST_SUITE_P(
    Wires, Impaired,
    testing::Combine(testing::Values(Case{"loss1", {.loss = 0.01}}, Case{"loss5", {.loss = 0.05}},
                                     Case{"loss20", {.loss = 0.2}}, Case{"reorder", {.reorder = 0.2}},
                                     Case{"duplicate", {.duplicate = 0.3}}, Case{"corrupt", {.corrupt = 0.1}},
                                     Case{"all", {0.05, 0.1, 0.1, 0.05}}),
                     testing::Values(1u, 2u, 3u, 4u)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" + std::to_string(std::get<1>(info.param));
    });

TEST(Fault, CorruptFramesAreCountedByTheIcrc) {
  Net net(5);
  net.on_frame = [n = 0](unsigned from, Frame& frame) mutable {
    if (from == 0 && n++ % 7 == 3) frame[100] ^= std::byte{0x10};
    return true;
  };
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 100'000);
  net.a().nic->post(pair.a, write_request(1, 0, 100'000));
  ASSERT_TRUE(net.run());
  EXPECT_GT(net.b().counter(WEFT_PCTR_drop_icrc), 0u);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
}

// (retry_cnt + 1) time-outs of 4.096 us << timeout, each counted from the last sending.
TEST(Fault, DeadPeerEndsWithinTheRetriesTime) {
  for (const std::uint8_t retries : {0, 3, 7}) {
    Net net;
    Params p;
    p.timeout = 10;
    p.retry_cnt = retries;
    const Pair pair = connect(net, p);
    regions(net.a(), net.b(), 10'000);
    net.on_frame = [](unsigned, Frame&) { return false; };
    const std::uint64_t start = net.now;
    for (unsigned i = 0; i < 3; ++i) net.a().nic->post(pair.a, write_request(i, 0, 2000));
    ASSERT_TRUE(net.run());
    ASSERT_EQ(net.a().completions.size(), 3u);
    EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_RETRY_EXCEEDED);
    EXPECT_EQ(net.a().completions[1].error, WEFT_ERR_FLUSHED);
    EXPECT_EQ(net.a().completions[2].error, WEFT_ERR_FLUSHED);
    EXPECT_EQ(net.a().completions[0].time - start, (retries + 1u) * (4096ull << 10));
    EXPECT_EQ(net.a().counter(WEFT_PCTR_timeouts), retries + 1u);
    ASSERT_EQ(net.a().failed.size(), 1u);
    EXPECT_EQ(net.a().failed[0].error, WEFT_ERR_RETRY_EXCEEDED);
    EXPECT_EQ(net.a().failed[0].qpn, pair.a);
    weft_qp_entry entry{};
    net.a().nic->qp_query(5, pair.a, entry);
    EXPECT_EQ(entry.state, WEFT_QPS_ERR);
    EXPECT_EQ(entry.error, static_cast<std::uint32_t>(WEFT_ERR_RETRY_EXCEEDED));
    EXPECT_EQ(net.a().deadline, UINT64_MAX);
  }
}

// A slow host is not a dead peer: 20 s of silence, then everything is exact. `held`: the peer stands still and takes
// all that was sent to it afterwards; else it is lost.
class Silent : public testing::TestWithParam<bool> {};

TEST_P(Silent, PeerIsWaitedForAndEverythingIsExact) {
  const bool held = GetParam();
  constexpr std::uint64_t kSilence = 20'000'000'000;
  Net net;
  Params p;
  p.retry_cnt = WEFT_RETRY_UNLIMITED;
  p.timeout = 14;  // 67 ms
  const Pair pair = connect(net, p);
  regions(net.a(), net.b(), 3'000'000);
  std::vector<std::pair<unsigned, Frame>> kept;
  net.on_frame = [&](unsigned from, Frame& frame) {
    if (net.now >= kSilence) return true;
    if (held) kept.emplace_back(from, frame);
    return false;
  };
  for (unsigned i = 0; i < 3; ++i) {
    net.a().nic->post(pair.a, write_imm_request(i, i * 1'000'000, 1'000'000, 2));
    net.b().nic->post(pair.b, write_request(i, 0, 0));
  }
  ASSERT_TRUE(net.run(kSilence));
  EXPECT_TRUE(net.a().completions.empty());
  EXPECT_TRUE(net.a().failed.empty() && net.b().failed.empty());
  // The time-outs grow to about a second, so that silence costs little and its end is seen soon.
  EXPECT_GE(net.a().counter(WEFT_PCTR_timeouts), 20u);
  EXPECT_LE(net.a().counter(WEFT_PCTR_timeouts), 30u);
  for (auto& [from, frame] : kept) net.nodes[1 - from]->nic->link_receive(0, 0, frame);
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 3u);
  ASSERT_EQ(net.b().completions.size(), 3u);
  for (const auto* node : {&net.a(), &net.b()}) {
    for (unsigned i = 0; i < 3; ++i) {
      EXPECT_EQ(node->completions[i].token, i);
      EXPECT_EQ(node->completions[i].error, WEFT_ERR_OK);
      EXPECT_LE(node->completions[i].time, kSilence + 1'100'000'000);
    }
  }
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  EXPECT_EQ((net.b().mem.syncs[{5, kSyncBase + 2}]), 3u);  // nothing was executed twice
}

INSTANTIATE_TEST_SUITE_P(Fault, Silent, testing::Bool(), [](const auto& info) { return info.param ? "held" : "lost"; });

// The time-outs start small again once the peer has answered.
TEST(Fault, TheBackoffEndsWithTheSilence) {
  Net net;
  Params p;
  p.retry_cnt = WEFT_RETRY_UNLIMITED;
  p.timeout = 8;  // 1 ms
  const Pair pair = connect(net, p);
  regions(net.a(), net.b(), 10'000);
  bool silent = true;
  net.on_frame = [&](unsigned, Frame&) { return !silent; };
  net.a().nic->post(pair.a, write_request(0, 0, 1000));
  net.run(3'000'000'000);
  silent = false;
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  silent = true;
  net.a().nic->post(pair.a, write_request(1, 0, 1000));
  const std::uint64_t start = net.now;
  net.run(start + 2'000'000);
  silent = false;
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 2u);
  EXPECT_LE(net.a().completions[1].time, start + 4'000'000);
}

TEST(Fault, PeerThatLeftTheNetworkIsAnErrorAtOnce) {
  Net net;
  Params p;
  p.retry_cnt = WEFT_RETRY_UNLIMITED;
  p.timeout = 14;
  const Pair pair = connect(net, p);
  const Pair idle = connect(net, p);
  Params counted = p;
  counted.retry_cnt = 7;
  const Pair verbs = connect(net, counted);
  std::uint32_t own = 0;  // talks to this device itself
  create(*net.a().nic, own, p);
  connect_one(*net.a().nic, own, *net.a().nic, own, p);
  regions(net.a(), net.b(), 10'000);
  net.on_frame = [](unsigned, Frame&) { return false; };
  net.a().nic->post(pair.a, write_request(0, 0, 10'000));
  net.a().nic->post(pair.a, write_request(1, 0, 10'000));
  net.run(500'000'000);
  ASSERT_TRUE(net.a().completions.empty());
  weft_mbox_port peer{};
  net.b().nic->port_get(peer);
  std::array<std::uint8_t, 6> mac{};
  std::copy_n(peer.mac, mac.size(), mac.begin());
  std::array<std::uint8_t, 6> other = mac;
  other[5] ^= 1;
  net.a().nic->link_station(0, other, false);
  net.a().nic->link_station(7, mac, false);
  net.a().nic->link_station(0, mac, true);
  net.run(net.now);
  EXPECT_TRUE(net.a().failed.empty());
  net.a().nic->link_station(0, mac, false);
  const std::uint64_t told = net.now;
  net.run(told);
  ASSERT_EQ(net.a().completions.size(), 2u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_PEER_GONE);
  EXPECT_EQ(net.a().completions[0].time, told);
  EXPECT_EQ(net.a().completions[1].error, WEFT_ERR_FLUSHED);
  ASSERT_EQ(net.a().failed.size(), 3u);
  for (const auto& failed : net.a().failed) EXPECT_EQ(failed.error, WEFT_ERR_PEER_GONE);
  for (const std::uint32_t qpn : {pair.a, idle.a, verbs.a}) {
    weft_qp_entry entry{};
    net.a().nic->qp_query(5, qpn, entry);
    EXPECT_EQ(entry.state, WEFT_QPS_ERR);
    EXPECT_EQ(entry.error, static_cast<std::uint32_t>(WEFT_ERR_PEER_GONE));
  }
  weft_qp_entry entry{};
  net.a().nic->qp_query(5, own, entry);
  EXPECT_EQ(entry.state, WEFT_QPS_RTS);
}

// Without a limit of retries a port that stays down ends the wait; one that comes back soon does not.
TEST(Fault, PortThatStaysDownEndsUnlimitedRetries) {
  for (const bool back : {true, false}) {
    Net net;
    Params p;
    p.retry_cnt = WEFT_RETRY_UNLIMITED;
    p.timeout = 10;  // 4.2 ms
    const Pair pair = connect(net, p);
    regions(net.a(), net.b(), 100'000);
    net.a().nic->post(pair.a, write_request(1, 0, 100'000));
    net.a().nic->step(10'000);
    net.a().nic->link_state(0, false);
    net.run(net.now + 20'000'000);
    EXPECT_TRUE(net.a().completions.empty());
    if (back) net.a().nic->link_state(0, true);
    const std::uint64_t start = net.now;
    net.run(start + 1'000'000'000);
    ASSERT_EQ(net.a().completions.size(), 1u);
    EXPECT_EQ(net.a().completions[0].error, back ? WEFT_ERR_OK : WEFT_ERR_PORT_DOWN);
    EXPECT_LE(net.a().completions[0].time, start + 20'000'000);
    if (back) {
      EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
    }
  }
}

TEST(Fault, LinkCutShorterThanTheRetriesIsRiddenOut) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 1'000'000);
  net.a().nic->post(pair.a, write_request(1, 0, 1'000'000));
  for (unsigned i = 0; i < 5; ++i) net.a().nic->step(10'000);
  net.a().nic->link_state(0, false);
  net.run(net.now + 3'000'000);
  EXPECT_TRUE(net.a().completions.empty());
  net.a().nic->link_state(0, true);
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
}

TEST(Fault, LinkThatStaysDownEndsAndAdminDownRefuses) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 10'000);
  net.a().nic->link_state(0, false);
  EXPECT_EQ(net.a().nic->post(pair.a, write_request(1, 0, 10'000)), WEFT_ERR_OK);
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_RETRY_EXCEEDED);
  const Pair next = connect(net);
  weft_mbox_port_set port{};
  port.set = WEFT_PORT_SET_ADMIN;
  net.a().nic->port_set(port);
  EXPECT_EQ(net.a().nic->post(next.a, write_request(1, 0, 1)), WEFT_ERR_PORT_DOWN);
}

// A stall that never ends is a dead peer too.
TEST(Fault, NoCreditEverEndsToo) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 100'000);
  net.on_frame = [](unsigned, Frame&) { return false; };
  net.a().nic->post(pair.a, write_request(1, 0, 100'000));
  net.a().nic->step(4096);
  net.credits = 0;
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_RETRY_EXCEEDED);
}

struct Attack {
  const char* name;
  std::uint32_t key = kTarget;
  std::uint64_t address = kTargetVa;
  std::uint64_t length = 4000;
  std::uint32_t rights = WEFT_RIGHT_REMOTE_WRITE;
  std::uint32_t owner = 5;  // context of the region
};

class Refused : public testing::TestWithParam<Attack> {};

TEST_P(Refused, RemoteAccessAndMemoryUntouched) {
  const Attack attack = GetParam();
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 10'000);
  net.a().mem.add(kSource, {5, WEFT_RIGHT_READ, kSourceVa, noise(20'000, 1)});
  net.b().mem.region(kTarget).rights = attack.rights;
  net.b().mem.region(kTarget).context = attack.owner;
  net.a().nic->post(pair.a, write_request(0, 0, 0));  // fine: names no memory
  WorkRequest r = write_request(1, 0, attack.length);
  r.remote_key = attack.key;
  r.remote_address = attack.address;
  net.a().nic->post(pair.a, r);
  net.a().nic->post(pair.a, write_request(2, 0, 100));
  net.b().nic->post(pair.b, write_request(3, 0, 0));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 3u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().completions[1].error, WEFT_ERR_REMOTE_ACCESS);
  EXPECT_EQ(net.a().completions[2].error, WEFT_ERR_FLUSHED);
  EXPECT_EQ(net.b().mem.region(kTarget).bytes, std::vector<std::byte>(10'000, kFill));
  // Both ends fail; the responder's own reason is the exact one.
  ASSERT_EQ(net.b().failed.size(), 1u);
  EXPECT_GE(net.b().failed[0].error, WEFT_ERR_BAD_KEY);
  EXPECT_LE(net.b().failed[0].error, WEFT_ERR_BAD_RIGHTS);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_tx_naks), 1u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_rx_naks), 1u);
}

INSTANTIATE_TEST_SUITE_P(Attacks, Refused,
                         testing::Values(Attack{"key", 0x303}, Attack{"key0", 0},
                                         Attack{"before", kTarget, kTargetVa - 1},
                                         Attack{"beyond", kTarget, kTargetVa + 6001},
                                         Attack{"wrap", kTarget, UINT64_MAX - 100},
                                         Attack{"long", kTarget, kTargetVa, 10'001},
                                         Attack{"read_only", kTarget, kTargetVa, 4000, WEFT_RIGHT_REMOTE_READ},
                                         Attack{"foreign", kTarget, kTargetVa, 4000, WEFT_RIGHT_REMOTE_WRITE, 6}),
                         [](const auto& info) { return info.param.name; });

TEST(Fault, RegionGoneInTheMiddleOfAMessage) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 100'000);
  net.on_frame = [&, n = 0](unsigned from, Frame&) mutable {
    if (from == 0 && ++n == 50) net.b().mem.remove(kTarget);
    return true;
  };
  net.a().nic->post(pair.a, write_request(1, 0, 100'000));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_REMOTE_ACCESS);
}

TEST(Fault, UnreachableTargetIsARemoteOperationError) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 10'000);
  net.b().mem.region(kTarget).reachable = false;
  net.a().nic->post(pair.a, write_request(1, 0, 10'000));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_REMOTE_OPERATION);
  EXPECT_EQ(net.b().failed.at(0).error, WEFT_ERR_DMA);
}

TEST(Fault, ImmediateOutsideTheSyncObjectsIsInvalid) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 10'000);
  net.a().nic->post(pair.a, write_imm_request(1, 0, 100, kSyncCount - 1));
  net.a().nic->post(pair.a, write_imm_request(2, 0, 0, kSyncCount));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().completions.at(1).error, WEFT_ERR_REMOTE_INVALID);
  EXPECT_EQ(net.b().mem.syncs.size(), 1u);
  EXPECT_EQ(net.b().failed.at(0).error, WEFT_ERR_BAD_SYNC);
}

TEST(Fault, QueuePairThatGrantsNothingRefusesAsInvalid) {
  Net net;
  Params p;
  p.access = 0;
  const Pair pair = connect(net, p);
  regions(net.a(), net.b(), 10'000);
  net.a().nic->post(pair.a, write_request(1, 0, 100));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_REMOTE_INVALID);
}

// Local errors come out in order: what was posted before completes, what comes after is flushed, nothing of it left.
TEST(Fault, LocalProtectionErrors) {
  const std::pair<const char*, Error> cases[] = {
      {"key", WEFT_ERR_BAD_KEY}, {"range", WEFT_ERR_BAD_RANGE}, {"rights", WEFT_ERR_BAD_RIGHTS}, {"dma", WEFT_ERR_DMA}};
  for (const auto& [name, error] : cases) {
    Net net;
    const Pair pair = connect(net);
    regions(net.a(), net.b(), 20'000);
    const std::string which = name;
    WorkRequest r = write_request(1, 10'000, 10'000);
    TestMemory::Region other{5, WEFT_RIGHT_READ, kSourceVa, noise(20'000, 3)};
    other.reachable = which != "dma";
    if (which == "rights") other.rights = WEFT_RIGHT_WRITE;
    net.a().mem.add(0x900, other);
    r.local.key = which == "key" ? 0x999 : 0x900;
    if (which == "range") r.local.address += 1;
    net.a().nic->post(pair.a, write_request(0, 0, 10'000));
    net.a().nic->post(pair.a, r);
    net.a().nic->post(pair.a, write_request(2, 0, 10));
    ASSERT_TRUE(net.run());
    ASSERT_EQ(net.a().completions.size(), 3u) << name;
    EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
    EXPECT_EQ(net.a().completions[1].error, error) << name;
    EXPECT_EQ(net.a().completions[2].error, WEFT_ERR_FLUSHED);
    EXPECT_EQ(net.a().failed.at(0).error, error);
    EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_frames), 10u);
  }
}

TEST(Fault, OneSequenceNakAGap) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 200 * 1024);
  net.on_frame = [&, n = 0](unsigned from, Frame&) mutable { return from != 0 || ++n != 5; };
  net.a().nic->post(pair.a, write_request(1, 0, 200 * 1024));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.b().counter(WEFT_PCTR_tx_naks), 1u);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_rx_out_of_order), 195u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_rx_naks), 1u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_retransmits), 196u);  // go-back-N
  EXPECT_EQ(net.a().counter(WEFT_PCTR_timeouts), 0u);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
}

TEST(Fault, LostAckIsAnsweredAgain) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 1000);
  net.on_frame = [&, n = 0](unsigned from, Frame&) mutable { return from != 1 || ++n != 1; };
  net.a().nic->post(pair.a, write_imm_request(1, 0, 1000, 4));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_OK);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_rx_duplicates), 1u);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_tx_acks), 2u);
  EXPECT_EQ((net.b().mem.syncs[{5, kSyncBase + 4}]), 1u);  // not executed twice
}

// A peer played by the test: answers with any AETH.
struct Peer {
  explicit Peer(Net& net, Params p = {}) : net(net) {
    create(*net.a().nic, qpn, p);
    connect_one(*net.a().nic, qpn, *net.b().nic, 0x77, p);
    regions(net.a(), net.b(), 100'000);
    weft_mbox_port me{};
    weft_mbox_port it{};
    net.b().nic->port_get(me);
    net.a().nic->port_get(it);
    std::copy(it.mac, it.mac + 6, info.dmac.begin());
    std::copy(me.mac, me.mac + 6, info.smac.begin());
    info.sgid = nic::gid_of_ipv4(me.ipv4);
    info.dgid = nic::gid_of_ipv4(it.ipv4);
    net.on_frame = [this](unsigned, Frame& frame) {
      std::string why;
      if (auto read = dissect::frame(frame, why)) got.push_back(*read);
      return false;
    };
  }
  Frame make(nic::Bth bth, const nic::Extensions& ext, std::span<const std::byte> payload = {}) {
    bth.dest_qpn = qpn;
    const nic::Head head = nic::Path(info).head(bth, ext, payload.size(), 1);
    const nic::Tail tail = nic::make_tail(head, payload);
    Frame frame(head.span().begin(), head.span().end());
    frame.insert(frame.end(), payload.begin(), payload.end());
    frame.insert(frame.end(), tail.span().begin(), tail.span().end());
    return frame;
  }
  void answer(std::uint8_t syndrome, std::uint32_t psn) {
    nic::Bth bth;
    bth.opcode = nic::kAcknowledge;
    bth.psn = psn & 0xffffff;
    nic::Extensions ext;
    ext.syndrome = syndrome;
    net.a().nic->link_receive(0, 0, make(bth, ext));
  }
  Net& net;
  std::uint32_t qpn = 0;
  nic::PathInfo info;
  std::vector<dissect::Frame> got;
};

// Delays of IBTA table 46.
TEST(ReceiverNotReady, WaitsAsLongAsTheTableSays) {
  const std::pair<std::uint8_t, std::uint64_t> table[] = {{0, 655'360'000}, {1, 10'000},      {2, 20'000},
                                                          {5, 60'000},      {12, 640'000},    {14, 1'280'000},
                                                          {18, 5'120'000},  {31, 491'520'000}};
  for (const auto& [code, delay] : table) {
    Net net;
    Params p;
    p.timeout = 0;
    Peer peer(net, p);
    net.a().nic->post(peer.qpn, write_request(1, 0, 100));
    net.run(net.now + 100);
    ASSERT_EQ(peer.got.size(), 1u);
    const std::uint64_t start = net.now;
    peer.answer(0x20 | code, p.psn);
    net.run(start + delay - 1);
    EXPECT_EQ(peer.got.size(), 1u) << unsigned{code};
    net.run(start + delay);
    EXPECT_EQ(peer.got.size(), 2u) << unsigned{code};
    peer.answer(0x1f, p.psn);
    net.run();
    EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_OK);
    EXPECT_EQ(net.a().counter(WEFT_PCTR_rx_rnr_naks), 1u);
  }
}

TEST(ReceiverNotReady, RetriesEndAndSevenNeverDoes) {
  for (const std::uint8_t retries : {0, 2, 7}) {
    Net net;
    Params p;
    p.rnr_retry = retries;
    Peer peer(net, p);
    net.a().nic->post(peer.qpn, write_request(1, 0, 100));
    unsigned naks = 0;
    for (; naks < 50 && net.a().completions.empty(); ++naks) {
      net.run(net.now + 15'000);
      peer.answer(0x21, p.psn);
      net.run(net.now + 1);
    }
    if (retries == 7) {
      EXPECT_TRUE(net.a().completions.empty());
    } else {
      ASSERT_EQ(net.a().completions.size(), 1u);
      EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_RNR_EXCEEDED);
      EXPECT_EQ(naks, retries + 1u);
    }
  }
}

TEST(Acknowledge, NaksMapToTheStandardsErrors) {
  const std::pair<std::uint8_t, Error> table[] = {
      {0x61, WEFT_ERR_REMOTE_INVALID}, {0x62, WEFT_ERR_REMOTE_ACCESS}, {0x63, WEFT_ERR_REMOTE_OPERATION}};
  for (const auto& [syndrome, error] : table) {
    Net net;
    Params p;
    Peer peer(net, p);
    for (unsigned i = 0; i < 4; ++i) net.a().nic->post(peer.qpn, write_request(i, 0, 2048));  // two packets each
    net.run(net.now + 100);
    peer.answer(syndrome, p.psn + 4);  // about the third message: all before it are acknowledged
    net.run(net.now + 100);
    ASSERT_EQ(net.a().completions.size(), 4u);
    EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
    EXPECT_EQ(net.a().completions[1].error, WEFT_ERR_OK);
    EXPECT_EQ(net.a().completions[2].error, error);
    EXPECT_EQ(net.a().completions[3].error, WEFT_ERR_FLUSHED);
  }
}

TEST(Acknowledge, WhatDoesNotFitIsIgnored) {
  Net net;
  Params p;
  Peer peer(net, p);
  for (unsigned i = 0; i < 2; ++i) net.a().nic->post(peer.qpn, write_request(i, 0, 2048));
  net.run(net.now + 100);
  ASSERT_EQ(peer.got.size(), 4u);
  for (const std::uint8_t syndrome : {0x1f, 0x60, 0x61, 0x62, 0x63, 0x21}) {
    peer.answer(syndrome, p.psn + 4);  // never sent
    peer.answer(syndrome, p.psn - 1);  // acknowledged before
    peer.answer(syndrome, p.psn + 0x700000);
  }
  for (const std::uint8_t syndrome : {0x40, 0x64, 0x7f, 0x80, 0xe0}) peer.answer(syndrome, p.psn);  // reserved
  net.run(net.now + 100);
  EXPECT_TRUE(net.a().completions.empty());
  EXPECT_EQ(peer.got.size(), 4u);
  peer.answer(0x1f, p.psn + 2);  // in the middle of the second message: the first is complete
  net.run(net.now + 100);
  EXPECT_EQ(net.a().completions.size(), 1u);
  peer.answer(0x1f, p.psn + 3);
  net.run(net.now + 100);
  EXPECT_EQ(net.a().completions.size(), 2u);
}

TEST(Acknowledge, TimeOutInTheMiddleGoesOnWithMiddlePackets) {
  Net net;
  Params p;
  Peer peer(net, p);
  net.a().nic->post(peer.qpn, write_request(1, 0, 5 * 1024));
  net.run(net.now + 100);
  ASSERT_EQ(peer.got.size(), 5u);
  peer.answer(0x1f, p.psn + 1);
  net.run(net.now + (4096 << 8) + 10);
  ASSERT_EQ(peer.got.size(), 8u);
  EXPECT_EQ(peer.got[5].psn, p.psn + 2);
  EXPECT_EQ(peer.got[5].opcode, 0x07u);
  EXPECT_EQ(peer.got[7].opcode, 0x08u);
}

TEST(Receive, EachReasonHasItsCounter) {
  Net net;
  Params p;
  Peer peer(net, p);
  Nic& n = *net.a().nic;
  std::vector<std::uint64_t> before(n.counters(0).begin(), n.counters(0).end());
  const auto counts = [&](weft_port_counter which, const Frame& frame) {
    n.link_receive(0, 0, frame);
    const std::span<const std::uint64_t> after = n.counters(0);
    EXPECT_EQ(after[which], before[which] + 1) << which;
    before.assign(after.begin(), after.end());
  };
  nic::Bth bth;
  bth.opcode = nic::kWriteOnly;
  bth.psn = p.psn;
  nic::Extensions ext;
  const Frame good = peer.make(bth, ext);
  Frame f = good;
  f.resize(10);
  counts(WEFT_PCTR_drop_malformed, f);
  counts(WEFT_PCTR_drop_malformed, Frame(10'000));
  f = good;
  f[43] |= std::byte{1};  // TVer
  counts(WEFT_PCTR_drop_malformed, f);
  f = good;
  f[5] ^= std::byte{1};
  counts(WEFT_PCTR_drop_not_mine, f);
  f = good;
  f[12] = std::byte{8};
  f[13] = std::byte{6};
  counts(WEFT_PCTR_drop_not_roce, f);
  f = good;
  f[36] ^= std::byte{1};  // UDP port
  counts(WEFT_PCTR_drop_not_roce, f);
  f = good;
  f[55] ^= std::byte{1};
  counts(WEFT_PCTR_drop_icrc, f);
  const nic::PathInfo info = peer.info;
  peer.info.dgid[15] ^= 1;
  counts(WEFT_PCTR_drop_not_mine, peer.make(bth, ext));
  peer.info = info;
  peer.info.sgid[15] ^= 1;
  counts(WEFT_PCTR_drop_peer, peer.make(bth, ext));
  peer.info = info;
  peer.info.vlan = 3;
  counts(WEFT_PCTR_drop_peer, peer.make(bth, ext));
  peer.info = info;
  peer.info.traffic_class = 3;
  bth.psn = p.psn - 1;
  counts(WEFT_PCTR_ecn_marked, peer.make(bth, ext));
  peer.info = info;
  bth.psn = p.psn;
  bth.pkey = 0x8001;
  counts(WEFT_PCTR_drop_pkey, peer.make(bth, ext));
  bth.pkey = 0x7fff;  // limited member of the same partition
  counts(WEFT_PCTR_rx_duplicates, [&] {
    bth.psn = p.psn - 1;
    return peer.make(bth, ext);
  }());
  bth = {};
  bth.psn = p.psn;
  for (const std::uint8_t opcode : {0x15, 0x18, 0x1f, 0x40, 0xff, 0x2a, 0x64}) {
    bth.opcode = opcode;
    counts(WEFT_PCTR_drop_unsupported, peer.make(bth, ext));
  }
  bth.opcode = nic::kReadOnly;
  counts(WEFT_PCTR_drop_unsupported, peer.make(bth, ext));
  bth.opcode = nic::kCnp;
  counts(WEFT_PCTR_cnp_received, peer.make(bth, ext));
  bth.opcode = nic::kWriteOnly;
  const std::uint32_t qpn = peer.qpn;
  for (const std::uint32_t nobody : {0u, 1u, 60u, 0xffffffu}) {
    peer.qpn = nobody;
    counts(WEFT_PCTR_drop_no_qp, peer.make(bth, ext));
  }
  peer.qpn = qpn;
  to_state(n, qpn, WEFT_QPS_ERR, 0, {}, 5);
  counts(WEFT_PCTR_drop_state, peer.make(bth, ext));
}

}  // namespace
