// SPDX-License-Identifier: MIT
// Mailbox operations of the NIC: ports, queue pair states, cancellation, destruction, reset.
#include <gtest/gtest.h>

#include <set>

#include "harness.hpp"

namespace {

using namespace harness;

weft_mbox_port get(Nic& nic, std::uint32_t number = 0) {
  weft_mbox_port port{};
  port.port = number;
  EXPECT_EQ(nic.port_get(port), WEFT_ERR_OK);
  return port;
}

TEST(Port, DefaultAddressesComeFromTheSerial) {
  Net net(1, 24);
  Net again(2, 24);
  std::set<std::vector<std::uint8_t>> macs;
  std::set<std::vector<std::uint8_t>> ips;
  for (unsigned i = 0; i < 24; ++i) {
    const weft_mbox_port a = get(*net.a().nic, i);
    const weft_mbox_port b = get(*net.b().nic, i);
    EXPECT_EQ(std::memcmp(a.mac, get(*again.a().nic, i).mac, 6), 0);
    for (const auto& p : {a, b}) {
      macs.emplace(p.mac, p.mac + 6);
      ips.emplace(p.ipv4, p.ipv4 + 4);
      EXPECT_EQ(p.mac[0], 0x02);
      EXPECT_EQ(p.mac[1], 0x57);
      EXPECT_EQ(p.mac[5], i);
      EXPECT_EQ(p.ipv4[0], 169);
      EXPECT_EQ(p.ipv4[1], 254);
      EXPECT_GE(p.ipv4[2], 1);
      EXPECT_LE(p.ipv4[2], 254);
      EXPECT_EQ(p.ipv6[0], 0xfe);
      EXPECT_EQ(p.mtu, 8192u);
      EXPECT_EQ(p.state, static_cast<std::uint32_t>(WEFT_PORT_ACTIVE));
    }
  }
  EXPECT_EQ(macs.size(), 48u);
  EXPECT_EQ(ips.size(), 48u);
}

TEST(Port, StateFollowsLinkAndAdmin) {
  Net net;
  Nic& nic = *net.a().nic;
  net.run();
  ASSERT_EQ(net.a().port_events.size(), 1u);
  EXPECT_EQ(net.a().port_events[0], std::pair(0u, WEFT_PORT_ACTIVE));
  nic.link_state(0, true);  // no change, no event
  weft_mbox_port port{};
  port.set = 1;
  port.admin_up = 0;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_OK);
  EXPECT_EQ(get(nic).state, static_cast<std::uint32_t>(WEFT_PORT_DOWN));
  nic.link_state(0, false);
  port.admin_up = 1;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_OK);
  EXPECT_EQ(get(nic).state, static_cast<std::uint32_t>(WEFT_PORT_DOWN));
  nic.link_state(0, true);
  net.run();
  ASSERT_EQ(net.a().port_events.size(), 3u);
  EXPECT_EQ(net.a().port_events[1].second, WEFT_PORT_DOWN);
  EXPECT_EQ(net.a().port_events[2].second, WEFT_PORT_ACTIVE);
  EXPECT_EQ(get(nic).flaps, 1u);
}

TEST(Port, SetRefusesWhatCannotBe) {
  Net net;
  Nic& nic = *net.a().nic;
  weft_mbox_port port{};
  port.port = 1;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(nic.port_get(port), WEFT_ERR_MBOX_NOT_FOUND);
  port.port = 0;
  port.set = 16;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_BAD_FIELD);
  port.set = 2;  // all zero, then multicast
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_BAD_FIELD);
  port.mac[0] = 3;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_BAD_FIELD);
  port.set = 4;
  port.ipv4[0] = 224;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_BAD_FIELD);
  port.set = 2 | 4;
  port.mac[0] = 2;
  port.ipv4[0] = 10;
  EXPECT_EQ(nic.port_set(port), WEFT_ERR_OK);
  EXPECT_EQ(get(nic).ipv4[0], 10);
  EXPECT_TRUE(nic.counters(1).empty());
}

TEST(QueuePair, TypesNotOfferedAreRefused) {
  Net net;
  for (const unsigned type : {0u, 1u, 2u, 3u, 4u, 5u, 9u, 255u}) {
    weft_qp_entry entry{};
    entry.type = static_cast<std::uint8_t>(type);
    EXPECT_EQ(net.a().nic->qp_create(entry), WEFT_ERR_BAD_TYPE) << type;
  }
}

