// SPDX-License-Identifier: MIT
// The device from outside: ABI, options, registers, boot, mailbox, events, reset.
#include <fstream>
#include <iterator>

#include "board.hpp"
#include "weft/hw/fw.h"

namespace weft::test {
namespace {

const weft_abi_model& abi() { return *weft_model_entry(WEFT_ABI_VERSION); }

// create() with one option; the message when it is refused.
std::string refused(const char* key, const char* value) {
  FakeHost host;
  const weft_abi_host table = host.abi();
  const weft_abi_option option{key, value};
  const weft_abi_config config{sizeof(config), 1, &option};
  void* model = nullptr;
  char message[200] = "";
  if (abi().create(&table, &config, &model, message, sizeof(message)) == 0) {
    abi().destroy(model);
    return "";
  }
  return message;
}

TEST(Abi, SpeaksItsVersionOnly) {
  EXPECT_NE(abi().link_station, nullptr) << "the device hears nothing of stations that leave";
  ASSERT_NE(weft_model_entry(WEFT_ABI_VERSION), nullptr);
  EXPECT_EQ(weft_model_entry(WEFT_ABI_VERSION + 1), nullptr);
  EXPECT_EQ(abi().size, sizeof(weft_abi_model));
  FakeHost host;
  weft_abi_host table = host.abi();
  table.version = WEFT_ABI_VERSION + 1;
  const weft_abi_config config{sizeof(config), 0, nullptr};
  void* model = nullptr;
  EXPECT_EQ(abi().create(&table, &config, &model, nullptr, 0), -EINVAL);
  table = host.abi();
  table.dma_read = nullptr;
  EXPECT_EQ(abi().create(&table, &config, &model, nullptr, 0), -EINVAL);
}

TEST(Abi, InfoIsTheDatasheets) {
  FakeHost host;
  const weft_abi_host table = host.abi();
  const weft_abi_option options[] = {{"hbm", "16M"}, {"ports", "3"}, {"link", "200000"}, {"serial", "ABC"}};
  const weft_abi_config config{sizeof(config), 4, options};
  void* model = nullptr;
  ASSERT_EQ(abi().create(&table, &config, &model, nullptr, 0), 0);
  weft_abi_info info{};
  info.size = sizeof(info);
  abi().info(model, &info);
  EXPECT_EQ(info.vendor, WEFT_PCI_VENDOR);
  EXPECT_EQ(info.device, WEFT_PCI_DEVICE);
  EXPECT_EQ(info.class_code, 0x1200u);
  EXPECT_EQ(info.links, 3u);
  EXPECT_EQ(info.vectors, WEFT_VECTORS);
  EXPECT_EQ(info.bar[0].kind, WEFT_ABI_BAR_MMIO);
  EXPECT_EQ(info.bar[0].size, WEFT_REGS_SIZE);
  EXPECT_EQ(info.bar[2].kind, WEFT_ABI_BAR_RAM);
  EXPECT_EQ(info.bar[2].size, 16u << 20);
  EXPECT_EQ(info.bar[2].prefetch, 1u);
  EXPECT_EQ(info.bar[4].kind, WEFT_ABI_BAR_MSIX);
  Memory hbm(16u << 20);
  EXPECT_EQ(abi().attach_ram(model, 2, hbm.data(), 8u << 20), -EINVAL);
  EXPECT_EQ(abi().attach_ram(model, 1, hbm.data(), 16u << 20), -EINVAL);
  EXPECT_EQ(abi().attach_ram(model, 2, hbm.data() + 1, 16u << 20), -EINVAL);
  EXPECT_EQ(abi().attach_ram(model, 2, hbm.data(), 16u << 20), 0);
  EXPECT_EQ(abi().region_read(model, 0, WEFT_REG_HBM_SIZE, 8), 16u << 20);
  EXPECT_EQ(abi().region_read(model, 0, WEFT_REG_PORTS, 4), 3u);
  EXPECT_EQ(abi().link_receive(model, 3, 0, "", 0), -EINVAL);
  EXPECT_EQ(abi().reset(model, WEFT_ABI_RESET_COLD), 0);
  abi().destroy(model);
}

TEST(Abi, OptionsSayWhatIsRight) {
  EXPECT_EQ(refused("hbm", "1M"), "");
  EXPECT_EQ(refused("hbm", "2g"), "");
  EXPECT_EQ(refused("hbm", "1048576"), "");
  EXPECT_EQ(refused("firmware", "native"), "");
  EXPECT_EQ(refused("kind", "accelerator"), "");
  EXPECT_EQ(refused("kind", "nic"), "");
  EXPECT_NE(refused("hbm", "3M").find("power of two"), std::string::npos);
  for (auto [key, value] : {std::pair{"hbm", "0"},
                            {"hbm", ""},
                            {"hbm", "2T"},
                            {"hbm", "1Mx"},
                            {"hbm", "-1"},
                            {"hbm", "99999999999999999999"},
                            {"hbm", "16777217T"},
                            {"ports", "0"},
                            {"ports", "25"},
                            {"ports", "1K"},
                            {"link", "0"},
                            {"serial", ""},
                            {"serial", "0123456789012345678901234567890123"},
                            {"firmware", "x"},
                            {"kind", "gpu"},
                            {"fault", "all"},
                            {"speed", "1"},
                            {nullptr, nullptr}}) {
    EXPECT_NE(refused(key, value), "") << (key ? key : "null") << "=" << (value ? value : "null");
  }
}

class DeviceTest : public testing::Test {
 protected:
  Board board;
};

TEST_F(DeviceTest, IdentityRegisters) {
  EXPECT_EQ(board.read32(WEFT_REG_MAGIC), 0x54464557u);
  EXPECT_EQ(board.read32(WEFT_REG_HW_VERSION), 0x20000u);
  EXPECT_EQ(board.read32(WEFT_REG_CAPS), WEFT_CAP_QUEUES | WEFT_CAP_REDUCE | WEFT_CAP_CHANNELS);
  EXPECT_EQ(board.read32(WEFT_REG_CONTEXTS), 256u);
  EXPECT_EQ(board.read32(WEFT_REG_VECTORS), 16u);
  EXPECT_EQ(board.read32(WEFT_REG_STATUS), std::uint32_t{WEFT_DEV_ROM});
  EXPECT_EQ(board.read64(WEFT_REG_MAGIC), 0x54464557u | std::uint64_t{0x20000} << 32);
  EXPECT_EQ(board.read32(WEFT_REG_HBM_SIZE), Board::kHbm);
  EXPECT_EQ(board.read32(WEFT_REG_HBM_SIZE + 4), 0u);
  EXPECT_EQ(board.counter(WEFT_CTR_mmio_unknown), 0u);
}

TEST_F(DeviceTest, UnlistedAccessesReadZeroAndCount) {
  EXPECT_EQ(board.read32(0x03c), 0u);
  EXPECT_EQ(board.read32(0xffff0), 0u);
  EXPECT_EQ(board.device->region_read(0, WEFT_REGS_SIZE, 4), 0u);
  EXPECT_EQ(board.device->region_read(0, UINT64_MAX - 3, 4), 0u);
  EXPECT_EQ(board.device->region_read(0, WEFT_REG_MAGIC, 1), 0u);
  EXPECT_EQ(board.device->region_read(0, WEFT_REG_MAGIC + 2, 4), 0u);
  EXPECT_EQ(board.device->region_read(5, 0, 4), 0u);
  board.write32(WEFT_REG_MAGIC, 1);
  board.write32(WEFT_DOORBELLS_BASE, 1);                    // doorbells are 64 bits wide
  board.doorbell(0, 0x838, 1);                              // between the doorbells
  board.device->region_write(0, WEFT_REGS_SIZE - 4, 0, 8);  // across the end
  EXPECT_EQ(board.counter(WEFT_CTR_mmio_unknown), 11u);
  EXPECT_EQ(board.read64(WEFT_DOORBELLS_BASE), 0u);
  EXPECT_EQ(board.counter(WEFT_CTR_mmio_unknown), 11u);
}

TEST_F(DeviceTest, WideRegistersReadInHalvesAreWhole) {
  board.host.now = 0x1'ffff'ffff;
  EXPECT_EQ(board.read32(WEFT_REG_TIME), 0xffffffffu);
  board.host.now = 0x2'0000'0000;
  EXPECT_EQ(board.read32(WEFT_REG_TIME + 4), 1u);  // as it was when the low half was read
  EXPECT_EQ(board.read64(WEFT_REG_TIME), 0x2'0000'0000u);
  board.write32(WEFT_REG_FW_ADDR, 0x1000);
  board.write32(WEFT_REG_FW_ADDR + 4, 0x2);
  EXPECT_EQ(board.read64(WEFT_REG_FW_ADDR), 0x2'0000'1000u);
  board.write64(WEFT_REG_FW_ADDR, 0x3'0000'4000);
  EXPECT_EQ(board.read32(WEFT_REG_FW_ADDR + 4), 3u);
}

TEST_F(DeviceTest, PortCountersAreTheNics) {
  EXPECT_EQ(board.read64(WEFT_PORT_COUNTERS_BASE + 8), 8u);
  EXPECT_EQ(board.read32(WEFT_PORT_COUNTERS_BASE + 16), 9u);
  EXPECT_EQ(board.read64(WEFT_PORT_COUNTERS_BASE + 8 * WEFT_PORT_COUNTERS_MAX), 0u);  // no such port
  EXPECT_EQ(board.counter(WEFT_CTR_mmio_unknown), 1u);
}

TEST_F(DeviceTest, NativeFirmwareServesTheMailbox) {
  board.write32(WEFT_REG_MBOX_DOORBELL, 1);  // nobody is there yet
  EXPECT_EQ(board.counter(WEFT_CTR_err_other), 1u);
  board.boot();
  board.write32(WEFT_REG_IRQ_MASK, WEFT_IRQ_MBOX);
  const std::uint8_t text[16] = "hello";
  EXPECT_EQ(board.mailbox(WEFT_MBOX_ECHO, text), WEFT_ERR_OK);
  EXPECT_EQ(0, std::memcmp(board.answer.payload, text, sizeof(text)));
  board.run();
  EXPECT_EQ(board.host.interrupts, std::vector<std::uint32_t>{0});
  EXPECT_EQ(board.read32(WEFT_REG_IRQ_CAUSE), WEFT_IRQ_MBOX);
  board.write32(WEFT_REG_IRQ_CAUSE, WEFT_IRQ_MBOX);
  EXPECT_EQ(board.read32(WEFT_REG_IRQ_CAUSE), 0u);
  EXPECT_EQ(board.counter(WEFT_CTR_mbox_requests), 1u);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_ECHO, weft_mbox_index{}), WEFT_ERR_OK);
  EXPECT_NE(board.read32(WEFT_REG_FW_VERSION), 0u);
}

