// SPDX-License-Identifier: MIT
// The hardware's tables, as the firmware's table port changes them (weft/hw/fw.h). The firmware authorises; what would
// harm the device is refused here all the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "command_processor.hpp"
#include "contexts.hpp"
#include "event_queue.hpp"
#include "host_port.hpp"
#include "region_table.hpp"
#include "weft/hw/mbox.h"
#include "weft/model/nic.hpp"

namespace weft::model {

class Tables {
 public:
  using Operand = std::array<std::byte, 256>;

  // `caps`: WEFT_CAP_*; what needs others ends with WEFT_ERR_UNSUPPORTED.
  Tables(HostPort& host, Contexts& contexts, RegionTable& memory, CommandProcessor& processor, EventQueue& events,
         std::uint32_t caps);
  void set_nic(Nic& nic) { nic_ = &nic; }

  // Executes `op` (enum weft_mbox_op) on the operand, where its result is put. Nothing: it goes on in advance().
  // WEFT_ERR_MBOX_BUSY while another one goes on; WEFT_ERR_BAD_OP for what is not offered.
  std::optional<Error> execute(std::uint32_t op, Operand& operand);
  bool busy() const { return zero_left_ != 0; }
  // Does a piece of the operation under way that costs as much as writing `budget` bytes; its result when it is done.
  std::optional<Error> advance(std::uint64_t budget);
  void reset() { zero_left_ = 0; }

 private:
  std::optional<Error> zero(const weft_mbox_range& range);
  std::uint64_t zero_piece(std::uint64_t budget);
  Error destroy_context(std::uint32_t context);
  Error create_queue_pair(weft_qp_entry& entry);

  HostPort& host_;
  Contexts& contexts_;
  RegionTable& memory_;
  CommandProcessor& processor_;
  EventQueue& events_;
  const std::uint32_t caps_;
  Nic* nic_ = nullptr;
  std::uint64_t zero_at_ = 0;
  std::uint64_t zero_left_ = 0;
  bool discard_ = true;  // the host may drop whole pages
};

}  // namespace weft::model
