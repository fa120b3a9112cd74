// SPDX-License-Identifier: MIT
// Hosting a model: DMA stays within what is mapped, steps come when asked for, frames and interrupts go their way.
#include "sim/device.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "toy_model.hpp"

namespace {

using namespace weft::sim;
using ::testing::HasSubstr;
using weft::test::toy_model;

World world() { return {.scheduler = {}, .frames = {}, .log = EventLog(nullptr)}; }

TEST(SimDevice, DmaReachesWhatIsMappedAndNothingElse) {
  World here = world();
  Device device(here, 0, toy_model(), {}, 1);
  std::uint32_t vector = 0;
  device.on_interrupt([&](std::uint32_t number) { vector = number; });
  alignas(8) std::uint64_t words[4] = {10, 20, 30, 40};
  const std::uint64_t iova = device.host().map(words, 24, true, true);
  EXPECT_EQ(iova % 4096, reinterpret_cast<std::uintptr_t>(words) % 4096);
  const auto increment = [&](std::uint64_t address) {
    device.write(0, 0, address, 8);
    while (!here.scheduler.quiet()) here.scheduler.run_one();
  };
  increment(iova + 8);
  EXPECT_EQ(words[1], 21u);
  EXPECT_EQ(vector, 1u);
  EXPECT_EQ(device.dma().read_bytes[WEFT_ABI_DMA_CONTROL][0], 8u);
  EXPECT_EQ(device.dma().write_bytes[WEFT_ABI_DMA_PAYLOAD][0], 8u);
  EXPECT_GT(here.changes, 0u);
  increment(iova + 24);  // behind the end
  increment(iova - 8);
  increment(iova + 20);  // in part
  EXPECT_EQ(words[3], 40u);
  EXPECT_EQ(device.read(0, 24, 8), 3u);
  EXPECT_EQ(device.dma().errors, 3u);
  device.host().unmap(iova);
  increment(iova + 8);
  EXPECT_EQ(words[1], 21u);
  EXPECT_NE(device.host().map(words, 24, true, true), iova) << "addresses are not given out again";
}

TEST(SimDevice, ReadOnlyMemoryIsNotWritten) {
  World here = world();
  Device device(here, 0, toy_model(), {}, 1);
  alignas(8) std::uint64_t word = 5;
  device.write(0, 0, device.host().map(&word, 8, false, false), 8);
  while (!here.scheduler.quiet()) here.scheduler.run_one();
  EXPECT_EQ(word, 5u);
  EXPECT_EQ(device.dma().errors, 1u);
}

TEST(SimDevice, TimersComeAtTheirTime) {
  World here = world();
  Device device(here, 0, toy_model(), {}, 1);
  device.write(0, 0, 0, 8);  // wakes it
  while (here.scheduler.next() <= 10'000) here.scheduler.run_one();
  EXPECT_EQ(device.read(0, 32, 8), 11u) << "one look at once, then each microsecond";
  EXPECT_EQ(device.read(0, 16, 8), 10'000u);
  EXPECT_TRUE(here.scheduler.quiet());
}

TEST(SimDevice, TwoDevicesPlayPingPong) {
  World here = world();
  Device one(here, 0, toy_model(), {}, 1), two(here, 1, toy_model(), {}, 1);
  LinkEnd::join(one.link(0), two.link(0));
  std::byte frame[100] = {};
  const weft::fabric::Segment segment(frame);
  two.link(0).send(0, {&segment, 1});
  while (here.scheduler.now() < 1'000'000) here.scheduler.run_one();
  // 124 bytes on the wire at 80 ps, rounded up, and 250 ns: 260 ns a way.
  const std::uint64_t ways = 1'000'000 / 260;
  EXPECT_NEAR(static_cast<double>(one.read(0, 8, 8) + two.read(0, 8, 8)), static_cast<double>(ways), 2.0);
}

TEST(SimDevice, RefusalHasTheModelsWords) {
  World here = world();
  try {
    Device device(here, 0, toy_model(), {{"fail", "now"}}, 1);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("told to fail: now"));
  }
}

TEST(SimDevice, RamBarsHaveMemoryAndUnknownFaultsAreRefused) {
  World here = world();
  Device device(here, 0, toy_model(), {}, 1);
  ASSERT_EQ(device.ram(2).size(), 1u << 20);
  ASSERT_TRUE(device.ram(0).empty());
  EXPECT_EQ(device.fault("anything", {}), -ENOENT);
}

}  // namespace
