// SPDX-License-Identifier: MIT
// Messages and RDMA between two devices and within one, also over a bad wire.
#include <algorithm>
#include <set>

#include "bench.hpp"
#include "transfer.hpp"

namespace weft::efa::test {

using hw::SendOp;
using hw::Status;

namespace {

constexpr std::uint8_t flags_of(bool receive, SendOp op, std::uint8_t more = 0) {
  return static_cast<std::uint8_t>((receive ? 4 : 2) | static_cast<unsigned>(op) << 4 | more);
}

}  // namespace

TEST(EfaSrd, MessagesOfEverySizeArriveWithTheirCompletions) {
  Pair p;
  const auto from = p.a.reg(16384), to = p.b.reg(16384);
  std::uint16_t request = 0;
  for (const std::uint32_t bytes : {0u, 1u, 31u, 64u, 4095u, 4096u, 4097u, 8000u, 8928u}) {
    SCOPED_TRACE(bytes);
    fill_pattern(p.a.memory(from, 16384), bytes);
    std::ranges::fill(p.b.memory(to, 16384), std::byte{0});
    p.b.post_receive(p.b_qp, ++request, to, 8928, 100);
    p.a.post(p.a_qp, Nic::with_immediate(Nic::send(request, p.b_qp.number, p.a_to_b, from, bytes, 7), 0xabcd + bytes));
    const auto sent = p.wire.collect(p.a, p.a_cq, 1)[0];
    EXPECT_EQ(sent.status, Status::kOk);
    EXPECT_EQ(sent.request, request);
    EXPECT_EQ(sent.qp, p.a_qp.number);
    EXPECT_EQ(sent.flags & ~1, flags_of(false, SendOp::kSend));
    const auto got = p.wire.collect(p.b, p.b_cq, 1)[0];
    EXPECT_EQ(got.status, Status::kOk);
    EXPECT_EQ(got.request, request);
    EXPECT_EQ(got.flags & ~1, flags_of(true, SendOp::kSend, 8));
    EXPECT_EQ(got.length, bytes);
    EXPECT_EQ(got.ah, p.b_to_a);
    EXPECT_EQ(got.source_qp, p.a_qp.number);
    EXPECT_EQ(got.immediate, 0xabcd + bytes);
    EXPECT_TRUE(std::ranges::equal(p.b.memory(to, bytes, 100), p.a.memory(from, bytes, 7)));
    EXPECT_EQ(p.b.memory(to, 1, 100 + bytes)[0], std::byte{0});
  }
}

TEST(EfaSrd, TwoBuffersInlineDataAndAnUnknownSender) {
  Nic a(1), b(2);
  Wire wire({&a, &b});
  for (Nic* nic : {&a, &b}) nic->open(), nic->domain();
  auto a_cq = a.create_cq(), b_cq = b.create_cq(64);
  auto b_plain = b.create_cq(64, {}, false);
  auto a_qp = a.create_qp(hw::QpType::kSrd, a_cq, a_cq);
  auto b_qp = b.create_qp(hw::QpType::kSrd, b_cq, b_cq);
  auto b_qp2 = b.create_qp(hw::QpType::kSrd, b_cq, b_plain);
  const auto ah = a.create_ah(b);
  const auto one = a.reg(4096), two = a.reg(4096), to = b.reg(8192);
  fill_pattern(a.memory(one, 4096), 1);
  fill_pattern(a.memory(two, 4096), 2);

  auto w = Nic::wqe(SendOp::kSend, 5, b_qp.number, ah);
  w.length = 2;
  w.buffer[0] = Nic::buffer(one, 10, 100);
  w.buffer[1] = Nic::buffer(two, 20, 200);
  b.post_receive(b_qp, 1, to, 50, 0, false);  // a request of three buffers
  b.post_receive(b_qp, 1, to, 150, 1000, false);
  b.post_receive(b_qp, 1, to, 500, 2000);
  a.post(a_qp, w);
  wire.collect(a, a_cq, 1);
  const auto got = wire.collect(b, b_cq, 1)[0];
  EXPECT_EQ(got.length, 300);
  EXPECT_EQ(got.ah, 0xffff);
  EXPECT_EQ(got.source_address, gid_of(a.mac));
  std::vector<std::byte> sent, received;
  sent.insert(sent.end(), a.memory(one, 100, 10).begin(), a.memory(one, 100, 10).end());
  sent.insert(sent.end(), a.memory(two, 200, 20).begin(), a.memory(two, 200, 20).end());
  for (auto part : {b.memory(to, 50), b.memory(to, 150, 1000), b.memory(to, 100, 2000)}) {
    received.insert(received.end(), part.begin(), part.end());
  }
  EXPECT_EQ(sent, received);

  w = Nic::wqe(SendOp::kSend, 6, b_qp2.number, ah);
  w.control1 |= hw::kSendInline;
  w.length = 32;
  for (int i = 0; i < 32; ++i) w.inline_data[i] = static_cast<std::byte>(i + 1);
  b.post_receive(b_qp2, 2, to, 64, 4096);
  a.post(a_qp, w);
  wire.collect(a, a_cq, 1);
  const auto plain = wire.collect(b, b_plain, 1)[0];
  EXPECT_EQ(plain.ah, 0xffff);
  EXPECT_EQ(plain.source_address, (Gid{}));  // the queue did not ask for it
  EXPECT_TRUE(std::ranges::equal(b.memory(to, 32, 4096), w.inline_data));
}

class EfaRdma : public ::testing::TestWithParam<std::tuple<bool, std::uint32_t>> {};

TEST_P(EfaRdma, WritesAndReadsAreExact) {
  const auto [spray, bytes] = GetParam();
  Options options;
  if (spray) options = {{"spray", "on"}};
  Pair p(options, hw::kUnsolicitedWrite);
  const std::size_t room = bytes + 8192;
  const auto local = p.a.reg(room), remote = p.b.reg(room);
  fill_pattern(p.a.memory(local, room), bytes + 1);
  // WRITE with immediate, at odd offsets
  p.a.post(p.a_qp, Nic::with_immediate(
                       Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, remote, bytes, 3, 4093), 42));
  for (int i = 0; i < 1000; ++i) {
    p.wire.round();
    const auto got = p.b.poll(p.b_cq);
    if (!got) continue;
    // Everything is there when the completion is.
    EXPECT_TRUE(std::ranges::equal(p.b.memory(remote, bytes, 4093), p.a.memory(local, bytes, 3)));
    EXPECT_EQ(got->flags & ~1, flags_of(true, SendOp::kWrite, 8 | 0x80));
    EXPECT_EQ(got->length | got->length_high << 16, static_cast<int>(bytes));
    EXPECT_EQ(got->immediate, 42u);
    EXPECT_EQ(got->ah, p.b_to_a);
    break;
  }
  const auto wrote = p.wire.collect(p.a, p.a_cq, 1)[0];
  EXPECT_EQ(wrote.status, Status::kOk);
  EXPECT_EQ(wrote.flags & ~1, flags_of(false, SendOp::kWrite));
  // READ it back elsewhere
  const auto back = p.a.reg(room);
  p.a.post(p.a_qp, Nic::rdma(SendOp::kRead, 2, p.b_qp.number, p.a_to_b, back, remote, bytes, 5, 4093));
  const auto read = p.wire.collect(p.a, p.a_cq, 1)[0];
  EXPECT_EQ(read.status, Status::kOk);
  EXPECT_EQ(read.flags & ~1, flags_of(false, SendOp::kRead));
  EXPECT_TRUE(std::ranges::equal(p.a.memory(back, bytes, 5), p.a.memory(local, bytes, 3)));
  EXPECT_EQ(p.b.host.counters.write_bytes[WEFT_ABI_DMA_PAYLOAD][0], bytes);  // each payload byte moved once
  EXPECT_EQ(p.b.host.counters.read_bytes[WEFT_ABI_DMA_PAYLOAD][0], bytes);
  EXPECT_EQ(p.a.host.counters.read_bytes[WEFT_ABI_DMA_PAYLOAD][0], bytes);
}
INSTANTIATE_TEST_SUITE_P(Sizes, EfaRdma,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values(0u, 1u, 4096u, 8192u, 8193u, 100000u, 1000001u)));

