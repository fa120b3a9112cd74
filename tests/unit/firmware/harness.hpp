// SPDX-License-Identifier: MIT
// Hardware that records what the firmware does with it, and a driver that sends requests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"
#include "weft/model/firmware_port.hpp"

namespace weft::model::test {

using Payload = std::vector<std::uint8_t>;

template <class T>
Payload payload_of(const T& value) {
  Payload bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

template <class T>
T as(const Payload& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(value));
  std::memcpy(&value, bytes.data(), std::min(sizeof(value), bytes.size()));
  return value;
}

struct TableOperation {
  std::uint32_t op;
  std::array<std::uint8_t, 256> data;  // the operand, with what was there before behind it
  bool operator==(const TableOperation&) const = default;
};

// Sizes that differ from each other and from the maxima, so that a mixed-up bound shows.
inline constexpr std::uint32_t kPorts = 3;
inline constexpr std::uint32_t kContexts = 20;
inline constexpr std::uint32_t kRegions = 500;
inline constexpr std::uint64_t kHbm = 0x1'2345'6000;
inline constexpr std::uint32_t kCaps = WEFT_CAP_REDUCE | WEFT_CAP_VERBS;
inline constexpr std::uint32_t kImageCrc = 0xfeedc0de;

class FakeHardware final : public FirmwareBus {
 public:
  FakeHardware() {
    for (weft_mbox_port& port : ports) {
      port.port = static_cast<std::uint32_t>(&port - ports.data());
      port.state = WEFT_PORT_DOWN;
      port.speed_mbps = 100000;
    }
    sensors.temperature_mc = 45000;
    sensors.hbm_temperature_mc = 50000;
    sensors.power_mw = 75000;
  }

  std::uint32_t io_read(std::uint32_t offset) override {
    if (offset < 256) return word(&request, offset);
    if (offset >= WEFT_FWIO_TABLE_DATA && offset < WEFT_FWIO_TABLE_DATA + 256) {
      return word(table_data.data(), offset - WEFT_FWIO_TABLE_DATA);
    }
    if (offset >= WEFT_FWIO_SENSORS && offset < WEFT_FWIO_SENSORS + sizeof(sensors)) {
      return word(&sensors, offset - WEFT_FWIO_SENSORS);
    }
    if (offset >= WEFT_FWIO_SERIAL && offset < WEFT_FWIO_SERIAL + 32) return word(serial, offset - WEFT_FWIO_SERIAL);
    switch (offset) {
      case WEFT_FWIO_MBOX_PENDING:
        return pending;
      case WEFT_FWIO_TIME_LO:
        time_high = static_cast<std::uint32_t>(time_ms >> 32);
        return static_cast<std::uint32_t>(time_ms);
      case WEFT_FWIO_TIME_HI:
        return time_high;
      case WEFT_FWIO_HW_VERSION:
        return hw_version;
      case WEFT_FWIO_PORTS:
        return port_count;
      case WEFT_FWIO_CONTEXTS:
        return kContexts;
      case WEFT_FWIO_CAPS:
        return kCaps;
      case WEFT_FWIO_REGIONS:
        return kRegions;
      case WEFT_FWIO_QPS:
        return 100;
      case WEFT_FWIO_IMAGE_CRC:
        return kImageCrc;
      case WEFT_FWIO_TABLE_STATUS:
        return table_status;
      default:
        ADD_FAILURE() << "read of " << std::hex << offset;
        return 0;
    }
  }

