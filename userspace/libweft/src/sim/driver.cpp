// SPDX-License-Identifier: MIT
#include "driver.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "context.hpp"
#include "weft/hw/fw.h"

namespace weft::sim {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kMailboxLimit = 10 * kSecond;  // virtual
constexpr std::uint64_t kBootLimit = 10 * kSecond;
constexpr std::uint32_t kEvents = 256;
constexpr std::uint64_t kPage = 4096;

int to_errno(weft_error status) {
  switch (status) {
    case WEFT_ERR_OK:
      return 0;
    case WEFT_ERR_MBOX_NO_ROOM:
      return -ENOSPC;
    case WEFT_ERR_MBOX_NOT_FOUND:
      return -ENOENT;
    case WEFT_ERR_MBOX_BUSY:
      return -EBUSY;
    case WEFT_ERR_MBOX_OP:
      return -EOPNOTSUPP;
    default:
      return -EINVAL;
  }
}

std::string text(const std::uint8_t* bytes, std::size_t room) {
  const auto* begin = reinterpret_cast<const char*>(bytes);
  return {begin, std::find(begin, begin + room, '\0')};
}

const char* boot_text(std::uint32_t error) {
  switch (error) {
    case WEFT_BOOT_DMA:
      return "the image cannot be read by DMA";
    case WEFT_BOOT_SHORT:
      return "the image is shorter than its header or longer than the memory";
    case WEFT_BOOT_MAGIC:
      return "this is no firmware image (magic)";
    case WEFT_BOOT_HEADER:
      return "the image's header version is not known";
    case WEFT_BOOT_SIZE:
      return "the image is truncated: its header tells another size";
    case WEFT_BOOT_ABI:
      return "the image was built for another hardware version";
    case WEFT_BOOT_LAYOUT:
      return "the image's load address or entry lies outside the core's memory";
    case WEFT_BOOT_CRC:
      return "the image is damaged (CRC)";
    case WEFT_BOOT_TRAP:
      return "the firmware trapped";
    case WEFT_BOOT_SILENT:
      return "the firmware did not report in time";
    default:
      return "the device did not become ready";
  }
}

}  // namespace

DmaBuffer::DmaBuffer(HostMemory& host, std::size_t bytes, bool watched)
    : host_(host),
      bytes_((bytes + kPage - 1) / kPage * kPage),
      data_(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_))) {
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, bytes_);
  iova_ = host_.map(data_.get(), bytes_, true, watched);
}

DmaBuffer::~DmaBuffer() { host_.unmap(iova_); }

Driver::Driver(Device& device, RunUntil run, std::uint64_t seed)
    : device_(device), run_(std::move(run)), random_(seed) {
  device_.on_interrupt([this](std::uint32_t vector) { interrupt(vector); });
}

Driver::~Driver() { device_.on_interrupt({}); }

int Driver::boot(std::span<const std::byte> image, std::string& why) {
  std::array<char, 160> line{};
  if (const std::uint32_t magic = read32(WEFT_REG_MAGIC); magic != WEFT_MAGIC) {
    std::snprintf(line.data(), line.size(), "the device's magic is 0x%08x instead of 0x%08x", magic, WEFT_MAGIC);
    why = line.data();
    return -ENODEV;
  }
  if (const std::uint32_t version = read32(WEFT_REG_HW_VERSION); version >> 16 != WEFT_HW_MAJOR) {
    std::snprintf(line.data(), line.size(), "the device speaks interface %u.%u; this library knows %u", version >> 16,
                  version & 0xffff, WEFT_HW_MAJOR);
    why = line.data();
    return -ENODEV;
  }
  std::unique_ptr<DmaBuffer> copy;
  if (!image.empty()) {
    copy = std::make_unique<DmaBuffer>(device_.host(), image.size(), false);
    std::memcpy(copy->data(), image.data(), image.size());
    device_.write(WEFT_BAR_REGS, WEFT_REG_FW_ADDR, copy->iova(), 8);
    write32(WEFT_REG_FW_SIZE, static_cast<std::uint32_t>(image.size()));
    if (image.size() >= sizeof(weft_fw_header)) {
      weft_fw_header header;
      std::memcpy(&header, image.data(), sizeof(header));
      fw_name_ = text(header.name, sizeof(header.name));
    }
  } else {
    fw_name_ = "native";
  }
  write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
  const auto started = [this] {
    const std::uint32_t state = read32(WEFT_REG_STATUS);
    return state == WEFT_DEV_READY || state == WEFT_DEV_FAILED;
  };
  const bool in_time = run_(started, kBootLimit);
  if (!in_time || read32(WEFT_REG_STATUS) != WEFT_DEV_READY) {
    std::snprintf(line.data(), line.size(), "boot failed: %s (error %u, detail 0x%x)",
                  boot_text(read32(WEFT_REG_BOOT_ERROR)), read32(WEFT_REG_BOOT_ERROR), read32(WEFT_REG_BOOT_DETAIL));
    why = line.data();
    return -EIO;
  }

  events_ = std::make_unique<DmaBuffer>(device_.host(), kEvents * sizeof(weft_event), true);
  write32(WEFT_REG_IRQ_MASK, WEFT_IRQ_MBOX | WEFT_IRQ_EVENT | WEFT_IRQ_FATAL);
  const weft_mbox_event_queue queue{events_->iova(), kEvents, 0};
  int error = call(WEFT_MBOX_EVENT_QUEUE, queue);
  if (error == 0) error = call(WEFT_MBOX_IDENTIFY, nullptr, 0, &identity_, sizeof(identity_));
  if (error != 0) {
    why = "the firmware refused the event queue or to identify itself";
    return error;
  }
  hbm_ = std::make_unique<RangeAllocator>(0, read64(WEFT_REG_HBM_SIZE));
  for (std::uint32_t index = 1; index < read32(WEFT_REG_REGIONS); ++index) free_keys_.push_back(WEFT_KEY(index, 1));
  contexts_.assign(std::min<std::uint32_t>(read32(WEFT_REG_CONTEXTS), WEFT_CONTEXTS_MAX), nullptr);
  return 0;
}

