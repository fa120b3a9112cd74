// SPDX-License-Identifier: MIT
// The region table (weft/hw/mem.h): what (context, key, address) names, and every access of the device to memory.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "contexts.hpp"
#include "counters.hpp"
#include "host_port.hpp"
#include "weft/model/memory.hpp"

namespace weft::model {

// A region as the table holds it.
struct Region {
  std::uint32_t key = 0;
  weft_region_type type = WEFT_REGION_NONE;
  std::uint8_t rights = 0;
  std::uint8_t page_shift = 0;
  std::uint8_t levels = 0;
  bool valid = true;  // false: allocated for REG_MR or BIND_MW, which gives it memory
  std::uint32_t context = 0;
  std::uint32_t pd = 0;
  std::uint64_t va = 0;
  std::uint64_t length = 0;
  std::uint64_t base = 0;
};

// The public face (Memory) counts errors by kind; the inner one leaves that to the caller, who counts the failed
// command.
class RegionTable final : public Memory {
 public:
  static constexpr std::uint32_t kRegions = 65536;  // entry 0 is never valid

  RegionTable(HostPort& host, Counters& counters, Contexts& contexts);

  void attach_hbm(std::span<std::byte> hbm) { hbm_ = hbm; }
  std::span<std::byte> hbm_memory() { return hbm_; }

  // As WEFT_MBOX_REGION_CREATE: WEFT_ERR_BAD_FIELD, BAD_KEY (index, or the generation was the last one there),
  // BAD_RANGE, BAD_ALIGN, MBOX_BUSY, MBOX_NOT_FOUND (context).
  Error create(const weft_region_entry& entry);
  Error destroy(std::uint32_t key);
  void destroy_context(std::uint32_t context);
  void reset();

  // Memory: what the NIC uses.
  Error check(Access who, Range range) override;
  Error read(Access who, Range range, std::span<std::byte> out) override;
  Error write(Access who, Range range, std::span<const std::byte> in) override;
  Error signal(std::uint32_t context, std::uint32_t sync, std::uint64_t add) override;
  Error fetch_add(Access who, std::uint32_t key, std::uint64_t address, std::uint64_t add, std::uint64_t& old) override;
  Error compare_swap(Access who, std::uint32_t key, std::uint64_t address, std::uint64_t compare, std::uint64_t swap,
                     std::uint64_t& old) override;

  // Inner face. The region that grants the access, or why there is none. SYNC regions grant nothing here.
  Error find(Access who, Range range, const Region*& region);
  // Where a granted range of a region lies in HBM; null for HOST and PEER. Counts nothing.
  std::byte* pointer(const Region& region, std::uint64_t address) {
    return region.type == WEFT_REGION_HBM ? hbm_.data() + region.base + (address - region.va) : nullptr;
  }
  // Copies of a granted range, HBM included.
  Error load(const Region& region, std::uint64_t address, std::span<std::byte> out, weft_abi_dma_class what);
  Error store(const Region& region, std::uint64_t address, std::span<const std::byte> in, weft_abi_dma_class what);
  // Accounts an access by pointer().
  void count_hbm_read(std::uint64_t bytes) { counters_.add(WEFT_CTR_hbm_read_bytes, bytes); }
  void count_hbm_write(std::uint64_t bytes) { counters_.add(WEFT_CTR_hbm_write_bytes, bytes); }

 private:
  static constexpr std::uint32_t kPerPage = 256;
  using Page = std::array<Region, kPerPage>;

  Region* slot(std::uint32_t index);
  Error check_memory(const weft_region_entry& entry) const;
  Error lookup(Access who, Range range, const Region*& region);
  Error atomic_word(Access who, std::uint32_t key, std::uint64_t address, const Region*& region);
  Error counted(Error error) {
    counters_.error(error);
    return error;
  }
  // move(iova, offset in the range, bytes) for each piece of a HOST or PEER range that is contiguous on the bus.
  template <class Move>
  Error walk(const Region& region, std::uint64_t address, std::uint64_t bytes, Move move);
  Error page_addresses(const Region& region, std::uint64_t first, std::span<std::uint64_t> out);

  HostPort& host_;
  Counters& counters_;
  Contexts& contexts_;
  std::span<std::byte> hbm_;
  std::array<std::unique_ptr<Page>, kRegions / kPerPage> pages_;
};

}  // namespace weft::model
