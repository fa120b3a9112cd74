// SPDX-License-Identifier: MIT
#include "device.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace weft::efa {

namespace {

constexpr unsigned kAdminAtOnce = 32;
constexpr std::uint64_t kKeepAliveNs = 5'000'000'000;
constexpr std::uint64_t kNever = UINT64_MAX;
constexpr const char* kName = "weft-efa";

Mac choose_mac(Host& host, const Options& options) {
  if (options.mac) return *options.mac;
  const std::uint64_t lot = host.random();
  Mac mac;
  std::memcpy(mac.data(), &lot, mac.size());
  mac[0] = static_cast<std::uint8_t>((mac[0] & 0xfc) | 2);  // unicast, locally administered
  return mac;
}

}  // namespace

Device::Device(const weft_abi_host& host, Options options)
    : host_(host),
      options_(std::move(options)),
      mac_(choose_mac(host_, options_)),
      payload_(host_, options_.posted),
      regions_(host_, payload_),
      completions_(host_),
      data_path_(host_, options_, mac_, regions_, addresses_, completions_),
      admin_(host_, options_, mac_, regions_, addresses_, completions_, data_path_) {
  reg(hw::kInterruptMask) = hw::kMaskInterrupts;
}

void Device::info(weft_abi_info& info) const {
  info.links = 1;
  info.vendor = hw::kVendor;
  info.device = hw::kDevice;
  info.subsystem_vendor = hw::kVendor;
  info.subsystem = hw::kDevice;
  info.class_code = 0x0200;  // Ethernet controller
  info.vectors = hw::kVectors;
  info.frame_max = wire::kFrameMax;
  info.bar[hw::kRegisterBar] = {hw::kRegisterBytes, WEFT_ABI_BAR_MMIO, 0, 0};
  info.bar[hw::kMsixBar] = {hw::kPage, WEFT_ABI_BAR_MSIX, 0, 0};
  info.bar[hw::kSendQueueBar] = {hw::kSendQueueBarBytes, WEFT_ABI_BAR_RAM, 1, 0};
  info.bar[hw::kDoorbellBar] = {hw::kDoorbellBytes, WEFT_ABI_BAR_MMIO, 0, hw::kDoorbellBytes};
  info.name = kName;
}

int Device::attach_ram(std::uint32_t bar, void* base, std::uint64_t bytes) {
  if (bar != hw::kSendQueueBar || base == nullptr || bytes != hw::kSendQueueBarBytes) return -EINVAL;
  data_path_.attach_send_queues({static_cast<std::byte*>(base), static_cast<std::size_t>(bytes)});
  return 0;
}

// ---- Registers

std::uint32_t Device::read_register(std::uint32_t offset) const {
  switch (offset) {
    case hw::kVersion:
      return hw::kVersionValue;
    case hw::kControllerVersion:
      return hw::kControllerVersionValue;
    case hw::kCaps:
      return hw::kCapsValue;
    case hw::kDeviceStatus:
      return hw::kStatusReady | (resetting_ ? hw::kStatusResetting : 0) | (fatal_ ? hw::kStatusFatal : 0);
    default:
      return offset < hw::kRegistersEnd && offset % 4 == 0 ? reg(offset) : 0;
  }
}

std::uint64_t Device::region_read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) const {
  if (bar != hw::kRegisterBar || offset >= hw::kRegistersEnd || bytes == 0 || bytes > 8) return 0;
  std::uint64_t value = read_register(static_cast<std::uint32_t>(offset & ~std::uint64_t{3})) >> (offset & 3) * 8;
  if (bytes == 8) value |= std::uint64_t{read_register(static_cast<std::uint32_t>(offset + 4))} << 32;
  return bytes == 8 ? value : value & ((std::uint64_t{1} << bytes * 8) - 1);
}

void Device::region_write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes) {
  if (bar == hw::kDoorbellBar && bytes == 4 && offset < hw::kDoorbellBytes) {
    doorbell(offset, static_cast<std::uint32_t>(value));
  } else if (bar == hw::kRegisterBar && bytes == 4 && offset < hw::kRegistersEnd && offset % 4 == 0) {
    write_register(static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(value));
  } else {
    return;
  }
  host_.wake();
}

void Device::doorbell(std::uint64_t offset, std::uint32_t value) {
  const auto page = static_cast<std::uint32_t>(offset / hw::kPage);
  const auto at = static_cast<std::uint32_t>(offset % hw::kPage);
  const auto counter = static_cast<std::uint16_t>(value);
  if (page < hw::kQueuePairs) {
    if (at == hw::kSendDoorbell) data_path_.ring_send(page, counter);
    if (at == hw::kReceiveDoorbell) data_path_.ring_receive(page, counter);
  } else if (page < hw::kQueuePairs + hw::kCompletionQueues && at == 0 && (value & hw::kArm)) {
    completions_.arm_cq(page - hw::kQueuePairs, counter);
  }
}