TEST_F(DeviceTest, MaskedCauseIsToldWhenItIsUnmasked) {
  board.boot();
  board.mailbox(WEFT_MBOX_ECHO, weft_mbox_index{});
  EXPECT_TRUE(board.host.interrupts.empty());
  board.write32(WEFT_REG_IRQ_MASK, WEFT_IRQ_MBOX | WEFT_IRQ_FATAL);
  board.run();
  EXPECT_EQ(board.host.interrupts.size(), 1u);
}

TEST_F(DeviceTest, RequestIsLatchedAtTheDoorbell) {
  board.boot();
  weft_mbox_message message{};
  message.head = {
      .seq = 77, .op = WEFT_MBOX_ECHO, .length = 8, .status = 0, .version = WEFT_MBOX_VERSION, .reserved = {}};
  message.payload[0] = 42;
  std::uint32_t words[64];
  std::memcpy(words, &message, sizeof(words));
  for (std::uint32_t i = 0; i < 64; ++i) board.write32(WEFT_MBOX_REQUEST + 4 * i, words[i]);
  board.write32(WEFT_REG_MBOX_DOORBELL, 77);
  board.write32(WEFT_MBOX_REQUEST + 16, 43);  // too late
  board.write32(WEFT_REG_MBOX_DOORBELL, 78);  // one at a time
  board.run();
  EXPECT_EQ(board.read32(WEFT_REG_MBOX_DONE), 77u);
  EXPECT_EQ(board.read32(WEFT_MBOX_RESPONSE + 16), 42u);
}

