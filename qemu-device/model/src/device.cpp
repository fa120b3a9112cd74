// SPDX-License-Identifier: MIT
#include "device.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::model {

namespace {

constexpr std::uint32_t kFrameMax = 9216 + 64;  // bytes of an Ethernet frame, payload of 8 KiB and headers
constexpr std::uint64_t kShare = 128 * 1024;    // bytes of one part's turn in a step
constexpr std::uint64_t kRoundCost = 1024;      // what a round counts for at least, so that a step ends
constexpr std::uint64_t kRamAlign = 4096;

DeviceFacts facts_of(const Options& options, std::uint32_t queue_pairs) {
  DeviceFacts facts;
  facts.ports = options.ports;
  facts.queue_pairs = queue_pairs;
  facts.hbm_bytes = options.hbm_bytes;
  if (options.accelerator) facts.caps = WEFT_CAP_QUEUES | WEFT_CAP_REDUCE | WEFT_CAP_CHANNELS;
  std::copy_n(options.serial.begin(), std::min(options.serial.size(), facts.serial.size() - 1), facts.serial.begin());
  return facts;
}

}  // namespace

Device::Device(const weft_abi_host& host, const Options& options, const DeviceParts& parts)
    : host_(host),
      options_(options),
      facts_(facts_of(options_, kQueuePairs)),
      interrupts_(host_, counters_),
      events_(host_, counters_, interrupts_),
      contexts_(host_, counters_, interrupts_),
      regions_(host_, counters_, contexts_),
      processor_(host_, counters_, contexts_, regions_, events_),
      nic_(parts.nic(*this, NicConfig{.ports = options_.ports,
                                      .queue_pairs = kQueuePairs,
                                      .speed_mbps = options_.link_mbps,
                                      .serial = options_.serial})),
      mailbox_(counters_, interrupts_),
      tables_(host_, contexts_, regions_, processor_, events_, facts_.caps),
      port_(host_, counters_, events_, mailbox_, tables_, facts_),
      core_(host_, events_, interrupts_, port_, parts.boot_image,
            options_.native_firmware ? parts.boot_native : ControlCore::BootNative()) {
  processor_.set_nic(*nic_);
  tables_.set_nic(*nic_);
  dma_base_ = host_.dma_counters();
}

Device::~Device() { processor_.reset(); }

void Device::info(weft_abi_info& info) const {
  info.links = options_.ports;
  info.vendor = WEFT_PCI_VENDOR;
  info.device = options_.accelerator ? WEFT_PCI_DEVICE : WEFT_PCI_DEVICE_NIC;
  info.subsystem_vendor = WEFT_PCI_VENDOR;
  info.subsystem = WEFT_PCI_SUBSYSTEM;
  info.class_code = options_.accelerator ? WEFT_PCI_CLASS : WEFT_PCI_CLASS_NIC;
  info.revision = WEFT_PCI_REVISION;
  info.vectors = WEFT_VECTORS;
  info.frame_max = kFrameMax;
  info.bar[WEFT_BAR_REGS] = {WEFT_REGS_SIZE, WEFT_ABI_BAR_MMIO, 0, WEFT_REGS_SIZE - WEFT_DOORBELLS_BASE};
  if (options_.hbm_bytes != 0) info.bar[WEFT_BAR_HBM] = {options_.hbm_bytes, WEFT_ABI_BAR_RAM, 1, 0};
  info.bar[WEFT_BAR_MSIX] = {4096, WEFT_ABI_BAR_MSIX, 0, 0};
  info.name = options_.accelerator ? "weft" : "weft-nic";
}

int Device::attach_ram(std::uint32_t bar, void* base, std::uint64_t bytes) {
  if (bar != WEFT_BAR_HBM || base == nullptr || bytes != options_.hbm_bytes) return -EINVAL;
  if (reinterpret_cast<std::uintptr_t>(base) % kRamAlign != 0) return -EINVAL;
  regions_.attach_hbm({static_cast<std::byte*>(base), static_cast<std::size_t>(bytes)});
  return 0;
}

