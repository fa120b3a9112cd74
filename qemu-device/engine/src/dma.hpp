// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/engine/engine.h"

namespace weft::engine {

// The model's DMA: the host's map and unmap with the accounting by class and target. Under the model's lock.
class Dma {
 public:
  explicit Dma(const weft_engine_host& host) : host_(host) {}

  // 0, or -EFAULT with nothing written.
  int read(std::uint64_t iova, void* buffer, std::size_t bytes, weft_abi_dma_class what);
  int write(std::uint64_t iova, const void* buffer, std::size_t bytes, weft_abi_dma_class what);
  void* map(std::uint64_t iova, std::size_t& bytes, weft_abi_dir dir);
  void unmap(void* pointer, std::size_t bytes, weft_abi_dir dir, std::size_t done, weft_abi_dma_class what);

  // enum weft_abi_target, or -EFAULT. Counts nothing.
  int target(std::uint64_t iova);

  // Give back what the model kept beyond its call; returns how many.
  std::size_t unmap_leaked();

  const weft_abi_dma_counters& counters() const { return counters_; }

 private:
  struct Mapping {
    void* pointer;
    std::size_t bytes;
    weft_abi_dir dir;
    weft_abi_target target;
  };

  bool reachable(std::uint64_t iova, std::size_t bytes, weft_abi_dir dir);
  void* map_piece(std::uint64_t iova, std::size_t& bytes, weft_abi_dir dir, weft_abi_target& target);
  void count(weft_abi_dir dir, weft_abi_target target, weft_abi_dma_class what, std::size_t bytes);

  const weft_engine_host& host_;
  weft_abi_dma_counters counters_{};
  std::vector<Mapping> mapped_;
};

}  // namespace weft::engine