TEST_F(DeviceTest, HeartbeatGoesOnWithTime) {
  board.boot();
  const std::uint32_t before = board.read32(WEFT_REG_HEARTBEAT);
  for (int i = 0; i < 20; ++i) {
    const weft_abi_step step = board.step();
    if (step.more) continue;
    ASSERT_NE(step.deadline_ns, UINT64_MAX);
    board.host.now = std::max(board.host.now, step.deadline_ns);
  }
  EXPECT_GT(board.read32(WEFT_REG_HEARTBEAT), before);
}

TEST_F(DeviceTest, SleepingDeviceWantsNoSteps) {
  EXPECT_EQ(board.step().deadline_ns, UINT64_MAX);  // not booted
  board.start();
  board.run();
  const weft_abi_step step = board.step();
  EXPECT_EQ(step.more, 0u);
  EXPECT_GT(step.deadline_ns, board.host.now);
  EXPECT_LE(step.deadline_ns, board.host.now + 100'000'000);
}

TEST(SensorsTest, FollowTheWork) {
  model::Sensors sensors, same;
  const weft_mbox_sensors idle = sensors.read(1'000'000'000, 0);
  EXPECT_GT(idle.temperature_mc, 20'000u);
  EXPECT_LT(idle.temperature_mc, 60'000u);
  weft_mbox_sensors busy{};
  for (std::uint64_t second = 2; second < 12; ++second) {
    busy = sensors.read(second * 1'000'000'000, second * 3'000'000'000);
    same.read(second * 1'000'000'000, second * 3'000'000'000);
  }
  EXPECT_GT(busy.temperature_mc, idle.temperature_mc + 10'000);
  EXPECT_LT(busy.temperature_mc, 100'000u);
  EXPECT_GT(busy.power_mw, idle.power_mw + 100'000);
  EXPECT_LT(busy.voltage_mv, idle.voltage_mv);
  const weft_mbox_sensors later = sensors.read(100'000'000'000, 12 * 3'000'000'000ull);
  EXPECT_LT(later.power_mw, busy.power_mw);
  // A clock that stands still, and one that jumps.
  EXPECT_EQ(sensors.read(100'000'000'000, 0).power_mw, later.power_mw);
  EXPECT_LT(sensors.read(UINT64_MAX, UINT64_MAX).temperature_mc, 100'000u);
}

TEST_F(DeviceTest, EventsWrapAndFillTheQueue) {
  board.start();
  board.make_event_queue(16);
  board.write32(WEFT_REG_IRQ_MASK, WEFT_IRQ_EVENT);
  for (int lap = 0; lap < 5; ++lap) {
    for (int i = 0; i < 7; ++i) {
      board.device->link_state(0, i % 2 == 0);
      board.run();
    }
    const std::vector<weft_event> events = board.events();
    std::size_t ports = 0;
    for (const weft_event& event : events) {
      if (event.type != WEFT_EVENT_PORT) continue;
      EXPECT_EQ(event.value, std::uint64_t{ports % 2 == 0 ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN});
      EXPECT_EQ(event.time, board.host.now);
      ++ports;
    }
    EXPECT_EQ(ports, 7u);
  }
  EXPECT_GE(board.host.interrupts.size(), 35u);
  EXPECT_EQ(board.counter(WEFT_CTR_events_lost), 0u);
  for (int i = 0; i < 20; ++i) board.device->link_state(0, i % 2 == 0);
  board.run();
  EXPECT_EQ(board.counter(WEFT_CTR_events_lost), 4u);
  EXPECT_EQ(board.events().size(), 16u);
  board.write32(WEFT_REG_EQ_CONSUMER, 5000);  // more than there were
  EXPECT_NE(board.read32(WEFT_REG_EQ_CONSUMER), 5000u);
}

TEST_F(DeviceTest, EventsBeforeTheQueueWaitForIt) {
  board.start();
  board.device->link_state(0, true);
  board.run();
  board.make_event_queue(16);
  board.run();
  const std::vector<weft_event> events = board.events();
  EXPECT_TRUE(std::ranges::any_of(events, [](const weft_event& event) { return event.type == WEFT_EVENT_PORT; }));
}

TEST_F(DeviceTest, HbmIsZeroedInSlices) {
  board.start();
  std::memset(board.hbm.data(), 0xee, 16u << 20);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{4096, 8u << 20}), WEFT_ERR_OK);
  EXPECT_EQ(board.hbm.data()[4095], std::byte{0xee});
  for (std::size_t i = 0; i < 8u << 20; ++i) ASSERT_EQ(board.hbm.data()[4096 + i], std::byte{0}) << i;
  EXPECT_EQ(board.hbm.data()[4096 + (8u << 20)], std::byte{0xee});
  EXPECT_NE(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{Board::kHbm - 4096, 8192}), WEFT_ERR_OK);
  EXPECT_NE(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{UINT64_MAX - 4095, 8192}), WEFT_ERR_OK);
}

TEST_F(DeviceTest, QueuesAreChecked) {
  board.start();
  const Place ring = board.hbm_region(0, 1u << 20);
  const Place read_only = board.hbm_region(2u << 20, 1u << 20, 1, WEFT_RIGHT_READ);
  const auto made = [&](auto spoil) {
    weft_queue_entry entry{};
    entry.ctx = 1;
    entry.ring_key = ring.key;
    entry.ring_addr = ring.va;
    entry.entries = 64;
    spoil(entry);
    return board.mailbox(WEFT_MBOX_QUEUE_CREATE, entry);
  };
  EXPECT_NE(made([](auto& e) { e.ctx = 2; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.queue = WEFT_QUEUES_PER_CONTEXT; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.entries = 8; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.entries = 65; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.entries = 1u << 31; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.entries = 65536; }), WEFT_ERR_OK);  // longer than the region
  EXPECT_NE(made([](auto& e) { e.ring_addr += 32; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.ring_key += 1; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.flags = 1; }), WEFT_ERR_OK);
  EXPECT_NE(made([](auto& e) { e.priority = 1; }), WEFT_ERR_OK);
  EXPECT_NE(made([&](auto& e) { e.ring_key = read_only.key, e.ring_addr = read_only.va; }), WEFT_ERR_OK);
  EXPECT_EQ(made([](auto&) {}), WEFT_ERR_OK);
  EXPECT_EQ(made([](auto&) {}), WEFT_ERR_MBOX_BUSY);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, 1}), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_ABORT, weft_mbox_pair{1, 15}), WEFT_ERR_MBOX_NOT_FOUND);
  EXPECT_NE(board.mailbox(WEFT_MBOX_QUEUE_ABORT, weft_mbox_pair{1, UINT32_MAX}), WEFT_ERR_OK);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{1, 0}), WEFT_ERR_OK);
  EXPECT_EQ(made([](auto&) {}), WEFT_ERR_OK);
}

