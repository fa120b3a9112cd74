// SPDX-License-Identifier: MIT
// Memory regions: (key, address) is the only way to name payload memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host.hpp"
#include "hw.hpp"
#include "posted.hpp"

namespace weft::efa {

struct Region {
  bool used = false;
  std::uint16_t pd = 0;
  std::uint8_t rights = 0;  // hw::Right
  std::uint8_t generation = 0;
  std::uint8_t page_shift = 0;
  std::uint32_t rkey = 0;
  std::uint64_t iova = 0;
  std::uint64_t length = 0;
  std::vector<std::uint64_t> pages;  // the first may begin below the region: only iova and length bound accesses

  bool allows(std::uint16_t domain, std::uint64_t address, std::uint64_t bytes, std::uint8_t wanted) const {
    return pd == domain && (rights & wanted) == wanted && address >= iova && bytes <= length &&
           address - iova <= length - bytes;
  }
};

class Regions {
 public:
  Regions(Host& host, PayloadPath& payload) : host_(host), payload_(payload) {}

  // REG_MR and DEREG_MR, after the domain was checked.
  hw::AdminStatus add(const hw::RegMrCommand& command, hw::RegMrReply& reply);
  // The domain of the region that went, or -1 when there is none of that key.
  int remove(std::uint32_t lkey);
  void clear();

  const Region* local(std::uint32_t lkey) const;
  const Region* remote(std::uint32_t rkey) const;

  // `address` and the size were allowed by `region`. False: the bus has no direct memory there.
  bool read(const Region& region, std::uint64_t address, std::span<std::byte> out);
  bool write(const Region& region, std::uint64_t address, std::span<const std::byte> in);

 private:
  bool read_pages(const hw::RegMrCommand& command, std::vector<std::uint64_t>& pages);
  template <class Access>
  static bool walk(const Region& region, std::uint64_t address, std::uint64_t bytes, Access access);

  Host& host_;
  PayloadPath& payload_;
  std::vector<Region> table_;  // by index; grows up to hw::kRegions
  std::vector<std::uint32_t> free_;
  std::uint64_t pages_ = 0;
};

}  // namespace weft::efa