// Many operations of all kinds under a bad wire; the receiver of messages checks that each came once.
class EfaBadWire : public ::testing::TestWithParam<std::tuple<double, double, unsigned, double, bool>> {};

TEST_P(EfaBadWire, EverythingArrivesOnce) {
  const auto [loss, duplicate, reorder, corrupt, spray] = GetParam();
  Options options;
  if (spray) options = {{"spray", "on"}};
  Pair p(options, hw::kUnsolicitedWrite, 99);
  p.wire.loss = loss;
  p.wire.duplicate = duplicate;
  p.wire.reorder = reorder;
  p.wire.corrupt = corrupt;
  constexpr std::size_t kRoom = 1 << 20;
  const auto local = p.a.reg(kRoom), remote = p.b.reg(kRoom), back = p.a.reg(kRoom), inbox = p.b.reg(64 * 2048);
  fill_pattern(p.a.memory(local, kRoom), 7);
  fill_pattern(p.b.memory(remote, kRoom), 8);
  std::vector<std::byte> expect_remote(p.b.memory(remote, kRoom).begin(), p.b.memory(remote, kRoom).end());
  std::vector<std::byte> expect_back(kRoom);
  const auto from = p.a.memory(local, kRoom);
  // The lower half is written, the upper half read; pieces do not overlap.
  constexpr std::uint32_t kPiece = 30000;
  constexpr std::uint32_t kOps = 16;
  for (std::uint32_t i = 0; i < kOps; ++i)
    p.b.post_receive(p.b_qp, static_cast<std::uint16_t>(i), inbox, 2048, 2048 * i);
  for (std::uint32_t i = 0; i < kOps; ++i) {
    const std::uint32_t at = i * kPiece;
    p.a.post(p.a_qp,
             Nic::with_immediate(
                 Nic::rdma(SendOp::kWrite, 100 + i, p.b_qp.number, p.a_to_b, local, remote, kPiece, at, at), i));
    std::copy_n(from.begin() + at, kPiece, expect_remote.begin() + at);
    p.a.post(p.a_qp,
             Nic::rdma(SendOp::kRead, 200 + i, p.b_qp.number, p.a_to_b, back, remote, kPiece, at, kRoom / 2 + at));
    std::copy_n(p.b.memory(remote, kPiece, kRoom / 2 + at).begin(), kPiece, expect_back.begin() + at);
    p.a.post(p.a_qp,
             Nic::with_immediate(Nic::send(300 + i, p.b_qp.number, p.a_to_b, local, 1000 + i, 64 * i), 1000 + i));
  }
  const auto done = p.wire.collect(p.a, p.a_cq, 3 * kOps, 100000);
  std::set<std::uint16_t> requests;
  for (const auto& cqe : done) {
    EXPECT_EQ(cqe.status, Status::kOk) << cqe.request;
    EXPECT_TRUE(requests.insert(cqe.request).second);
  }
  std::set<std::uint32_t> immediates;
  for (const auto& cqe : p.wire.collect(p.b, p.b_cq, 2 * kOps)) {
    EXPECT_TRUE(immediates.insert(cqe.immediate).second);
    if (cqe.immediate < 1000) continue;
    const std::uint32_t i = cqe.immediate - 1000;
    EXPECT_EQ(cqe.length, 1000 + i);
    EXPECT_TRUE(
        std::ranges::equal(p.b.memory(inbox, 1000 + i, 2048 * cqe.request), p.a.memory(local, 1000 + i, 64 * i)));
  }
  p.wire.rounds(200);
  EXPECT_FALSE(p.b.poll(p.b_cq));
  EXPECT_TRUE(std::ranges::equal(p.b.memory(remote, kRoom), expect_remote));
  EXPECT_TRUE(std::ranges::equal(p.a.memory(back, kRoom), expect_back));
  if (loss > 0) {
    EXPECT_GT(p.wire.lost, 0u);
  }
  if (corrupt > 0) {
    EXPECT_GT(p.wire.corrupted, 0u);
  }
  EXPECT_EQ(p.a.count("efa_bad_checksum") + p.b.count("efa_bad_checksum"), p.wire.corrupted);
  // What was sent again is counted once.
  hw::GetStatsCommand stats{};
  stats.type = hw::kStatsRead;
  EXPECT_EQ(p.b.admin(hw::kGetStats, stats).as<hw::ReadStats>().response_bytes, kOps * kPiece);
}
INSTANTIATE_TEST_SUITE_P(
    Wires, EfaBadWire,
    ::testing::Values(std::make_tuple(0.0, 0.0, 0u, 0.0, false), std::make_tuple(0.0, 0.0, 0u, 0.0, true),
                      std::make_tuple(0.03, 0.0, 0u, 0.0, false), std::make_tuple(0.2, 0.1, 0u, 0.0, false),
                      std::make_tuple(0.0, 0.2, 40u, 0.0, false), std::make_tuple(0.0, 0.0, 0u, 0.05, false),
                      std::make_tuple(0.05, 0.05, 40u, 0.05, true)));