TEST_F(DeviceTest, VerbsAreNotOffered) {
  board.start();
  EXPECT_EQ(board.mailbox(WEFT_MBOX_CQ_CREATE, weft_cq_entry{}), WEFT_ERR_UNSUPPORTED);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_CQ_RESIZE, weft_cq_entry{}), WEFT_ERR_UNSUPPORTED);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_SRQ_CREATE, weft_srq_entry{}), WEFT_ERR_UNSUPPORTED);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_SRQ_MODIFY, weft_srq_entry{}), WEFT_ERR_UNSUPPORTED);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_FIFO_CREATE, weft_fifo_entry{}), WEFT_ERR_UNSUPPORTED);
  for (const weft_mbox_op op :
       {WEFT_MBOX_CQ_DESTROY, WEFT_MBOX_SRQ_QUERY, WEFT_MBOX_SRQ_DESTROY, WEFT_MBOX_FIFO_DESTROY}) {
    EXPECT_EQ(board.mailbox(op, weft_mbox_pair{1, 0}), WEFT_ERR_UNSUPPORTED) << op;
  }
  // Their doorbells: consumer updates with and without arming among them.
  const std::uint64_t before = board.counter(WEFT_CTR_err_unsupported);
  for (const std::uint32_t which : {WEFT_DB_SQ, WEFT_DB_RQ, WEFT_DB_SRQ, WEFT_DB_FIFO(0), WEFT_DB_FIFO(3)}) {
    board.doorbell(1, which, WEFT_DB_PAIR(2, 1));
  }
  for (const std::uint32_t what : {0u, WEFT_DB_CQ_ARM, WEFT_DB_CQ_ARM | WEFT_DB_CQ_SOLICITED}) {
    board.doorbell(1, WEFT_DB_CQ, WEFT_DB_PAIR(WEFT_DB_CQ_NUMBER | what, 1));
  }
  EXPECT_EQ(board.counter(WEFT_CTR_err_unsupported) - before, 8u);
  EXPECT_EQ(board.counter(WEFT_CTR_mmio_unknown), 0u);
  board.doorbell(1, WEFT_DB_FIFO(WEFT_FIFOS_PER_CONTEXT), 1);
  EXPECT_EQ(board.counter(WEFT_CTR_mmio_unknown), 1u);
}

