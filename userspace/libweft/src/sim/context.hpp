// SPDX-License-Identifier: MIT
// What a context holds.
#pragma once

#include <memory>
#include <optional>

#include "driver.hpp"

namespace weft::sim {

struct Context::Memory {
  std::uint32_t key = 0;
  std::uint64_t va = 0;
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> hbm_offset;      // HBM
  std::optional<std::uint64_t> iova;            // host memory
  std::unique_ptr<DmaBuffer> pages, directory;  // its page list: addresses, and addresses of pages of addresses
};

struct Context::Queue {
  std::uint32_t number = 0;
  std::uint32_t key = 0;
  std::unique_ptr<DmaBuffer> ring;          // in host memory
  std::optional<std::uint64_t> hbm_offset;  // or in HBM
  std::uint64_t bytes = 0;
};

struct Context::Channel {
  std::uint32_t qpn = 0;
  std::uint32_t port = 0;
  std::uint32_t psn = 0;
  std::uint32_t sync_base = 0, sync_count = 0;
  weft_endpoint local{};
};

}  // namespace weft::sim
