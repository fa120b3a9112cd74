// SPDX-License-Identifier: MIT
// The device as its firmware sees it: the words at WEFT_FW_IO (weft/hw/fw.h).
#pragma once

#include <array>
#include <cstdint>

#include "counters.hpp"
#include "event_queue.hpp"
#include "host_port.hpp"
#include "mailbox.hpp"
#include "sensors.hpp"
#include "tables.hpp"
#include "weft/hw/fw.h"
#include "weft/model/firmware_port.hpp"

namespace weft::model {

// What does not change while the device lives.
struct DeviceFacts {
  std::uint32_t ports = 0;
  std::uint32_t queue_pairs = 0;
  std::uint64_t hbm_bytes = 0;
  std::uint32_t caps = 0;  // WEFT_CAP_*
  std::array<std::uint8_t, 32> serial{};
};

class TablePort final : public FirmwareBus {
 public:
  TablePort(HostPort& host, Counters& counters, EventQueue& events, Mailbox& mailbox, Tables& tables,
            const DeviceFacts& facts);

  std::uint32_t io_read(std::uint32_t offset) override;
  void io_write(std::uint32_t offset, std::uint32_t value) override;

  // The device's side.
  void set_image_crc(std::uint32_t crc) { image_crc_ = crc; }
  // Ends the firmware's sleep, also the next one when it is awake (WEFT_FWIO_IDLE says why).
  void wake() {
    sleeping_ = false;
    woken_ = true;
  }
  bool sleeping() const { return sleeping_; }
  bool ready() const { return ready_; }
  std::uint32_t version() const { return version_; }
  std::uint32_t heartbeat() const { return heartbeat_; }
  // The firmware gave up, with its code.
  bool fatal() const { return fatal_; }
  std::uint32_t fatal_code() const { return fatal_code_; }
  // A table operation is under way, or waits for the next step.
  bool table_busy() const { return tables_.busy() || waiting_op_ != 0; }
  // Goes on with it, and gives the firmware, which is the guest's, its share of the tables' work for this step.
  void begin_step();
  void reset();

 private:
  std::uint32_t sensor_word(std::size_t word);
  void execute(std::uint32_t op);
  void advance(std::uint64_t budget);

  static constexpr std::uint32_t kStepOperations = 8;
  static constexpr std::uint64_t kStepBytes = 1024 * 1024;  // of a long operation

  HostPort& host_;
  Counters& counters_;
  EventQueue& events_;
  Mailbox& mailbox_;
  Tables& tables_;
  const DeviceFacts& facts_;
  Sensors sensors_;
  weft_mbox_sensors reading_{};  // taken when its first word is read
  std::uint32_t time_high_ = 0;
  std::uint32_t image_crc_ = 0;
  bool sleeping_ = false;
  bool woken_ = false;
  bool ready_ = false;
  bool fatal_ = false;
  std::uint32_t version_ = 0;
  std::uint32_t heartbeat_ = 0;
  std::uint32_t fatal_code_ = 0;
  alignas(8) Tables::Operand operand_{};
  std::uint32_t status_ = 0;
  std::uint32_t operations_left_ = kStepOperations;
  std::uint64_t bytes_left_ = kStepBytes;
  std::uint32_t waiting_op_ = 0;  // came when no operation was left
};

}  // namespace weft::model
