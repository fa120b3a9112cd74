// SPDX-License-Identifier: MIT
// Every completion code, flushing, the death and rebirth of peers, and guests and frames without sense.
#include <algorithm>
#include <cstdlib>

#include "bench.hpp"

namespace weft::efa::test {

using hw::SendOp;
using hw::Status;

class EfaStatus : public ::testing::Test {
 protected:
  EfaStatus() : local(p.a.reg(65536)), remote(p.b.reg(65536)) {}
  hw::SendWqe write(std::uint32_t bytes = 64) {
    return Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, remote, bytes);
  }
  hw::SendWqe read(std::uint32_t bytes = 64) {
    return Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, local, remote, bytes);
  }
  hw::SendWqe send(std::uint32_t bytes = 64) { return Nic::send(1, p.b_qp.number, p.a_to_b, local, bytes); }
  Pair p;
  Nic::Mr local, remote;
};

TEST_F(EfaStatus, BadRequests) {
  auto w = send();
  w.control1 = static_cast<std::uint8_t>(hw::kSendMeta | 3);
  EXPECT_EQ(p.one(w), Status::kInvalidOp);
  w = send();
  w.control1 &= static_cast<std::uint8_t>(~hw::kSendMeta);
  EXPECT_EQ(p.one(w), Status::kInvalidOp);
  w = send();
  w.ah = 500;
  EXPECT_EQ(p.one(w), Status::kInvalidAh);
  w = send();
  w.buffer[0].lkey ^= 1u << 16;
  EXPECT_EQ(p.one(w), Status::kInvalidLkey);
  w = send();
  w.buffer[0] = Nic::buffer(local, 65536 - 63, 64);
  EXPECT_EQ(p.one(w), Status::kInvalidLkey);
  w = send();
  w.length = 3;
  EXPECT_EQ(p.one(w), Status::kBadLength);
  EXPECT_EQ(p.one(send(8929)), Status::kBadLength);
  w = send();
  w.length = 2;
  w.buffer[0].length = w.buffer[1].length = 0xffffffff;
  EXPECT_EQ(p.one(w), Status::kBadLength);
  w = send();
  w.control1 |= hw::kSendInline;
  w.length = 33;
  EXPECT_EQ(p.one(w), Status::kBadLength);
  w = write();
  w.control1 |= hw::kSendInline;
  EXPECT_EQ(p.one(w), Status::kBadLength);
  w = write();
  w.rdma.local.length = 63;
  EXPECT_EQ(p.one(w), Status::kBadLength);
  w = write();
  w.rdma.local.length = w.rdma.remote.length = hw::kRdmaBytes + 1;
  EXPECT_EQ(p.one(w), Status::kBadLength);
  const auto read_only = p.a.reg(4096, 0);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, read_only, remote, 8)), Status::kInvalidLkey);
  Gid odd = gid_of(p.b.mac);
  odd[0] = 0x20;  // not an address of this fabric
  w = send();
  w.ah = p.a.create_ah(odd);
  EXPECT_EQ(p.one(w), Status::kUnreachable);
}

TEST_F(EfaStatus, WhatTheOtherSideRefuses) {
  EXPECT_EQ(p.one(write(0)), Status::kOk);
  auto w = write();
  w.rdma.remote.rkey ^= 1;
  EXPECT_EQ(p.one(w), Status::kRemoteBadAddress);
  w = read();
  w.rdma.remote.address.low += 65536;
  EXPECT_EQ(p.one(w), Status::kRemoteBadAddress);
  const auto no_write = p.b.reg(4096, hw::kRemoteRead), no_read = p.b.reg(4096, hw::kRemoteWrite);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, no_write, 8)),
            Status::kRemoteBadAddress);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, local, no_write, 8)), Status::kOk);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, local, no_read, 8)), Status::kRemoteBadAddress);
  w = write();
  w.destination_qp = 200;
  EXPECT_EQ(p.one(w), Status::kRemoteBadQpn);
  w = send();
  w.qkey = 1;
  EXPECT_EQ(p.one(w), Status::kRemoteBadQpn);
  p.b.post_receive(p.b_qp, 1, remote, 63);
  EXPECT_EQ(p.one(send()), Status::kRemoteBadLength);
  EXPECT_EQ(p.one(send(63)), Status::kOk);  // it is still posted
  EXPECT_EQ(p.wire.collect(p.b, p.b_cq, 1)[0].status, Status::kOk);
  // a receive buffer of a foreign key: both sides hear
  Nic::Mr foreign = remote;
  foreign.lkey ^= 1u << 17;
  p.b.post_receive(p.b_qp, 9, foreign, 64);
  EXPECT_EQ(p.one(send()), Status::kRemoteBadAddress);
  EXPECT_EQ(p.wire.collect(p.b, p.b_cq, 1)[0].status, Status::kInvalidLkey);
  // its domain is another one
  const auto domain = p.b.pd;
  p.b.pd = p.b.take(hw::kAllocPd);
  const auto elsewhere = p.b.reg(4096);
  p.b.pd = domain;
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, elsewhere, 8)),
            Status::kRemoteBadAddress);
}