TEST_F(DeviceTest, IdentifySaysWhatIsOffered) {
  board.start();
  ASSERT_EQ(board.mailbox(WEFT_MBOX_IDENTIFY, Nothing{}), WEFT_ERR_OK);
  const auto identity = board.answered<weft_mbox_identity>();
  EXPECT_EQ(identity.caps, board.read32(WEFT_REG_CAPS));
  EXPECT_EQ(identity.contexts, board.read32(WEFT_REG_CONTEXTS));
  EXPECT_EQ(identity.regions, board.read32(WEFT_REG_REGIONS));
  EXPECT_EQ(identity.qps, board.read32(WEFT_REG_QPS));
  EXPECT_EQ(identity.gids_per_port, 32u);
}

// A queue full of work of every kind, in the middle of which everything goes away.
void reset_while_busy(Board& board, const std::function<void()>& reset) {
  board.start();
  const Place data = board.hbm_region(0, 32u << 20);
  const Place host = board.host_region(board.host.alloc(1u << 20), 1u << 20);
  Board::Queue queue = board.make_queue();
  queue.submit({copy(data + (16u << 20), data, 16u << 20), rdma_write(0x40, data, {1, 0}, 4096),
                copy(host, data, 1u << 20), after(command(WEFT_OP_NOP), 5, 1), command(WEFT_OP_FENCE),
                then(command(WEFT_OP_NOP), 6)});
  for (int i = 0; i < 3; ++i) board.step(64 * 1024);
  board.hbm.data()[12345] = std::byte{0x77};
  const std::uint64_t fetched = queue.head().fetched;
  reset();
  EXPECT_EQ(board.read32(WEFT_REG_STATUS), std::uint32_t{WEFT_DEV_ROM});
  EXPECT_EQ(board.counter(WEFT_CTR_commands), 0u);
  EXPECT_EQ(board.counter(WEFT_CTR_copy_bytes), 0u);
  EXPECT_EQ(board.counter(WEFT_CTR_host_control_read_bytes), 0u);
  board.host.writes.clear();
  board.doorbell(1, WEFT_DB_QUEUE(0), 100);
  board.doorbell(1, WEFT_DB_SIGNAL, WEFT_DB_PAIR(5, 1));
  board.run();
  EXPECT_TRUE(board.host.writes.empty()) << "the device still wrote to guest memory";
  EXPECT_EQ(queue.head().fetched, fetched);
  // And it works again, with the same numbers and keys.
  board.host.interrupts.clear();
  board.start();
  const Place again = board.hbm_region(0, 4096);
  Board::Queue next = board.make_queue();
  next.submit({then(fill(again, 1, 4096), 6)});
  board.run();
  EXPECT_EQ(board.shadow(6), 1u);
}

TEST_F(DeviceTest, FlrWithABusyQueue) {
  reset_while_busy(board, [&] { EXPECT_EQ(board.device->reset(WEFT_ABI_RESET_FLR), 0); });
  EXPECT_EQ(board.hbm.data()[12345], std::byte{0x77});
}
TEST_F(DeviceTest, ControlResetWithABusyQueue) {
  reset_while_busy(board, [&] { board.write32(WEFT_REG_CTL, WEFT_CTL_RESET); });
  EXPECT_EQ(board.hbm.data()[12345], std::byte{0x77});
}
TEST_F(DeviceTest, ColdResetWithABusyQueue) {
  reset_while_busy(board, [&] { EXPECT_EQ(board.device->reset(WEFT_ABI_RESET_COLD), 0); });
}

TEST_F(DeviceTest, QuiesceStopsAndResumeGoesOn) {
  board.start();
  const Place data = board.hbm_region(0, 32u << 20);
  Board::Queue queue = board.make_queue();
  queue.submit({then(copy(data + (16u << 20), data, 16u << 20), 1)});
  board.step(64 * 1024);
  ASSERT_EQ(board.device->quiesce(), 0);
  const std::uint64_t copied = board.counter(WEFT_CTR_copy_bytes);
  const weft_abi_step step = board.step();
  EXPECT_EQ(step.more, 0u);
  EXPECT_EQ(step.deadline_ns, UINT64_MAX);
  EXPECT_EQ(board.counter(WEFT_CTR_copy_bytes), copied);
  const unsigned wakes = board.host.wakes;
  ASSERT_EQ(board.device->resume(), 0);
  EXPECT_GT(board.host.wakes, wakes);
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
}

// The image that the build made, on the RISC-V core.
class ImageTest : public testing::Test {
 protected:
  static model::Options options() {
    model::Options out = Board::defaults();
    out.native_firmware = false;
    return out;
  }
  void put(std::span<const char> image) {
    const std::uint64_t at = board.host.alloc(std::max<std::size_t>(image.size(), 1));
    std::memcpy(board.host.find(at, image.size()), image.data(), image.size());
    board.write64(WEFT_REG_FW_ADDR, at);
    board.write32(WEFT_REG_FW_SIZE, static_cast<std::uint32_t>(image.size()));
  }
  std::uint32_t boot() {
    board.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
    for (int i = 0; i < 100000 && board.read32(WEFT_REG_STATUS) == WEFT_DEV_BOOTING; ++i) {
      board.host.now += 1'000'000;
      board.step();
    }
    return board.read32(WEFT_REG_STATUS);
  }
  Board board{std::nullopt, options()};
};

