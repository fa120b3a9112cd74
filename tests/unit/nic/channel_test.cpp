// SPDX-License-Identifier: MIT
// Channels over a wire without faults: what leaves, what arrives, when it is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "dissect.hpp"
#include "harness.hpp"

namespace {

using namespace harness;

constexpr std::uint32_t bytes_of(weft_mtu mtu) { return 128u << mtu; }

// Frames that left node 0 or 1, taken apart by the second reading.
struct Tap {
  explicit Tap(Net& net) {
    net.on_frame = [this](unsigned from, Frame& frame) {
      std::string why;
      auto read = dissect::frame(frame, why);
      EXPECT_TRUE(read) << why;
      if (read) seen[from].push_back(*read);
      raw[from].push_back(frame);
      return true;
    };
  }
  std::vector<dissect::Frame> seen[2];
  std::vector<Frame> raw[2];
};

class ChannelMtu : public testing::TestWithParam<weft_mtu> {};

TEST_P(ChannelMtu, EverySizeArrivesInTheStandardsPackets) {
  const std::uint32_t mtu = bytes_of(GetParam());
  const std::vector<std::size_t> sizes{0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1, 2 * mtu - 1, 2 * mtu, 5 * mtu + 7};
  for (const bool immediate : {false, true}) {
    for (const std::size_t size : sizes) {
      SCOPED_TRACE(testing::Message() << "mtu " << mtu << " size " << size << " immediate " << immediate);
      Net net;
      Params p;
      p.mtu = GetParam();
      const Pair pair = connect(net, p);
      regions(net.a(), net.b(), 6 * 8192);
      Tap tap(net);
      const std::size_t offset = 13;
      const WorkRequest r = immediate ? write_imm_request(9, offset, size, 7) : write_request(9, offset, size);
      ASSERT_EQ(net.a().nic->post(pair.a, r), WEFT_ERR_OK);
      EXPECT_TRUE(net.a().completions.empty());  // never from inside post
      ASSERT_TRUE(net.run());

      ASSERT_EQ(net.a().completions.size(), 1u);
      EXPECT_EQ(net.a().completions[0].token, 9u);
      EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
      const auto& source = net.a().mem.region(kSource).bytes;
      const auto& target = net.b().mem.region(kTarget).bytes;
      for (std::size_t i = 0; i < target.size(); ++i) {
        const bool inside = i >= offset && i < offset + size;
        ASSERT_EQ(target[i], inside ? source[i] : kFill) << i;
      }
      EXPECT_EQ(net.b().mem.syncs[std::pair(5u, kSyncBase + 7)], immediate ? 1u : 0u);

      // Opcodes, lengths, PSNs, flags (IBTA table 38 and section 9.7.3).
      const std::size_t packets = std::max<std::size_t>(1, (size + mtu - 1) / mtu);
      ASSERT_EQ(tap.seen[0].size(), packets);
      std::size_t at = offset;
      for (std::size_t i = 0; i < packets; ++i) {
        const dissect::Frame& f = tap.seen[0][i];
        const bool first = i == 0;
        const bool last = i + 1 == packets;
        const unsigned want = first && last ? (immediate ? 0x0b : 0x0a)
                              : first       ? 0x06
                              : last        ? (immediate ? 0x09 : 0x08)
                                            : 0x07;
        EXPECT_EQ(f.opcode, want);
        EXPECT_EQ(f.psn, (p.psn + i) & 0xffffff);
        EXPECT_EQ(f.qpn, pair.b);
        EXPECT_EQ(f.pkey, 0xffffu);
        EXPECT_EQ(f.migrated, 1u);
        EXPECT_EQ(f.version, 0u);
        EXPECT_EQ(f.solicited, 0u);
        EXPECT_EQ(f.udp_checksum, 0u);
        EXPECT_EQ(f.dport, 4791u);
        EXPECT_EQ(f.ttl, 64u);
        EXPECT_EQ(f.ip_flags, 0x4000u);
        if (last) {
          EXPECT_EQ(f.ack_request, 1u);
        }
        const std::size_t length = last ? size - (packets - 1) * mtu : mtu;
        EXPECT_EQ(f.payload.size(), length);
        EXPECT_EQ(f.pad, (4 - length % 4) % 4);
        EXPECT_TRUE(std::equal(f.payload.begin(), f.payload.end(), source.begin() + static_cast<std::ptrdiff_t>(at)));
        at += length;
        if (first) {
          EXPECT_EQ(f.reth_va, kTargetVa + offset);
          EXPECT_EQ(f.reth_key, kTarget);
          EXPECT_EQ(f.reth_length, size);
        }
        if (last && immediate) {
          EXPECT_EQ(f.immediate, 7u);
        }
        EXPECT_GE(tap.raw[0][i].size(), 60u);
        EXPECT_EQ(tap.raw[0][i].size(), std::max<std::size_t>(60, f.end));
        for (std::size_t b = f.end; b < tap.raw[0][i].size(); ++b) EXPECT_EQ(tap.raw[0][i][b], std::byte{0});
      }
      ASSERT_EQ(tap.seen[1].size(), 1u);
      EXPECT_EQ(tap.seen[1][0].opcode, 0x11u);
      EXPECT_EQ(tap.seen[1][0].syndrome, 0x1fu);
      EXPECT_EQ(tap.seen[1][0].psn, (p.psn + packets - 1) & 0xffffff);
      EXPECT_EQ(tap.seen[1][0].msn, 1u);
      EXPECT_EQ(tap.raw[1][0].size(), 62u);  // as rxe's

      EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_frames), packets);
      EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_payload_bytes), size);
      EXPECT_EQ(net.b().counter(WEFT_PCTR_rx_payload_bytes), size);
      EXPECT_EQ(net.a().counter(WEFT_PCTR_rx_acks), 1u);
      EXPECT_EQ(net.a().counter(WEFT_PCTR_retransmits), 0u);
      EXPECT_EQ(net.a().deadline, UINT64_MAX);  // no timer left
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Mtus, ChannelMtu,
                         testing::Values(WEFT_MTU_256, WEFT_MTU_512, WEFT_MTU_1024, WEFT_MTU_2048, WEFT_MTU_4096,
                                         WEFT_MTU_8192),
                         [](const auto& info) { return std::to_string(bytes_of(info.param)); });

