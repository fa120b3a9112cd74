// SPDX-License-Identifier: MIT
// Peers: what is damaged on the way, who is silent, who is gone, who was reset, who never was, and how many there are.
#include <algorithm>
#include <set>

#include "bench.hpp"
#include "transport.hpp"

namespace weft::efa::test {

using hw::SendOp;
using hw::Status;

namespace {

constexpr std::uint64_t kMs = 1'000'000;

class EfaPeer : public ::testing::Test {
 protected:
  EfaPeer() : local(p.a.reg(kBytes)), remote(p.b.reg(kBytes)) { fill_pattern(p.a.memory(local, kBytes), 5); }

  hw::SendWqe write(std::uint32_t bytes = 64, std::uint16_t request = 1) {
    return Nic::rdma(SendOp::kWrite, request, p.b_qp.number, p.a_to_b, local, remote, bytes);
  }
  hw::SendWqe read(std::uint32_t bytes = 64) {
    return Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, local, remote, bytes);
  }
  hw::SendWqe send(std::uint32_t bytes = 64) { return Nic::send(1, p.b_qp.number, p.a_to_b, local, bytes); }
  // The next completion, if any, within so many rounds of 10 ms.
  std::optional<hw::Cqe> within(unsigned rounds) {
    for (unsigned i = 0; i < rounds; ++i) {
      p.wire.round(10 * kMs);
      if (auto cqe = p.a.poll(p.a_cq)) return cqe;
    }
    return std::nullopt;
  }
  bool exact(std::size_t bytes) { return std::ranges::equal(p.b.memory(remote, bytes), p.a.memory(local, bytes)); }
  void station(Nic& told, const Nic& of, bool up) { told.model->link_station(told.device(), 0, of.mac.data(), up); }

  static constexpr std::size_t kBytes = 1 << 20;
  Pair p;
  Nic::Mr local, remote;
};

}  // namespace

// ---- Damage

TEST_F(EfaPeer, AFrameWithAnyChangedByteChangesNothing) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  // Each kind of frame on its way from a to b or back, every byte of it changed, one at a time, then unchanged.
  const auto try_all = [](Nic& to, const std::vector<std::byte>& frame) {
    const std::size_t before = to.count("efa_bad_checksum") + to.count("efa_bad_frame");
    const std::size_t writes = to.host.writes.size(), maps = to.host.maps;
    for (std::size_t i = 0; i < frame.size(); ++i) {
      auto changed = frame;
      changed[i] ^= static_cast<std::byte>(1u << i % 8);
      to.receive(changed);
    }
    to.step();
    EXPECT_TRUE(to.host.sent[0].empty());
    EXPECT_EQ(to.host.writes.size(), writes);
    EXPECT_EQ(to.host.maps, maps);
    // With another destination it is nobody's; all others are counted.
    EXPECT_EQ(to.count("efa_bad_checksum") + to.count("efa_bad_frame") - before, frame.size() - 6);
    to.receive(frame);
    to.step();
  };
  p.b.post_receive(p.b_qp, 1, remote, 512, 4096);
  unsigned kinds = 0;
  for (const auto& w : {send(100), write(3000), read(500)}) {
    p.a.post(p.a_qp, w);
    p.a.step();
    for (int turn = 0; turn < 4; ++turn) {
      for (auto [from, to] : {std::pair(&p.a, &p.b), std::pair(&p.b, &p.a)}) {
        while (!from->host.sent[0].empty()) {
          try_all(*to, from->take_frame());
          ++kinds;
        }
      }
    }
    const auto cqe = p.a.poll(p.a_cq);
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->status, Status::kOk);
  }
  EXPECT_EQ(kinds, 2u + 2u + 4u);  // with their acknowledgements; a read has data too
  EXPECT_TRUE(exact(3000));
}

// ---- Silence

