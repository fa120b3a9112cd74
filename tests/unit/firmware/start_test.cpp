// SPDX-License-Identifier: MIT
// Start, refusal to start, sleep, and the heartbeat.
#include "harness.hpp"

namespace weft::model::test {
namespace {

class Start : public FirmwareTest {};
INSTANTIATE_TEST_SUITE_P(Firmware, Start, testing::Values(Build::kNative, Build::kImage), build_name);

TEST_P(Start, ReportsItsVersionOnce) {
  device->pass_ms(1000);
  EXPECT_EQ(hardware().ready, std::vector<std::uint32_t>{0x00020000});
  EXPECT_TRUE(hardware().fatal.empty());
}

TEST_P(Start, LogsItself) {
  const std::vector<weft_log_record> log = device->whole_log();
  ASSERT_EQ(log.size(), 1u);
  EXPECT_EQ(log[0].number, 1u);
  EXPECT_EQ(log[0].severity, 6);
  EXPECT_EQ(log[0].time_ms, 0u);
  EXPECT_EQ(text_of(log[0]), "firmware 2.0, image 0xfeedc0de");
  EXPECT_EQ(hardware().log_events, std::vector<std::uint32_t>{1});
}

TEST_P(Start, RefusesOtherHardware) {
  Device other(GetParam());
  other.hardware.hw_version = (WEFT_HW_MAJOR + 1) << 16;
  other.run();
  EXPECT_EQ(other.hardware.fatal, std::vector<std::uint32_t>{1});
  EXPECT_TRUE(other.hardware.ready.empty());
  other.pass_ms(1000);
  EXPECT_EQ(other.hardware.fatal.size(), 1u);
  EXPECT_TRUE(other.hardware.heartbeats.empty());
}

TEST_P(Start, RefusesImpossibleSizes) {
  Device ports(GetParam());
  ports.hardware.port_count = WEFT_PORTS_MAX + 1;
  ports.run();
  EXPECT_EQ(ports.hardware.fatal, std::vector<std::uint32_t>{2});
}

TEST_P(Start, BeatsTenTimesASecond) {
  const std::size_t before = hardware().heartbeats.size();
  device->pass_ms(10000);
  EXPECT_EQ(hardware().heartbeats.size() - before, 100u);
  for (std::size_t i = 0; i < hardware().heartbeats.size(); ++i) EXPECT_EQ(hardware().heartbeats[i], i + 1);
}

TEST_P(Start, DoesNotCatchUpAfterAStop) {
  const std::size_t before = hardware().heartbeats.size();
  hardware().time_ms += 3'600'000;
  device->run();
  EXPECT_EQ(hardware().heartbeats.size() - before, 1u);
  device->pass_ms(1000);
  EXPECT_EQ(hardware().heartbeats.size() - before, 11u);
}

TEST_P(Start, SleepsAtOnceWhenThereIsNothingToDo) {
  const unsigned before = hardware().idles;
  device->run();
  EXPECT_EQ(hardware().idles, before + 1);
  EXPECT_EQ(hardware().answers, 0u);
}

TEST(NativeFirmware, InstancesAreIndependent) {
  Device a(Build::kNative);
  Device b(Build::kNative);
  a.run();
  a.hardware.ports[1].state = WEFT_PORT_ACTIVE;
  a.pass_ms(500);
  b.run();
  EXPECT_EQ(a.whole_log().size(), 2u);
  EXPECT_EQ(b.whole_log().size(), 1u);
  EXPECT_EQ(a.hardware.heartbeats.size(), 6u);
  EXPECT_EQ(b.hardware.heartbeats.size(), 1u);
}

}  // namespace
}  // namespace weft::model::test
