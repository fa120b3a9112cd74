// SPDX-License-Identifier: MIT
// The accelerator: its parts, its registers and its step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "command_processor.hpp"
#include "contexts.hpp"
#include "control_core.hpp"
#include "counters.hpp"
#include "event_queue.hpp"
#include "host_port.hpp"
#include "interrupts.hpp"
#include "mailbox.hpp"
#include "options.hpp"
#include "region_table.hpp"
#include "table_port.hpp"
#include "tables.hpp"
#include "weft/abi/model.h"
#include "weft/model/firmware_port.hpp"
#include "weft/model/nic.hpp"

namespace weft::model {

// Where the device's larger parts come from; tests put others in.
struct DeviceParts {
  std::function<std::unique_ptr<Nic>(NicHost&, const NicConfig&)> nic;
  ControlCore::BootImage boot_image;
  ControlCore::BootNative boot_native;
};

class Device final : private NicHost {
 public:
  // Throws std::exception (options, host) at set-up; nothing throws later.
  Device(const weft_abi_host& host, const Options& options, const DeviceParts& parts);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // As weft_abi_model has them.
  void info(weft_abi_info& info) const;
  int attach_ram(std::uint32_t bar, void* base, std::uint64_t bytes);
  std::uint64_t region_read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes);
  void region_write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes);
  int reset(weft_abi_reset kind);
  int quiesce();
  int resume();
  int link_receive(std::uint32_t link, std::uint32_t cls, std::span<const std::byte> frame);
  void link_ready(std::uint32_t link, std::uint32_t cls);
  void link_state(std::uint32_t link, bool up);
  void link_station(std::uint32_t link, std::span<const std::uint8_t, 6> mac, bool up);
  weft_abi_step step(std::uint32_t budget);

 private:
  static constexpr std::uint32_t kQueuePairs = 4096;

  // NicHost.
  Memory& memory() override { return regions_; }
  std::uint64_t now_ns() override { return host_.now_ns(); }
  int link_send(std::uint32_t port, std::uint32_t cls, std::span<const std::span<const std::byte>> segments) override;
  void link_credit(std::uint32_t port, std::uint32_t cls, std::uint32_t frames) override;
  void completed(std::uint64_t token, Error error) override;
  void qp_failed(std::uint32_t context, std::uint32_t qpn, Error error) override;
  void port_changed(std::uint32_t port, weft_port_state state) override;

  // registers.cpp
  std::uint64_t read64(std::uint64_t offset, bool& known);  // a u64 register or counter, whole
  std::uint32_t read32(std::uint64_t offset, bool& known);
  void write32(std::uint64_t offset, std::uint32_t value);
  void write_doorbell(std::uint64_t offset, std::uint64_t value);
  std::uint64_t counter(std::uint64_t index);
  void control(std::uint32_t bits);

  void reset_state();
  void flush();

  HostPort host_;
  const Options options_;
  const DeviceFacts facts_;
  Counters counters_;
  Interrupts interrupts_;
  EventQueue events_;
  Contexts contexts_;
  RegionTable regions_;
  CommandProcessor processor_;
  std::unique_ptr<Nic> nic_;
  Mailbox mailbox_;
  Tables tables_;
  TablePort port_;
  ControlCore core_;

  std::uint64_t fw_address_ = 0;
  std::uint32_t fw_bytes_ = 0;
  // A 64-bit value read in halves: the upper one as it was when the lower one was read.
  std::uint64_t latched_offset_ = UINT64_MAX;
  std::uint32_t latched_high_ = 0;
  weft_abi_dma_counters dma_base_{};  // of the host's count, at the last reset
  bool quiesced_ = false;
};

}  // namespace weft::model