void Device::write_register(std::uint32_t offset, std::uint32_t value) {
  switch (offset) {
    case hw::kRegisterRead:
      answer_register_read(value);
      return;
    case hw::kDeviceControl:
      if (value & hw::kControlReset) {
        host_.report(Event::kReset, {value >> 28});
        forget_all();
        resetting_ = true;
      } else {
        resetting_ = false;
      }
      return;
    case hw::kAqDoorbell: {
      const std::uint32_t depth = reg(hw::kAqCaps) & 0xffff;
      const auto tail = static_cast<std::uint16_t>(value);
      if (depth == 0 || static_cast<std::uint16_t>(tail - admin_head_) > depth) {
        host_.report(Event::kBadDoorbell, {offset, value, admin_head_});
        return;
      }
      admin_tail_ = tail;
      return;
    }
    case hw::kEventDoorbell:
      if (value & hw::kArm) completions_.arm_eq(value & 0xffff);
      return;
    case hw::kInterruptMask:
      reg(offset) = value;
      if ((value & hw::kMaskInterrupts) == 0 && std::exchange(interrupt_masked_pending_, false)) admin_interrupt();
      return;
    case hw::kVersion:
    case hw::kControllerVersion:
    case hw::kCaps:
    case hw::kDeviceStatus:
      return;  // read-only
    default:
      reg(offset) = value;
  }
}

// The driver spins for this with a lock held.
void Device::answer_register_read(std::uint32_t value) {
  const hw::RegisterResponse response{static_cast<std::uint16_t>(value), static_cast<std::uint16_t>(value >> 16),
                                      read_register(value >> 16)};
  const std::uint64_t at = ring_base(hw::kResponseLow);
  if (at % sizeof(response) != 0 || !host_.write(at, hw::bytes_of(response), WEFT_ABI_DMA_CONTROL)) {
    host_.report(Event::kResponseUnreachable, {at});
  }
}

std::uint64_t Device::ring_base(hw::Register low) const { return reg(low) | std::uint64_t{reg(low + 4)} << 32; }

// ---- Admin rings

bool Device::run_admin() {
  for (unsigned i = 0; admin_head_ != admin_tail_; ++i) {
    if (i == kAdminAtOnce) return true;
    const std::uint32_t depth = reg(hw::kAqCaps) & 0xffff;
    const std::uint32_t reply_depth = reg(hw::kAcqCaps) & 0xffff;
    const std::uint64_t queue = ring_base(hw::kAqBaseLow);
    const std::uint64_t replies = ring_base(hw::kAcqBaseLow);
    hw::AdminEntry entry;
    // The phase of an entry flips each round, which takes a depth that is a power of two with 16-bit counters.
    if (!std::has_single_bit(depth) || !std::has_single_bit(reply_depth) ||
        !host_.read(queue + std::uint64_t{admin_head_ & (depth - 1)} * entry.size(), entry, WEFT_ABI_DMA_CONTROL)) {
      host_.report(Event::kAdminRingBroken, {queue, depth, reply_depth});
      admin_head_ = admin_tail_;
      return false;
    }
    ++admin_head_;
    const auto head = hw::from_entry<hw::AdminHead>(entry);
    Admin::Reply reply{};
    const hw::AdminStatus status = admin_.execute(entry, reply);
    if (status != hw::AdminStatus::kSuccess) {
      reply = {};
      host_.report(Event::kAdminRefused, {head.opcode, static_cast<std::uint64_t>(status)});
    }
    hw::AdminEntry answer{};
    const bool phase = (admin_produced_ & reply_depth) == 0;
    const hw::AdminReplyHead reply_head{head.command, static_cast<std::uint8_t>(status),
                                        static_cast<std::uint8_t>(phase ? hw::kPhase : 0), 0, admin_head_};
    std::memcpy(answer.data(), &reply_head, sizeof(reply_head));
    std::memcpy(answer.data() + sizeof(reply_head), reply.data(), reply.size());
    const std::uint64_t at = replies + std::uint64_t{admin_produced_ & (reply_depth - 1)} * answer.size();
    ++admin_produced_;
    if (!host_.publish(at, answer, 0)) {
      host_.report(Event::kAdminRingBroken, {at, depth, reply_depth});
      continue;
    }
    admin_interrupt();
  }
  return false;
}

void Device::admin_interrupt() {
  if (reg(hw::kInterruptMask) & hw::kMaskInterrupts) {
    interrupt_masked_pending_ = true;
    return;
  }
  const std::uint32_t vector = reg(hw::kAcqCaps) >> 24;
  if (vector < hw::kVectors) host_.irq(vector);
}

