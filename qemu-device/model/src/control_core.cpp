// SPDX-License-Identifier: MIT
#include "control_core.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace weft::model {

ControlCore::ControlCore(HostPort& host, EventQueue& events, Interrupts& interrupts, TablePort& port, BootImage image,
                         BootNative native)
    : host_(host),
      events_(events),
      interrupts_(interrupts),
      port_(port),
      boot_image_(std::move(image)),
      boot_native_(std::move(native)) {}

bool ControlCore::boot(std::uint64_t address, std::uint32_t bytes) {
  if (state_ != WEFT_DEV_ROM) return false;
  state_ = WEFT_DEV_BOOTING;
  boot_wanted_ = true;
  image_address_ = address;
  image_bytes_ = bytes;
  return true;
}

void ControlCore::start() {
  boot_wanted_ = false;
  started_ns_ = host_.now_ns();
  tick_ns_ = started_ns_ + kTickNs;
  if (boot_native_) {
    firmware_ = boot_native_(port_);
    return;
  }
  // Bounded before it is read; the ROM checks the rest.
  if (image_bytes_ < sizeof(weft_fw_header) || image_bytes_ > sizeof(weft_fw_header) + WEFT_FW_RAM_BYTES) {
    return fail(WEFT_BOOT_SHORT, image_bytes_);
  }
  std::vector<std::byte> image(image_bytes_);
  if (!host_.dma_read(image_address_, image, WEFT_ABI_DMA_CONTROL)) return fail(WEFT_BOOT_DMA, 0);
  BootResult result = boot_image_(image, port_);
  if (result.error != WEFT_BOOT_OK) return fail(result.error, result.detail);
  port_.set_image_crc(result.image_crc);
  firmware_ = std::move(result.firmware);
}

void ControlCore::step() {
  if (boot_wanted_) start();
  port_.begin_step();
  if (!firmware_) return;
  const std::uint64_t now = host_.now_ns();
  if (now >= tick_ns_) {
    tick_ns_ = now + kTickNs;
    port_.wake();
  }
  if (!port_.sleeping()) {
    const Firmware::Progress progress = firmware_->step(kInstructions);
    if (progress.trapped) return fail(WEFT_BOOT_TRAP, progress.cause);
    if (port_.fatal()) return fail(WEFT_BOOT_TRAP, port_.fatal_code());
  }
  if (state_ != WEFT_DEV_BOOTING) return;
  if (port_.ready()) {
    state_ = WEFT_DEV_READY;
    const std::uint64_t version = port_.version();
    host_.log(WEFT_ABI_LOG_INFO, "firmware_ready", std::span(&version, 1));
  } else if (now - started_ns_ >= kSilenceNs) {
    fail(WEFT_BOOT_SILENT, 0);
  }
}

std::uint64_t ControlCore::deadline_ns() const {
  if (!firmware_) return UINT64_MAX;
  return state_ == WEFT_DEV_BOOTING ? std::min(tick_ns_, started_ns_ + kSilenceNs) : tick_ns_;
}

void ControlCore::fail(weft_boot_error error, std::uint32_t detail) {
  firmware_.reset();
  state_ = WEFT_DEV_FAILED;
  error_ = error;
  detail_ = detail;
  const std::uint64_t values[] = {static_cast<std::uint64_t>(error), detail};
  host_.log(WEFT_ABI_LOG_WARNING, "device_failed", values);
  events_.post(WEFT_EVENT_FATAL, 0, static_cast<std::uint32_t>(error), WEFT_ERR_OK, detail);
  interrupts_.cause(WEFT_IRQ_FATAL);
}

void ControlCore::reset() {
  firmware_.reset();
  state_ = WEFT_DEV_ROM;
  error_ = WEFT_BOOT_OK;
  detail_ = 0;
  boot_wanted_ = false;
}

}  // namespace weft::model
