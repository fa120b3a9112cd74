// SPDX-License-Identifier: MIT
// Payload on its way to memory. With posted=on, writes to other devices' memory are held back as a PCIe switch may do:
// in order among themselves, visible after a delay, or when the device reads such memory (PCIe base
// specification 2.4.1: a read's completion does not pass posted writes; it pushes them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "host.hpp"

namespace weft::efa {

class PayloadPath {
 public:
  static constexpr std::uint64_t kDelayMinNs = 2'000'000;
  static constexpr std::uint64_t kDelaySpanNs = 8'000'000;
  static constexpr std::size_t kHeldMax = 32u << 20;  // bytes; beyond it the oldest go

  PayloadPath(Host& host, bool posted) : host_(host), posted_(posted) {}

  // False: not direct memory.
  bool read(std::uint64_t iova, std::span<std::byte> out);
  bool write(std::uint64_t iova, std::span<const std::byte> in);

  // Everything held becomes visible.
  void flush();
  // What is due becomes visible.
  void tick(std::uint64_t now_ns);
  std::uint64_t deadline() const { return held_.empty() ? UINT64_MAX : held_.front().due_ns; }

 private:
  struct Held {
    std::uint64_t iova;
    std::uint64_t due_ns;
    std::vector<std::byte> data;
  };

  void release_front();

  Host& host_;
  const bool posted_;
  std::deque<Held> held_;
  std::size_t held_bytes_ = 0;
};

}  // namespace weft::efa