int Driver::call(weft_mbox_op op, const void* request, std::size_t bytes, void* response, std::size_t room,
                 weft_error* status) {
  if (failed_) return -EIO;
  weft_mbox_message message{};
  if (++sequence_ == 0) ++sequence_;
  message.head.seq = sequence_;
  message.head.op = static_cast<std::uint16_t>(op);
  message.head.length = static_cast<std::uint16_t>(bytes);
  message.head.version = WEFT_MBOX_VERSION;
  if (bytes > 0) std::memcpy(message.payload, request, bytes);
  std::array<std::uint64_t, sizeof(message) / 8> words;
  std::memcpy(words.data(), &message, sizeof(message));
  for (std::size_t i = 0; i < words.size(); ++i) device_.write(WEFT_BAR_REGS, WEFT_MBOX_REQUEST + 8 * i, words[i], 8);
  write32(WEFT_REG_MBOX_DOORBELL, sequence_);
  if (!run_([this] { return read32(WEFT_REG_MBOX_DONE) == sequence_ || read32(WEFT_REG_STATUS) == WEFT_DEV_FAILED; },
            kMailboxLimit) ||
      read32(WEFT_REG_MBOX_DONE) != sequence_) {
    failed_ = true;
    return -EIO;
  }
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = device_.read(WEFT_BAR_REGS, WEFT_MBOX_RESPONSE + 8 * i, 8);
  std::memcpy(&message, words.data(), sizeof(message));
  if (status != nullptr) *status = static_cast<weft_error>(message.head.status);
  if (message.head.status != WEFT_ERR_OK) return to_errno(static_cast<weft_error>(message.head.status));
  if (response != nullptr) {
    if (message.head.length > WEFT_MBOX_PAYLOAD || message.head.length < room) return -EPROTO;
    std::memcpy(response, message.payload, room);
  }
  return 0;
}

void Driver::interrupt(std::uint32_t vector) {
  if (vector != 0) return;  // a context's: whoever waits looks at the shadow values
  const std::uint32_t cause = read32(WEFT_REG_IRQ_CAUSE);
  write32(WEFT_REG_IRQ_CAUSE, cause);
  if ((cause & WEFT_IRQ_EVENT) != 0 && events_) take_events();
  if ((cause & WEFT_IRQ_FATAL) != 0) {
    failed_ = true;
    weft_event event{};
    event.type = WEFT_EVENT_FATAL;
    event.value = read32(WEFT_REG_BOOT_DETAIL);
    for (Context* context : contexts_)
      if (context != nullptr) context->on_event(event);
  }
}

void Driver::take_events() {
  const std::uint64_t before = events_taken_;
  for (std::uint32_t limit = 0; limit < kEvents; ++limit) {
    const std::byte* slot = events_->data() + events_taken_ % kEvents * sizeof(weft_event);
    weft_event event;
    std::memcpy(&event, slot, sizeof(event));
    // The first lap writes 1, the second 0, and so on.
    if (event.owner != (events_taken_ / kEvents + 1) % 2) break;
    ++events_taken_;
    if (event.type == WEFT_EVENT_PORT || event.type == WEFT_EVENT_LOG) continue;
    if (event.type == WEFT_EVENT_FATAL) {
      failed_ = true;
      for (Context* context : contexts_)
        if (context != nullptr) context->on_event(event);
    } else if (event.ctx < contexts_.size() && contexts_[event.ctx] != nullptr) {
      contexts_[event.ctx]->on_event(event);
    }
  }
  if (events_taken_ != before) write32(WEFT_REG_EQ_CONSUMER, static_cast<std::uint32_t>(events_taken_));
}

