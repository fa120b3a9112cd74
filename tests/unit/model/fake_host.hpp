// SPDX-License-Identifier: MIT
// A host of the model ABI for tests: plain memory as guest RAM and as another device's BAR, a clock that the test sets,
// and records of everything that the model asks for. Nothing here depends on which model it hosts.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "weft/abi/model.h"

namespace weft::test {

// Page-aligned zeroed memory, not touched until it is used.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    base_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~Memory() { munmap(base_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() { return static_cast<std::byte*>(base_); }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> span() { return {data(), bytes_}; }
  template <class T>
  T* at(std::size_t offset) {
    return reinterpret_cast<T*>(data() + offset);
  }

 private:
  void* base_;
  std::size_t bytes_;
};

struct LogLine {
  std::string event;
  std::vector<std::uint64_t> values;
};

class FakeHost {
 public:
  static constexpr std::uint64_t kRamBase = 0x1'0000'0000;
  static constexpr std::size_t kRamBytes = 32u << 20;
  static constexpr std::uint64_t kPeerBase = 0x80'0000'0000;
  static constexpr std::size_t kPeerBytes = 4u << 20;

  FakeHost() : ram_(kRamBytes), peer_(kPeerBytes) {}
  FakeHost(const FakeHost&) = delete;
  FakeHost& operator=(const FakeHost&) = delete;

  weft_abi_host abi() {
    weft_abi_host host{};
    host.size = sizeof(host);
    host.version = WEFT_ABI_VERSION;
    host.opaque = this;
    host.clock_ns = [](void* o) { return self(o).now; };
    host.random = [](void* o, void* buffer, std::size_t bytes) {
      for (std::size_t i = 0; i < bytes; ++i) {
        self(o).seed_ = self(o).seed_ * 6364136223846793005u + 1442695040888963407u;
        static_cast<std::uint8_t*>(buffer)[i] = static_cast<std::uint8_t>(self(o).seed_ >> 56);
      }
    };
    host.wake = [](void* o) { ++self(o).wakes; };
    host.dma_read = [](void* o, std::uint64_t iova, void* buffer, std::size_t bytes, weft_abi_dma_class what) {
      return self(o).dma(iova, bytes, what, self(o).counters.read_bytes,
                         [&](std::byte* memory) { std::memcpy(buffer, memory, bytes); });
    };
    host.dma_write = [](void* o, std::uint64_t iova, const void* buffer, std::size_t bytes, weft_abi_dma_class what) {
      self(o).writes.push_back(iova);
      return self(o).dma(iova, bytes, what, self(o).counters.write_bytes,
                         [&](std::byte* memory) { std::memcpy(memory, buffer, bytes); });
    };
    if (with_map) {
      host.dma_map = [](void* o, std::uint64_t iova, std::size_t* bytes, weft_abi_dir) -> void* {
        *bytes = std::min<std::size_t>({*bytes, WEFT_ABI_MAP_MAX, self(o).map_max});
        std::byte* memory = *bytes ? self(o).find(iova, *bytes) : nullptr;
        if (memory != nullptr) {
          self(o).mapped_[memory] = iova;
          ++self(o).maps;
        }
        return memory;
      };
      host.dma_unmap = [](void* o, void* pointer, std::size_t, weft_abi_dir dir, std::size_t done,
                          weft_abi_dma_class what) {
        auto found = self(o).mapped_.find(pointer);
        if (found == self(o).mapped_.end()) {
          ++self(o).bad_unmaps;
          return;
        }
        auto& count = dir == WEFT_ABI_FROM_GUEST ? self(o).counters.read_bytes : self(o).counters.write_bytes;
        count[what][is_peer(found->second)] += done;
        self(o).mapped_.erase(found);
      };
    }
    host.dma_counters = [](void* o, weft_abi_dma_counters* out) { *out = self(o).counters; };
    host.irq = [](void* o, std::uint32_t vector) { self(o).interrupts.push_back(vector); };
    host.link_send = [](void* o, std::uint32_t link, std::uint32_t, const weft_abi_segment* segment,
                        std::uint32_t segments) {
      if (self(o).no_credit) return -EAGAIN;
      std::vector<std::byte> frame;
      for (std::uint32_t i = 0; i < segments; ++i) {
        const auto* bytes = static_cast<const std::byte*>(segment[i].base);
        frame.insert(frame.end(), bytes, bytes + segment[i].length);
      }
      self(o).sent[link].push_back(std::move(frame));
      return 0;
    };
    host.link_credit = [](void* o, std::uint32_t, std::uint32_t, std::uint32_t frames) { self(o).credits += frames; };
    if (with_discard) {
      host.ram_discard = [](void* o, std::uint32_t, std::uint64_t offset, std::uint64_t bytes) {
        ++self(o).discards;
        self(o).largest_discard = std::max(self(o).largest_discard, bytes);
        if (self(o).hbm.size() < offset + bytes) return -EINVAL;
        std::memset(self(o).hbm.data() + offset, 0, bytes);
        return 0;
      };
    }
    host.log = [](void* o, weft_abi_log_level, const char* event, const std::uint64_t* value, std::uint32_t values) {
      self(o).log.push_back({event, {value, value + values}});
    };
    return host;
  }