TEST(EfaSrd, LostAcknowledgementsDoNotRepeatAMessage) {
  Pair p;
  const auto from = p.a.reg(4096), to = p.b.reg(4096);
  for (std::uint16_t i = 0; i < 8; ++i) p.b.post_receive(p.b_qp, i, to, 512, 512 * i);
  const std::uint64_t lose = 3;
  ASSERT_EQ(p.b.model->fault(p.b.device(), "lose_acks", &lose, 1), 0);
  p.a.post(p.a_qp, Nic::send(1, p.b_qp.number, p.a_to_b, from, 100));
  p.wire.rounds(1500, 1'000'000);
  const auto sent = p.a.poll(p.a_cq);
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, Status::kOk);
  EXPECT_TRUE(p.b.poll(p.b_cq));
  EXPECT_FALSE(p.b.poll(p.b_cq));
}

TEST(EfaSrd, ReceiverWithoutBuffersIsTriedAgain) {
  Pair p;
  const auto from = p.a.reg(4096), to = p.b.reg(4096);
  p.a.post(p.a_qp, Nic::send(1, p.b_qp.number, p.a_to_b, from, 100));
  p.wire.rounds(2000);
  EXPECT_FALSE(p.a.poll(p.a_cq));  // without end unless told
  p.b.post_receive(p.b_qp, 1, to, 512);
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
  EXPECT_TRUE(p.b.poll(p.b_cq));

  ASSERT_EQ(p.a.modify(p.a_qp, hw::QpState::kRts, Nic::kQkey, 2), hw::AdminStatus::kSuccess);
  EXPECT_EQ(p.one(Nic::send(2, p.b_qp.number, p.a_to_b, from, 100)), Status::kRemoteRnr);
  // A write with immediate that takes a buffer: its data goes, its end waits.
  const auto target = p.b.reg(100000);
  const auto source = p.a.reg(100000);
  fill_pattern(p.a.memory(source, 100000), 1);
  ASSERT_EQ(p.a.modify(p.a_qp, hw::QpState::kRts, Nic::kQkey, 7), hw::AdminStatus::kSuccess);
  p.a.post(p.a_qp,
           Nic::with_immediate(Nic::rdma(SendOp::kWrite, 3, p.b_qp.number, p.a_to_b, source, target, 100000), 9));
  p.wire.rounds(500);
  EXPECT_FALSE(p.a.poll(p.a_cq));
  p.b.post_receive(p.b_qp, 77, to, 16);
  EXPECT_EQ(p.wire.collect(p.a, p.a_cq, 1)[0].status, Status::kOk);
  const auto got = p.wire.collect(p.b, p.b_cq, 1)[0];
  EXPECT_EQ(got.request, 77);
  EXPECT_EQ(got.flags & 0x80, 0);
  EXPECT_TRUE(std::ranges::equal(p.b.memory(target, 100000), p.a.memory(source, 100000)));
}