// Every byte of one frame, written down from the standard's tables by hand.
TEST(Channel, FrameByteForByte) {
  Net net;
  Params p;
  p.psn = 0xabcdef;
  p.traffic_class = 0x68;
  const Pair pair = connect(net, p);
  regions(net.a(), net.b(), 64);
  Tap tap(net);
  net.a().nic->post(pair.a, write_imm_request(1, 0, 5, 3));
  ASSERT_TRUE(net.run());
  weft_mbox_port a{};
  weft_mbox_port b{};
  net.a().nic->port_get(a);
  net.b().nic->port_get(b);
  const auto& data = net.a().mem.region(kSource).bytes;
  std::vector<unsigned> want(b.mac, b.mac + 6);
  want.insert(want.end(), a.mac, a.mac + 6);
  const auto add = [&](std::initializer_list<unsigned> bytes) { want.insert(want.end(), bytes); };
  add({0x08, 0x00});
  const std::size_t ip = want.size();
  add({0x45, 0x68, 0, 20 + 8 + 12 + 16 + 4 + 8 + 4, 0, 0, 0x40, 0, 64, 17, 0, 0});
  want.insert(want.end(), a.ipv4, a.ipv4 + 4);
  want.insert(want.end(), b.ipv4, b.ipv4 + 4);
  unsigned sum = 0;
  for (std::size_t i = ip; i < want.size(); i += 2) sum += want[i] << 8 | want[i + 1];
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
  want[ip + 10] = sum >> 8;
  want[ip + 11] = sum & 0xff;
  add({0xc0, 0x04, 0x12, 0xb7, 0, 8 + 12 + 16 + 4 + 8 + 4, 0, 0});             // QPN 2 x 2
  add({0x0b, 0x40 | 3 << 4, 0xff, 0xff, 0, 0, 0, 2, 0x80, 0xab, 0xcd, 0xef});  // BTH
  add({0x40, 0, 0, 0, 0, 0, 0x70, 0, 0, 0, 0x02, 0x02, 0, 0, 0, 5});           // RETH
  add({0, 0, 0, 3});                                                           // ImmDt
  for (std::size_t i = 0; i < 5; ++i) want.push_back(std::to_integer<unsigned>(data[i]));
  add({0, 0, 0});
  Frame frame;
  for (const unsigned byte : want) frame.push_back(static_cast<std::byte>(byte));
  const std::uint32_t crc = dissect::icrc(std::span(frame).subspan(ip));
  for (unsigned i = 0; i < 4; ++i) frame.push_back(static_cast<std::byte>(crc >> 8 * i));
  EXPECT_EQ(tap.raw[0].at(0), frame);
}

