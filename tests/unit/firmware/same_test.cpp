// SPDX-License-Identifier: MIT
// The native build and the image do the same, byte for byte, on any sequence of requests; and what one costs.
#include <cstdio>
#include <random>

#include "core/rv32.hpp"
#include "harness.hpp"

namespace weft::model::test {
namespace {

// Payloads that are mostly right, so that both the checks and the tables are reached.
Payload random_payload(std::mt19937& random, std::uint16_t op) {
  const auto small = [&random](std::uint32_t bound) { return static_cast<std::uint32_t>(random() % bound); };
  Payload payload;
  switch (op) {
    case WEFT_MBOX_PORT_GET:
      payload = payload_of(weft_mbox_index{small(kPorts + 1), 0});
      break;
    case WEFT_MBOX_LOG_READ:
      payload = payload_of(weft_mbox_index{small(100), 0});
      break;
    case WEFT_MBOX_EVENT_QUEUE:
      payload = payload_of(weft_mbox_event_queue{small(1000) * 64ull, 1u << small(12), 0});
      break;
    case WEFT_MBOX_HBM_ZERO:
      payload = payload_of(weft_mbox_range{random() * 4096ull % kHbm, random() * 4096ull % kHbm});
      break;
    case WEFT_MBOX_CTX_CREATE:
      payload =
          payload_of(weft_mbox_ctx{small(kContexts + 1), small(WEFT_VECTORS + 1), random() * 8ull, small(5000), 0, 0});
      break;
    case WEFT_MBOX_REGION_CREATE: {
      weft_region_entry region{};
      region.key = WEFT_KEY(small(kRegions + 2), small(256));
      region.type = static_cast<std::uint8_t>(small(6));
      region.rights = static_cast<std::uint8_t>(small(32));
      region.page_shift = static_cast<std::uint8_t>(10 + small(22));
      region.levels = static_cast<std::uint8_t>(small(3));
      region.ctx = small(kContexts);
      region.va = random() * 8ull;
      region.length = 1 + (1ull << small(40));
      region.base = random() * 8ull;
      region.pages = 1ull << small(30);
      payload = payload_of(region);
      break;
    }
    case WEFT_MBOX_QUEUE_CREATE:
      payload = payload_of(weft_queue_entry{
          small(kContexts), small(17), WEFT_KEY(small(kRegions), 1), 1u << small(18), random() * 64ull, 0, 0, {}});
      break;
    case WEFT_MBOX_SYNC_CONFIG:
      payload = payload_of(weft_mbox_sync{small(kContexts), small(4200), small(4200), small(2)});
      break;
    default: {
      constexpr std::size_t kSizes[] = {0, 8, 16, 40, 64, 176, 184};
      payload.resize(kSizes[small(std::size(kSizes))]);
      break;
    }
  }
  if (!payload.empty() && random() % 4 == 0) payload[random() % payload.size()] ^= 1u << random() % 8;
  if (random() % 16 == 0) payload.resize(random() % 260);
  return payload;
}

TEST(SameFirmware, AnswersAreIdentical) {
  if (firmware_image().empty()) GTEST_SKIP() << kNoImage;
  Device native(Build::kNative);
  Device image(Build::kImage);
  native.run();
  image.run();
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const auto op = static_cast<std::uint16_t>(random() % 42);
    const Payload payload = random_payload(random, op);
    const std::uint32_t status = random() % 4 == 0 ? 64 + random() % 7 : 0;
    const std::uint64_t ms = random() % 40;
    const std::uint32_t port = random() % kPorts;
    const std::uint32_t state = random() % 100 == 0 ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN;
    const std::uint32_t heat = random() % 120000;
    for (Device* device : {&native, &image}) {
      device->hardware.ports[port].state = state;
      device->hardware.sensors.temperature_mc = heat;
      device->hardware.next_status = status;
      device->pass_ms(ms);
      device->hardware.response = {};
      device->call(op, payload);
    }
    ASSERT_EQ(std::memcmp(&native.hardware.response, &image.hardware.response, sizeof(weft_mbox_message)), 0)
        << "request " << i << ", op " << op;
    ASSERT_FALSE(testing::Test::HasFailure()) << "request " << i;
  }
  EXPECT_EQ(native.hardware.tables, image.hardware.tables);
  EXPECT_GT(native.hardware.tables.size(), 1000u);
  EXPECT_EQ(native.hardware.heartbeats, image.hardware.heartbeats);
  EXPECT_EQ(native.hardware.log_events, image.hardware.log_events);
  EXPECT_EQ(native.hardware.port_gets, image.hardware.port_gets);
}

// Instructions from the sleep to the next one; deterministic, so a bound is not a matter of speed.
TEST(FirmwareCost, InstructionsARequest) {
  const std::vector<std::byte> image = firmware_image();
  if (image.empty()) GTEST_SKIP() << kNoImage;
  FakeHardware hardware;
  Rv32 core(hardware);
  weft_fw_header header;
  std::memcpy(&header, image.data(), sizeof(header));
  ASSERT_TRUE(core.load(std::span(image).subspan(sizeof(header)), header.load, header.entry));
  ASSERT_EQ(core.run(100000), Rv32::Stop::kIdle);
  std::printf("image %zu bytes, start %llu instructions\n", image.size(),
              static_cast<unsigned long long>(core.retired()));

  const auto cost = [&](const char* what, std::uint16_t op, const Payload& payload) {
    if (op != 0) {
      hardware.request = {};
      hardware.request.head = {1, op, static_cast<std::uint16_t>(payload.size()), 0, WEFT_MBOX_VERSION, {}};
      std::copy(payload.begin(), payload.end(), hardware.request.payload);
      hardware.pending = 1;
    }
    const std::uint64_t before = core.retired();
    EXPECT_EQ(core.run(100000), Rv32::Stop::kIdle);
    EXPECT_EQ(hardware.pending, 0u);
    const std::uint64_t instructions = core.retired() - before;
    std::printf("%-16s %5llu instructions\n", what, static_cast<unsigned long long>(instructions));
    EXPECT_LT(instructions, 20000u) << what;
  };
  weft_region_entry region{};
  region.key = WEFT_KEY(1, 1);
  region.type = WEFT_REGION_HBM;
  region.length = 4096;
  weft_qp_entry qp{};
  qp.type = WEFT_QP_CHANNEL;
  cost("empty pass", 0, {});
  cost("IDENTIFY", WEFT_MBOX_IDENTIFY, {});
  cost("ECHO 240", WEFT_MBOX_ECHO, Payload(240));
  cost("LOG_READ", WEFT_MBOX_LOG_READ, payload_of(weft_mbox_index{1, 0}));
  cost("PORT_GET", WEFT_MBOX_PORT_GET, payload_of(weft_mbox_index{1, 0}));
  cost("REGION_CREATE", WEFT_MBOX_REGION_CREATE, payload_of(region));
  cost("QP_CREATE", WEFT_MBOX_QP_CREATE, payload_of(qp));
  cost("QUEUE_DESTROY", WEFT_MBOX_QUEUE_DESTROY, payload_of(weft_mbox_pair{1, 1}));
  hardware.time_ms += 100;
  cost("tick, 3 ports", 0, {});
}

}  // namespace
}  // namespace weft::model::test