  void io_write(std::uint32_t offset, std::uint32_t value) override {
    if (offset >= WEFT_FWIO_MBOX_RESPONSE && offset < WEFT_FWIO_MBOX_RESPONSE + 256) {
      std::memcpy(reinterpret_cast<std::uint8_t*>(&response) + (offset - WEFT_FWIO_MBOX_RESPONSE), &value, 4);
      return;
    }
    if (offset >= WEFT_FWIO_TABLE_DATA && offset < WEFT_FWIO_TABLE_DATA + 256) {
      EXPECT_NE(table_status, WEFT_FW_TABLE_BUSY) << "operand changed under way";
      std::memcpy(table_data.data() + (offset - WEFT_FWIO_TABLE_DATA), &value, 4);
      return;
    }
    switch (offset) {
      case WEFT_FWIO_MBOX_ANSWER:
        EXPECT_EQ(value, pending);
        pending = 0;
        ++answers;
        return;
      case WEFT_FWIO_READY:
        ready.push_back(value);
        return;
      case WEFT_FWIO_HEARTBEAT:
        heartbeats.push_back(value);
        return;
      case WEFT_FWIO_FATAL:
        fatal.push_back(value);
        return;
      case WEFT_FWIO_IDLE:
        ++idles;
        return;
      case WEFT_FWIO_EVENT_LOG:
        log_events.push_back(value);
        return;
      case WEFT_FWIO_TABLE_OP:
        return execute(value);
      default:
        ADD_FAILURE() << "write of " << std::hex << offset;
    }
  }

  // Ends the table operation under way.
  void finish_table(std::uint32_t status) { table_status = status; }

  weft_mbox_message request{};
  weft_mbox_message response{};
  std::uint32_t pending = 0;
  unsigned answers = 0;
  std::uint64_t time_ms = 0x2'ffff'ff00;  // crosses a 32-bit boundary soon
  std::uint32_t time_high = 0;
  std::uint32_t hw_version = WEFT_HW_MAJOR << 16 | WEFT_HW_MINOR;
  std::uint32_t port_count = kPorts;
  weft_mbox_sensors sensors{};
  char serial[32] = "WEFT-TEST-0001";
  std::array<weft_mbox_port, WEFT_PORTS_MAX> ports{};

  std::array<std::uint8_t, 256> table_data{};
  std::uint32_t table_status = 0;
  bool hold = false;                   // operations stay busy until finish_table()
  bool hold_ports = false;             // so do the firmware's own looks at ports
  std::uint32_t next_status = 0;       // how the next ones end
  std::vector<TableOperation> tables;  // without PORT_GET, which the firmware also does by itself
  unsigned port_gets = 0;

  std::vector<std::uint32_t> ready, heartbeats, fatal, log_events;
  unsigned idles = 0;

 private:
  static std::uint32_t word(const void* from, std::uint32_t offset) {
    EXPECT_EQ(offset % 4, 0u);
    std::uint32_t value = 0;
    std::memcpy(&value, static_cast<const std::uint8_t*>(from) + offset, sizeof(value));
    return value;
  }