TEST(Channel, Ipv6AndVlan) {
  Net net;
  Params p;
  p.ipv6 = true;
  for (Node* node : {&net.a(), &net.b()}) ASSERT_EQ(set_vlan(*node->nic, 1, 7), WEFT_ERR_OK);
  const Pair pair = connect(net, p);
  regions(net.a(), net.b(), 5000);
  Tap tap(net);
  net.a().nic->post(pair.a, write_request(1, 0, 5000));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  for (const auto& f : tap.seen[0]) {
    EXPECT_FALSE(f.ipv4);
    EXPECT_EQ(f.vlan, 7u);
  }
}

// A GID of its own VLAN and MAC, as of a VLAN device above the port's netdev; the tag has the vector's priority.
TEST(Channel, AddressFromTheGidTable) {
  Net net;
  Node* const nodes[] = {&net.a(), &net.b()};
  std::vector<std::uint8_t> gid[2];
  std::vector<std::uint8_t> mac[2];
  for (std::uint8_t i = 0; i < 2; ++i) {
    gid[i] = {0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(i + 1)};
    mac[i] = {0x06, 0, 0, 0, 0, i};
    ASSERT_EQ(set_gid(*nodes[i]->nic, 17, WEFT_GID_ROCE_V2_IPV6, gid[i], 0x123, mac[i]), WEFT_ERR_OK);
  }
  const Params p;
  std::uint32_t qpn[2] = {};
  for (int i = 0; i < 2; ++i) ASSERT_EQ(create(*nodes[i]->nic, qpn[i], p), WEFT_ERR_OK);
  for (int i = 0; i < 2; ++i) {
    weft_qp_entry entry = remote(*nodes[1 - i]->nic, qpn[1 - i], p);
    entry.av.sgid_index = 17;
    entry.av.sl = 5;
    std::copy(gid[1 - i].begin(), gid[1 - i].end(), entry.av.dgid);
    std::copy(mac[1 - i].begin(), mac[1 - i].end(), entry.av.dmac);
    ASSERT_EQ(connect_one(*nodes[i]->nic, qpn[i], entry, p), WEFT_ERR_OK);
    weft_qp_entry now{};
    ASSERT_EQ(nodes[i]->nic->qp_query(p.context, qpn[i], now), WEFT_ERR_OK);
    EXPECT_TRUE(std::equal(gid[i].begin(), gid[i].end(), now.sgid));
    EXPECT_TRUE(std::equal(mac[i].begin(), mac[i].end(), now.smac));
    EXPECT_EQ(now.vlan, 0x123);
  }
  regions(net.a(), net.b(), 5000);
  Tap tap(net);
  net.a().nic->post(qpn[0], write_request(1, 0, 5000));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  ASSERT_FALSE(tap.raw[0].empty());
  // IEEE 802.1Q: destination, source, 0x8100, then 3 bits of priority, DEI, 12 bits of VLAN.
  const std::vector<std::uint8_t> want{6, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0x81, 0x00, 0xa1, 0x23, 0x86, 0xdd};
  EXPECT_EQ(std::memcmp(tap.raw[0][0].data(), want.data(), want.size()), 0);
  // The entry goes: what still comes for that address is nobody's.
  ASSERT_EQ(set_gid(*net.b().nic, 17, WEFT_GID_NONE, {}, 0), WEFT_ERR_OK);
  net.a().nic->post(qpn[0], write_request(2, 0, 100));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(1).error, WEFT_ERR_RETRY_EXCEEDED);
  EXPECT_GT(net.b().counter(WEFT_PCTR_drop_not_mine), 0u);
}

