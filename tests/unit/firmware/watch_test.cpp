// SPDX-License-Identifier: MIT
// What the firmware looks at by itself: ports and temperatures.
#include "harness.hpp"

namespace weft::model::test {
namespace {

class Watch : public FirmwareTest {
 protected:
  std::vector<std::string> texts() {
    std::vector<std::string> out;
    for (const weft_log_record& record : device->whole_log()) out.push_back(text_of(record));
    out.erase(out.begin());  // the start
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Firmware, Watch, testing::Values(Build::kNative, Build::kImage), build_name);

TEST_P(Watch, EveryPortEveryTick) {
  device->pass_ms(1000);
  EXPECT_EQ(hardware().port_gets, 10 * kPorts);
  EXPECT_TRUE(texts().empty());
}

TEST_P(Watch, PortChanges) {
  hardware().ports[1].state = WEFT_PORT_ACTIVE;
  hardware().ports[2].state = WEFT_PORT_ACTIVE;
  hardware().ports[2].speed_mbps = 400000;
  device->pass_ms(300);
  hardware().ports[1].state = WEFT_PORT_DOWN;
  device->pass_ms(300);
  EXPECT_EQ(texts(), (std::vector<std::string>{"port 1 up, 100000 Mb/s", "port 2 up, 400000 Mb/s", "port 1 down"}));
}

TEST_P(Watch, AMachineWithoutPorts) {
  Device none(GetParam());
  none.hardware.port_count = 0;
  none.run();
  none.pass_ms(500);
  EXPECT_EQ(none.hardware.port_gets, 0u);
  EXPECT_EQ(none.call(WEFT_MBOX_PORT_GET, payload_of(weft_mbox_index{0, 0})).status, WEFT_ERR_MBOX_NOT_FOUND);
}

TEST_P(Watch, OverTemperatureIsLoggedOnceUntilItCools) {
  hardware().sensors.temperature_mc = 95000;
  device->pass_ms(500);
  EXPECT_TRUE(texts().empty());
  hardware().sensors.temperature_mc = 97123;
  device->pass_ms(500);
  hardware().sensors.temperature_mc = 93000;  // between the thresholds: still hot
  device->pass_ms(500);
  hardware().sensors.temperature_mc = 99000;
  device->pass_ms(500);
  hardware().sensors.temperature_mc = 60000;
  hardware().sensors.hbm_temperature_mc = 96000;  // the other sensor
  device->pass_ms(500);
  EXPECT_EQ(texts(), (std::vector<std::string>{"over-temperature: 97 C"}));
  hardware().sensors.hbm_temperature_mc = 90000;
  device->pass_ms(500);
  EXPECT_EQ(texts(), (std::vector<std::string>{"over-temperature: 97 C", "temperature normal: 90 C"}));
  EXPECT_EQ(device->whole_log()[1].severity, 3);
}

}  // namespace
}  // namespace weft::model::test