  void execute(std::uint32_t op) {
    EXPECT_NE(table_status, WEFT_FW_TABLE_BUSY) << "operation started while one is under way";
    if (op == WEFT_MBOX_PORT_GET) {
      ++port_gets;
      weft_mbox_index index;
      std::memcpy(&index, table_data.data(), sizeof(index));
      std::memcpy(table_data.data(), &ports[index.index % WEFT_PORTS_MAX], sizeof(weft_mbox_port));
      table_status = hold_ports                  ? WEFT_FW_TABLE_BUSY
                     : index.index >= port_count ? std::uint32_t{WEFT_ERR_MBOX_NOT_FOUND}
                                                 : 0;
      return;
    }
    tables.push_back({op, table_data});
    // Every byte of a result differs from the operand.
    for (std::uint8_t& byte : table_data) byte = static_cast<std::uint8_t>(~byte);
    table_status = hold ? WEFT_FW_TABLE_BUSY : next_status;
  }
};

enum class Build { kNative, kImage };

inline std::vector<std::byte> firmware_image() {
#ifdef WEFT_FW_IMAGE
  std::ifstream in(WEFT_FW_IMAGE, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
#else
  return {};
#endif
}

inline constexpr const char* kNoImage = "no riscv64-unknown-elf-g++ when this was built: there is no firmware image";

struct Answer {
  weft_error status;
  Payload payload;
};

// One device with its firmware and its driver.
class Device {
 public:
  explicit Device(Build build) {
    if (build == Build::kNative) {
      firmware = boot_native(hardware);
    } else {
      BootResult result = boot_image(firmware_image(), hardware);
      EXPECT_EQ(result.error, WEFT_BOOT_OK);
      firmware = std::move(result.firmware);
    }
  }

  // Until the firmware sleeps.
  void run() {
    for (int i = 0; i < 1000; ++i) {
      const Firmware::Progress progress = firmware->step(1000);
      ASSERT_FALSE(progress.trapped) << "cause " << progress.cause << " at " << std::hex << progress.pc;
      if (progress.idle) return;
    }
    FAIL() << "the firmware does not sleep";
  }

  // Time goes by in ticks.
  void pass_ms(std::uint64_t ms) {
    while (ms != 0) {
      const std::uint64_t part = std::min<std::uint64_t>(ms, 100);
      hardware.time_ms += part;
      ms -= part;
      run();
    }
  }

  void send(std::uint16_t op, const Payload& payload) {
    hardware.request = {};
    hardware.request.head.seq = ++seq;
    hardware.request.head.op = op;
    hardware.request.head.length = static_cast<std::uint16_t>(payload.size());
    hardware.request.head.version = WEFT_MBOX_VERSION;
    std::copy_n(payload.begin(), std::min<std::size_t>(payload.size(), WEFT_MBOX_PAYLOAD), hardware.request.payload);
    post();
  }
  // Posts hardware.request as it is.
  void post() { hardware.pending = seq; }

  Answer answer() {
    const weft_mbox_header& head = hardware.response.head;
    EXPECT_EQ(hardware.pending, 0u) << "not answered";
    EXPECT_EQ(head.seq, seq);
    EXPECT_EQ(head.op, hardware.request.head.op);
    EXPECT_EQ(head.version, WEFT_MBOX_VERSION);
    for (const std::uint8_t byte : head.reserved) EXPECT_EQ(byte, 0);
    EXPECT_LE(head.length, WEFT_MBOX_PAYLOAD);
    Answer out{static_cast<weft_error>(head.status), {}};
    out.payload.assign(hardware.response.payload,
                       hardware.response.payload + std::min<int>(head.length, WEFT_MBOX_PAYLOAD));
    EXPECT_TRUE(out.status == WEFT_ERR_OK || out.payload.empty());
    return out;
  }

  Answer call(std::uint16_t op, const Payload& payload = {}) {
    send(op, payload);
    run();
    return answer();
  }

  weft_mbox_log log(std::uint32_t first) {
    return as<weft_mbox_log>(call(WEFT_MBOX_LOG_READ, payload_of(weft_mbox_index{first, 0})).payload);
  }
  // All records that are still there.
  std::vector<weft_log_record> whole_log() {
    std::vector<weft_log_record> records;
    for (std::uint32_t first = 1;;) {
      const weft_mbox_log part = log(first);
      if (part.count == 0 || part.count > 3) return records;
      records.insert(records.end(), part.record, part.record + part.count);
      first = records.back().number + 1;
    }
  }

  FakeHardware hardware;
  std::unique_ptr<Firmware> firmware;
  std::uint32_t seq = 0x7fff'fffe;
};

inline std::string text_of(const weft_log_record& record) {
  const auto* text = reinterpret_cast<const char*>(record.text);
  return std::string(text, strnlen(text, sizeof(record.text)));
}

// A running device of each build.
class FirmwareTest : public testing::TestWithParam<Build> {
 protected:
  void SetUp() override {
    if (GetParam() == Build::kImage && firmware_image().empty()) GTEST_SKIP() << kNoImage;
    device = std::make_unique<Device>(GetParam());
    device->run();
  }
  FakeHardware& hardware() { return device->hardware; }

  std::unique_ptr<Device> device;
};

inline std::string build_name(const testing::TestParamInfo<Build>& info) {
  return info.param == Build::kNative ? "native" : "image";
}

}  // namespace weft::model::test