// A frame that names the address of one entry and the MAC of another is not the connected peer's.
TEST(Channel, MacIsThatOfTheAddress) {
  Net net;
  const std::vector<std::uint8_t> gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1};
  const std::vector<std::uint8_t> mac{6, 0, 0, 0, 0, 9};
  ASSERT_EQ(set_gid(*net.b().nic, 5, WEFT_GID_ROCE_V2_IPV4, gid, WEFT_VLAN_NONE, mac), WEFT_ERR_OK);
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 100);
  net.on_frame = [&](unsigned from, Frame& frame) {  // the ICRC does not cover the Ethernet header
    if (from == 0) std::memcpy(frame.data(), mac.data(), mac.size());
    return true;
  };
  net.a().nic->post(pair.a, write_request(1, 0, 100));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_RETRY_EXCEEDED);
  EXPECT_GT(net.b().counter(WEFT_PCTR_drop_peer), 0u);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_drop_not_mine), 0u);
}

// The partition is the one that QP_MODIFY set (IBTA volume 1, section 10.9.3: membership is not compared).
TEST(Channel, PartitionKeys) {
  const std::tuple<std::uint16_t, std::uint16_t, bool> cases[] = {
      {0x8123, 0x8123, true}, {0x8123, 0x0123, true}, {0x8123, 0x8124, false}, {0xffff, 0x8123, false}};
  for (const auto& [ours, theirs, same] : cases) {
    Net net;
    Params p;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    ASSERT_EQ(create(*net.a().nic, a, p), WEFT_ERR_OK);
    ASSERT_EQ(create(*net.b().nic, b, p), WEFT_ERR_OK);
    weft_qp_entry to_b = remote(*net.b().nic, b, p);
    weft_qp_entry to_a = remote(*net.a().nic, a, p);
    to_b.pkey = ours;
    to_a.pkey = theirs;
    ASSERT_EQ(connect_one(*net.a().nic, a, to_b, p), WEFT_ERR_OK);
    ASSERT_EQ(connect_one(*net.b().nic, b, to_a, p), WEFT_ERR_OK);
    regions(net.a(), net.b(), 100);
    net.a().nic->post(a, write_request(1, 0, 100));
    ASSERT_TRUE(net.run());
    EXPECT_EQ(net.a().completions.at(0).error, same ? WEFT_ERR_OK : WEFT_ERR_RETRY_EXCEEDED);
    EXPECT_EQ(net.b().counter(WEFT_PCTR_drop_pkey) != 0, !same);
  }
}

// A key of another protection domain of the same context helps neither the sender nor the peer.
TEST(Channel, ProtectionDomains) {
  Net net;
  Params p;
  p.pd = 3;
  for (const auto& [source, target] : {std::pair{3u, 3u}, {0u, 3u}, {3u, 0u}}) {
    const Pair pair = connect(net, p);
    regions(net.a(), net.b(), 5000);
    net.a().mem.region(kSource).pd = source;
    net.b().mem.region(kTarget).pd = target;
    net.a().completions.clear();
    net.a().nic->post(pair.a, write_request(1, 0, 5000));
    ASSERT_TRUE(net.run());
    ASSERT_EQ(net.a().completions.size(), 1u);
    EXPECT_EQ(net.a().completions[0].error, source != 3   ? WEFT_ERR_BAD_PD
                                            : target != 3 ? WEFT_ERR_REMOTE_ACCESS
                                                          : WEFT_ERR_OK);
    const auto& bytes = net.b().mem.region(kTarget).bytes;
    const bool arrived = bytes == net.a().mem.region(kSource).bytes;
    EXPECT_EQ(arrived, source == 3 && target == 3);
    if (!arrived) {
      EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kFill; }));
    }
  }
  ASSERT_FALSE(net.b().failed.empty());
  EXPECT_EQ(net.b().failed.back().error, WEFT_ERR_BAD_PD);
}