TEST_F(ImageTest, BadImagesAreRefusedWithTheReason) {
  EXPECT_EQ(boot(), std::uint32_t{WEFT_DEV_FAILED});  // nothing was set
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_ERROR), std::uint32_t{WEFT_BOOT_SHORT});
  board.write32(WEFT_REG_IRQ_MASK, WEFT_IRQ_FATAL);
  board.run();
  EXPECT_EQ(board.host.interrupts, std::vector<std::uint32_t>{0});
  // Only a reset helps.
  EXPECT_EQ(boot(), std::uint32_t{WEFT_DEV_FAILED});
  board.write32(WEFT_REG_CTL, WEFT_CTL_RESET);
  EXPECT_EQ(board.read32(WEFT_REG_STATUS), std::uint32_t{WEFT_DEV_ROM});

  board.write32(WEFT_REG_FW_SIZE, 0x7fffffff);  // never read
  EXPECT_EQ(boot(), std::uint32_t{WEFT_DEV_FAILED});
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_ERROR), std::uint32_t{WEFT_BOOT_SHORT});
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_DETAIL), 0x7fffffffu);
  EXPECT_EQ(board.host.counters.errors, 0u);

  board.write32(WEFT_REG_CTL, WEFT_CTL_RESET);
  board.write64(WEFT_REG_FW_ADDR, 0x1000);
  board.write32(WEFT_REG_FW_SIZE, 4096);
  EXPECT_EQ(boot(), std::uint32_t{WEFT_DEV_FAILED});
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_ERROR), std::uint32_t{WEFT_BOOT_DMA});

  board.write32(WEFT_REG_CTL, WEFT_CTL_RESET);
  put(std::vector<char>(4096, 'x'));
  EXPECT_EQ(boot(), std::uint32_t{WEFT_DEV_FAILED});
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_ERROR), std::uint32_t{WEFT_BOOT_MAGIC});
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_DETAIL), 0x78787878u);
}

#ifdef WEFT_FW_IMAGE
TEST_F(ImageTest, TheRealImageBootsAndServes) {
  std::ifstream file(WEFT_FW_IMAGE, std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  ASSERT_GT(image.size(), sizeof(weft_fw_header));
  put(image);
  ASSERT_EQ(boot(), std::uint32_t{WEFT_DEV_READY}) << board.read32(WEFT_REG_BOOT_ERROR);
  board.make_context(1);
  const Place data = board.hbm_region(0, 1u << 20);
  Board::Queue queue = board.make_queue();
  queue.submit({then(fill(data, 0x4242424242424242, 4096), 1)});
  board.run();
  EXPECT_EQ(board.shadow(1), 1u);
  EXPECT_EQ(*board.hbm.at<std::uint64_t>(4088), 0x4242424242424242u);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{0, 4u << 20}), WEFT_ERR_OK);
  EXPECT_EQ(*board.hbm.at<std::uint64_t>(4088), 0u);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_CTX_DESTROY, weft_mbox_index{1, 0}), WEFT_ERR_OK);
}
#endif

// A firmware of the test's own, behind the same port.
class Scripted final : public model::Firmware {
 public:
  Scripted(model::FirmwareBus& bus, std::function<Progress(model::FirmwareBus&)> script)
      : bus_(bus), script_(std::move(script)) {}
  Progress step(std::uint32_t) override { return script_(bus_); }

 private:
  model::FirmwareBus& bus_;
  std::function<Progress(model::FirmwareBus&)> script_;
};
model::DeviceParts scripted(std::function<model::Firmware::Progress(model::FirmwareBus&)> script) {
  return {[](model::NicHost& host, const model::NicConfig&) { return std::make_unique<FakeNic>(host); },
          model::boot_image, [script](model::FirmwareBus& bus) { return std::make_unique<Scripted>(bus, script); }};
}