TEST(QueuePair, CreateBoundsItsFields) {
  Net net;
  weft_qp_entry good{};
  good.type = WEFT_QP_CHANNEL;
  const auto refused = [&](auto change) {
    weft_qp_entry entry = good;
    change(entry);
    return net.a().nic->qp_create(entry) == WEFT_ERR_BAD_FIELD;
  };
  EXPECT_TRUE(refused([](auto& e) { e.ctx = 256; }));
  EXPECT_TRUE(refused([](auto& e) { e.port = 1; }));
  EXPECT_TRUE(refused([](auto& e) { e.access = 1; }));
  EXPECT_TRUE(refused([](auto& e) {
    e.sync_base = 4096;
    e.sync_count = 1;
  }));
  EXPECT_TRUE(refused([](auto& e) {
    e.sync_base = 0xffffffff;
    e.sync_count = 2;
  }));
}

TEST(QueuePair, TableFullAndNumbersComeBackLate) {
  Net net;
  Nic& nic = *net.a().nic;
  std::vector<std::uint32_t> all;
  std::uint32_t qpn = 0;
  while (create(nic, qpn, {}) == WEFT_ERR_OK) all.push_back(qpn);
  EXPECT_EQ(all.size(), 62u);  // 64 but for 0 and 1
  EXPECT_EQ(create(nic, qpn, {}), WEFT_ERR_MBOX_NO_ROOM);
  EXPECT_EQ(nic.qp_destroy(5, all[10]), WEFT_ERR_OK);
  EXPECT_EQ(nic.qp_destroy(5, all[3]), WEFT_ERR_OK);
  EXPECT_EQ(create(nic, qpn, {}), WEFT_ERR_OK);
  EXPECT_EQ(qpn, all[3]);  // next after the last one given
}

TEST(QueuePair, TransitionsOfTheStandardOnly) {
  const std::uint8_t states[] = {
      WEFT_QPS_RESET, WEFT_QPS_INIT, WEFT_QPS_RTR, WEFT_QPS_RTS, WEFT_QPS_SQD, WEFT_QPS_SQE, WEFT_QPS_ERR, 7, 255};
  const std::set<std::pair<unsigned, unsigned>> allowed{{0, 1}, {1, 1}, {1, 2}, {2, 3}, {3, 3}};
  for (const std::uint8_t from : {WEFT_QPS_RESET, WEFT_QPS_INIT, WEFT_QPS_RTR, WEFT_QPS_RTS, WEFT_QPS_ERR}) {
    for (const std::uint8_t to : states) {
      Net net;
      Nic& nic = *net.a().nic;
      Params p;
      std::uint32_t qpn = 0;
      create(nic, qpn, p);
      const weft_qp_entry entry = remote(*net.b().nic, 2, p);
      const auto go = [&](std::uint8_t state) {
        const std::uint32_t mask = state == WEFT_QPS_RTR ? kRtrMask : state == WEFT_QPS_RTS ? kRtsMask : 0;
        return to_state(nic, qpn, state, mask, entry, 5);
      };
      if (from == WEFT_QPS_ERR) {
        ASSERT_EQ(go(WEFT_QPS_ERR), WEFT_ERR_OK);
      } else {
        for (std::uint8_t s = WEFT_QPS_INIT; s <= from; ++s) ASSERT_EQ(go(s), WEFT_ERR_OK);
      }
      const bool ok = to == WEFT_QPS_RESET || to == WEFT_QPS_ERR || allowed.contains({from, to});
      const std::uint32_t mask = from == to ? 0 : to == WEFT_QPS_RTR ? kRtrMask : to == WEFT_QPS_RTS ? kRtsMask : 0;
      EXPECT_EQ(to_state(nic, qpn, to, mask, entry, 5), ok ? WEFT_ERR_OK : WEFT_ERR_MBOX_STATE)
          << unsigned{from} << " to " << unsigned{to};
      weft_qp_entry now{};
      ASSERT_EQ(nic.qp_query(5, qpn, now), WEFT_ERR_OK);
      EXPECT_EQ(now.state, ok ? to : from);
    }
  }
}

