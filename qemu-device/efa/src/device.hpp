// SPDX-License-Identifier: MIT
// The function as the bus sees it: registers, doorbells, admin rings, reset, time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "addresses.hpp"
#include "admin.hpp"
#include "completions.hpp"
#include "datapath.hpp"
#include "host.hpp"
#include "hw.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "posted.hpp"

namespace weft::efa {

class Device {
 public:
  // Throws std::invalid_argument when the host is not enough.
  Device(const weft_abi_host& host, Options options);

  void info(weft_abi_info& info) const;
  int attach_ram(std::uint32_t bar, void* base, std::uint64_t bytes);
  std::uint64_t region_read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) const;
  void region_write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes);
  int reset(weft_abi_reset kind);
  int quiesce();
  int resume();
  int link_receive(std::uint32_t link, std::uint32_t cls, std::span<const std::byte> frame);
  void link_ready(std::uint32_t link, std::uint32_t cls);
  void link_state(std::uint32_t link, bool up);
  void link_station(std::uint32_t link, std::span<const std::uint8_t, 6> mac, bool up);
  weft_abi_step step(std::uint32_t budget);
  int fault(std::string_view name, std::span<const std::uint64_t> values);

  // For tests.
  const Host& host() const { return host_; }
  const Statistics& statistics() const { return data_path_.statistics(); }

 private:
  std::uint32_t read_register(std::uint32_t offset) const;
  void write_register(std::uint32_t offset, std::uint32_t value);
  void doorbell(std::uint64_t offset, std::uint32_t value);
  void answer_register_read(std::uint32_t value);
  void forget_all();
  bool run_admin();
  void admin_interrupt();
  bool post_aenq(std::uint16_t group, std::uint16_t syndrome);
  std::uint64_t ring_base(hw::Register low) const;
  std::uint32_t& reg(std::uint32_t offset) { return registers_[offset / 4]; }
  std::uint32_t reg(std::uint32_t offset) const { return registers_[offset / 4]; }

  Host host_;
  const Options options_;
  const Mac mac_;
  PayloadPath payload_;
  Regions regions_;
  Addresses addresses_;
  Completions completions_;
  DataPath data_path_;
  Admin admin_;

  std::array<std::uint32_t, hw::kRegistersEnd / 4> registers_{};
  bool resetting_ = false;
  bool fatal_ = false;
  bool quiesced_ = false;
  bool interrupt_masked_pending_ = false;
  std::uint16_t admin_head_ = 0, admin_tail_ = 0;
  std::uint32_t admin_produced_ = 0;
  std::uint32_t aenq_produced_ = 0;
  std::uint64_t keep_alive_ns_ = 0;
};

}  // namespace weft::efa