TEST(Firmware, SilentOnesAreGivenUp) {
  Board board{scripted([](model::FirmwareBus& bus) {
    bus.io_write(WEFT_FWIO_IDLE, 1);
    return model::Firmware::Progress{.idle = true};
  })};
  board.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  const std::uint64_t start = board.host.now;
  while (board.read32(WEFT_REG_STATUS) == WEFT_DEV_BOOTING) {
    const weft_abi_step step = board.step();
    ASSERT_LT(board.host.now, start + 60'000'000'000);
    if (!step.more) board.host.now = std::max(board.host.now, step.deadline_ns);
  }
  EXPECT_EQ(board.read32(WEFT_REG_STATUS), std::uint32_t{WEFT_DEV_FAILED});
  EXPECT_EQ(board.read32(WEFT_REG_BOOT_ERROR), std::uint32_t{WEFT_BOOT_SILENT});
}

TEST(Firmware, TrapsAndFatalCodesFailTheDevice) {
  Board trap{scripted([](model::FirmwareBus&) { return model::Firmware::Progress{.trapped = true, .cause = 2}; })};
  trap.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  trap.step();
  EXPECT_EQ(trap.read32(WEFT_REG_STATUS), std::uint32_t{WEFT_DEV_FAILED});
  EXPECT_EQ(trap.read32(WEFT_REG_BOOT_ERROR), std::uint32_t{WEFT_BOOT_TRAP});
  EXPECT_EQ(trap.read32(WEFT_REG_BOOT_DETAIL), 2u);

  Board fatal{scripted([](model::FirmwareBus& bus) {
    bus.io_write(WEFT_FWIO_READY, 0x10000);
    bus.io_write(WEFT_FWIO_FATAL, 0x55);
    return model::Firmware::Progress{};
  })};
  fatal.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  fatal.step();
  EXPECT_EQ(fatal.read32(WEFT_REG_STATUS), std::uint32_t{WEFT_DEV_FAILED});
  EXPECT_EQ(fatal.read32(WEFT_REG_BOOT_DETAIL), 0x55u);
}

TEST(Firmware, PortShowsTheDevice) {
  std::uint32_t seen[6] = {};
  std::uint32_t busy = 0, done = 1;
  Board board{scripted([&](model::FirmwareBus& bus) {
    seen[0] = bus.io_read(WEFT_FWIO_HW_VERSION);
    seen[1] = bus.io_read(WEFT_FWIO_HBM_LO);
    seen[2] = bus.io_read(WEFT_FWIO_SERIAL);
    seen[3] = bus.io_read(WEFT_FWIO_SENSORS);
    seen[4] = bus.io_read(0xfffc);
    seen[5] = bus.io_read(WEFT_FWIO_TIME_LO);
    // A long operation: busy, then done, also for a firmware that only looks.
    bus.io_write(WEFT_FWIO_TABLE_DATA + 8, 1u << 20);
    bus.io_write(WEFT_FWIO_TABLE_OP, WEFT_MBOX_HBM_ZERO);
    while ((done = bus.io_read(WEFT_FWIO_TABLE_STATUS)) == WEFT_FW_TABLE_BUSY) ++busy;
    // The firmware's own operation.
    bus.io_write(WEFT_FWIO_TABLE_OP, WEFT_MBOX_IDENTIFY);
    EXPECT_EQ(bus.io_read(WEFT_FWIO_TABLE_STATUS), std::uint32_t{WEFT_ERR_BAD_OP});
    bus.io_write(WEFT_FWIO_READY, 1);
    bus.io_write(WEFT_FWIO_IDLE, 1);
    bus.io_write(WEFT_FWIO_IDLE, 1);
    return model::Firmware::Progress{.idle = true};
  })};
  board.host.now = 5'000'000'000;
  board.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  board.run();
  EXPECT_EQ(seen[0], 0x20000u);
  EXPECT_EQ(seen[1], Board::kHbm);
  EXPECT_EQ(seen[2], 0x54464557u);  // "WEFT0000"
  EXPECT_GT(seen[3], 20'000u);
  EXPECT_EQ(seen[4], 0u);
  EXPECT_EQ(seen[5], 5000u);
  EXPECT_GT(busy, 3u);
  EXPECT_EQ(done, std::uint32_t{WEFT_ERR_OK});
}

TEST(Firmware, HostsDiscardIsUsedForZeroing) {
  const std::function<void(FakeHost&)> discards = [](FakeHost& host) { host.with_discard = true; };
  Board board{std::nullopt, Board::defaults(), discards};
  board.boot();
  std::memset(board.hbm.data(), 1, 1u << 20);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{4096, 8192}), WEFT_ERR_OK);
  EXPECT_EQ(board.host.discards, 1u);
  EXPECT_EQ(board.hbm.data()[4095], std::byte{1});
  EXPECT_EQ(board.hbm.data()[4096], std::byte{0});
  EXPECT_EQ(board.hbm.data()[4096 + 8192], std::byte{1});
  // What is not whole pages is done by hand.
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{100, 50}), WEFT_ERR_OK);
  EXPECT_EQ(board.host.discards, 1u);
  EXPECT_EQ(board.hbm.data()[99], std::byte{1});
  EXPECT_EQ(board.hbm.data()[100], std::byte{0});
  EXPECT_EQ(board.hbm.data()[150], std::byte{1});
  // Both in one range: the pages inside go to the host.
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{32768 + 1000, 8192}), WEFT_ERR_OK);
  EXPECT_EQ(board.host.discards, 2u);
  EXPECT_EQ(board.hbm.data()[32768 + 999], std::byte{1});
  for (std::size_t i = 0; i < 8192; ++i) ASSERT_EQ(board.hbm.data()[32768 + 1000 + i], std::byte{0}) << i;
  EXPECT_EQ(board.hbm.data()[32768 + 1000 + 8192], std::byte{1});
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{0, 0}), WEFT_ERR_BAD_RANGE);
}