TEST_F(EfaPeer, TwentySecondsOfSilenceAreNoFailure) {
  for (const bool known : {false, true}) {
    SCOPED_TRACE(known);
    std::ranges::fill(p.b.memory(remote, kBytes), std::byte{0});
    const auto back = p.a.reg(200000);
    for (std::uint16_t i = 0; i < 4; ++i) p.b.post_receive(p.b_qp, i, remote, 512, 900000);
    p.a.post(p.a_qp, write(800000, 1));
    p.a.post(p.a_qp, Nic::rdma(SendOp::kRead, 2, p.b_qp.number, p.a_to_b, back, remote, 0));
    for (std::uint16_t i = 0; i < 4; ++i) p.a.post(p.a_qp, Nic::send(3 + i, p.b_qp.number, p.a_to_b, local, 500));
    if (known) p.wire.rounds(1, 1000);  // some of it has arrived
    p.wire.stopped = &p.b;
    const auto before = p.wire.frames;
    p.wire.rounds(200, 100 * kMs);
    EXPECT_FALSE(p.a.poll(p.a_cq));
    // What is sent again meanwhile is little.
    EXPECT_LT(p.wire.frames - before, wire::kWindow + 5 * 32 + 60);
    p.wire.stopped = nullptr;
    for (const auto& cqe : p.wire.collect(p.a, p.a_cq, 6)) EXPECT_EQ(cqe.status, Status::kOk);
    EXPECT_EQ(p.wire.collect(p.b, p.b_cq, 4).size(), 4u);
    p.wire.rounds(100);
    EXPECT_FALSE(p.b.poll(p.b_cq));  // once each
    EXPECT_TRUE(exact(800000));
  }
  EXPECT_EQ(p.a.count("efa_peer_timeout") + p.b.count("efa_peer_timeout"), 0u);
}

TEST_F(EfaPeer, TheStoppedOneAlsoGoesOn) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.a.post(p.a_qp, write(800000));
  p.wire.rounds(3, 1000);
  p.wire.stopped = &p.a;  // it has unacknowledged frames, and its clock has moved on when it wakes up
  p.wire.rounds(200, 100 * kMs);
  p.wire.stopped = nullptr;
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
  EXPECT_TRUE(exact(800000));
}

TEST_F(EfaPeer, AWireThatCarriesNothingForTwentySeconds) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.wire.cut = true;
  p.a.post(p.a_qp, write(800000));
  p.wire.rounds(220, 100 * kMs);  // and two more: one that doubles its waits without a bound sends after 20 and 41 s
  EXPECT_FALSE(p.a.poll(p.a_cq));
  p.wire.cut = false;
  const auto cqe = within(200);  // resending never waits longer than a second
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kOk);
  EXPECT_TRUE(exact(800000));
}

TEST_F(EfaPeer, OneThatWasNeverHeardIsUnreachableInTheEnd) {
  p.wire.cut = true;
  p.a.post(p.a_qp, write());
  EXPECT_FALSE(within(4000));
  const auto cqe = within(4000);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnreachable);
  p.wire.cut = false;
  EXPECT_EQ(p.one(write()), Status::kOk);
}

TEST_F(EfaPeer, WhatIsLostGoesAgainAtTheDeadlineThatStepNames) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  EXPECT_EQ(p.a.step().deadline_ns, UINT64_MAX);  // nothing is under way
  p.a.post(p.a_qp, write());
  p.a.step();
  p.a.host.sent[0].clear();
  std::uint64_t after = 0;
  for (int i = 0; i < 12; ++i) {
    const std::uint64_t due = p.a.step().deadline_ns;
    ASSERT_NE(due, UINT64_MAX);
    p.a.host.now = due - 1;
    p.a.step();
    EXPECT_TRUE(p.a.host.sent[0].empty());
    const std::uint64_t began = p.a.host.now;
    p.a.host.now = due;
    p.a.step();
    EXPECT_EQ(p.a.host.sent[0].size(), 1u);
    p.a.host.sent[0].clear();
    const std::uint64_t wait = p.a.step().deadline_ns - began;
    EXPECT_GE(wait, after);
    EXPECT_LE(wait, Transport::kResendMaxNs + 1);
    after = wait - 1;
  }
  EXPECT_EQ(after, Transport::kResendMaxNs);
}

// ---- Death

TEST_F(EfaPeer, ALinkThatIsDownEndsEverythingAtOnce) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.a.post(p.a_qp, write(800000));
  p.wire.rounds(2, 1000);
  p.a.model->link_state(p.a.device(), 0, 0);
  p.a.step();
  auto cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnreachable);
  p.a.post(p.a_qp, send());
  p.a.step();
  cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnreachable);
  const auto self = p.a.create_ah(p.a);  // needs no link
  p.a.post(p.a_qp, Nic::rdma(SendOp::kRead, 3, p.a_qp.number, self, local, local, 64));
  p.a.settle();
  EXPECT_EQ(p.a.poll(p.a_cq)->status, Status::kOk);
  EXPECT_EQ(p.a.step().more, 0u);
  EXPECT_EQ(p.a.step().deadline_ns, UINT64_MAX);
  p.a.model->link_state(p.a.device(), 0, 1);
  EXPECT_EQ(p.one(write()), Status::kOk);
}

