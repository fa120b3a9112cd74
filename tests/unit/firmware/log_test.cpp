// SPDX-License-Identifier: MIT
// The event log: numbers, the ring, and the limit on records of refused requests.
#include "harness.hpp"

namespace weft::model::test {
namespace {

class LogTest : public FirmwareTest {
 protected:
  void flap(int times) {
    for (int i = 0; i < times; ++i) {
      std::uint32_t& state = hardware().ports[0].state;
      state = state == WEFT_PORT_DOWN ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN;
      device->pass_ms(100);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Firmware, LogTest, testing::Values(Build::kNative, Build::kImage), build_name);

TEST_P(LogTest, NumbersCountUpAndTheRingWraps) {
  flap(200);  // with the start's record 201
  EXPECT_EQ(hardware().log_events.size(), 201u);
  for (std::uint32_t i = 0; i < 201; ++i) EXPECT_EQ(hardware().log_events[i], i + 1);

  const std::vector<weft_log_record> log = device->whole_log();
  ASSERT_EQ(log.size(), 64u);
  for (std::size_t i = 0; i < log.size(); ++i) {
    EXPECT_EQ(log[i].number, 138 + i);
    EXPECT_EQ(log[i].time_ms, 100 * (log[i].number - 1));
    EXPECT_EQ(text_of(log[i]), log[i].number % 2 == 0 ? "port 0 up, 100000 Mb/s" : "port 0 down");
  }
}

TEST_P(LogTest, ReadsWhereAsked) {
  flap(9);  // 10 records
  weft_mbox_log log = device->log(0);
  EXPECT_EQ(log.count, 3u);
  EXPECT_EQ(log.newest, 10u);
  EXPECT_EQ(log.record[0].number, 1u);
  log = device->log(5);
  EXPECT_EQ(log.record[0].number, 5u);
  EXPECT_EQ(log.record[2].number, 7u);
  log = device->log(9);
  EXPECT_EQ(log.count, 2u);
  EXPECT_EQ(log.record[1].number, 10u);
  EXPECT_EQ(log.record[2].number, 0u);
  for (const std::uint32_t first : {11u, 12u, 0x7fffffffu, 0xffffffffu}) {
    log = device->log(first);
    EXPECT_EQ(log.count, 0u);
    EXPECT_EQ(log.newest, 10u);
  }
}

TEST_P(LogTest, RefusedRequestsAreNamed) {
  device->call(99);
  device->call(WEFT_MBOX_CTX_DESTROY, payload_of(weft_mbox_index{0, 1}));
  hardware().next_status = WEFT_ERR_MBOX_NOT_FOUND;
  device->call(WEFT_MBOX_CTX_DESTROY, payload_of(weft_mbox_index{1, 0}));
  const std::vector<weft_log_record> log = device->whole_log();
  ASSERT_EQ(log.size(), 4u);
  EXPECT_EQ(text_of(log[1]), "op 99 refused: MBOX_OP");
  EXPECT_EQ(text_of(log[2]), "op 17 refused: BAD_FIELD");
  EXPECT_EQ(text_of(log[3]), "op 17 refused: MBOX_NOT_FOUND");
  EXPECT_EQ(log[1].severity, 4);
}

TEST_P(LogTest, RefusedRequestsDoNotFloodIt) {
  for (int i = 0; i < 1000; ++i) device->call(99);
  EXPECT_EQ(device->whole_log().size(), 1u + 4u);
  device->pass_ms(1000);
  std::vector<weft_log_record> log = device->whole_log();
  ASSERT_EQ(log.size(), 6u);
  EXPECT_EQ(text_of(log[5]), "996 more requests refused");
  device->call(99);  // a new second
  log = device->whole_log();
  ASSERT_EQ(log.size(), 7u);
  EXPECT_EQ(text_of(log[6]), "op 99 refused: MBOX_OP");
  device->pass_ms(3000);
  EXPECT_EQ(device->whole_log().size(), 7u);
}

}  // namespace
}  // namespace weft::model::test