TEST(Channel, PsnWrapsAt24Bits) {
  Net net;
  Params p;
  p.psn = 0xfffffa;
  p.mtu = WEFT_MTU_256;
  const Pair pair = connect(net, p);
  regions(net.a(), net.b(), 256 * 100);
  net.impair.loss = 0.05;
  for (unsigned i = 0; i < 10; ++i) net.a().nic->post(pair.a, write_request(i, i * 2560, 2560));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 10u);
  for (unsigned i = 0; i < 10; ++i) EXPECT_EQ(net.a().completions[i].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  weft_qp_entry entry{};
  net.a().nic->qp_query(5, pair.a, entry);
  EXPECT_EQ(entry.sq_psn, (0xfffffau + 100) & 0xffffff);
  net.b().nic->qp_query(5, pair.b, entry);
  EXPECT_EQ(entry.rq_psn, (0xfffffau + 100) & 0xffffff);
}

// A WRITE of more packets than PSNs can be outstanding: the window moves, AckReq is set often enough, ACKs coalesce.
TEST(Channel, LargeMessageStaysInsideTheWindow) {
  Net net;
  Params p;
  p.mtu = WEFT_MTU_256;
  const Pair pair = connect(net, p);
  const std::size_t size = 256 * 5000;
  regions(net.a(), net.b(), size);
  std::int64_t acked = p.psn;
  std::int64_t outstanding = 0;
  unsigned data = 0;
  unsigned acks = 0;
  net.on_frame = [&](unsigned from, Frame& frame) {
    const std::uint32_t psn = static_cast<std::uint32_t>(dissect::be(frame, 51, 3));
    if (from == 0) {
      ++data;
      outstanding = std::max<std::int64_t>(outstanding, psn + 1 - acked);
    } else {
      ++acks;
      acked = psn + 1;
    }
    return true;
  };
  net.a().nic->post(pair.a, write_request(1, 0, size));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  EXPECT_EQ(data, 5000u);
  EXPECT_LE(outstanding, 512);
  EXPECT_LT(acks, 5000u / 16);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_retransmits), 0u);
}

TEST(Channel, SignalComesAfterAllDataOfTheMessage) {
  Net net(3);
  net.impair = {0.05, 0.05, 0.1, 0.02};
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 64 * 5000);
  unsigned wrong = 0;
  std::vector<unsigned> order;
  net.b().mem.on_signal = [&](std::uint32_t, std::uint32_t sync) {
    const unsigned imm = sync - kSyncBase;
    const std::size_t at = order.size() * 5000;
    const auto& s = net.a().mem.region(kSource).bytes;
    const auto& t = net.b().mem.region(kTarget).bytes;
    wrong +=
        !std::equal(t.begin() + static_cast<std::ptrdiff_t>(at), t.begin() + static_cast<std::ptrdiff_t>(at + 5000),
                    s.begin() + static_cast<std::ptrdiff_t>(at));
    order.push_back(imm);
  };
  for (unsigned i = 0; i < 64; ++i) net.a().nic->post(pair.a, write_imm_request(i, i * 5000, 5000, i % kSyncCount));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(order.size(), 64u);  // once each, in order
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(order[i], i % kSyncCount);
  EXPECT_EQ(wrong, 0u);
}

TEST(Channel, BothDirectionsAtOnce) {
  Net net(8);
  net.impair.loss = 0.02;
  const Pair pair = connect(net);
  constexpr std::size_t kSize = 300'000;
  regions(net.a(), net.b(), kSize);
  TestMemory::Region source{5, WEFT_RIGHT_READ, kSourceVa, noise(kSize, 5)};
  TestMemory::Region target{5, WEFT_RIGHT_REMOTE_WRITE, kTargetVa, std::vector<std::byte>(kSize, kFill)};
  net.b().mem.add(kSource, source);
  net.a().mem.add(kTarget, target);
  net.a().nic->post(pair.a, write_request(1, 0, kSize));
  net.b().nic->post(pair.b, write_request(2, 0, kSize));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.b().mem.region(kTarget).bytes, net.a().mem.region(kSource).bytes);
  EXPECT_EQ(net.a().mem.region(kTarget).bytes, net.b().mem.region(kSource).bytes);
}

