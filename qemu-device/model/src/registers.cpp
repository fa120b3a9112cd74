// SPDX-License-Identifier: MIT
// BAR0 of the device (weft/hw/regs.h).
#include <algorithm>

#include "device.hpp"

namespace weft::model {

namespace {

constexpr bool inside(std::uint64_t offset, std::uint64_t start, std::uint64_t bytes) {
  return offset >= start && offset - start < bytes;
}
constexpr std::uint64_t kCountersBytes = WEFT_COUNTERS_MAX * 8;
constexpr std::uint64_t kPortCountersBytes = std::uint64_t{WEFT_PORTS_MAX} * WEFT_PORT_COUNTERS_MAX * 8;

// 64-bit registers, counters included: read as one word or in halves.
constexpr bool is_wide(std::uint64_t offset) {
  switch (offset & ~std::uint64_t{7}) {
    case WEFT_REG_HBM_SIZE:
    case WEFT_REG_FW_ADDR:
    case WEFT_REG_TIME:
      return true;
    default:
      return inside(offset, WEFT_COUNTERS_BASE, kCountersBytes) ||
             inside(offset, WEFT_PORT_COUNTERS_BASE, kPortCountersBytes);
  }
}

}  // namespace

std::uint64_t Device::region_read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) {
  bool known = bar == WEFT_BAR_REGS && offset < WEFT_REGS_SIZE && (bytes == 4 || bytes == 8) && offset % bytes == 0;
  std::uint64_t value = 0;
  if (known) {
    if (bytes == 4) {
      value = read32(offset, known);
    } else if (is_wide(offset)) {
      value = read64(offset, known);
    } else {
      bool upper = true;
      value = read32(offset, known);
      value |= std::uint64_t{read32(offset + 4, upper)} << 32;
      known = known || upper;
    }
  }
  if (!known) counters_.add(WEFT_CTR_mmio_unknown);
  return value;
}

std::uint64_t Device::read64(std::uint64_t offset, bool& known) {
  switch (offset) {
    case WEFT_REG_HBM_SIZE:
      return facts_.hbm_bytes;
    case WEFT_REG_FW_ADDR:
      return fw_address_;
    case WEFT_REG_TIME:
      return host_.now_ns();
    default:
      break;
  }
  if (inside(offset, WEFT_COUNTERS_BASE, kCountersBytes)) return counter((offset - WEFT_COUNTERS_BASE) / 8);
  const std::uint64_t index = (offset - WEFT_PORT_COUNTERS_BASE) / 8;
  const auto port = static_cast<std::uint32_t>(index / WEFT_PORT_COUNTERS_MAX);
  if (port >= facts_.ports) {
    known = false;
    return 0;
  }
  const std::span<const std::uint64_t> values = nic_->counters(port);
  const std::uint64_t which = index % WEFT_PORT_COUNTERS_MAX;
  return which < values.size() ? values[which] : 0;
}