TEST_F(EfaStatus, MemoryThatIsNotThere) {
  const auto nowhere_here = p.a.reg_at(0xdead0000, 4096, 0x10000);
  const auto nowhere_there = p.b.reg_at(0xdead0000, 4096, 0x10000);
  auto w = Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, nowhere_here, remote, 8);
  EXPECT_EQ(p.one(w), Status::kInternalError);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, nowhere_there, 8)),
            Status::kRemoteBadAddress);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, local, nowhere_there, 8)),
            Status::kRemoteBadAddress);
  EXPECT_EQ(p.one(Nic::rdma(SendOp::kRead, 1, p.b_qp.number, p.a_to_b, nowhere_here, remote, 8)),
            Status::kInternalError);
  EXPECT_EQ(p.one(write()), Status::kOk);  // the queue lives on
}

TEST_F(EfaStatus, UnknownAnswersAreBadStatus) {
  // Change the status in an acknowledgement on its way.
  p.a.post(p.a_qp, write());
  p.a.step();
  ASSERT_EQ(p.a.host.sent[0].size(), 1u);
  auto frame = p.a.host.sent[0].front();
  p.a.host.sent[0].clear();
  p.b.model->link_receive(p.b.device(), 0, 0, frame.data(), frame.size());
  p.b.step();
  ASSERT_EQ(p.b.host.sent[0].size(), 1u);
  auto ack = p.b.host.sent[0].front();
  p.b.host.sent[0].clear();
  ack[wire::kHeadBytes] = std::byte{0x70};
  p.a.model->link_receive(p.a.device(), 0, 1, ack.data(), ack.size());
  p.a.step();
  const auto cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kRemoteBadStatus);
}

TEST_F(EfaStatus, SilenceIsUnreachableOrUnresponsive) {
  p.wire.cut = true;
  p.a.post(p.a_qp, write());
  p.wire.rounds(60, 100'000'000);
  auto cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnreachable);
  p.wire.cut = false;
  EXPECT_EQ(p.one(write()), Status::kOk);
  p.wire.cut = true;
  p.a.post(p.a_qp, send());
  p.wire.rounds(40, 100'000'000);
  EXPECT_FALSE(p.a.poll(p.a_cq));
  p.wire.rounds(20, 100'000'000);
  cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnresponsive);
  p.wire.cut = false;
  EXPECT_EQ(p.one(write()), Status::kOk);
}

TEST_F(EfaStatus, ALinkThatIsDownEndsWhatWaitsForIt) {
  p.a.model->link_state(p.a.device(), 0, 0);
  p.a.post(p.a_qp, write());
  p.wire.rounds(49, 100'000'000);
  EXPECT_FALSE(p.a.poll(p.a_cq));
  p.wire.rounds(3, 100'000'000);
  const auto cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kUnreachable);
  EXPECT_EQ(p.a.step().more, 0u);
  p.a.model->link_state(p.a.device(), 0, 1);
  EXPECT_EQ(p.one(write()), Status::kOk);
}

TEST_F(EfaStatus, WithoutCreditNothingIsLostOrReadTwice) {
  p.a.host.no_credit = true;
  p.a.post(p.a_qp, write(60000));
  p.wire.rounds(20);
  EXPECT_TRUE(p.a.host.sent[0].empty());
  EXPECT_EQ(p.a.step().more, 0u);
  p.a.host.no_credit = false;
  p.a.model->link_ready(p.a.device(), 0, 0);
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
  EXPECT_EQ(p.a.host.counters.read_bytes[WEFT_ABI_DMA_PAYLOAD][0], 60000u);
}

