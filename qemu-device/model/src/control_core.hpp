// SPDX-License-Identifier: MIT
// The control core: boots the firmware, runs it beside the data path, and says when it failed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "event_queue.hpp"
#include "host_port.hpp"
#include "interrupts.hpp"
#include "table_port.hpp"
#include "weft/model/firmware_port.hpp"

namespace weft::model {

class ControlCore {
 public:
  using BootImage = std::function<BootResult(std::span<const std::byte>, FirmwareBus&)>;
  using BootNative = std::function<std::unique_ptr<Firmware>(FirmwareBus&)>;

  // With `native`, BOOT starts that and reads no image.
  ControlCore(HostPort& host, EventQueue& events, Interrupts& interrupts, TablePort& port, BootImage image,
              BootNative native);

  weft_dev_state state() const { return state_; }
  weft_boot_error boot_error() const { return error_; }
  std::uint32_t boot_detail() const { return detail_; }

  // WEFT_CTL_BOOT: takes a note. False: not in the ROM.
  bool boot(std::uint64_t address, std::uint32_t bytes);
  // A bounded piece of the boot, or of the firmware's work.
  void step();
  // There is work now.
  bool awake() const { return boot_wanted_ || (firmware_ && !port_.sleeping()) || port_.table_busy(); }
  // When the firmware's next tick or time limit is.
  std::uint64_t deadline_ns() const;
  void reset();

 private:
  static constexpr std::uint32_t kInstructions = 8192;  // a step
  static constexpr std::uint64_t kTickNs = 100'000'000;
  static constexpr std::uint64_t kSilenceNs = 5'000'000'000;  // from BOOT to the firmware's report

  void start();
  void fail(weft_boot_error error, std::uint32_t detail);

  HostPort& host_;
  EventQueue& events_;
  Interrupts& interrupts_;
  TablePort& port_;
  BootImage boot_image_;
  BootNative boot_native_;

  weft_dev_state state_ = WEFT_DEV_ROM;
  weft_boot_error error_ = WEFT_BOOT_OK;
  std::uint32_t detail_ = 0;
  bool boot_wanted_ = false;
  std::uint64_t image_address_ = 0;
  std::uint32_t image_bytes_ = 0;
  std::uint64_t started_ns_ = 0;
  std::uint64_t tick_ns_ = 0;
  std::unique_ptr<Firmware> firmware_;
};

}  // namespace weft::model
