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
  ASSERT_EQ(p.one(write()), Status::kOk);
  // Change the status in an acknowledgement on its way.
  p.a.post(p.a_qp, write());
  p.a.step();
  ASSERT_EQ(p.a.host.sent[0].size(), 1u);
  p.b.receive(p.a.take_frame());
  p.b.step();
  ASSERT_EQ(p.b.host.sent[0].size(), 1u);
  auto ack = p.b.take_frame();
  ack.back() = std::byte{0x70};
  seal(ack);
  p.a.receive(ack);
  p.a.step();
  const auto cqe = p.a.poll(p.a_cq);
  ASSERT_TRUE(cqe);
  EXPECT_EQ(cqe->status, Status::kRemoteBadStatus);
}

TEST_F(EfaStatus, WithoutCreditNothingIsLostOrReadTwice) {
  ASSERT_EQ(p.one(write(0)), Status::kOk);
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

TEST_F(EfaStatus, AQueuePairThatGoesWhileItIsRead) {
  ASSERT_EQ(p.one(write()), Status::kOk);
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

// Two queue pairs of p.b and a third NIC: what they do is right whatever somebody else does.
class Bystander {
 public:
  explicit Bystander(Nic& victim) : victim_(victim), c_(3), wire_({&victim, &c_}) {
    c_.open();
    c_.domain();
    cq_ = c_.create_cq();
    qp_ = c_.create_qp(hw::QpType::kSrd, cq_, cq_);
    victim_cq_ = victim.create_cq();
    victim_qp_ = victim.create_qp(hw::QpType::kSrd, victim_cq_, victim_cq_);
    from_ = c_.reg(kBytes);
    to_ = victim.reg(kBytes);
    ah_ = c_.create_ah(victim);
    victim.create_ah(c_);
  }
  void check() {
    fill_pattern(c_.memory(from_, kBytes), ++round_);
    c_.post(qp_, Nic::rdma(SendOp::kWrite, 1, victim_qp_.number, ah_, from_, to_, kBytes));
    EXPECT_EQ(wire_.collect(c_, cq_, 1)[0].status, Status::kOk);
    EXPECT_TRUE(std::ranges::equal(victim_.memory(to_, kBytes), c_.memory(from_, kBytes)));
    EXPECT_FALSE(victim_.poll(victim_cq_));
  }

 private:
  static constexpr std::uint32_t kBytes = 50000;
  Nic& victim_;
  Nic c_;
  Wire wire_;
  Nic::Cq cq_{}, victim_cq_{};
  Nic::Qp qp_{}, victim_qp_{};
  Nic::Mr from_{}, to_{};
  std::uint16_t ah_ = 0;
  std::uint32_t round_ = 0;
};

// Random commands, work requests and doorbells of a guest: another one does not notice. (ASan and UBSan judge, too.)
TEST(EfaNonsense, RandomGuests) {
  std::size_t refused = 0, carried_out = 0, failed = 0;
  for (std::uint32_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(seed);
    Pair p(Options{}, 0, seed);
    Bystander bystander(p.b);
    const auto mr = p.a.reg(65536), there = p.b.reg(65536);
    std::mt19937 random(seed);
    p.wire.loss = 0.05;
    for (int i = 0; i < 400; ++i) {
      switch (random() % 6) {
        case 0: {
          struct Raw {
            hw::AdminHead head;
            std::array<std::byte, 60> rest;
          } raw{};
          for (auto& byte : raw.rest) byte = static_cast<std::byte>(random() % 4 ? 0 : random());
          const auto opcode = static_cast<std::uint8_t>(random() % 21);
          if (opcode == hw::kModifyQp && raw.rest[4] == std::byte{0})
            raw.rest[4] = std::byte{200};  // not the one we use
          refused +=
              p.a.admin(opcode, raw, static_cast<std::uint8_t>(random() % 8)).status != hw::AdminStatus::kSuccess;
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
      while (const auto cqe = p.a.poll(p.a_cq)) ++(cqe->status == Status::kOk ? carried_out : failed);
      if (i % 100 == 99) bystander.check();
    }
    p.wire.rounds(50);
    bystander.check();
  }
  // It came this far: commands were refused, requests carried out, and others ended with an error.
  EXPECT_GT(refused, 20 * seeds());
  EXPECT_GT(carried_out, seeds());
  EXPECT_GT(failed, seeds());
}

// Random accesses to registers; then the device comes up as if nothing had been.
TEST(EfaNonsense, RandomRegisters) {
  std::size_t answered = 0;
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
    answered += nic.count("efa_response_unreachable") + nic.count("efa_bad_doorbell");
    nic.write(hw::kDeviceControl, 1);
    nic.write(hw::kDeviceControl, 0);
    nic.reopen();
    EXPECT_EQ(nic.read(hw::kDeviceStatus), 1u);
    nic.domain();
    auto cq = nic.create_cq();
    auto qp = nic.create_qp(hw::QpType::kSrd, cq, cq);
    const auto mr = nic.reg(8192);
    nic.post(qp, Nic::rdma(SendOp::kWrite, 1, qp.number, nic.create_ah(nic), mr, mr, 100, 0, 4096));
    nic.settle();
    const auto cqe = nic.poll(cq);
    ASSERT_TRUE(cqe);
    EXPECT_EQ(cqe->status, Status::kOk);
  }
  EXPECT_GT(answered, seeds());
}

// Real frames with changed bytes, and noise: with a checksum that does not fit nothing happens; with one that does,
// as a program on the fabric can make it, nobody else suffers.
TEST(EfaNonsense, RandomFrames) {
  std::size_t changed = 0, sealed = 0, carried_out = 0, refused = 0;
  for (std::uint32_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(seed);
    Pair p(Options{}, 0, seed);
    Bystander bystander(p.b);
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
        while (!from->host.sent[0].empty()) {
          auto frame = from->take_frame();
          if (random() % 3 == 0) {
            const auto whole = frame;
            // Not the addresses: nothing but `to` and the third NIC hears, and sources are the switch's business.
            for (unsigned k = 1 + random() % 8; k > 0; --k)
              frame[12 + random() % std::min<std::size_t>(80, frame.size() - 12)] = static_cast<std::byte>(random());
            if (random() % 4 == 0) frame.resize(random() % (frame.size() + 1));
            if (frame.size() >= wire::kHeadBytes && random() % 2) {
              seal(frame);
              ++sealed;
            } else if (frame != whole && frame.size() > 11) {
              ++changed;
            }
          }
          to->receive(frame);
        }
      }
    }
    while (const auto cqe = p.a.poll(p.a_cq)) carried_out += cqe->status == Status::kOk;
    for (Nic* nic : {&p.a, &p.b}) refused += nic->count("efa_bad_checksum") + nic->count("efa_bad_frame");
    bystander.check();
  }
  EXPECT_GT(carried_out, seeds());
  EXPECT_GT(sealed, seeds());
  EXPECT_GE(refused, changed);  // each of them; some that are sealed too
  EXPECT_GT(changed, seeds());
}

}  // namespace weft::efa::test