TEST(EfaSrd, LoopbackCarriesEverythingWithoutFrames) {
  Nic nic(1);
  nic.open();
  nic.domain();
  auto cq = nic.create_cq(), cq2 = nic.create_cq();
  auto one = nic.create_qp(hw::QpType::kSrd, cq, cq);
  auto two = nic.create_qp(hw::QpType::kSrd, cq2, cq2, 64, 64, hw::kUnsolicitedWrite);
  const auto self = nic.create_ah(nic);
  const auto from = nic.reg(300000), to = nic.reg(300000), back = nic.reg(300000);
  fill_pattern(nic.memory(from, 300000), 1);
  nic.post(one, Nic::with_immediate(Nic::rdma(SendOp::kWrite, 1, two.number, self, from, to, 300000), 5));
  nic.settle();
  EXPECT_EQ(nic.poll(cq)->status, Status::kOk);
  EXPECT_EQ(nic.poll(cq2)->immediate, 5u);
  EXPECT_TRUE(std::ranges::equal(nic.memory(to, 300000), nic.memory(from, 300000)));
  nic.post(one, Nic::rdma(SendOp::kRead, 2, two.number, self, back, to, 299999, 1));
  nic.settle();
  EXPECT_EQ(nic.poll(cq)->status, Status::kOk);
  EXPECT_TRUE(std::ranges::equal(nic.memory(back, 299999, 1), nic.memory(from, 299999)));
  // onto itself, overlapping: no matter what it gives, it ends
  nic.post(one, Nic::rdma(SendOp::kWrite, 3, two.number, self, to, to, 200000, 0, 100));
  nic.settle();
  EXPECT_EQ(nic.poll(cq)->status, Status::kOk);
  EXPECT_TRUE(nic.host.sent[0].empty());
}