TEST_F(EfaPeer, AStationThatIsGoneEndsItsRequestsAtOnce) {
  Nic c(3);
  Wire wire({&p.a, &p.b, &c});
  c.open();
  c.domain();
  auto c_cq = c.create_cq();
  auto c_qp = c.create_qp(hw::QpType::kSrd, c_cq, c_cq);
  const auto c_mr = c.reg(kBytes);
  c.create_ah(p.a);
  auto other_cq = p.a.create_cq();
  auto other = p.a.create_qp(hw::QpType::kSrd, other_cq, other_cq);
  const auto a_to_c = p.a.create_ah(c);

  ASSERT_EQ(p.one(write()), Status::kOk);
  p.a.post(p.a_qp, read(500000));
  p.a.post(p.a_qp, write(500000));
  p.a.post(p.a_qp, send());  // finds no buffer, is to be tried again
  p.a.post(other, Nic::rdma(SendOp::kWrite, 9, c_qp.number, a_to_c, local, c_mr, 500000));
  wire.rounds(4, 1000);
  EXPECT_FALSE(p.a.poll(p.a_cq));
  wire.stopped = &p.b;  // dead
  station(p.a, p.b, false);
  for (int i = 0; i < 3; ++i) {
    const auto cqe = p.a.poll(p.a_cq);  // before any time has passed
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->status, Status::kUnresponsive);
  }
  EXPECT_EQ(wire.collect(p.a, other_cq, 1)[0].status, Status::kOk);  // nobody else suffers
  // What comes later is tried for some seconds: it may be back without having spoken.
  p.a.post(p.a_qp, write());
  wire.rounds(500, 10 * kMs);
  const auto cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnresponsive);
  wire.stopped = nullptr;
  p.a.post(p.a_qp, write());
  EXPECT_EQ(wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
  // It is back, as it was: silence is no failure any more.
  p.wire.cut = true;
  p.a.post(p.a_qp, write());
  EXPECT_FALSE(within(2000));
  p.wire.cut = false;
  EXPECT_TRUE(within(200));
  // One that was never heard and goes
  station(c, p.b, false);
  c.post(c_qp, Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, c.create_ah(p.b), c_mr, remote, 8));
  c.step();
  station(c, p.b, false);
  EXPECT_EQ(c.poll(c_cq)->status, Status::kUnreachable);
}

TEST_F(EfaPeer, AStationThatIsBackIsNotGone) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  station(p.a, p.b, false);
  station(p.a, p.b, true);
  p.wire.cut = true;
  p.a.post(p.a_qp, write());
  EXPECT_FALSE(within(2000));
  p.wire.cut = false;
  EXPECT_TRUE(within(200));
}

TEST_F(EfaPeer, AReadThatIsNotAnsweredAnyMoreEnds) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.a.post(p.a_qp, read(500000));
  p.wire.rounds(3, 1000);
  // b gives up what it had to send, and nobody tells a
  p.b.model->link_state(p.b.device(), 0, 0);
  p.b.step();
  p.b.host.sent[0].clear();
  p.b.model->link_state(p.b.device(), 0, 1);
  const auto cqe = within(500);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kRemoteAbort);
  EXPECT_EQ(p.one(read(500000)), Status::kOk);
}

TEST_F(EfaPeer, AReadThatTakesLongIsNotEnded) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.a.post(p.a_qp, read(100));
  p.a.step();
  p.b.receive(p.a.take_frame());
  p.b.host.no_credit = true;  // its answer waits for credit
  p.b.step();
  p.b.host.no_credit = false;
  p.b.model->link_ready(p.b.device(), 0, 1);
  p.b.step();
  EXPECT_FALSE(within(1000));
  p.b.model->link_ready(p.b.device(), 0, 0);
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
}

// ---- Other lives