// A peer that was reset: 14 when it answers that it does not know us, 8 when it speaks first.
TEST_F(EfaStatus, PeersThatWereReset) {
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

TEST_F(EfaStatus, AQueuePairThatGoesWhileItIsRead) {
  p.a.post(p.a_qp, read(65536));
  p.wire.round();
  hw::DestroyQpCommand destroy{};
  destroy.handle = p.b_qp.handle;
  // b has taken the read on and sent nothing yet
  p.b.host.no_credit = true;
  p.b.step();
  EXPECT_EQ(p.b.admin(hw::kDestroyQp, destroy).status, hw::AdminStatus::kSuccess);
  p.b.host.no_credit = false;
  p.b.model->link_ready(p.b.device(), 0, 0);
  p.b.model->link_ready(p.b.device(), 0, 1);
  const auto status = p.wire.collect(p.a, p.a_cq, 1)[0].status;
  EXPECT_EQ(status, Status::kRemoteAbort);
}

TEST_F(EfaStatus, ErrorFlushesBothQueues) {
  p.wire.cut = true;
  for (std::uint16_t i = 0; i < 10; ++i) {
    auto w = send();
    w.request = i;
    p.a.post(p.a_qp, w);
  }
  for (std::uint16_t i = 0; i < 5; ++i) p.a.post_receive(p.a_qp, 100 + i, local, 64, 64 * i);
  p.wire.rounds(5);
  EXPECT_EQ(p.a.modify(p.a_qp, hw::QpState::kError), hw::AdminStatus::kSuccess);
  p.a.settle();
  std::vector<std::uint16_t> sends, receives;
  while (auto cqe = p.a.poll(p.a_cq)) {
    EXPECT_EQ(cqe->status, Status::kFlushed);
    ((cqe->flags & 6) == 2 ? sends : receives).push_back(cqe->request);
  }
  EXPECT_EQ(sends, (std::vector<std::uint16_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(receives, (std::vector<std::uint16_t>{100, 101, 102, 103, 104}));
  // What is posted later is flushed too
  p.a.post(p.a_qp, send());
  p.a.post_receive(p.a_qp, 105, local, 64);
  p.a.settle();
  EXPECT_EQ(p.a.poll(p.a_cq)->status, Status::kFlushed);
  EXPECT_EQ(p.a.poll(p.a_cq)->status, Status::kFlushed);
  EXPECT_FALSE(p.a.poll(p.a_cq));
  p.wire.cut = false;
  // Nobody sends to it now
  p.b.post(p.b_qp, Nic::send(1, p.a_qp.number, p.b_to_a, remote, 8));
  EXPECT_EQ(p.wire.collect(p.b, p.b_cq, 1)[0].status, Status::kRemoteBadQpn);
}

TEST_F(EfaStatus, MemoryThatGoesWhileItIsUsed) {
  p.a.post(p.a_qp, write(60000));
  p.a.step(1);
  EXPECT_EQ(p.a.dereg(local.lkey), hw::AdminStatus::kSuccess);
  const auto status = p.wire.collect(p.a, p.a_cq, 1)[0].status;
  EXPECT_TRUE(status == Status::kInvalidLkey) << static_cast<int>(status);
}

TEST_F(EfaStatus, ADeviceThatIsResetUnderLoadIsQuiet) {
  for (int i = 0; i < 20; ++i) p.a.post(p.a_qp, write(60000));
  p.a.step();
  p.a.write(hw::kDeviceControl, 1);
  p.a.settle();
  p.a.host.sent[0].clear();
  const std::size_t writes = p.a.host.writes.size();
  p.wire.rounds(50, 200'000'000);
  EXPECT_EQ(p.a.host.writes.size(), writes);
  EXPECT_FALSE(p.a.poll(p.a_cq));
}

// ---- Nonsense

// WEFT_FUZZ_SEEDS=N for more of it.
std::uint32_t seeds() {
  const char* wanted = std::getenv("WEFT_FUZZ_SEEDS");
  return wanted != nullptr ? static_cast<std::uint32_t>(std::atoi(wanted)) : 20;
}

TEST(EfaNonsense, DoorbellsBeyondTheRing) {
  Pair p;
  p.a.write(p.a_qp.send_doorbell, 65, hw::kDoorbellBar);
  p.a.write(p.a_qp.receive_doorbell, 65, hw::kDoorbellBar);
  p.a.write(p.a_qp.send_doorbell, 0xffff, hw::kDoorbellBar);
  p.a.write(hw::kAqDoorbell, 0x8000);
  p.a.settle();
  EXPECT_FALSE(p.a.poll(p.a_cq));
  unsigned named = 0;
  for (const auto& line : p.a.host.log) named += line.event == "efa_bad_doorbell";
  EXPECT_EQ(named, 4u);
}

// Random commands, work requests and doorbells; ASan and UBSan judge.
TEST(EfaNonsense, RandomGuests) {
  for (std::uint32_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(seed);
    Pair p(Options{}, 0, seed);
    const auto mr = p.a.reg(65536), there = p.b.reg(65536);
    std::mt19937 random(seed);
    p.wire.loss = 0.05;
    for (int i = 0; i < 400; ++i) {
      switch (random() % 6) {
        case 0: {
          hw::AdminEntry entry;
          for (auto& byte : entry) byte = static_cast<std::byte>(random() % 4 ? 0 : random());
          struct Raw {
            hw::AdminHead head;
            std::array<std::byte, 60> rest;
          } raw;
          std::memcpy(&raw, entry.data(), sizeof(raw));
          p.a.admin(static_cast<std::uint8_t>(random() % 21), raw, static_cast<std::uint8_t>(random() % 8));
          break;
        }
        case 1: {
          hw::SendWqe w =
              Nic::rdma(static_cast<SendOp>(random() % 3), 1, p.b_qp.number, p.a_to_b, mr, there, random() % 65537);
          auto bytes = std::as_writable_bytes(std::span(&w, 1));
          if (random() % 2) bytes[random() % 64] = static_cast<std::byte>(random());
          p.a.post(p.a_qp, w);
          break;
        }
        case 2:
          p.a.write(static_cast<std::uint32_t>(random() % (hw::kDoorbellBytes / 4) * 4),
                    static_cast<std::uint32_t>(random()), hw::kDoorbellBar);
          break;
        case 3: {
          auto bytes = p.a.host.find(p.a_qp.rq, 64 * 16);
          for (int k = 0; k < 64 * 16; ++k) bytes[k] = static_cast<std::byte>(random());
          p.a.write(p.a_qp.receive_doorbell, static_cast<std::uint32_t>(random() % 65), hw::kDoorbellBar);
          break;
        }
        case 4:
          p.b.post(p.b_qp, Nic::send(1, p.a_qp.number, p.b_to_a, there, random() % 4096));
          break;
        default:
          p.wire.round(random() % 1'000'000'000);
      }
    }
    p.wire.rounds(50);
  }
}

TEST(EfaNonsense, RandomRegisters) {
  for (std::uint32_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(seed);
    Nic nic(1);
    nic.open();
    std::mt19937 random(seed);
    for (int i = 0; i < 2000; ++i) {
      const std::uint32_t size = 1u << random() % 4;
      const std::uint64_t offset = random() % 0x80 & ~std::uint64_t{size - 1};
      nic.model->region_write(nic.device(), random() % 6, offset, random(), size);
      nic.model->region_read(nic.device(), random() % 6, offset, size);
      if (random() % 4 == 0) nic.step();
    }
  }
}

// Real frames with changed bytes, and noise.
TEST(EfaNonsense, RandomFrames) {
  for (std::uint32_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(seed);
    Pair p(Options{}, 0, seed);
    const auto mr = p.a.reg(65536), there = p.b.reg(65536);
    std::mt19937 random(seed);
    for (int i = 0; i < 50; ++i) p.b.post_receive(p.b_qp, static_cast<std::uint16_t>(i), there, 512, 512 * i);
    for (int i = 0; i < 40; ++i) {
      p.a.post(p.a_qp, i % 3 == 2
                           ? Nic::send(1, p.b_qp.number, p.a_to_b, mr, 500)
                           : Nic::rdma(static_cast<SendOp>(1 + i % 3), 1, p.b_qp.number, p.a_to_b, mr, there, 30000));
    }
    for (int i = 0; i < 200; ++i) {
      for (auto [from, to] : {std::pair(&p.a, &p.b), std::pair(&p.b, &p.a)}) {
        from->host.now += 1'000'000;
        from->step();
        auto& sent = from->host.sent[0];
        while (!sent.empty()) {
          auto frame = sent.front();
          sent.pop_front();
          if (random() % 3 == 0) {
            for (unsigned k = random() % 8; k > 0; --k)
              frame[12 + random() % std::min<std::size_t>(80, frame.size() - 12)] = static_cast<std::byte>(random());
            if (random() % 4 == 0) frame.resize(random() % (frame.size() + 1));
          }
          to->model->link_receive(to->device(), 0, random() % 2, frame.data(), frame.size());
        }
      }
    }
  }
}

}  // namespace weft::efa::test