TEST(EfaSrd, LoopbackGoesOnWhenBuffersCome) {
  Nic nic(1);
  nic.open();
  nic.domain();
  auto cq = nic.create_cq(), cq2 = nic.create_cq();
  auto one = nic.create_qp(hw::QpType::kSrd, cq, cq);
  auto two = nic.create_qp(hw::QpType::kSrd, cq2, cq2);
  const auto self = nic.create_ah(nic);
  const auto mr = nic.reg(4096);
  for (std::uint16_t i = 0; i < 3; ++i) nic.post(one, Nic::send(i, two.number, self, mr, 8));
  nic.settle();
  EXPECT_FALSE(nic.poll(cq));
  for (std::uint16_t i = 0; i < 3; ++i) nic.post_receive(two, i, mr, 64, 1024);
  nic.settle();  // no time has passed
  for (int i = 0; i < 3; ++i) EXPECT_EQ(nic.poll(cq)->status, Status::kOk);
}

TEST(EfaUd, PayloadFollowsTheRoomForAGrh) {
  Nic a(1), b(2);
  Wire wire({&a, &b});
  for (Nic* nic : {&a, &b}) nic->open(), nic->domain();
  auto a_cq = a.create_cq(), b_cq = b.create_cq();
  auto a_qp = a.create_qp(hw::QpType::kUd, a_cq, a_cq);
  auto b_qp = b.create_qp(hw::QpType::kUd, b_cq, b_cq);
  const auto ah = a.create_ah(b);
  b.create_ah(a);
  const auto from = a.reg(16384), to = b.reg(16384);
  fill_pattern(a.memory(from, 16384), 1);
  b.post_receive(b_qp, 1, to, 20, 0, false);  // the room for a GRH spans two buffers
  b.post_receive(b_qp, 1, to, 9000, 4096);
  a.post(a_qp, Nic::send(1, b_qp.number, ah, from, 8928));
  EXPECT_EQ(wire.collect(a, a_cq, 1)[0].status, Status::kOk);
  EXPECT_EQ(wire.collect(b, b_cq, 1)[0].length, 8968);
  EXPECT_TRUE(std::ranges::equal(b.memory(to, 8928, 4096 + 20), a.memory(from, 8928)));
  // Lost, refused, unexpected: the sender does not know
  for (int i = 0; i < 3; ++i) {
    auto w = Nic::send(2, b_qp.number, ah, from, 64);
    if (i == 0) w.qkey = 5;
    if (i == 1) w.destination_qp = 200;
    a.post(a_qp, w);
    EXPECT_EQ(wire.collect(a, a_cq, 1)[0].status, Status::kOk);
  }
  wire.rounds(10);
  EXPECT_FALSE(b.poll(b_cq));
  a.post(a_qp, Nic::rdma(SendOp::kWrite, 3, b_qp.number, ah, from, to, 10));
  EXPECT_EQ(wire.collect(a, a_cq, 1)[0].status, Status::kInvalidOp);
}

