// SPDX-License-Identifier: MIT
// The host of the model (weft/abi/model.h) as the rest of the model uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/abi/model.h"

namespace weft::model {

// Does a range of the bus go beyond its end?
constexpr bool wraps(std::uint64_t start, std::uint64_t bytes) { return bytes != 0 && start + (bytes - 1) < start; }

class HostPort {
 public:
  // `host` is copied; callbacks that a shorter (older) structure does not have are absent.
  // Throws std::invalid_argument when the version is unknown or a callback that the model cannot do without is missing.
  explicit HostPort(const weft_abi_host& host);

  std::uint64_t now_ns() { return host_.clock_ns(host_.opaque); }
  void random(std::span<std::byte> out) { host_.random(host_.opaque, out.data(), out.size()); }
  void wake() { host_.wake(host_.opaque); }
  void irq(std::uint32_t vector) { host_.irq(host_.opaque, vector); }

  // Copies of any size; payload goes through dma_map in pieces of at most WEFT_ABI_MAP_MAX where the host gives them.
  // False: some of it is not direct memory.
  bool dma_read(std::uint64_t iova, std::span<std::byte> out, weft_abi_dma_class what);
  bool dma_write(std::uint64_t iova, std::span<const std::byte> in, weft_abi_dma_class what);
  // As dma_write() of control bytes: whoever sees them sees all that was written before, on every kind of host.
  bool publish(std::uint64_t iova, std::span<const std::byte> in);
  weft_abi_dma_counters dma_counters();

  int link_send(std::uint32_t link, std::uint32_t cls, std::span<const std::span<const std::byte>> segments);
  void link_credit(std::uint32_t link, std::uint32_t cls, std::uint32_t frames);

  // False: not offered, the contents are as before.
  bool ram_discard(std::uint32_t bar, std::uint64_t offset, std::uint64_t bytes);
  void log(weft_abi_log_level level, const char* event, std::span<const std::uint64_t> values);

 private:
  // copy(memory, bytes) on a mapped piece of at most `wanted` bytes; returns its bytes, 0 when there is no direct
  // memory.
  template <class Copy>
  std::size_t borrow(std::uint64_t iova, std::size_t wanted, weft_abi_dir dir, Copy copy);

  weft_abi_host host_{};
};

}  // namespace weft::model
