// SPDX-License-Identifier: MIT
#include "host.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace weft::efa {

namespace {

bool wraps(std::uint64_t iova, std::size_t bytes) { return bytes > 0 && iova + (bytes - 1) < iova; }

}  // namespace

Host::Host(const weft_abi_host& host) {
  if (host.version != WEFT_ABI_VERSION) throw std::invalid_argument("the host speaks another version of the model ABI");
  std::memcpy(&host_, &host, std::min<std::size_t>(host.size, sizeof(host_)));
  if (!host_.clock_ns || !host_.random || !host_.wake || !host_.dma_read || !host_.dma_write || !host_.irq) {
    throw std::invalid_argument("the host lacks one of clock_ns, random, wake, dma_read, dma_write, irq");
  }
}

std::uint64_t Host::random() {
  std::uint64_t value = 0;
  host_.random(host_.opaque, &value, sizeof(value));
  return value;
}

bool Host::read(std::uint64_t iova, std::span<std::byte> out, weft_abi_dma_class what) {
  if (out.empty()) return true;
  return !wraps(iova, out.size()) && host_.dma_read(host_.opaque, iova, out.data(), out.size(), what) == 0;
}

bool Host::write(std::uint64_t iova, std::span<const std::byte> in, weft_abi_dma_class what) {
  if (in.empty()) return true;
  return !wraps(iova, in.size()) && host_.dma_write(host_.opaque, iova, in.data(), in.size(), what) == 0;
}

bool Host::publish(std::uint64_t iova, std::span<const std::byte> entry, std::size_t word) {
  if (wraps(iova, entry.size())) return false;
  std::size_t given = entry.size();
  void* memory =
      host_.dma_map && host_.dma_unmap ? host_.dma_map(host_.opaque, iova, &given, WEFT_ABI_TO_GUEST) : nullptr;
  if (memory != nullptr && given >= entry.size() && (reinterpret_cast<std::uintptr_t>(memory) & 3) == 0) {
    auto* to = static_cast<std::byte*>(memory);
    std::memcpy(to, entry.data(), word);
    std::memcpy(to + word + 4, entry.data() + word + 4, entry.size() - word - 4);
    std::uint32_t last;
    std::memcpy(&last, entry.data() + word, sizeof(last));
    std::atomic_ref<std::uint32_t>(*reinterpret_cast<std::uint32_t*>(to + word)).store(last, std::memory_order_release);
    host_.dma_unmap(host_.opaque, memory, given, WEFT_ABI_TO_GUEST, entry.size(), WEFT_ABI_DMA_CONTROL);
    return true;
  }
  if (memory != nullptr) host_.dma_unmap(host_.opaque, memory, given, WEFT_ABI_TO_GUEST, 0, WEFT_ABI_DMA_CONTROL);
  // Not mappable in one piece: the host copies word by word of our order.
  return write(iova, entry.first(word), WEFT_ABI_DMA_CONTROL) &&
         write(iova + word + 4, entry.subspan(word + 4), WEFT_ABI_DMA_CONTROL) &&
         write(iova + word, entry.subspan(word, 4), WEFT_ABI_DMA_CONTROL);
}

bool Host::is_device_memory(std::uint64_t iova) {
  return host_.dma_target && host_.dma_target(host_.opaque, iova) == WEFT_ABI_TARGET_DEVICE;
}

int Host::link_send(std::uint32_t cls, std::span<const std::span<const std::byte>> segments) {
  std::array<weft_abi_segment, 4> out;
  if (!host_.link_send) return -ENETDOWN;
  if (segments.size() > out.size()) return -EINVAL;
  for (std::size_t i = 0; i < segments.size(); ++i) out[i] = {segments[i].data(), segments[i].size()};
  return host_.link_send(host_.opaque, 0, cls, out.data(), static_cast<std::uint32_t>(segments.size()));
}

void Host::link_credit(std::uint32_t cls, std::uint32_t frames) {
  if (host_.link_credit && frames > 0) host_.link_credit(host_.opaque, 0, cls, frames);
}

void Host::report(Event event, std::initializer_list<std::uint64_t> values) {
  const auto index = static_cast<std::size_t>(event);
  ++counts_[index];
  if (host_.log) {
    host_.log(host_.opaque, static_cast<weft_abi_log_level>(kEvents[index].level), kEvents[index].name, values.begin(),
              static_cast<std::uint32_t>(values.size()));
  }
}

}  // namespace weft::efa