TEST(EfaSpray, TheOrderIsDrawnAndRepeatable) {
  const auto order = [](bool spray, std::uint64_t extra) {
    Options options;
    if (spray) options = {{"spray", "on"}};
    Pair p(options);
    for (std::uint64_t i = 0; i < extra; ++i) {
      std::uint64_t lot;
      p.a.host.abi().random(&p.a.host, &lot, sizeof(lot));
    }
    const auto from = p.a.reg(4096), to = p.b.reg(65536);
    for (std::uint16_t i = 0; i < 32; ++i) p.b.post_receive(p.b_qp, i, to, 64, 64 * i);
    for (std::uint16_t i = 0; i < 32; ++i) {
      p.a.post(p.a_qp, Nic::with_immediate(Nic::send(i, p.b_qp.number, p.a_to_b, from, 8), i), i == 31);
    }
    std::vector<std::uint32_t> came;
    for (const auto& cqe : p.wire.collect(p.b, p.b_cq, 32)) came.push_back(cqe.immediate);
    return came;
  };
  const auto plain = order(false, 0), one = order(true, 0), same = order(true, 0), other = order(true, 1);
  EXPECT_TRUE(std::ranges::is_sorted(plain));
  EXPECT_FALSE(std::ranges::is_sorted(one));
  EXPECT_EQ(one, same);
  EXPECT_NE(one, other);
}

TEST(EfaSpray, DrawnOrdersArePermutations) {
  std::mt19937_64 random(1);
  for (const std::uint32_t count : {1u, 2u, 3u, 4u, 6u, 12u, 97u, 128u, 1000u}) {
    for (int i = 0; i < 20; ++i) {
      const Order order = Order::drawn(count, random());
      std::set<std::uint32_t> seen;
      for (std::uint32_t k = 0; k < count; ++k) seen.insert(order(k));
      EXPECT_EQ(seen.size(), count);
      EXPECT_LT(*seen.rbegin(), count);
    }
  }
}

// ---- posted=on

class EfaPosted : public ::testing::Test {
 protected:
  EfaPosted() : p(Options{{"posted", "on"}}) {
    local = p.a.reg(65536);
    remote = p.b.reg(65536, Nic::kAllRights, true);
    fill_pattern(p.a.memory(local, 65536), 6);
  }
  bool visible() { return std::ranges::equal(p.b.memory(remote, 20000), p.a.memory(local, 20000)); }
  Pair p;
  Nic::Mr local{}, remote{};
};

TEST_F(EfaPosted, CompletionComesBeforeTheDataAndAReadBringsIt) {
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, remote, 20000)), Status::kOk);
  EXPECT_FALSE(visible());
  EXPECT_EQ(p.b.host.counters.write_bytes[WEFT_ABI_DMA_PAYLOAD][1], 0u);
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kRead, 2, p.b_qp.number, p.a_to_b, local, remote, 1, 60000, 60000)), Status::kOk);
  EXPECT_TRUE(visible());
  EXPECT_EQ(p.b.host.counters.write_bytes[WEFT_ABI_DMA_PAYLOAD][1], 20000u);
}

TEST_F(EfaPosted, AReadOfOtherMemoryDoesNot) {
  const auto ram = p.b.reg(4096);
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, remote, 20000)), Status::kOk);
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kRead, 2, p.b_qp.number, p.a_to_b, local, ram, 1, 60000)), Status::kOk);
  EXPECT_FALSE(visible());
}

TEST_F(EfaPosted, TimeBringsIt) {
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, remote, 20000)), Status::kOk);
  const auto deadline = p.b.step().deadline_ns;
  ASSERT_LE(deadline, p.b.host.now + 10'000'000);
  p.b.host.now += 10'000'000;
  p.b.step();
  EXPECT_TRUE(visible());
}

TEST_F(EfaPosted, DeregistrationBringsItBeforeTheMemoryIsReused) {
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, remote, 20000)), Status::kOk);
  EXPECT_EQ(p.b.dereg(remote.lkey), hw::AdminStatus::kSuccess);
  EXPECT_TRUE(visible());
}

TEST_F(EfaPosted, GuestMemoryIsNotHeldBack) {
  const auto ram = p.b.reg(65536);
  ASSERT_EQ(p.one(Nic::rdma(SendOp::kWrite, 1, p.b_qp.number, p.a_to_b, local, ram, 20000)), Status::kOk);
  EXPECT_TRUE(std::ranges::equal(p.b.memory(ram, 20000), p.a.memory(local, 20000)));
}

}  // namespace weft::efa::test