// False: no ring, not wanted, or full.
bool Device::post_aenq(std::uint16_t group, std::uint16_t syndrome) {
  const std::uint32_t depth = reg(hw::kAenqCaps) & 0xffff;
  if (!std::has_single_bit(depth) || group > hw::kGroupKeepAlive || (admin_.enabled_groups() >> group & 1) == 0) {
    return false;
  }
  // The doorbell says how many the driver has seen, in 16 bits.
  if (static_cast<std::uint16_t>(aenq_produced_ - reg(hw::kAenqDoorbell)) >= depth) {
    host_.report(Event::kAenqFull, {group, syndrome});
    return false;
  }
  const std::uint64_t now = host_.now_ns();
  hw::AenqEntry entry{};
  entry.group = group;
  entry.syndrome = syndrome;
  entry.flags = (aenq_produced_ & depth) == 0 ? hw::kPhase : 0;
  entry.time_low = static_cast<std::uint32_t>(now);
  entry.time_high = static_cast<std::uint32_t>(now >> 32);
  const std::uint64_t at = ring_base(hw::kAenqBaseLow) + std::uint64_t{aenq_produced_ & (depth - 1)} * sizeof(entry);
  if (!host_.publish(at, hw::bytes_of(entry), offsetof(hw::AenqEntry, flags))) {
    host_.report(Event::kAdminRingBroken, {at, depth});
    return false;
  }
  ++aenq_produced_;
  admin_interrupt();
  return true;
}

// ---- Life

void Device::forget_all() {
  payload_.flush();  // left the device before
  data_path_.clear();
  admin_.clear();
  regions_.clear();
  addresses_.clear();
  completions_.clear();
  registers_.fill(0);
  reg(hw::kInterruptMask) = hw::kMaskInterrupts;
  interrupt_masked_pending_ = false;
  fatal_ = false;
  admin_head_ = admin_tail_ = 0;
  admin_produced_ = 0;
  aenq_produced_ = 0;
  keep_alive_ns_ = 0;
}

int Device::reset(weft_abi_reset) {
  forget_all();
  resetting_ = false;
  return 0;
}

int Device::quiesce() {
  quiesced_ = true;
  return 0;
}

int Device::resume() {
  quiesced_ = false;
  host_.wake();
  return 0;
}

int Device::link_receive(std::uint32_t link, std::uint32_t cls, std::span<const std::byte> frame) {
  if (link != 0 || cls > 7 || frame.size() > wire::kFrameMax) return -EINVAL;
  // Payload is placed at once, where the link's own memory is at hand, so that it is copied once.
  data_path_.link_receive(frame);
  host_.link_credit(cls, 1);
  host_.wake();
  return 0;
}

void Device::link_ready(std::uint32_t link, std::uint32_t cls) {
  if (link != 0) return;
  data_path_.transport().link_ready(cls);
  host_.wake();
}

void Device::link_state(std::uint32_t link, bool up) {
  if (link != 0) return;
  data_path_.transport().link_state(up);
  host_.wake();
}

void Device::link_station(std::uint32_t link, std::span<const std::uint8_t, 6> mac, bool up) {
  if (link != 0) return;
  Mac station;
  std::ranges::copy(mac, station.begin());
  data_path_.transport().link_station(station, up);
  host_.wake();
}

weft_abi_step Device::step(std::uint32_t budget) {
  if (quiesced_) return {0, 0, kNever};
  const std::uint64_t now = host_.now_ns();
  bool more = run_admin();
  payload_.tick(now);
  more |= data_path_.run(std::max<std::uint32_t>(budget, 1));

  std::uint64_t deadline = std::min(data_path_.deadline(), payload_.deadline());
  if (admin_.enabled_groups() >> hw::kGroupKeepAlive & 1) {
    if (keep_alive_ns_ == 0) keep_alive_ns_ = now + kKeepAliveNs;
    if (now >= keep_alive_ns_) {
      post_aenq(hw::kGroupKeepAlive, 0);
      keep_alive_ns_ = now + kKeepAliveNs;
    }
    deadline = std::min(deadline, keep_alive_ns_);
  }
  return {more ? 1u : 0u, 0, deadline};
}

int Device::fault(std::string_view name, std::span<const std::uint64_t> values) {
  const std::uint64_t first = values.empty() ? 0 : values[0];
  if (name == "aenq") {
    if (values.size() != 2 || values[0] > UINT16_MAX || values[1] > UINT16_MAX) return -EINVAL;
    return post_aenq(static_cast<std::uint16_t>(values[0]), static_cast<std::uint16_t>(values[1])) ? 0 : -EAGAIN;
  }
  if (name == "lose_acks") {
    data_path_.transport().lose_acks(first);
    return 0;
  }
  if (name == "fatal") {
    fatal_ = true;
    post_aenq(hw::kGroupFatal, static_cast<std::uint16_t>(first));
    return 0;
  }
  return -ENOENT;
}

}  // namespace weft::efa