TEST(QueuePair, ModifyBoundsItsFields) {
  Net net;
  Nic& nic = *net.a().nic;
  Params p;
  std::uint32_t qpn = 0;
  create(nic, qpn, p);
  const weft_qp_entry good = remote(*net.b().nic, 2, p);
  ASSERT_EQ(to_state(nic, qpn, WEFT_QPS_INIT, 0, good, 5), WEFT_ERR_OK);
  for (const std::uint32_t missing : {WEFT_QPM_PATH, WEFT_QPM_MTU, WEFT_QPM_DEST, WEFT_QPM_RQ_PSN}) {
    EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask & ~missing, good, 5), WEFT_ERR_BAD_FIELD);
  }
  const auto refused = [&](auto change) {
    weft_qp_entry entry = good;
    change(entry);
    const std::uint32_t mask = kRtrMask | kRtsMask | WEFT_QPM_RNR_TIMER | WEFT_QPM_ACCESS | WEFT_QPM_SYNC;
    return to_state(nic, qpn, WEFT_QPS_RTR, mask, entry, 5) == WEFT_ERR_BAD_FIELD;
  };
  EXPECT_TRUE(refused([](auto& e) { e.path_mtu = 0; }));
  EXPECT_TRUE(refused([](auto& e) { e.path_mtu = 7; }));
  EXPECT_TRUE(refused([](auto& e) { e.dest_qpn = 0; }));
  EXPECT_TRUE(refused([](auto& e) { e.dest_qpn = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& e) { e.rq_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& e) { e.sq_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& e) { e.timeout = 32; }));
  EXPECT_TRUE(refused([](auto& e) { e.retry_cnt = 8; }));
  EXPECT_TRUE(refused([](auto& e) { e.rnr_retry = 8; }));
  EXPECT_TRUE(refused([](auto& e) { e.min_rnr_timer = 32; }));
  EXPECT_TRUE(refused([](auto& e) { e.dmac[0] = 1; }));
  EXPECT_TRUE(refused([](auto& e) { std::memset(e.dmac, 0, 6); }));
  EXPECT_TRUE(refused([](auto& e) { std::memset(e.dgid, 0, 16); }));
  EXPECT_TRUE(refused([](auto& e) { e.sgid[15] = 9; }));  // not an address of the port
  EXPECT_TRUE(refused([](auto& e) { e.port = 1; }));
  EXPECT_TRUE(refused([](auto& e) { e.vlan = 0xfff; }));
  EXPECT_TRUE(refused([](auto& e) { e.flow_label = 1 << 20; }));
  EXPECT_TRUE(refused([](auto& e) { e.access = 1 << 5; }));
  EXPECT_TRUE(refused([](auto& e) {
    e.sync_base = 4000;
    e.sync_count = 97;
  }));
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, 1u << 20 | kRtrMask, good, 5), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask, good, 5), WEFT_ERR_OK);
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTS, WEFT_QPM_SQ_PSN, good, 5), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTS, kRtsMask | WEFT_QPM_PATH, good, 5), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTS, kRtsMask, good, 5), WEFT_ERR_OK);
  // The source address was chosen from the port's own.
  weft_qp_entry now{};
  nic.qp_query(5, qpn, now);
  EXPECT_EQ(std::memcmp(now.sgid + 12, get(nic).ipv4, 4), 0);
}