// Two queue pairs of the same port: frames never reach the link.
TEST(Channel, LoopbackInsideTheDevice) {
  Net net;
  Params p;
  Pair pair;
  Nic& nic = *net.a().nic;
  create(nic, pair.a, p);
  create(nic, pair.b, p);
  ASSERT_EQ(connect_one(nic, pair.a, nic, pair.b, p), WEFT_ERR_OK);
  ASSERT_EQ(connect_one(nic, pair.b, nic, pair.a, p), WEFT_ERR_OK);
  constexpr std::size_t kSize = 3'000'000;
  regions(net.a(), net.a(), kSize);
  net.on_frame = [](unsigned, Frame&) -> bool {
    ADD_FAILURE() << "a frame left";
    return false;
  };
  nic.post(pair.a, write_imm_request(1, 0, kSize, 2));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kTarget).bytes, net.a().mem.region(kSource).bytes);
  EXPECT_EQ(net.a().mem.syncs[std::pair(5u, kSyncBase + 2)], 1u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_retransmits), 0u);
}

// A queue pair connected to itself.
TEST(Channel, LoopbackToItself) {
  Net net;
  Params p;
  std::uint32_t qpn = 0;
  Nic& nic = *net.a().nic;
  create(nic, qpn, p);
  ASSERT_EQ(connect_one(nic, qpn, nic, qpn, p), WEFT_ERR_OK);
  regions(net.a(), net.a(), 10'000);
  nic.post(qpn, write_request(1, 0, 10'000));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().mem.region(kTarget).bytes, net.a().mem.region(kSource).bytes);
}

TEST(Channel, StallsWithoutCreditAndGoesOn) {
  Net net;
  net.credits = 3;
  const Pair pair = connect(net);
  constexpr std::size_t kSize = 400'000;
  regions(net.a(), net.b(), kSize);
  net.a().nic->post(pair.a, write_request(1, 0, kSize));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
  EXPECT_GT(net.a().counter(WEFT_PCTR_tx_stalls), 0u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_retransmits), 0u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_timeouts), 0u);
}

TEST(Channel, QueuePairsTakeTurns) {
  Net net;
  constexpr unsigned kPairs = 4;
  std::vector<Pair> pairs;
  for (unsigned i = 0; i < kPairs; ++i) pairs.push_back(connect(net));
  regions(net.a(), net.b(), 100 * 1024);
  std::vector<std::uint32_t> order;
  net.on_frame = [&](unsigned from, Frame& frame) {
    if (from == 0) order.push_back(static_cast<std::uint32_t>(dissect::be(frame, 47, 3)));
    return true;
  };
  for (unsigned i = 0; i < kPairs; ++i) net.a().nic->post(pairs[i].a, write_request(i, 0, 100 * 1024));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(order.size(), 100u * kPairs);
  // At no time is one more than a packet ahead of another.
  std::map<std::uint32_t, unsigned> sent;
  for (const auto& pair : pairs) sent[pair.b] = 0;
  for (const std::uint32_t qpn : order) {
    ++sent[qpn];
    const auto [low, high] =
        std::minmax_element(sent.begin(), sent.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
    EXPECT_LE(high->second - low->second, 1u);
  }
}

// A command posted from the completion of another, as the command processor does.
TEST(Channel, PostFromCompletion) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 10'000);
  unsigned left = 5;
  net.a().on_completed = [&](std::uint64_t token) {
    if (left-- > 0) net.a().nic->post(pair.a, write_request(token + 1, 0, 10'000));
  };
  net.a().nic->post(pair.a, write_request(0, 0, 10'000));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.size(), 6u);
}

TEST(Channel, StepKeepsToItsBudget) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 500'000);
  net.a().nic->post(pair.a, write_request(1, 0, 400'000));
  const Nic::Progress progress = net.a().nic->step(10'000);
  EXPECT_TRUE(progress.more);
  EXPECT_GE(progress.spent, 10'000u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_frames), 10u);
  net.a().nic->step(0);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_frames), 11u);
}

// Packets without payload are work too: a step handles as many as its budget allows, and says what it spent.
TEST(Channel, AStepKeepsToItsBudgetWithTinyPackets) {
  Net net;
  Params p;
  std::uint32_t qpn = 0;
  create(*net.a().nic, qpn, p);
  connect_one(*net.a().nic, qpn, *net.a().nic, qpn, p);  // over loopback, so that it receives as well
  regions(net.a(), net.a(), 100);
  for (unsigned i = 0; i < 5000; ++i) net.a().nic->post(qpn, write_request(i, 0, 0));
  constexpr std::uint32_t kBudget = 6400;  // 100 packets of the least cost
  std::uint64_t before = 0;
  Nic::Progress progress;
  do {
    progress = net.a().nic->step(kBudget);
    const std::uint64_t frames = net.a().counter(WEFT_PCTR_tx_frames) + net.a().counter(WEFT_PCTR_rx_frames);
    EXPECT_LE(frames - before, 102u);
    EXPECT_GE(progress.spent, (frames - before) * 64);
    before = frames;
  } while (progress.more);
  EXPECT_EQ(net.a().completions.size(), 5000u);
}

// As many queue pairs as there are may owe an answer at once.
TEST(Channel, AStepKeepsToItsBudgetWithAnswers) {
  Net net;
  constexpr unsigned kPairs = 60;
  for (unsigned i = 0; i < kPairs; ++i) {
    const Pair pair = connect(net);
    net.a().nic->post(pair.a, write_request(i, 0, 0));
  }
  while (net.a().nic->step(1 << 20).more) {
  }
  for (const auto& [when, what] : std::exchange(net.wire, {})) net.b().nic->link_receive(0, 0, what.second);
  const Nic::Progress progress = net.b().nic->step(10 * 64);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_tx_acks), 10u);
  EXPECT_TRUE(progress.more);
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.size(), kPairs);
}

// A CPU may store into memory that is being sent: the message then has old or new bytes, and each frame is right.
TEST(Channel, AStoreWhileSendingNeverSpoilsAFrame) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 100'000);
  std::vector<std::byte>& source = net.a().mem.region(kSource).bytes;
  std::fill(source.begin(), source.end(), std::byte{0});
  int frames = 0;
  const auto store = [&](int value) { std::fill(source.begin(), source.end(), static_cast<std::byte>(value)); };
  net.a().mem.after_read = [&] { store(0xff); };
  net.a().before_send = [&] { store(0xff); };
  net.on_frame = [&](unsigned from, Frame&) {
    if (from == 0) store(++frames);
    return true;
  };
  net.a().nic->post(pair.a, write_request(1, 0, 100'000));
  ASSERT_TRUE(net.run());
  EXPECT_EQ(net.a().completions.at(0).error, WEFT_ERR_OK);
  EXPECT_EQ(net.b().counter(WEFT_PCTR_drop_icrc), 0u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_retransmits), 0u);
  // The n-th frame left with what was there when its turn came: n.
  const std::vector<std::byte>& target = net.b().mem.region(kTarget).bytes;
  for (std::size_t i = 0; i < target.size(); ++i) ASSERT_EQ(target[i], static_cast<std::byte>(i / 1024)) << i;
}

// The same seed gives the same history.
TEST(Channel, Deterministic) {
  std::vector<std::vector<Frame>> runs;
  for (unsigned i = 0; i < 2; ++i) {
    Net net(42);
    net.impair = {0.05, 0.05, 0.05, 0.05};
    std::vector<Frame> frames;
    net.on_frame = [&](unsigned, Frame& frame) {
      frames.push_back(frame);
      return true;
    };
    const Pair pair = connect(net);
    regions(net.a(), net.b(), 200'000);
    for (unsigned m = 0; m < 4; ++m) net.a().nic->post(pair.a, write_imm_request(m, m * 50'000, 50'000, m));
    ASSERT_TRUE(net.run());
    runs.push_back(frames);
  }
  EXPECT_EQ(runs[0], runs[1]);
}

}  // namespace
