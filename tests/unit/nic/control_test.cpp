// SPDX-License-Identifier: MIT
// Mailbox operations of the NIC: ports, queue pair states, cancellation, destruction, reset.
#include <gtest/gtest.h>

#include <set>

#include "harness.hpp"
#include "nic/queue_pair.hpp"

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
  weft_mbox_port_set port{};
  port.set = WEFT_PORT_SET_ADMIN;
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
  weft_mbox_port out{};
  out.port = 1;
  EXPECT_EQ(nic.port_get(out), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(nic.port_set({1, 0, 0, {}, 0}), WEFT_ERR_MBOX_NOT_FOUND);
  const auto set = [&](unsigned fields, unsigned admin, std::uint8_t mac) {
    return nic.port_set({0, static_cast<std::uint8_t>(fields), static_cast<std::uint8_t>(admin), {mac}, 0});
  };
  EXPECT_EQ(set(4, 0, 0), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(set(WEFT_PORT_SET_MAC, 0, 0), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(set(WEFT_PORT_SET_MAC, 0, 3), WEFT_ERR_BAD_FIELD);  // multicast
  EXPECT_EQ(set(WEFT_PORT_SET_ADMIN, 2, 0), WEFT_ERR_BAD_FIELD);
  // Fields that do not count are 0.
  EXPECT_EQ(set(WEFT_PORT_SET_ADMIN, 1, 2), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(set(WEFT_PORT_SET_MAC, 1, 2), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(set(WEFT_PORT_SET_MAC, 0, 2), WEFT_ERR_OK);
  EXPECT_EQ(get(nic).mac[0], 2);
  EXPECT_TRUE(nic.counters(1).empty());
}

using Bytes = std::vector<std::uint8_t>;
const Bytes kIpv4Gid{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1};
const Bytes kIpv6Gid{0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

TEST(Gid, TableStartsWithTheDefaults) {
  Net net;
  Nic& nic = *net.a().nic;
  const weft_mbox_port port = get(nic);
  EXPECT_EQ(port.gids, 2);
  weft_mbox_gid gid{};
  ASSERT_EQ(nic.gid_get(gid), WEFT_ERR_OK);
  EXPECT_EQ(gid.type, WEFT_GID_ROCE_V2_IPV4);
  EXPECT_EQ(gid.vlan, WEFT_VLAN_NONE);
  EXPECT_EQ(std::memcmp(gid.gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12), 0);
  EXPECT_EQ(std::memcmp(gid.gid + 12, port.ipv4, 4), 0);
  gid.index = 1;
  ASSERT_EQ(nic.gid_get(gid), WEFT_ERR_OK);
  EXPECT_EQ(gid.type, WEFT_GID_ROCE_V2_IPV6);
  EXPECT_EQ(std::memcmp(gid.gid, port.ipv6, 16), 0);
  // EUI-64 of the MAC, RFC 4291, appendix A.
  EXPECT_EQ(gid.gid[8], port.mac[0] ^ 2);
  EXPECT_EQ(gid.gid[15], port.mac[5]);
  for (gid.index = 2; gid.index < WEFT_GIDS_PER_PORT; ++gid.index) {
    ASSERT_EQ(nic.gid_get(gid), WEFT_ERR_OK);
    EXPECT_EQ(gid.type, WEFT_GID_NONE);
  }
  EXPECT_EQ(nic.gid_get(gid), WEFT_ERR_MBOX_NOT_FOUND);
  gid = {};
  gid.port = 1;
  EXPECT_EQ(nic.gid_get(gid), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(nic.gid_set(gid), WEFT_ERR_MBOX_NOT_FOUND);
}

TEST(Gid, EveryIndexIsAnEntryOfItsOwn) {
  Net net;
  Nic& nic = *net.a().nic;
  for (std::uint32_t i = 0; i < WEFT_GIDS_PER_PORT; ++i) {
    Bytes gid = kIpv6Gid;
    gid[15] = static_cast<std::uint8_t>(i);
    ASSERT_EQ(set_gid(nic, i, WEFT_GID_ROCE_V2_IPV6, gid, static_cast<std::uint16_t>(i),
                      {2, 0, 0, 0, 0, static_cast<std::uint8_t>(i)}),
              WEFT_ERR_OK);
  }
  EXPECT_EQ(get(nic).gids, WEFT_GIDS_PER_PORT);
  EXPECT_EQ(set_gid(nic, WEFT_GIDS_PER_PORT, WEFT_GID_ROCE_V2_IPV6, kIpv6Gid), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(std::memcmp(get(nic).ipv4, "\0\0\0\0", 4), 0);
  ASSERT_EQ(set_gid(nic, 30, WEFT_GID_ROCE_V2_IPV4, kIpv4Gid), WEFT_ERR_OK);
  EXPECT_EQ(std::memcmp(get(nic).ipv4, "\x0a\0\0\x01", 4), 0);
  for (std::uint32_t i = 0; i < WEFT_GIDS_PER_PORT; ++i) {
    weft_mbox_gid gid{};
    gid.index = i;
    ASSERT_EQ(nic.gid_get(gid), WEFT_ERR_OK);
    EXPECT_EQ(gid.index, i);
    if (i == 30) continue;
    EXPECT_EQ(gid.gid[15], i);
    EXPECT_EQ(gid.vlan, i);
    EXPECT_EQ(gid.mac[5], i);
    ASSERT_EQ(set_gid(nic, i, WEFT_GID_NONE, {}, 0), WEFT_ERR_OK);
  }
  EXPECT_EQ(get(nic).gids, 1);
  nic.reset();
  EXPECT_EQ(get(nic).gids, 2);
}

TEST(Gid, SetRefusesWhatIsNoHostsAddress) {
  Net net;
  Nic& nic = *net.a().nic;
  const auto refused = [&](weft_gid_type type, const Bytes& gid, std::uint16_t vlan = WEFT_VLAN_NONE,
                           const Bytes& mac = {}) { return set_gid(nic, 5, type, gid, vlan, mac); };
  const auto ipv4 = [](std::uint8_t first) {
    Bytes gid = kIpv4Gid;
    gid[12] = first;
    return gid;
  };
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV4, ipv4(0)), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV4, ipv4(224)), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV4, ipv4(255)), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV4, kIpv6Gid), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV6, kIpv4Gid), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV6, Bytes(16)), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV6, {0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), WEFT_ERR_BAD_GID);
  EXPECT_EQ(refused(static_cast<weft_gid_type>(3), kIpv6Gid), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV6, kIpv6Gid, 0xfff), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV6, kIpv6Gid, 1, {1}), WEFT_ERR_BAD_FIELD);  // multicast
  EXPECT_EQ(refused(WEFT_GID_NONE, kIpv6Gid, 0), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(refused(WEFT_GID_NONE, {}, 1), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(get(nic).gids, 2);
  EXPECT_EQ(refused(WEFT_GID_ROCE_V2_IPV6, kIpv6Gid, 0xffe), WEFT_ERR_OK);
}

TEST(QueuePair, TypesNotOfferedAreRefused) {
  Net net;
  for (const unsigned type : {WEFT_QP_RC, WEFT_QP_UC, WEFT_QP_UD, WEFT_QP_GSI, WEFT_QP_ETHERNET}) {
    weft_qp_entry entry{};
    entry.type = static_cast<std::uint8_t>(type);
    EXPECT_EQ(net.a().nic->qp_create(entry), WEFT_ERR_UNSUPPORTED) << type;
  }
  for (const unsigned type : {0u, 6u, 7u, 9u, 255u}) {
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
  EXPECT_TRUE(refused([](auto& e) { e.pd = WEFT_PD_MAX + 1; }));
  EXPECT_TRUE(refused([](auto& e) { e.av.port = 1; }));
  EXPECT_TRUE(refused([](auto& e) { e.access = 1; }));
  EXPECT_TRUE(refused([](auto& e) {
    e.sync_base = 4096;
    e.sync_count = 1;
  }));
  EXPECT_TRUE(refused([](auto& e) {
    e.sync_base = 0xffffffff;
    e.sync_count = 2;
  }));
  // Every byte that CREATE does not take from a channel is 0: all but ctx, pd, type, access, av.port, sync_base and
  // sync_count (weft/hw/qp.h).
  for (std::size_t i = 0; i < sizeof(good); ++i) {
    const bool used = (i >= 4 && i < 12) || i == 16 || (i >= 44 && i < 49) || (i >= 88 && i < 96);
    if (used) continue;
    EXPECT_TRUE(refused([i](auto& e) { reinterpret_cast<std::uint8_t*>(&e)[i] = 1; })) << "byte " << i;
  }
  good.ctx = 5;
  good.pd = WEFT_PD_MAX;
  ASSERT_EQ(net.a().nic->qp_create(good), WEFT_ERR_OK);
  weft_qp_entry made{};
  ASSERT_EQ(net.a().nic->qp_query(5, good.qpn, made), WEFT_ERR_OK);
  EXPECT_EQ(made.pd, WEFT_PD_MAX);
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

// IBTA volume 1, section 11.2.5.2, "QP state transition properties", in letters: required, then allowed. A av, M path
// MTU, D destination QPN, R RQ PSN, S SQ PSN, T time-out and retries, N RNR timer, Q Q_Key, X access, I initiator
// depth, P P_Key, O port, W responder resources, E drained event. "-": there is no such transition for a user.
struct IbtaRow {
  std::uint8_t from, to;
  const char* rc;
  const char* uc;
  const char* ud;
};
constexpr IbtaRow kIbta[] = {
    {WEFT_QPS_RESET, WEFT_QPS_INIT, "POX:", "POX:", "POQ:"},
    {WEFT_QPS_INIT, WEFT_QPS_INIT, ":POX", ":POX", ":POQ"},
    {WEFT_QPS_INIT, WEFT_QPS_RTR, "AMDRWN:XP", "AMDR:XP", ":PQ"},
    {WEFT_QPS_RTR, WEFT_QPS_RTS, "STI:XN", "S:X", "S:Q"},
    {WEFT_QPS_RTS, WEFT_QPS_RTS, ":XN", ":X", ":Q"},
    {WEFT_QPS_RTS, WEFT_QPS_SQD, ":E", ":E", ":E"},
    {WEFT_QPS_SQD, WEFT_QPS_RTS, ":XN", ":X", ":Q"},
    {WEFT_QPS_SQD, WEFT_QPS_SQD, ":OATIWXPN", ":AXP", ":PQ"},
    {WEFT_QPS_SQE, WEFT_QPS_RTS, "-", ":X", ":Q"},
};

std::uint32_t letters(std::string_view text) {
  const std::string_view kLetters = "AMDRSTNQXI?POWE";  // in order of the bits; ? is WEFT_QPM_SYNC
  std::uint32_t mask = 0;
  for (const char c : text) mask |= 1u << kLetters.find(c);
  return mask;
}

TEST(QueuePair, TransitionsAreTheStandards) {
  for (std::uint8_t from = 0; from < 8; ++from) {
    for (std::uint8_t to = WEFT_QPS_INIT; to < 8; ++to) {
      if (to == WEFT_QPS_ERR) continue;
      const auto row = std::find_if(std::begin(kIbta), std::end(kIbta),
                                    [&](const IbtaRow& r) { return r.from == from && r.to == to; });
      for (const weft_qp_type type : {WEFT_QP_RC, WEFT_QP_UC, WEFT_QP_UD, WEFT_QP_GSI, WEFT_QP_CHANNEL}) {
        SCOPED_TRACE(testing::Message() << unsigned{from} << " to " << unsigned{to} << ", type " << type);
        const std::string_view text = row == std::end(kIbta)                      ? "-"
                                      : type == WEFT_QP_UC                        ? row->uc
                                      : type == WEFT_QP_UD || type == WEFT_QP_GSI ? row->ud
                                                                                  : row->rc;
        const auto rule = nic::transition_rule(static_cast<std::uint8_t>(type), from, to);
        ASSERT_EQ(rule.has_value(), text != "-");
        if (!rule) continue;
        const std::size_t colon = text.find(':');
        EXPECT_EQ(rule->required, letters(text.substr(0, colon)));
        std::uint32_t allowed = letters(text.substr(0, colon)) | letters(text.substr(colon + 1));
        if (type == WEFT_QP_CHANNEL && from != WEFT_QPS_SQD && to != WEFT_QPS_SQD) allowed |= WEFT_QPM_SYNC;
        EXPECT_EQ(rule->allowed, allowed);
      }
    }
  }
}

std::uint32_t mask_to(std::uint8_t from, std::uint8_t to) {
  if (from == to) return 0;
  return to == WEFT_QPS_INIT ? kInitMask : to == WEFT_QPS_RTR ? kRtrMask : to == WEFT_QPS_RTS ? kRtsMask : 0;
}

TEST(QueuePair, OnlyTransitionsOfTheStandardAreTaken) {
  const std::uint8_t states[] = {
      WEFT_QPS_RESET, WEFT_QPS_INIT, WEFT_QPS_RTR, WEFT_QPS_RTS, WEFT_QPS_SQD, WEFT_QPS_SQE, WEFT_QPS_ERR, 7, 255};
  const std::set<std::pair<unsigned, unsigned>> allowed{{0, 1}, {1, 1}, {1, 2}, {2, 3}, {3, 3}};
  for (const std::uint8_t from : {WEFT_QPS_RESET, WEFT_QPS_INIT, WEFT_QPS_RTR, WEFT_QPS_RTS, WEFT_QPS_ERR}) {
    for (const std::uint8_t to : states) {
      Net net;
      Nic& nic = *net.a().nic;
      const Params p;
      std::uint32_t qpn = 0;
      create(nic, qpn, p);
      const weft_qp_entry entry = remote(*net.b().nic, 2, p);
      if (from == WEFT_QPS_ERR) {
        ASSERT_EQ(to_state(nic, qpn, WEFT_QPS_ERR, 0, entry, 5), WEFT_ERR_OK);
      } else {
        for (std::uint8_t s = WEFT_QPS_INIT; s <= from; ++s) {
          ASSERT_EQ(to_state(nic, qpn, s, mask_to(static_cast<std::uint8_t>(s - 1), s), entry, 5), WEFT_ERR_OK);
        }
      }
      const bool ok = to == WEFT_QPS_RESET || to == WEFT_QPS_ERR || allowed.contains({from, to});
      // To drain is the standard's, but not offered yet.
      const bool drain = from == WEFT_QPS_RTS && to == WEFT_QPS_SQD;
      EXPECT_EQ(to_state(nic, qpn, to, mask_to(from, to), entry, 5), ok      ? WEFT_ERR_OK
                                                                     : drain ? WEFT_ERR_UNSUPPORTED
                                                                             : WEFT_ERR_MBOX_STATE)
          << unsigned{from} << " to " << unsigned{to};
      weft_qp_entry now{};
      ASSERT_EQ(nic.qp_query(5, qpn, now), WEFT_ERR_OK);
      EXPECT_EQ(now.state, ok ? to : from);
    }
  }
}

// Late packets of a former connection find nobody: its number comes again after all others.
TEST(QueuePair, NumbersAreUsedAgainLast) {
  Net net;
  Nic& nic = *net.a().nic;
  std::uint32_t first = 0;
  ASSERT_EQ(create(nic, first, {}), WEFT_ERR_OK);
  ASSERT_EQ(nic.qp_destroy(5, first), WEFT_ERR_OK);
  unsigned others = 0;
  for (std::uint32_t qpn = 0; qpn != first; ++others) {
    ASSERT_EQ(create(nic, qpn, {}), WEFT_ERR_OK);
    ASSERT_EQ(nic.qp_destroy(5, qpn), WEFT_ERR_OK);
    ASSERT_LT(others, 64u);
  }
  EXPECT_EQ(others, 62u);  // 64 numbers, of which 0 and 1 are the standard's
}

TEST(QueuePair, ModifyBoundsItsFields) {
  Net net;
  Nic& nic = *net.a().nic;
  Params p;
  std::uint32_t qpn = 0;
  create(nic, qpn, p);
  const weft_qp_entry good = remote(*net.b().nic, 2, p);
  const auto init_refused = [&](std::uint16_t pkey, std::uint8_t port) {
    weft_qp_entry entry = good;
    entry.pkey = pkey;
    entry.av.port = port;
    return to_state(nic, qpn, WEFT_QPS_INIT, kInitMask, entry, 5);
  };
  EXPECT_EQ(init_refused(0, 0), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(init_refused(0x8000, 0), WEFT_ERR_BAD_FIELD);  // membership in no partition
  EXPECT_EQ(init_refused(0xffff, 1), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(init_refused(0x8123, 0), WEFT_ERR_OK);
  weft_qp_entry init{};
  nic.qp_query(5, qpn, init);
  EXPECT_EQ(init.pkey, 0x8123);
  EXPECT_EQ(init_refused(0xffff, 0), WEFT_ERR_OK);
  const auto refused = [&](auto change) {
    weft_qp_entry entry = good;
    change(entry);
    const std::uint32_t mask = kRtrMask | WEFT_QPM_ACCESS | WEFT_QPM_SYNC | WEFT_QPM_PKEY;
    return to_state(nic, qpn, WEFT_QPS_RTR, mask, entry, 5) == WEFT_ERR_BAD_FIELD;
  };
  EXPECT_TRUE(refused([](auto& e) { e.path_mtu = 0; }));
  EXPECT_TRUE(refused([](auto& e) { e.path_mtu = 7; }));
  EXPECT_TRUE(refused([](auto& e) { e.dest_qpn = 0; }));
  EXPECT_TRUE(refused([](auto& e) { e.dest_qpn = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& e) { e.rq_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](auto& e) { e.min_rnr_timer = 32; }));
  EXPECT_TRUE(refused([](auto& e) { e.av.dmac[0] = 1; }));
  EXPECT_TRUE(refused([](auto& e) { std::memset(e.av.dmac, 0, 6); }));
  EXPECT_TRUE(refused([](auto& e) { std::memset(e.av.dgid, 0, 16); }));
  EXPECT_TRUE(refused([](auto& e) { e.av.port = 1; }));
  EXPECT_TRUE(refused([](auto& e) { e.av.sl = 8; }));
  EXPECT_TRUE(refused([](auto& e) { e.av.flow_label = 1 << 20; }));
  EXPECT_TRUE(refused([](auto& e) { e.access = 1 << 5; }));
  EXPECT_TRUE(refused([](auto& e) { e.pkey = 0; }));
  // The source: an entry of the table, of the peer's family.
  for (const unsigned index : {1u, 2u, 31u, 32u, 255u}) {
    weft_qp_entry entry = good;
    entry.av.sgid_index = static_cast<std::uint8_t>(index);
    EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask, entry, 5), WEFT_ERR_BAD_GID) << index;
  }
  EXPECT_TRUE(refused([](auto& e) {
    e.sync_base = 4000;
    e.sync_count = 97;
  }));
  for (std::uint32_t bit = 1; bit != 0; bit <<= 1) {
    if ((kRtrMask & bit) != 0) {
      EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask & ~bit, good, 5), WEFT_ERR_BAD_FIELD);
    }
    if (bit > WEFT_QPM_ALL) {
      EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask | bit, good, 5), WEFT_ERR_BAD_FIELD);
    }
  }
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask, good, 5), WEFT_ERR_OK);
  const auto rts_refused = [&](auto change) {
    weft_qp_entry entry = good;
    change(entry);
    return to_state(nic, qpn, WEFT_QPS_RTS, kRtsMask, entry, 5) == WEFT_ERR_BAD_FIELD;
  };
  EXPECT_TRUE(rts_refused([](auto& e) { e.sq_psn = 1 << 24; }));
  EXPECT_TRUE(rts_refused([](auto& e) { e.timeout = 32; }));
  EXPECT_TRUE(rts_refused([](auto& e) { e.retry_cnt = WEFT_RETRY_UNLIMITED + 1; }));
  EXPECT_TRUE(rts_refused([](auto& e) { e.rnr_retry = 8; }));
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTS, WEFT_QPM_SQ_PSN, good, 5), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTS, kRtsMask | WEFT_QPM_PATH, good, 5), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(to_state(nic, qpn, WEFT_QPS_RTS, kRtsMask, good, 5), WEFT_ERR_OK);
  // What the index named.
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
  WorkRequest r = write_request(1, 0, 1);
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