// A peer that was reset: 14 when it answers that it does not know us, 8 when it speaks first.
TEST_F(EfaPeer, PeersThatWereReset) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  EXPECT_EQ(p.b.model->reset(p.b.device(), WEFT_ABI_RESET_FLR), 0);
  EXPECT_EQ(p.one(write()), Status::kUnknownPeer);
  EXPECT_EQ(p.one(write()), Status::kRemoteBadQpn);  // now they know each other

  p.a.post(p.a_qp, write());
  p.a.step();
  p.a.host.sent[0].clear();  // lost
  EXPECT_EQ(p.b.model->reset(p.b.device(), WEFT_ABI_RESET_FLR), 0);
  p.b.reopen();
  p.b.domain();
  p.b_cq = p.b.create_cq();
  p.b_qp = p.b.create_qp(hw::QpType::kSrd, p.b_cq, p.b_cq);
  p.b_to_a = p.b.create_ah(p.a);
  const auto mr = p.b.reg(4096);
  p.b.post(p.b_qp, Nic::rdma(SendOp::kRead, 1, p.a_qp.number, p.b_to_a, mr, local, 8));
  EXPECT_EQ(p.wire.collect(p.b, p.b_cq, 1)[0].status, Status::kOk);
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kRemoteAbort);
}

TEST_F(EfaPeer, AReadOfAPeerThatWasResetEnds) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.a.post(p.a_qp, read(500000));
  p.wire.rounds(3, 1000);
  EXPECT_EQ(p.b.model->reset(p.b.device(), WEFT_ABI_RESET_FLR), 0);
  p.b.host.sent[0].clear();
  const auto cqe = within(500);  // it is asked, and does not know us
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnknownPeer);
}

TEST_F(EfaPeer, ForgedFramesEndNothing) {
  std::mt19937_64 random(3);
  const auto forge = [&](Nic& to, const Nic& from) {
    for (std::uint8_t type = 0; type < 12; ++type) {
      wire::Head head{};
      head.type = static_cast<wire::Type>(type);
      head.source_epoch = static_cast<std::uint32_t>(random());
      if (random() % 2) head.destination_epoch = static_cast<std::uint32_t>(random());
      head.op = static_cast<std::uint32_t>(random() % 4);
      head.destination_qp = static_cast<std::uint16_t>(random() % 4);
      head.seq = head.base = random() % 1000;
      to.receive(make_frame(to.mac, from.mac, head));
    }
  };
  for (int i = 0; i < 3; ++i) forge(p.a, p.b), forge(p.b, p.a);  // before they know each other
  for (int i = 0; i < 20; ++i) p.a.post(p.a_qp, i % 2 ? read(200000) : write(200000));
  for (int i = 0; i < 200; ++i) {
    p.wire.round();
    forge(p.a, p.b);
    forge(p.b, p.a);
  }
  for (const auto& cqe : p.wire.collect(p.a, p.a_cq, 20)) EXPECT_EQ(cqe.status, Status::kOk);
  EXPECT_TRUE(exact(200000));
  EXPECT_EQ(p.a.count("efa_peer_reset") + p.b.count("efa_peer_reset"), 0u);
  EXPECT_GT(p.a.count("efa_stale_frame"), 1000u);
}

// ---- How many

TEST_F(EfaPeer, RequestsToNobodyLeaveRoomForOthers) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  // More than there is room for, each with something under way; the handles can go while it is.
  constexpr std::uint32_t kNobodies = Transport::kPeersMax + 500;
  std::vector<Nic::Qp> qps;
  auto cq = p.a.create_cq(8192);
  for (std::uint32_t i = 0; i < kNobodies; ++i) {
    if (i % 1000 == 0) qps.push_back(p.a.create_qp(hw::QpType::kSrd, cq, cq, 1024, 1));
    const Mac nobody = {2, 0, 0, 1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    hw::DestroyAhCommand destroy{};
    destroy.ah = p.a.create_ah(gid_of(nobody));
    destroy.pd = p.a.pd;
    p.a.post(qps.back(), Nic::send(static_cast<std::uint16_t>(i), 1, destroy.ah, local, 8));
    p.a.step();
    ASSERT_EQ(p.a.admin(hw::kDestroyAh, destroy).status, hw::AdminStatus::kSuccess);
    p.a.host.sent[0].clear();
  }
  EXPECT_EQ(p.a.count("efa_too_many_peers"), 0u);
  EXPECT_EQ(p.one(write()), Status::kOk);  // who was heard stays
  Nic c(3);
  Wire wire({&p.a, &p.b, &c});
  c.open();
  c.domain();
  auto c_cq = c.create_cq();
  auto c_qp = c.create_qp(hw::QpType::kSrd, c_cq, c_cq);
  const auto c_mr = c.reg(4096);
  c.create_ah(p.a);
  p.a.post(p.a_qp, Nic::rdma(SendOp::kWrite, 7, c_qp.number, p.a.create_ah(c), local, c_mr, 64));
  EXPECT_EQ(wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
  // The first ones were given up for the later ones.
  for (std::uint32_t i = 0; i < 100; ++i) {
    const auto cqe = p.a.poll(cq);
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->request, i);
    EXPECT_EQ(cqe->status, Status::kUnreachable);
  }
}