TEST(QueuePair, OnlyItsContextSeesIt) {
  Net net;
  const Pair pair = connect(net);
  Nic& nic = *net.a().nic;
  weft_qp_entry entry{};
  EXPECT_EQ(nic.qp_query(6, pair.a, entry), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(nic.qp_destroy(6, pair.a), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(to_state(nic, pair.a, WEFT_QPS_ERR, 0, entry, 6), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(nic.post(pair.a, write_request(1, 0, 1, 6)), WEFT_ERR_BAD_CHANNEL);
  EXPECT_EQ(nic.post(0, write_request(1, 0, 1)), WEFT_ERR_BAD_CHANNEL);
  EXPECT_EQ(nic.post(0xffffffff, write_request(1, 0, 1)), WEFT_ERR_BAD_CHANNEL);
}

TEST(Post, Refusals) {
  Net net;
  Nic& nic = *net.a().nic;
  const Pair pair = connect(net);
  RdmaRequest r = write_request(1, 0, 1);
  for (const weft_rdma_op op : {WEFT_RDMA_READ, WEFT_RDMA_SEND}) {
    r.op = op;
    EXPECT_EQ(nic.post(pair.a, r), WEFT_ERR_BAD_OP);
  }
  r.op = WEFT_RDMA_WRITE;
  r.local.length = (1ull << 31) + 1;
  EXPECT_EQ(nic.post(pair.a, r), WEFT_ERR_BAD_FIELD);
  r.local.length = UINT64_MAX;
  EXPECT_EQ(nic.post(pair.a, r), WEFT_ERR_BAD_FIELD);
  std::uint32_t fresh = 0;
  create(nic, fresh, {});
  EXPECT_EQ(nic.post(fresh, write_request(1, 0, 1)), WEFT_ERR_BAD_CHANNEL);
  to_state(nic, pair.a, WEFT_QPS_ERR, 0, {}, 5);
  EXPECT_EQ(nic.post(pair.a, write_request(1, 0, 1)), WEFT_ERR_FLUSHED);
  net.run();
  EXPECT_TRUE(net.a().completions.empty());
}

TEST(QueuePair, ToErrorFlushesInOrder) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 4096);
  for (unsigned i = 0; i < 5; ++i) net.a().nic->post(pair.a, write_request(i, 0, 4096));
  to_state(*net.a().nic, pair.a, WEFT_QPS_ERR, 0, {}, 5);
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 5u);
  for (unsigned i = 0; i < 5; ++i) {
    EXPECT_EQ(net.a().completions[i].token, i);
    EXPECT_EQ(net.a().completions[i].error, WEFT_ERR_FLUSHED);
  }
  EXPECT_TRUE(net.a().failed.empty());  // software asked for it
}