int Driver::info(struct weft_device_info& info) {
  info.ports = read32(WEFT_REG_PORTS);
  info.hw_version = read32(WEFT_REG_HW_VERSION);
  info.fw_version = read32(WEFT_REG_FW_VERSION);
  info.caps = read32(WEFT_REG_CAPS);
  info.queue_window = read32(WEFT_REG_WINDOW);
  info.syncs = WEFT_SYNCS_PER_CONTEXT;
  info.queues = WEFT_QUEUES_PER_CONTEXT;
  info.resets = 0;
  info.hbm_bytes = read64(WEFT_REG_HBM_SIZE);
  info.hbm_used = info.hbm_bytes - hbm_->free_bytes();
  info.hbm_largest_free = hbm_->largest();
  std::snprintf(info.backend, sizeof(info.backend), "sim");
  std::snprintf(info.serial, sizeof(info.serial), "%s", text(identity_.serial, sizeof(identity_.serial)).c_str());
  std::snprintf(info.bdf, sizeof(info.bdf), "sim:%u", device_.number());
  std::snprintf(info.fw_name, sizeof(info.fw_name), "%s", fw_name_.c_str());
  return 0;
}

int Driver::counters(int port, std::uint64_t* value, std::size_t room) {
  const std::size_t names = port < 0 ? std::size_t{WEFT_CTR_COUNT} : std::size_t{WEFT_PCTR_COUNT};
  if (port >= 0 && static_cast<std::uint32_t>(port) >= read32(WEFT_REG_PORTS)) return -EINVAL;
  const std::uint64_t base =
      port < 0 ? WEFT_COUNTERS_BASE
               : WEFT_PORT_COUNTERS_BASE + static_cast<std::uint64_t>(port) * WEFT_PORT_COUNTERS_MAX * 8;
  const std::size_t count = std::min(room, names);
  for (std::size_t i = 0; i < count; ++i) value[i] = read64(base + 8 * i);
  return static_cast<int>(count);
}

int Driver::sensors(weft_mbox_sensors& out) { return call(WEFT_MBOX_SENSORS, nullptr, 0, &out, sizeof(out)); }

int Driver::port(std::uint32_t number, weft_mbox_port& out) {
  if (number >= read32(WEFT_REG_PORTS)) return -EINVAL;
  const weft_mbox_index index{number, 0};
  return call(WEFT_MBOX_PORT_GET, &index, sizeof(index), &out, sizeof(out));
}

int Driver::log(std::uint32_t first, weft_log_record* record, std::size_t room) {
  std::size_t count = 0;
  while (count < room) {
    const weft_mbox_index index{first, 0};
    weft_mbox_log part{};
    if (const int error = call(WEFT_MBOX_LOG_READ, &index, sizeof(index), &part, sizeof(part)); error != 0)
      return error;
    const std::uint32_t here = std::min<std::uint32_t>(part.count, 3);
    if (here == 0) break;
    for (std::uint32_t i = 0; i < here && count < room; ++i) record[count++] = part.record[i];
    first = record[count - 1].number + 1;
  }
  return static_cast<int>(count);
}

std::optional<std::uint32_t> Driver::take_key() {
  if (free_keys_.empty()) return std::nullopt;
  const std::uint32_t key = free_keys_.front();
  free_keys_.pop_front();
  return key;
}

void Driver::give_key(std::uint32_t key) {
  free_keys_.push_back(WEFT_KEY(WEFT_KEY_INDEX(key), WEFT_KEY_GENERATION(key) + 1));
}

std::unique_ptr<Context> Driver::open(int& error) {
  auto slot = std::find(contexts_.begin() + 1, contexts_.end(), nullptr);
  if (slot == contexts_.end()) {
    error = -EBUSY;
    return nullptr;
  }
  const auto number = static_cast<std::uint32_t>(slot - contexts_.begin());
  std::unique_ptr<Context> context(new Context(*this, number));
  weft_mbox_ctx request{};
  request.ctx = number;
  request.vector = 1 + (number - 1) % (read32(WEFT_REG_VECTORS) - 1);
  request.shadow = context->shadow_.iova();
  request.syncs = WEFT_SYNCS_PER_CONTEXT;
  error = call(WEFT_MBOX_CTX_CREATE, request);
  if (error != 0) return nullptr;
  *slot = context.get();
  return context;
}

std::size_t Driver::contexts() const {
  return static_cast<std::size_t>(
      std::count_if(contexts_.begin(), contexts_.end(), [](Context* c) { return c != nullptr; }));
}

}  // namespace weft::sim