void Device::reset_state() {
  processor_.reset();
  nic_->reset();
  core_.reset();
  port_.reset();
  mailbox_.reset();
  regions_.reset();
  contexts_.reset();
  events_.reset();
  interrupts_.reset();
  counters_.clear();
  fw_address_ = 0;
  fw_bytes_ = 0;
  latched_offset_ = UINT64_MAX;
  dma_base_ = host_.dma_counters();
}

// Both kinds are the same here: after a cold one the host has made the memory behind the RAM BARs zero.
int Device::reset(weft_abi_reset) {
  reset_state();
  host_.wake();  // the NIC may have port changes to tell
  return 0;
}

int Device::quiesce() {
  flush();
  quiesced_ = true;
  return 0;
}

int Device::resume() {
  quiesced_ = false;
  host_.wake();
  return 0;
}

int Device::link_receive(std::uint32_t link, std::uint32_t cls, std::span<const std::byte> frame) {
  if (link >= options_.ports || cls > 7 || frame.size() > kFrameMax) return -EINVAL;
  const int result = nic_->link_receive(link, cls, frame);
  if (result == 0) host_.wake();
  return result;
}

void Device::link_ready(std::uint32_t link, std::uint32_t cls) {
  if (link >= options_.ports || cls > 7) return;
  nic_->link_ready(link, cls);
  host_.wake();
}

void Device::link_state(std::uint32_t link, bool up) {
  if (link >= options_.ports) return;
  nic_->link_state(link, up);
  host_.wake();
}

void Device::link_station(std::uint32_t link, std::span<const std::uint8_t, 6> mac, bool up) {
  if (link >= options_.ports) return;
  nic_->link_station(link, mac, up);
  host_.wake();
}

weft_abi_step Device::step(std::uint32_t budget) {
  if (quiesced_) return {0, 0, UINT64_MAX};
  contexts_.process_doorbells();
  core_.step();
  // The processor and the NIC take turns, so that neither waits for the other's long work.
  Nic::Progress network;
  std::uint64_t left = std::max<std::uint64_t>(budget, 1);
  for (;;) {
    const std::uint64_t share = std::min(left, kShare);
    std::uint64_t spent = processor_.busy() ? processor_.run(share) : 0;
    network = nic_->step(static_cast<std::uint32_t>(share));
    spent = std::max(spent + network.spent, kRoundCost);
    if (spent >= left || (!processor_.busy() && !network.more)) break;
    left -= spent;
  }
  flush();
  const bool more = processor_.busy() || network.more || core_.awake() || contexts_.doorbells_wait();
  return {more ? 1u : 0u, 0, std::min(network.deadline_ns, core_.deadline_ns())};
}

// Tells what the step did, in the order that whoever looks relies on: data is there already; then heads, sync objects'
// shadows, events, and the interrupts that announce them.
void Device::flush() {
  processor_.flush();
  contexts_.flush();
  events_.flush();
  interrupts_.send();
}

int Device::link_send(std::uint32_t port, std::uint32_t cls, std::span<const std::span<const std::byte>> segments) {
  return host_.link_send(port, cls, segments);
}

void Device::link_credit(std::uint32_t port, std::uint32_t cls, std::uint32_t frames) {
  host_.link_credit(port, cls, frames);
}

void Device::completed(std::uint64_t token, Error error) { processor_.rdma_completed(token, error); }

void Device::qp_failed(std::uint32_t context, std::uint32_t qpn, Error error) {
  counters_.error(error);
  events_.post(WEFT_EVENT_QP_ERROR, context, qpn, error, 0);
}

void Device::port_changed(std::uint32_t port, weft_port_state state) {
  events_.post(WEFT_EVENT_PORT, 0, port, WEFT_ERR_OK, state);
}

}  // namespace weft::model