// Zeroing holds nobody up: a command that came after it is done long before it ends.
TEST(Firmware, ZeroingGoesOnInPiecesBesideTheDataPath) {
  for (const bool discard : {true, false}) {
    Board board{std::nullopt, Board::defaults(), [discard](FakeHost& host) { host.with_discard = discard; }};
    board.start();
    const Place data = board.hbm_region(0, 4096);
    Board::Queue queue = board.make_queue();
    const weft_mbox_range all{0, Board::kHbm};
    board.post(WEFT_MBOX_HBM_ZERO, all);
    queue.submit({then(fill(data + 64, 0x77, 64), 3)});
    unsigned steps = 0;
    unsigned command_at = 0;
    while (!board.answered_now()) {
      ASSERT_LT(++steps, 100000u);
      board.step();
      if (command_at == 0 && board.shadow(3) == 1) command_at = steps;
    }
    // A step's piece: 1 MiB by hand, 16 times that by the host.
    EXPECT_GE(steps, Board::kHbm >> (discard ? 24 : 20));
    EXPECT_GT(command_at, 0u);
    EXPECT_LT(command_at, 3u);
    EXPECT_LE(board.host.largest_discard, 16u << 20);
  }
}

// The firmware is the guest's: what it makes the tables do in one step is bounded, however often it asks.
TEST(Firmware, TableWorkOfAStepIsBounded) {
  unsigned executed = 0;
  unsigned looks = 0;
  Board operations{scripted([&](model::FirmwareBus& bus) {
    for (int i = 0; i < 1000 && bus.io_read(WEFT_FWIO_TABLE_STATUS) != WEFT_FW_TABLE_BUSY; ++i) {
      bus.io_write(WEFT_FWIO_TABLE_DATA, 1);
      bus.io_write(WEFT_FWIO_TABLE_OP, WEFT_MBOX_CTX_DESTROY);
      ++executed;
    }
    return model::Firmware::Progress{};
  })};
  operations.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  operations.step();
  EXPECT_LE(executed, 16u);
  const unsigned first = executed;
  operations.step();
  EXPECT_GT(executed, first) << "the one that waited is executed in the next step";

  Board bytes{scripted([&](model::FirmwareBus& bus) {
    if (looks == 0) {
      bus.io_write(WEFT_FWIO_TABLE_DATA + 8, 32u << 20);
      bus.io_write(WEFT_FWIO_TABLE_OP, WEFT_MBOX_HBM_ZERO);
    }
    for (int i = 0; i < 8192; ++i, ++looks) {
      if (bus.io_read(WEFT_FWIO_TABLE_STATUS) != WEFT_FW_TABLE_BUSY) break;
    }
    return model::Firmware::Progress{};
  })};
  std::memset(bytes.hbm.data(), 1, 32u << 20);
  bytes.write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  for (unsigned step = 0; step < 4; ++step) {
    const auto zeroed = [&] {
      return std::find(bytes.hbm.data(), bytes.hbm.data() + (32u << 20), std::byte{1}) - bytes.hbm.data();
    };
    const auto before = zeroed();
    bytes.step();
    EXPECT_LE(zeroed() - before, 2 << 20);
  }
}

// The NIC without the accelerator.
TEST(Kind, NicAloneOffersNoQueuesAndHasNoHbm) {
  model::Options options = Board::defaults();
  options.accelerator = false;
  options.hbm_bytes = 0;
  Board board{std::nullopt, options};
  weft_abi_info info{};
  info.size = sizeof(info);
  board.device->info(info);
  EXPECT_EQ(info.device, WEFT_PCI_DEVICE_NIC);
  EXPECT_EQ(info.class_code, 0x0200u);
  EXPECT_EQ(info.bar[WEFT_BAR_HBM].size, 0u);
  EXPECT_EQ(info.links, 1u);
  EXPECT_STREQ(info.name, "weft-nic");
  EXPECT_EQ(board.read32(WEFT_REG_CAPS), 0u);
  EXPECT_EQ(board.read64(WEFT_REG_HBM_SIZE), 0u);
  board.start();
  ASSERT_EQ(board.mailbox(WEFT_MBOX_IDENTIFY, Nothing{}), WEFT_ERR_OK);
  const auto identity = board.answered<weft_mbox_identity>();
  EXPECT_EQ(identity.caps, 0u);
  EXPECT_STREQ(reinterpret_cast<const char*>(identity.board), "Weft emulated NIC");
  const Place ring = board.host_region(board.host.alloc(4096), 4096);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QUEUE_CREATE, weft_queue_entry{1, 0, ring.key, 16, ring.va, 0, 0, {}}),
            WEFT_ERR_UNSUPPORTED);
  weft_qp_entry channel{};
  channel.ctx = 1;
  channel.type = WEFT_QP_CHANNEL;
  EXPECT_EQ(board.mailbox(WEFT_MBOX_QP_CREATE, channel), WEFT_ERR_UNSUPPORTED);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_HBM_ZERO, weft_mbox_range{0, 4096}), WEFT_ERR_BAD_RANGE);
  EXPECT_EQ(board.mailbox(WEFT_MBOX_PORT_GET, weft_mbox_index{0, 0}), WEFT_ERR_OK);
}

TEST(DeviceLinks, StationsGoToTheNic) {
  Board board;
  constexpr std::array<std::uint8_t, 6> kMac{2, 0x57, 1, 2, 3, 4};
  board.device->link_station(0, kMac, false);
  board.device->link_station(1, kMac, false);  // there is one port
  ASSERT_EQ(board.nic->stations.size(), 1u);
  EXPECT_EQ(board.nic->stations[0].mac, kMac);
  EXPECT_FALSE(board.nic->stations[0].up);
}

}  // namespace
}  // namespace weft::test
