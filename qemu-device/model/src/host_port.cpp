// SPDX-License-Identifier: MIT
#include "host_port.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace weft::model {

HostPort::HostPort(const weft_abi_host& host) {
  if (host.version != WEFT_ABI_VERSION) throw std::invalid_argument("the host speaks another version of the model ABI");
  std::memcpy(&host_, &host, std::min<std::size_t>(host.size, sizeof(host_)));
  if (!host_.clock_ns || !host_.random || !host_.wake || !host_.dma_read || !host_.dma_write || !host_.irq) {
    throw std::invalid_argument("the host lacks one of clock_ns, random, wake, dma_read, dma_write, irq");
  }
}

template <class Copy>
std::size_t HostPort::borrow(std::uint64_t iova, std::size_t wanted, weft_abi_dir dir, Copy copy) {
  if (!host_.dma_map || !host_.dma_unmap) return 0;
  std::size_t given = std::min<std::size_t>(wanted, WEFT_ABI_MAP_MAX);
  void* memory = host_.dma_map(host_.opaque, iova, &given, dir);
  if (memory == nullptr) return 0;
  const std::size_t used = std::min(given, wanted);
  copy(memory, used);
  host_.dma_unmap(host_.opaque, memory, given, dir, used, WEFT_ABI_DMA_PAYLOAD);
  return used;
}

bool HostPort::dma_read(std::uint64_t iova, std::span<std::byte> out, weft_abi_dma_class what) {
  if (out.empty()) return true;
  if (wraps(iova, out.size())) return false;
  if (what == WEFT_ABI_DMA_CONTROL) return host_.dma_read(host_.opaque, iova, out.data(), out.size(), what) == 0;
  while (!out.empty()) {
    std::size_t done = borrow(iova, out.size(), WEFT_ABI_FROM_GUEST,
                              [&](void* memory, std::size_t bytes) { std::memcpy(out.data(), memory, bytes); });
    if (done == 0) {
      done = std::min<std::size_t>(out.size(), WEFT_ABI_MAP_MAX);
      if (host_.dma_read(host_.opaque, iova, out.data(), done, what) != 0) return false;
    }
    iova += done;
    out = out.subspan(done);
  }
  return true;
}

bool HostPort::dma_write(std::uint64_t iova, std::span<const std::byte> in, weft_abi_dma_class what) {
  if (in.empty()) return true;
  if (wraps(iova, in.size())) return false;
  if (what == WEFT_ABI_DMA_CONTROL) return host_.dma_write(host_.opaque, iova, in.data(), in.size(), what) == 0;
  while (!in.empty()) {
    std::size_t done = borrow(iova, in.size(), WEFT_ABI_TO_GUEST,
                              [&](void* memory, std::size_t bytes) { std::memcpy(memory, in.data(), bytes); });
    if (done == 0) {
      done = std::min<std::size_t>(in.size(), WEFT_ABI_MAP_MAX);
      if (host_.dma_write(host_.opaque, iova, in.data(), done, what) != 0) return false;
    }
    iova += done;
    in = in.subspan(done);
  }
  return true;
}

bool HostPort::publish(std::uint64_t iova, std::span<const std::byte> in) {
  std::atomic_thread_fence(std::memory_order_release);
  return dma_write(iova, in, WEFT_ABI_DMA_CONTROL);
}

weft_abi_dma_counters HostPort::dma_counters() {
  weft_abi_dma_counters counters{};
  if (host_.dma_counters) host_.dma_counters(host_.opaque, &counters);
  return counters;
}

int HostPort::link_send(std::uint32_t link, std::uint32_t cls, std::span<const std::span<const std::byte>> segments) {
  std::array<weft_abi_segment, 16> out;
  if (!host_.link_send) return -ENETDOWN;
  if (segments.size() > out.size()) return -EINVAL;
  for (std::size_t i = 0; i < segments.size(); ++i) out[i] = {segments[i].data(), segments[i].size()};
  return host_.link_send(host_.opaque, link, cls, out.data(), static_cast<std::uint32_t>(segments.size()));
}

void HostPort::link_credit(std::uint32_t link, std::uint32_t cls, std::uint32_t frames) {
  if (host_.link_credit) host_.link_credit(host_.opaque, link, cls, frames);
}

bool HostPort::ram_discard(std::uint32_t bar, std::uint64_t offset, std::uint64_t bytes) {
  return host_.ram_discard && host_.ram_discard(host_.opaque, bar, offset, bytes) == 0;
}

void HostPort::log(weft_abi_log_level level, const char* event, std::span<const std::uint64_t> values) {
  if (host_.log) host_.log(host_.opaque, level, event, values.data(), static_cast<std::uint32_t>(values.size()));
}

}  // namespace weft::model
