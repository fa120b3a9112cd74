// SPDX-License-Identifier: MIT
#include "sensors.hpp"

#include <algorithm>

namespace weft::model {

namespace {
constexpr std::uint64_t kFullLoad = 4'000'000'000;        // bytes a second: what an emulated engine reaches
constexpr std::uint64_t kSampleNs = 10'000'000;           // readings closer together give the same
constexpr std::uint64_t kTimeConstantNs = 2'000'000'000;  // of a heat sink, shortened for impatient tests
constexpr std::uint64_t kPpm = 1'000'000;
}  // namespace

weft_mbox_sensors Sensors::read(std::uint64_t now_ns, std::uint64_t bytes) {
  const std::uint64_t passed = now_ns - std::min(now_ns, last_ns_);
  if (passed >= kSampleNs) {
    const std::uint64_t window = std::min(passed, 60 * kTimeConstantNs);
    const std::uint64_t full = window / 1000 * (kFullLoad / 1'000'000);  // bytes at full load
    const std::uint64_t moved = std::min(bytes - std::min(bytes, last_bytes_), full);
    const std::uint64_t load = moved / std::max<std::uint64_t>(full / kPpm, 1);
    const std::uint64_t weight = std::min(window, kTimeConstantNs) / (kTimeConstantNs / 1000);  // of 1000
    load_ppm_ = (load_ppm_ * (1000 - weight) + std::min(load, kPpm) * weight) / 1000;
    last_ns_ = now_ns;
    last_bytes_ = bytes;
  }
  const auto scaled = [this](std::uint64_t idle, std::uint64_t rise) {
    return static_cast<std::uint32_t>(idle + rise * load_ppm_ / kPpm);
  };
  weft_mbox_sensors out{};
  out.temperature_mc = scaled(34'000, 42'000);
  out.hbm_temperature_mc = scaled(36'000, 46'000);
  out.power_mw = scaled(92'000, 383'000);
  out.voltage_mv = 850 - scaled(0, 50);
  out.clock_mhz = scaled(800, 850);
  return out;
}

}  // namespace weft::model