TEST(QueuePair, ResetAndConnectAgain) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 50'000);
  net.a().nic->post(pair.a, write_request(1, 0, 50'000));
  net.a().nic->step(4096);
  for (unsigned i = 0; i < 2; ++i) {
    to_state(i == 0 ? *net.a().nic : *net.b().nic, i == 0 ? pair.a : pair.b, WEFT_QPS_RESET, 0, {}, 5);
  }
  net.run();
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_FLUSHED);
  Params p;
  p.psn = 99;
  ASSERT_EQ(connect_one(*net.a().nic, pair.a, *net.b().nic, pair.b, p), WEFT_ERR_OK);
  ASSERT_EQ(connect_one(*net.b().nic, pair.b, *net.a().nic, pair.a, p), WEFT_ERR_OK);
  net.a().nic->post(pair.a, write_request(2, 0, 50'000));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 2u);
  EXPECT_EQ(net.a().completions[1].error, WEFT_ERR_OK);
  EXPECT_EQ(net.a().mem.region(kSource).bytes, net.b().mem.region(kTarget).bytes);
}

TEST(QueuePair, DestroyFlushes) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 50'000);
  net.a().nic->post(pair.a, write_request(1, 0, 50'000));
  net.a().nic->post(pair.a, write_request(2, 0, 50'000));
  net.a().nic->step(4096);
  EXPECT_EQ(net.a().nic->qp_destroy(5, pair.a), WEFT_ERR_OK);
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 2u);
  EXPECT_EQ(net.a().completions[1].error, WEFT_ERR_FLUSHED);
  EXPECT_GT(net.a().counter(WEFT_PCTR_drop_no_qp) + net.b().counter(WEFT_PCTR_rx_frames), 0u);
}

TEST(Context, DestroyForgetsEverythingOfIt) {
  Net net;
  const Pair pair = connect(net);
  Params other;
  other.context = 6;
  const Pair stays = connect(net, other);
  regions(net.a(), net.b(), 50'000);
  net.a().nic->post(pair.a, write_request(1, 0, 50'000));
  net.a().nic->post(pair.a, write_request(2, 0, 50'000));
  net.a().nic->step(4096);
  net.a().nic->destroy_context(5);
  ASSERT_TRUE(net.run());
  EXPECT_TRUE(net.a().completions.empty());
  EXPECT_TRUE(net.a().failed.empty());
  weft_qp_entry entry{};
  EXPECT_EQ(net.a().nic->qp_query(5, pair.a, entry), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(net.a().nic->qp_query(6, stays.a, entry), WEFT_ERR_OK);
}

TEST(Cancel, WaitingRequestsGoWithoutTraceAndOthersStay) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 80'000);
  for (unsigned i = 0; i < 8; ++i) net.a().nic->post(pair.a, write_imm_request(i, i * 10'000, 10'000, i));
  net.a().nic->step(0);  // the first is under way
  net.a().nic->cancel([](std::uint64_t token) { return token % 2 == 1; });
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 4u);
  for (unsigned i = 0; i < 4; ++i) {
    EXPECT_EQ(net.a().completions[i].token, 2 * i);
    EXPECT_EQ(net.a().completions[i].error, WEFT_ERR_OK);
  }
  for (unsigned i = 0; i < 8; ++i) {
    const auto& t = net.b().mem.region(kTarget).bytes;
    const auto& s = net.a().mem.region(kSource).bytes;
    EXPECT_EQ(t[i * 10'000 + 5], i % 2 == 1 ? kFill : s[i * 10'000 + 5]);
    EXPECT_EQ((net.b().mem.syncs[{5, kSyncBase + i}]), i % 2 == 1 ? 0u : 1u);
  }
  EXPECT_TRUE(net.a().failed.empty());
}

TEST(Cancel, RequestUnderWayTakesTheChannelWithIt) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 80'000);
  for (unsigned i = 0; i < 3; ++i) net.a().nic->post(pair.a, write_request(i, 0, 20'000));
  net.a().nic->step(0);
  net.a().nic->cancel([](std::uint64_t token) { return token == 0; });
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 2u);
  EXPECT_EQ(net.a().completions[0].token, 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_FLUSHED);
  ASSERT_EQ(net.a().failed.size(), 1u);
  EXPECT_EQ(net.a().failed[0].error, WEFT_ERR_ABORTED);
}

TEST(Cancel, CompletionNotYetToldIsForgotten) {
  Net net;
  const Pair pair = connect(net);
  regions(net.a(), net.b(), 80'000);
  net.a().nic->post(pair.a, write_request(4, 0, 100));
  net.a().nic->step(1000);
  net.now += 2000;
  net.b().nic->link_receive(0, 0, net.wire.begin()->second.second);
  net.wire.clear();
  net.b().nic->step(1000);
  net.a().nic->link_receive(0, 0, net.wire.begin()->second.second);
  net.wire.clear();
  net.a().nic->cancel([](std::uint64_t) { return true; });
  net.run();
  EXPECT_TRUE(net.a().completions.empty());
  EXPECT_TRUE(net.a().failed.empty());
}

TEST(Reset, EverythingGoesAndWorksAgain) {
  Net net;
  Pair pair = connect(net);
  regions(net.a(), net.b(), 50'000);
  net.a().nic->post(pair.a, write_request(1, 0, 50'000));
  net.a().nic->step(4096);
  net.a().nic->reset();
  net.b().nic->reset();
  ASSERT_TRUE(net.run());
  EXPECT_TRUE(net.a().completions.empty());
  weft_qp_entry entry{};
  EXPECT_EQ(net.a().nic->qp_query(5, pair.a, entry), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(get(*net.a().nic).state, static_cast<std::uint32_t>(WEFT_PORT_ACTIVE));
  EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_frames), 0u);
  pair = connect(net);
  net.a().nic->post(pair.a, write_request(1, 0, 50'000));
  ASSERT_TRUE(net.run());
  ASSERT_EQ(net.a().completions.size(), 1u);
  EXPECT_EQ(net.a().completions[0].error, WEFT_ERR_OK);
}

TEST(Link, BadNumbersAreRefused) {
  Net net;
  const Frame frame(64);
  EXPECT_EQ(net.a().nic->link_receive(1, 0, frame), -EINVAL);
  EXPECT_EQ(net.a().nic->link_receive(0, 8, frame), -EINVAL);
  net.a().nic->link_ready(9, 0);
  net.a().nic->link_ready(0, 99);
  net.a().nic->link_state(9, true);
}

}  // namespace
