// SPDX-License-Identifier: MIT
#include "toy_model.h"

#include <pthread.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "weft/abi/model.hpp"

namespace {

// What a device of one's own takes: the members of weft::abi::Model that it needs, info() and reset(), and one line at
// the end that makes the table.
struct Toy : weft::abi::Model {
  weft_abi_host host{};
  unsigned links = 0;
  uint64_t ram_bytes = 1 << 20;
  bool hold = false;
  std::byte* ram = nullptr;

  uint64_t scratch = 0, sequence = 0, sequence_errors = 0, steps = 0, busy = 0;
  uint64_t dma_addr = 0, dma_bytes = 0, dma_go = 0, dma_done = 0, dma_error = 0;
  bool irq_pending = false;
  uint64_t irq = 0, deadline = 0, fired = 0, send_left = 0, sent = 0, received = 0, bad = 0, up = 0;
  uint64_t gone = 0;  // see TOY_GONE
  uint64_t stepper = 0, log = 0;
  uint32_t cold = 0, flr = 0;
  std::array<uint32_t, 8> credit_due{};
  bool quiesced = false, raise = false;

  void info(weft_abi_info& info) const;
  int attach_ram(uint32_t bar, void* base, uint64_t bytes);
  uint64_t region_read(uint32_t bar, uint64_t offset, uint32_t bytes) const;
  void region_write(uint32_t bar, uint64_t offset, uint64_t value, uint32_t bytes);
  int reset(weft_abi_reset kind);
  int quiesce();
  int resume();
  int link_receive(uint32_t link, uint32_t cls, std::span<const std::byte> frame);
  void link_state(uint32_t link, bool up);
  void link_station(uint32_t link, std::span<const uint8_t, 6> mac, bool up);
  weft_abi_step step(uint32_t budget);
};

uint64_t length_of(uint64_t n) { return 64 + n % 1400; }

void fill(std::vector<unsigned char>& frame, uint64_t n) {
  frame.resize(length_of(n));
  std::memcpy(frame.data(), &n, sizeof(n));
  for (size_t i = sizeof(n); i < frame.size(); ++i) frame[i] = static_cast<unsigned char>(n * 31 + i);
}

std::unique_ptr<Toy> make(const weft_abi_host& host, const weft_abi_config& config) {
  auto toy = std::make_unique<Toy>();
  toy->host = host;
  for (uint32_t i = 0; i < config.options; ++i) {
    const auto& o = config.option[i];
    if (std::strcmp(o.key, "links") == 0) {
      toy->links = static_cast<unsigned>(std::atoi(o.value));
    } else if (std::strcmp(o.key, "ram") == 0) {
      toy->ram_bytes = std::strtoull(o.value, nullptr, 0);
    } else if (std::strcmp(o.key, "hold") == 0) {
      toy->hold = o.value[0] == '1';
    } else if (std::strcmp(o.key, "raise") == 0) {
      toy->raise = o.value[0] == '1';
    } else {
      throw std::invalid_argument(std::string("toy: no option ") + o.key);
    }
  }
  return toy;
}

void Toy::info(weft_abi_info& info) const {
  const Toy& t = *this;
  info.links = t.links;
  info.vendor = 0x1af4;
  info.device = 0x10ff;
  info.subsystem_vendor = 0x1af4;
  info.subsystem = 0x7077;
  info.class_code = 0x1200;
  info.revision = 3;
  info.vectors = 4;
  info.frame_max = 1518;
  info.bar[0] = {4096, WEFT_ABI_BAR_MMIO, 0, 4096 - TOY_WRITE_ONLY};
  info.bar[2] = {t.ram_bytes, WEFT_ABI_BAR_RAM, 1, 0};
  info.bar[4] = {4096, WEFT_ABI_BAR_MSIX, 0, 0};
  info.name = "toy";
}

int Toy::attach_ram(uint32_t bar, void* base, uint64_t) {
  if (bar != 2) return -EINVAL;
  ram = static_cast<std::byte*>(base);
  return 0;
}

uint64_t Toy::region_read(uint32_t bar, uint64_t offset, uint32_t bytes) const {
  const Toy& t = *this;
  if (bar != 0) return 0;
  if (offset >= TOY_WRITE_ONLY) std::abort();  // the host must not ask
  const auto value = [&]() -> uint64_t {
    switch (offset & ~7ull) {
      case TOY_MAGIC:
        return 0x594f54;
      case TOY_SCRATCH:
        return t.scratch;
      case TOY_SEQUENCE:
        return t.sequence;
      case TOY_SEQUENCE_ERRORS:
        return t.sequence_errors;
      case TOY_STEPS:
        return t.steps;
      case TOY_DMA_DONE:
        return t.dma_done;
      case TOY_DMA_ERROR:
        return t.dma_error;
      case TOY_FIRED:
        return t.fired;
      case TOY_SENT:
        return t.sent;
      case TOY_RECEIVED:
        return t.received;
      case TOY_BAD_FRAMES:
        return t.bad;
      case TOY_LINKS_UP:
        return t.up;
      case TOY_GONE:
        return t.gone;
      case TOY_STEPPER:
        return t.stepper;
      case TOY_RESETS:
        return t.cold | static_cast<uint64_t>(t.flr) << 32;
      default:
        return 0;
    }
  }();
  const uint64_t shifted = value >> (offset % 8 * 8);
  return bytes == 8 ? shifted : shifted & ((1ull << (bytes * 8)) - 1);
}

void Toy::region_write(uint32_t bar, uint64_t offset, uint64_t value, uint32_t) {
  Toy& t = *this;
  if (bar != 0) return;
  switch (offset) {
    case TOY_SCRATCH:
      t.scratch = value;
      return;
    case TOY_SEQUENCE:
      if (value != t.sequence + 1) ++t.sequence_errors;
      t.sequence = value;
      return;
    case TOY_BUSY:
      t.busy = value;
      break;
    case TOY_DMA_ADDR:
      t.dma_addr = value;
      return;
    case TOY_DMA_BYTES:
      t.dma_bytes = value;
      return;
    case TOY_DMA_GO:
      t.dma_go = value;
      break;
    case TOY_IRQ:
      t.irq = value;
      t.irq_pending = true;
      break;
    case TOY_TIMER:
      t.deadline = t.host.clock_ns(t.host.opaque) + value;
      break;
    case TOY_SEND:
      t.send_left += value;
      break;
    case TOY_RELEASE:
      t.host.link_credit(t.host.opaque, 0, 0, static_cast<uint32_t>(value));
      return;
    case TOY_THROW:
      throw std::runtime_error("told to");
    case TOY_SEND_REF: {
      const weft_abi_segment head{this, 14};
      const weft_abi_ref payload{2, 0, 0, value, 1};
      t.dma_error = static_cast<uint64_t>(-t.host.link_send_ref(t.host.opaque, 0, 0, &head, 1, &payload));
      return;
    }
    case TOY_LOG:
      t.log = value;
      break;
    case TOY_DISCARD:
      t.dma_error = static_cast<uint64_t>(-t.host.ram_discard(t.host.opaque, 2, value, t.dma_bytes));
      return;
    default:
      return;
  }
  t.host.wake(t.host.opaque);
}

int Toy::reset(weft_abi_reset kind) {
  Toy& t = *this;
  const Toy old = t;
  t = Toy{};
  t.host = old.host;
  t.links = old.links;
  t.ram_bytes = old.ram_bytes;
  t.hold = old.hold;
  t.raise = old.raise;
  t.ram = old.ram;
  t.up = old.up;
  t.cold = old.cold + (kind == WEFT_ABI_RESET_COLD);
  t.flr = old.flr + (kind == WEFT_ABI_RESET_FLR);
  if (raise) host.irq(host.opaque, 1);
  return 0;
}

int Toy::quiesce() {
  quiesced = true;
  return 0;
}
int Toy::resume() {
  quiesced = false;
  return 0;
}

int Toy::link_receive(uint32_t link, uint32_t, std::span<const std::byte> frame) {
  std::vector<unsigned char> want;
  fill(want, received);
  if (frame.size() != want.size() || std::memcmp(want.data(), frame.data(), want.size()) != 0) ++bad;
  ++received;
  if (!hold) ++credit_due[link];
  return 0;
}

void Toy::link_state(uint32_t link, bool is_up) { up = is_up ? up | 1ull << link : up & ~(1ull << link); }

void Toy::link_station(uint32_t, std::span<const uint8_t, 6> mac, bool is_up) {
  uint64_t address = 0;
  for (const uint8_t byte : mac) address = address << 8 | byte;
  gone = ((gone >> 48) + (is_up ? 0x100 : 1)) << 48 | address;
}

weft_abi_step Toy::step(uint32_t budget) {
  Toy& t = *this;
  const weft_abi_host& h = t.host;
  if (t.quiesced) std::abort();  // the host broke its promise
  ++t.steps;
  t.stepper = static_cast<uint64_t>(pthread_self());
  for (uint32_t link = 0; link < t.links; ++link) {
    if (t.credit_due[link] > 0) h.link_credit(h.opaque, link, 0, t.credit_due[link]);
    t.credit_due[link] = 0;
  }
  if (t.dma_go != 0) {
    int rc = 0;
    if (t.dma_go == 3) {
      size_t bytes = t.dma_bytes;
      rc = h.dma_map(h.opaque, t.dma_addr, &bytes, WEFT_ABI_TO_GUEST) ? 0 : -EFAULT;
    } else if (t.dma_bytes > t.ram_bytes) {
      rc = -EINVAL;
    } else if (t.dma_go == 1) {
      rc = h.dma_read(h.opaque, t.dma_addr, t.ram, t.dma_bytes, WEFT_ABI_DMA_PAYLOAD);
    } else {
      rc = h.dma_write(h.opaque, t.dma_addr, t.ram, t.dma_bytes, WEFT_ABI_DMA_CONTROL);
    }
    t.dma_error = static_cast<uint64_t>(-rc);
    t.dma_go = 0;
    ++t.dma_done;
  }
  if (t.irq_pending) {
    t.irq_pending = false;
    h.irq(h.opaque, static_cast<uint32_t>(t.irq));
  }
  if (t.deadline != 0 && t.deadline <= h.clock_ns(h.opaque)) {
    t.deadline = 0;
    ++t.fired;
  }
  for (; t.log > 0; --t.log) h.log(h.opaque, WEFT_ABI_LOG_WARNING, "toy_warning", &t.log, 1);

  bool blocked = false;
  std::vector<unsigned char> frame;
  for (uint32_t bytes = 0; t.send_left > 0 && bytes < budget && !blocked; bytes += frame.size()) {
    fill(frame, t.sent);
    const weft_abi_segment segments[] = {{frame.data(), 20}, {frame.data() + 20, frame.size() - 20}};
    const int rc = h.link_send(h.opaque, 0, 0, segments, 2);
    blocked = rc != 0;
    if (rc == 0) {
      ++t.sent;
      --t.send_left;
    }
  }
  return {t.busy || (t.send_left > 0 && !blocked) ? 1u : 0u, 0, t.deadline};
}

constexpr weft_abi_model kModel = weft::abi::model_of<Toy, make>();

}  // namespace

extern "C" {

const weft_abi_model* toy_model_entry(uint32_t version) { return version == WEFT_ABI_VERSION ? &kModel : nullptr; }

#ifdef TOY_MODEL_SHARED
__attribute__((visibility("default"))) const weft_abi_model* weft_model_entry(uint32_t version) {
  return toy_model_entry(version);
}
#endif

}  // extern "C"
