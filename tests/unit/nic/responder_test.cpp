// SPDX-License-Identifier: MIT
// The responder by itself: order of opcodes, lengths, answers (IBTA volume 1, section 9.7.4).
#include "nic/responder.hpp"

#include <gtest/gtest.h>

#include "harness.hpp"

namespace weft::model::nic {
namespace {

using harness::kTarget;
using harness::kTargetVa;
using harness::TestMemory;
using Event = Responder::Event;

struct Sink final : Arrivals {
  Error immediate_check(std::uint32_t immediate) override { return immediate < 10 ? WEFT_ERR_OK : WEFT_ERR_BAD_SYNC; }
  Error immediate_arrived(std::uint32_t immediate) override {
    arrived.push_back(immediate);
    return WEFT_ERR_OK;
  }
  std::vector<std::uint32_t> arrived;
};

struct Bench {
  Bench() {
    memory.add(kTarget, {1, WEFT_RIGHT_REMOTE_WRITE, kTargetVa, std::vector<std::byte>(4096, harness::kFill)});
    responder.start({1, 256, WEFT_RIGHT_REMOTE_WRITE}, 10);
  }
  Responder::Outcome operator()(std::uint8_t opcode, std::uint32_t psn, std::size_t bytes, std::uint32_t length = 0,
                                bool ask = true) {
    Packet packet;
    packet.bth.opcode = opcode;
    packet.bth.psn = psn;
    packet.bth.ack_request = ask;
    packet.info = opcode_info(opcode);
    packet.ext.key = kTarget;
    packet.ext.address = kTargetVa;
    packet.ext.length = length;
    packet.ext.immediate = 3;
    packet.payload = std::span(data).first(bytes);
    return responder.request(packet, memory, sink);
  }
  TestMemory memory;
  Sink sink;
  Responder responder;
  std::vector<std::byte> data = std::vector<std::byte>(1024, std::byte{0x11});
};

TEST(Responder, OpcodesOutOfOrderAreInvalid) {
  // Nothing under way: a message cannot go on.
  for (const std::uint8_t opcode : {kWriteMiddle, kWriteLast, kWriteLastImm}) {
    Bench bench;
    EXPECT_EQ(bench(opcode, 10, 256).event, Event::kRefused);
    EXPECT_EQ(bench.responder.answer().syndrome, kNakInvalid);
    EXPECT_EQ(bench.responder.answer().psn, 10u);
  }
  // One under way: none can begin.
  for (const std::uint8_t opcode : {kWriteFirst, kWriteOnly, kWriteOnlyImm}) {
    Bench bench;
    EXPECT_EQ(bench(kWriteFirst, 10, 256, 600).event, Event::kAccepted);
    EXPECT_EQ(bench(opcode, 11, 256, 600).event, Event::kRefused);
    EXPECT_EQ(bench.responder.answer().syndrome, kNakInvalid);
  }
}

TEST(Responder, VerbsThatAChannelDoesNotTakeAreInvalid) {
  for (const std::uint8_t opcode : {kSendFirst, kSendMiddle, kSendLast, kSendOnly, kSendOnlyImm, kReadRequest,
                                    kCompareSwap, kFetchAdd, kSendOnlyInvalidate}) {
    Bench bench;
    const Responder::Outcome outcome = bench(opcode, 10, 0);
    EXPECT_EQ(outcome.event, Event::kRefused);
    EXPECT_EQ(outcome.error, WEFT_ERR_BAD_OP);
    EXPECT_EQ(bench.responder.answer().syndrome, kNakInvalid);
  }
}

TEST(Responder, LengthsThatDoNotFit) {
  struct Case {
    std::uint8_t opcode;
    std::size_t bytes;
    std::uint32_t length;
  };
  for (const Case c : {Case{kWriteFirst, 255, 600}, Case{kWriteFirst, 257, 600}, Case{kWriteFirst, 256, 256},
                       Case{kWriteFirst, 256, 100}, Case{kWriteOnly, 257, 257}, Case{kWriteOnly, 100, 101},
                       Case{kWriteOnly, 100, 99}, Case{kWriteOnly, 0, 1}, Case{kWriteFirst, 256, 0x80000001}}) {
    Bench bench;
    EXPECT_EQ(bench(c.opcode, 10, c.bytes, c.length).event, Event::kRefused) << c.bytes << " of " << c.length;
    EXPECT_EQ(bench.responder.answer().syndrome, kNakInvalid);
    EXPECT_EQ(bench.memory.region(kTarget).bytes, std::vector<std::byte>(4096, harness::kFill));
  }
  for (const Case c :
       {Case{kWriteMiddle, 255, 0}, Case{kWriteLast, 87, 0}, Case{kWriteLast, 89, 0}, Case{kWriteLast, 0, 0}}) {
    Bench bench;
    ASSERT_EQ(bench(kWriteFirst, 10, 256, 600).event, Event::kAccepted);
    ASSERT_EQ(bench(kWriteMiddle, 11, 256).event, Event::kAccepted);
    EXPECT_EQ(bench(c.opcode, 12, c.bytes).event, Event::kRefused) << c.bytes;
  }
  Bench bench;  // a MIDDLE where the LAST is due
  ASSERT_EQ(bench(kWriteFirst, 10, 256, 512).event, Event::kAccepted);
  EXPECT_EQ(bench(kWriteMiddle, 11, 256).event, Event::kRefused);
}

TEST(Responder, AnswersOnlyWhenAskedAndCoalesces) {
  Bench bench;
  bench(kWriteOnly, 10, 4, 4, false);
  EXPECT_FALSE(bench.responder.answer_due());
  bench(kWriteOnly, 11, 4, 4, true);
  bench(kWriteOnlyImm, 12, 4, 4, true);
  bench(kWriteOnly, 13, 4, 4, false);
  ASSERT_TRUE(bench.responder.answer_due());
  EXPECT_EQ(bench.responder.answer().syndrome, kAckUnlimited);
  EXPECT_EQ(bench.responder.answer().psn, 13u);
  EXPECT_EQ(bench.responder.answer().msn, 4u);
  EXPECT_EQ(bench.sink.arrived, std::vector<std::uint32_t>{3});
}

TEST(Responder, GapMakesOneNakAndClosesSilently) {
  Bench bench;
  EXPECT_EQ(bench(kWriteOnly, 12, 4, 4).event, Event::kOutOfOrder);
  ASSERT_TRUE(bench.responder.answer_due());
  EXPECT_EQ(bench.responder.answer().syndrome, kNakSequence);
  EXPECT_EQ(bench.responder.answer().psn, 10u);
  bench.responder.answered();
  EXPECT_EQ(bench(kWriteOnly, 13, 4, 4).event, Event::kOutOfOrder);
  EXPECT_FALSE(bench.responder.answer_due());
  EXPECT_EQ(bench(kWriteOnly, 10, 4, 4).event, Event::kAccepted);
  bench.responder.answered();
  EXPECT_EQ(bench(kWriteOnly, 12, 4, 4).event, Event::kOutOfOrder);  // the next gap, the next NAK
  EXPECT_EQ(bench.responder.answer().psn, 11u);
  EXPECT_EQ(bench(kWriteOnly, 11, 4, 4).event, Event::kAccepted);  // closed before the NAK left
  EXPECT_EQ(bench.responder.answer().syndrome, kAckUnlimited);
}

TEST(Responder, DuplicateIsAcknowledgedAndNotExecuted) {
  Bench bench;
  bench(kWriteOnlyImm, 10, 4, 4);
  bench.responder.answered();
  std::fill_n(bench.memory.region(kTarget).bytes.begin(), 4, std::byte{0x77});
  EXPECT_EQ(bench(kWriteOnlyImm, 10, 4, 4, false).event, Event::kDuplicate);
  ASSERT_TRUE(bench.responder.answer_due());
  EXPECT_EQ(bench.responder.answer().psn, 10u);
  EXPECT_EQ(bench.responder.answer().msn, 1u);
  EXPECT_EQ(bench.memory.region(kTarget).bytes[0], std::byte{0x77});
  EXPECT_EQ(bench.sink.arrived.size(), 1u);
}

TEST(Responder, BehindTheWrapIsADuplicateAheadIsAGap) {
  Bench bench;
  bench.responder.start({1, 256, WEFT_RIGHT_REMOTE_WRITE}, 0);
  EXPECT_EQ(bench(kWriteOnly, 0xffffff, 4, 4).event, Event::kDuplicate);
  EXPECT_EQ(bench(kWriteOnly, 0x800000, 4, 4).event, Event::kDuplicate);
  EXPECT_EQ(bench(kWriteOnly, 0x7fffff, 4, 4).event, Event::kOutOfOrder);
}

}  // namespace
}  // namespace weft::model::nic