std::uint32_t Device::read32(std::uint64_t offset, bool& known) {
  if (is_wide(offset)) {
    const std::uint64_t whole = offset & ~std::uint64_t{7};
    if (offset == whole) {
      const std::uint64_t value = read64(whole, known);
      latched_offset_ = whole;
      latched_high_ = static_cast<std::uint32_t>(value >> 32);
      return static_cast<std::uint32_t>(value);
    }
    if (latched_offset_ == whole) {
      latched_offset_ = UINT64_MAX;
      return latched_high_;
    }
    return static_cast<std::uint32_t>(read64(whole, known) >> 32);
  }
  if (inside(offset, WEFT_MBOX_REQUEST, WEFT_MBOX_BYTES))
    return mailbox_.request_word((offset - WEFT_MBOX_REQUEST) / 4);
  if (inside(offset, WEFT_MBOX_RESPONSE, WEFT_MBOX_BYTES)) {
    return mailbox_.response_word((offset - WEFT_MBOX_RESPONSE) / 4);
  }
  if (offset >= WEFT_DOORBELLS_BASE) return 0;
  switch (offset) {
    case WEFT_REG_MAGIC:
      return WEFT_MAGIC;
    case WEFT_REG_HW_VERSION:
      return WEFT_HW_MAJOR << 16 | WEFT_HW_MINOR;
    case WEFT_REG_CAPS:
      return facts_.caps;
    case WEFT_REG_PORTS:
      return facts_.ports;
    case WEFT_REG_CONTEXTS:
      return WEFT_CONTEXTS_MAX;
    case WEFT_REG_REGIONS:
      return RegionTable::kRegions;
    case WEFT_REG_QPS:
      return facts_.queue_pairs;
    case WEFT_REG_VECTORS:
      return WEFT_VECTORS;
    case WEFT_REG_WINDOW:
      return CommandQueue::kWindow;
    case WEFT_REG_CQS:
    case WEFT_REG_CTL:  // write-only
      return 0;
    case WEFT_REG_STATUS:
      return core_.state();
    case WEFT_REG_BOOT_ERROR:
      return core_.boot_error();
    case WEFT_REG_BOOT_DETAIL:
      return core_.boot_detail();
    case WEFT_REG_FW_SIZE:
      return fw_bytes_;
    case WEFT_REG_FW_VERSION:
      return port_.version();
    case WEFT_REG_HEARTBEAT:
      return port_.heartbeat();
    case WEFT_REG_IRQ_CAUSE:
      return interrupts_.cause();
    case WEFT_REG_IRQ_MASK:
      return interrupts_.mask();
    case WEFT_REG_MBOX_DOORBELL:
      return mailbox_.pending();
    case WEFT_REG_MBOX_DONE:
      return mailbox_.done();
    case WEFT_REG_EQ_CONSUMER:
      return events_.consumer();
    default:
      known = false;
      return 0;
  }
}

std::uint64_t Device::counter(std::uint64_t index) {
  if (index >= WEFT_CTR_COUNT) return 0;
  if (index < WEFT_CTR_host_control_read_bytes || index > WEFT_CTR_host_dma_errors) {
    return counters_.get(static_cast<weft_counter>(index));
  }
  const weft_abi_dma_counters now = host_.dma_counters();
  const auto since = [](const std::uint64_t(&value)[2][2], const std::uint64_t(&base)[2][2], int what, int target) {
    return value[what][target] - base[what][target];
  };
  constexpr int kRam = 0;
  constexpr int kPeer = 1;
  switch (index) {
    case WEFT_CTR_host_control_read_bytes:
      return since(now.read_bytes, dma_base_.read_bytes, WEFT_ABI_DMA_CONTROL, kRam);
    case WEFT_CTR_host_control_write_bytes:
      return since(now.write_bytes, dma_base_.write_bytes, WEFT_ABI_DMA_CONTROL, kRam);
    case WEFT_CTR_host_payload_read_bytes:
      return since(now.read_bytes, dma_base_.read_bytes, WEFT_ABI_DMA_PAYLOAD, kRam);
    case WEFT_CTR_host_payload_write_bytes:
      return since(now.write_bytes, dma_base_.write_bytes, WEFT_ABI_DMA_PAYLOAD, kRam);
    case WEFT_CTR_peer_payload_read_bytes:
      return since(now.read_bytes, dma_base_.read_bytes, WEFT_ABI_DMA_PAYLOAD, kPeer);
    case WEFT_CTR_peer_payload_write_bytes:
      return since(now.write_bytes, dma_base_.write_bytes, WEFT_ABI_DMA_PAYLOAD, kPeer);
    default:
      return now.errors - dma_base_.errors;
  }
}

void Device::region_write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes) {
  if (bar != WEFT_BAR_REGS || offset >= WEFT_REGS_SIZE || (bytes != 4 && bytes != 8) || offset % bytes != 0) {
    counters_.add(WEFT_CTR_mmio_unknown);
    return;
  }
  if (offset >= WEFT_DOORBELLS_BASE) {
    if (bytes == 8) {
      write_doorbell(offset - WEFT_DOORBELLS_BASE, value);
    } else {
      counters_.add(WEFT_CTR_mmio_unknown);
    }
  } else {
    write32(offset, static_cast<std::uint32_t>(value));
    if (bytes == 8) write32(offset + 4, static_cast<std::uint32_t>(value >> 32));
  }
  host_.wake();
}

