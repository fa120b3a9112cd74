// SPDX-License-Identifier: MIT
// The host of the model (weft/abi/model.h) as the rest of the device uses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "events.hpp"
#include "weft/abi/model.h"

namespace weft::efa {

class Host {
 public:
  // `host` is copied; callbacks that a shorter (older) structure does not have are absent.
  // Throws std::invalid_argument when one is missing that the device cannot do without.
  explicit Host(const weft_abi_host& host);

  std::uint64_t now_ns() const { return host_.clock_ns(host_.opaque); }
  std::uint64_t random();
  void wake() { host_.wake(host_.opaque); }
  void irq(std::uint32_t vector) { host_.irq(host_.opaque, vector); }

  // False: some of it is not direct memory, or wraps around the bus; then nothing was written.
  bool read(std::uint64_t iova, std::span<std::byte> out, weft_abi_dma_class what);
  bool write(std::uint64_t iova, std::span<const std::byte> in, weft_abi_dma_class what);
  // Write a ring entry so that the aligned 32-bit word at `word` becomes visible last and at once.
  bool publish(std::uint64_t iova, std::span<const std::byte> entry, std::size_t word);
  // Is this another device's memory? False also where the host cannot tell.
  bool is_device_memory(std::uint64_t iova);

  int link_send(std::uint32_t cls, std::span<const std::span<const std::byte>> segments);
  void link_credit(std::uint32_t cls, std::uint32_t frames);

  void report(Event event, std::initializer_list<std::uint64_t> values = {});
  std::uint64_t count(Event event) const { return counts_[static_cast<std::size_t>(event)]; }

 private:
  weft_abi_host host_{};
  std::array<std::uint64_t, static_cast<std::size_t>(Event::kCount)> counts_{};
};

}  // namespace weft::efa
