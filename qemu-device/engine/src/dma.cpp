// SPDX-License-Identifier: MIT
#include "dma.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::engine {

void* Dma::map_piece(std::uint64_t iova, std::size_t& bytes, weft_abi_dir dir, weft_abi_target& target) {
  bytes = std::min<std::size_t>(bytes, WEFT_ABI_MAP_MAX);
  if (bytes == 0 || iova + (bytes - 1) < iova) return nullptr;
  const std::size_t wanted = bytes;
  target = WEFT_ABI_TARGET_RAM;
  void* pointer = host_.dma_map(host_.opaque, iova, &bytes, dir, &target);
  if (pointer != nullptr && (bytes == 0 || bytes > wanted)) {
    host_.dma_unmap(host_.opaque, pointer, bytes, dir, 0);
    return nullptr;
  }
  return pointer;
}

void Dma::count(weft_abi_dir dir, weft_abi_target target, weft_abi_dma_class what, std::size_t bytes) {
  const unsigned cls = what == WEFT_ABI_DMA_PAYLOAD ? 1 : 0;
  (dir == WEFT_ABI_FROM_GUEST ? counters_.read_bytes : counters_.write_bytes)[cls][target] += bytes;
}

bool Dma::reachable(std::uint64_t iova, std::size_t bytes, weft_abi_dir dir) {
  if (bytes > 0 && iova + (bytes - 1) < iova) return false;
  while (bytes > 0) {
    std::size_t piece = bytes;
    weft_abi_target target;
    void* pointer = map_piece(iova, piece, dir, target);
    if (pointer == nullptr) return false;
    host_.dma_unmap(host_.opaque, pointer, piece, dir, 0);
    iova += piece;
    bytes -= piece;
  }
  return true;
}

int Dma::target(std::uint64_t iova) {
  std::size_t bytes = 1;
  weft_abi_target target;
  void* pointer = map_piece(iova, bytes, WEFT_ABI_FROM_GUEST, target);
  if (pointer == nullptr) return -EFAULT;
  host_.dma_unmap(host_.opaque, pointer, bytes, WEFT_ABI_FROM_GUEST, 0);
  return target;
}

int Dma::read(std::uint64_t iova, void* buffer, std::size_t bytes, weft_abi_dma_class what) {
  auto* out = static_cast<std::byte*>(buffer);
  while (bytes > 0) {
    std::size_t piece = bytes;
    weft_abi_target target;
    void* pointer = map_piece(iova, piece, WEFT_ABI_FROM_GUEST, target);
    if (pointer == nullptr) {
      ++counters_.errors;
      return -EFAULT;
    }
    std::memcpy(out, pointer, piece);
    host_.dma_unmap(host_.opaque, pointer, piece, WEFT_ABI_FROM_GUEST, piece);
    count(WEFT_ABI_FROM_GUEST, target, what, piece);
    out += piece;
    iova += piece;
    bytes -= piece;
  }
  return 0;
}

int Dma::write(std::uint64_t iova, const void* buffer, std::size_t bytes, weft_abi_dma_class what) {
  const auto* in = static_cast<const std::byte*>(buffer);
  bool checked = false;
  while (bytes > 0) {
    std::size_t piece = bytes;
    weft_abi_target target;
    void* pointer = map_piece(iova, piece, WEFT_ABI_TO_GUEST, target);
    // All or nothing: look at the other pieces before the first one is written.
    if (pointer != nullptr && piece < bytes && !checked) {
      checked = reachable(iova + piece, bytes - piece, WEFT_ABI_TO_GUEST);
      if (!checked) {
        host_.dma_unmap(host_.opaque, pointer, piece, WEFT_ABI_TO_GUEST, 0);
        pointer = nullptr;
      }
    }
    if (pointer == nullptr) {
      ++counters_.errors;
      return -EFAULT;
    }
    std::memcpy(pointer, in, piece);
    host_.dma_unmap(host_.opaque, pointer, piece, WEFT_ABI_TO_GUEST, piece);
    count(WEFT_ABI_TO_GUEST, target, what, piece);
    in += piece;
    iova += piece;
    bytes -= piece;
  }
  return 0;
}

void* Dma::map(std::uint64_t iova, std::size_t& bytes, weft_abi_dir dir) {
  Mapping m{};
  m.dir = dir;
  m.pointer = map_piece(iova, bytes, dir, m.target);
  if (m.pointer == nullptr) {
    ++counters_.errors;
    bytes = 0;
    return nullptr;
  }
  m.bytes = bytes;
  mapped_.push_back(m);
  return m.pointer;
}

void Dma::unmap(void* pointer, std::size_t bytes, weft_abi_dir dir, std::size_t done, weft_abi_dma_class what) {
  const auto m = std::find_if(mapped_.begin(), mapped_.end(), [&](const Mapping& have) {
    return have.pointer == pointer && have.bytes == bytes && have.dir == dir;
  });
  if (m == mapped_.end()) return;  // not one of ours: nothing to give back
  done = std::min(done, bytes);
  host_.dma_unmap(host_.opaque, pointer, bytes, dir, done);
  count(dir, m->target, what, done);
  mapped_.erase(m);
}

std::size_t Dma::unmap_leaked() {
  const std::size_t leaked = mapped_.size();
  for (const Mapping& m : mapped_) host_.dma_unmap(host_.opaque, m.pointer, m.bytes, m.dir, 0);
  mapped_.clear();
  return leaked;
}

}  // namespace weft::engine