void Device::write32(std::uint64_t offset, std::uint32_t value) {
  if (inside(offset, WEFT_MBOX_REQUEST, WEFT_MBOX_BYTES)) {
    return mailbox_.set_request_word((offset - WEFT_MBOX_REQUEST) / 4, value);
  }
  switch (offset) {
    case WEFT_REG_CTL:
      return control(value);
    case WEFT_REG_FW_ADDR:
      fw_address_ = (fw_address_ & ~std::uint64_t{UINT32_MAX}) | value;
      return;
    case WEFT_REG_FW_ADDR + 4:
      fw_address_ = (fw_address_ & UINT32_MAX) | std::uint64_t{value} << 32;
      return;
    case WEFT_REG_FW_SIZE:
      fw_bytes_ = value;
      return;
    case WEFT_REG_IRQ_CAUSE:
      return interrupts_.clear_cause(value);
    case WEFT_REG_IRQ_MASK:
      return interrupts_.set_mask(value);
    case WEFT_REG_MBOX_DOORBELL:
      if (core_.state() == WEFT_DEV_READY && mailbox_.ring(value)) {
        port_.wake();
      } else {
        counters_.error(WEFT_ERR_MBOX_STATE);
      }
      return;
    case WEFT_REG_EQ_CONSUMER:
      return events_.set_consumer(value);
    default:
      counters_.add(WEFT_CTR_mmio_unknown);
  }
}

void Device::control(std::uint32_t bits) {
  if (bits & WEFT_CTL_RESET) {
    const std::uint64_t address = fw_address_;
    const std::uint32_t bytes = fw_bytes_;
    reset_state();
    // Both bits: what was written for the boot is meant for it.
    if (bits & WEFT_CTL_BOOT) {
      fw_address_ = address;
      fw_bytes_ = bytes;
    }
  }
  if (bits & WEFT_CTL_BOOT && !core_.boot(fw_address_, fw_bytes_)) counters_.error(WEFT_ERR_MBOX_STATE);
  if (bits & ~(WEFT_CTL_RESET | WEFT_CTL_BOOT)) counters_.error(WEFT_ERR_BAD_FIELD);
}

// Everything here is one context's own: the page says which, nothing in the value can name another.
void Device::write_doorbell(std::uint64_t offset, std::uint64_t value) {
  const auto context = static_cast<std::uint32_t>(offset / WEFT_DOORBELL_PAGE);
  const std::uint64_t which = offset % WEFT_DOORBELL_PAGE;
  const auto low = static_cast<std::uint32_t>(value);
  const auto high = static_cast<std::uint32_t>(value >> 32);
  if (which < WEFT_DB_QUEUE(WEFT_QUEUES_PER_CONTEXT)) {
    if (!processor_.ring(context, static_cast<std::uint32_t>(which / 8), value)) {
      counters_.error(WEFT_ERR_MBOX_NOT_FOUND);
    }
    return;
  }
  switch (which) {
    case WEFT_DB_SIGNAL:
      if (!contexts_.ring_signal(context, low, high)) counters_.error(WEFT_ERR_BAD_SYNC);
      return;
    case WEFT_DB_ARM:
      if (!contexts_.ring_arm(context, low % WEFT_SYNCS_PER_CONTEXT, value >> (64 - WEFT_ARM_VALUE_BITS))) {
        counters_.error(WEFT_ERR_BAD_SYNC);
      }
      return;
    case WEFT_DB_SQ:
    case WEFT_DB_RQ:
    case WEFT_DB_SRQ:
    case WEFT_DB_CQ:
      counters_.error(WEFT_ERR_UNSUPPORTED);  // come with WEFT_CAP_VERBS
      return;
    default:
      if (inside(which, WEFT_DB_FIFO(0), WEFT_FIFOS_PER_CONTEXT * 8)) {
        counters_.error(WEFT_ERR_UNSUPPORTED);  // with WEFT_CAP_FIFO
      } else {
        counters_.add(WEFT_CTR_mmio_unknown);
      }
  }
}

}  // namespace weft::model