  // Guest memory: takes `bytes`, aligned to 4 KiB; returns the bus address.
  std::uint64_t alloc(std::size_t bytes) {
    const std::uint64_t at = kRamBase + used_;
    used_ += (bytes + 4095) & ~std::size_t{4095};
    if (used_ > kRamBytes) throw std::bad_alloc();
    return at;
  }
  // Pointer to guest or peer memory at a bus address; null outside.
  std::byte* find(std::uint64_t iova, std::size_t bytes) {
    if (iova >= kRamBase && iova - kRamBase <= kRamBytes && bytes <= kRamBytes - (iova - kRamBase)) {
      return ram_.data() + (iova - kRamBase);
    }
    if (is_peer(iova) && bytes <= kPeerBytes - (iova - kPeerBase)) return peer_.data() + (iova - kPeerBase);
    return nullptr;
  }
  template <class T>
  T* at(std::uint64_t iova) {
    return reinterpret_cast<T*>(find(iova, sizeof(T)));
  }
  static bool is_peer(std::uint64_t iova) { return iova >= kPeerBase && iova - kPeerBase < kPeerBytes; }

  // What the test sets before abi().
  bool with_map = true;
  bool with_discard = false;
  // What it may set at any time.
  std::uint64_t now = 1'000'000'000;
  std::size_t map_max = WEFT_ABI_MAP_MAX;  // 0: no memory is mapped
  bool no_credit = false;
  std::span<std::byte> hbm;  // for with_discard

  // What the model did.
  unsigned wakes = 0;
  unsigned maps = 0;
  unsigned bad_unmaps = 0;
  unsigned discards = 0;
  std::uint64_t largest_discard = 0;
  unsigned credits = 0;
  weft_abi_dma_counters counters{};
  std::vector<std::uint32_t> interrupts;
  std::map<std::uint32_t, std::deque<std::vector<std::byte>>> sent;  // by link
  std::vector<LogLine> log;
  std::vector<std::uint64_t> writes;  // addresses of dma_write, in order
  bool nothing_mapped() const { return mapped_.empty(); }

 private:
  static FakeHost& self(void* opaque) { return *static_cast<FakeHost*>(opaque); }

  template <class Copy>
  int dma(std::uint64_t iova, std::size_t bytes, weft_abi_dma_class what, std::uint64_t (&count)[2][2], Copy copy) {
    std::byte* memory = find(iova, bytes);
    if (memory == nullptr) {
      ++counters.errors;
      return -EFAULT;
    }
    copy(memory);
    count[what][is_peer(iova)] += bytes;
    return 0;
  }

  Memory ram_;
  Memory peer_;
  std::size_t used_ = 0;
  std::uint64_t seed_ = 1;
  std::map<void*, std::uint64_t> mapped_;
};

}  // namespace weft::test