TEST_F(EfaPeer, FramesOfNobodyLeaveRoomForOthers) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  for (std::uint32_t i = 0; i < 3 * Transport::kPeersMax; ++i) {
    wire::Head head{};
    head.type = i % 3 ? wire::Type::kSend : wire::Type::kDatagram;
    head.source_epoch = i + 1;
    const Mac nobody = {2, 0, 0, 1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    p.b.receive(make_frame(p.b.mac, nobody, head));
    p.b.host.sent[0].clear();
  }
  EXPECT_EQ(p.b.count("efa_too_many_peers"), 0u);
  EXPECT_GT(p.b.count("efa_peer_evicted"), 1000u);
  EXPECT_EQ(p.one(write()), Status::kOk);
  EXPECT_EQ(p.b.count("efa_peer_reset"), 0u);
}

TEST_F(EfaPeer, TheLongestIdleGoesAndComesBack) {
  ASSERT_EQ(p.one(write()), Status::kOk);
  p.wire.rounds(10);
  // As many as there is room for beside a show b its epoch, as real ones do.
  for (std::uint32_t i = 0; i < Transport::kPeersMax - 1; ++i) {
    wire::Head head{};
    head.type = wire::Type::kSend;
    head.source_epoch = i + 1;
    const Mac mac = {2, 0, 0, 1, static_cast<std::uint8_t>(i >> 8), static_cast<std::uint8_t>(i)};
    p.b.receive(make_frame(p.b.mac, mac, head));
    head.destination_epoch = head_of(p.b.take_frame()).source_epoch;
    p.b.receive(make_frame(p.b.mac, mac, head));
    p.b.step();
    p.b.host.sent[0].clear();
  }
  // Room for one of ours is made of the longest idle.
  const Mac nobody = {2, 0, 0, 2, 0, 0};
  p.b.post(p.b_qp, Nic::send(1, 1, p.b.create_ah(gid_of(nobody)), remote, 8));
  p.b.step();
  EXPECT_EQ(p.b.count("efa_peer_evicted"), 1u);
  p.b.host.sent[0].clear();
  // That was a, which hears of it as of a reset, and goes on.
  EXPECT_EQ(p.one(write()), Status::kUnknownPeer);
  EXPECT_EQ(p.one(write(1000)), Status::kOk);
  EXPECT_TRUE(exact(1000));
}

// ---- Fairness

TEST_F(EfaPeer, ALongWriteWithImmediateLeavesOthersTheirTurn) {
  auto other_cq = p.a.create_cq();
  auto other = p.a.create_qp(hw::QpType::kSrd, other_cq, other_cq);
  constexpr std::uint32_t kLong = 8 << 20;
  const auto from = p.a.reg(kLong), to = p.b.reg(kLong);
  for (std::uint16_t i = 0; i < 4; ++i) p.b.post_receive(p.b_qp, i, remote, 64);
  p.a.post(p.a_qp, Nic::with_immediate(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, from, to, kLong), 3));
  p.wire.rounds(5);
  const auto before = p.wire.frames;
  for (std::uint16_t i = 0; i < 16; ++i) p.a.post(other, write(64, i));
  for (const auto& cqe : p.wire.collect(p.a, other_cq, 16)) EXPECT_EQ(cqe.status, Status::kOk);
  EXPECT_FALSE(p.a.poll(p.a_cq));  // which would have been long done otherwise
  EXPECT_LT(p.wire.frames - before, kLong / 8192 / 2);
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
}

}  // namespace weft::efa::test
