// SPDX-License-Identifier: MIT
#include "region_table.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace weft::model {

namespace {

constexpr std::uint8_t kAllRights = (WEFT_RIGHT_BIND << 1) - 1;
constexpr std::uint64_t kEntriesPerListPage = 512;  // levels 2: addresses in a 4 KiB page of the list

// Allocated without memory, which a work request gives later (weft/hw/mem.h).
bool made_invalid(const weft_region_entry& entry) {
  return entry.type == WEFT_REGION_WINDOW || (entry.flags & WEFT_REGION_FAST) != 0;
}

Error check_invalid(const weft_region_entry& entry) {
  const bool window = entry.type == WEFT_REGION_WINDOW;
  if ((window ? entry.flags != 0 || entry.rights != 0 : entry.type != WEFT_REGION_HOST) ||
      window != (entry.pages == 0) || entry.va != 0 || entry.length != 0 || entry.base != 0 || entry.levels != 0 ||
      entry.page_shift != 0) {
    return WEFT_ERR_BAD_FIELD;
  }
  return WEFT_ERR_OK;
}

}  // namespace

RegionTable::RegionTable(HostPort& host, Counters& counters, Contexts& contexts)
    : host_(host), counters_(counters), contexts_(contexts) {}

Region* RegionTable::slot(std::uint32_t index) {
  if (index >= kRegions) return nullptr;
  Page* page = pages_[index / kPerPage].get();
  return page ? &(*page)[index % kPerPage] : nullptr;
}

// What a region that is valid from the start names.
Error RegionTable::check_memory(const weft_region_entry& entry) const {
  if (entry.length == 0 || wraps(entry.va, entry.length)) return WEFT_ERR_BAD_RANGE;
  const bool list = entry.levels != 0;
  if (list ? entry.type == WEFT_REGION_HBM || entry.type == WEFT_REGION_SYNC
           : entry.page_shift != 0 || entry.pages != 0) {
    return WEFT_ERR_BAD_FIELD;
  }
  switch (entry.type) {
    case WEFT_REGION_HBM:
      if (entry.base > hbm_.size() || entry.length > hbm_.size() - entry.base) return WEFT_ERR_BAD_RANGE;
      // Congruent modulo the largest element, so that an aligned address is an aligned pointer.
      if ((entry.va - entry.base) % 64 != 0) return WEFT_ERR_BAD_ALIGN;
      break;
    case WEFT_REGION_HOST:
    case WEFT_REGION_PEER:
      if (entry.levels == 0) {
        if (wraps(entry.base, entry.length)) return WEFT_ERR_BAD_RANGE;
        break;
      }
      if (entry.page_shift < 12 || entry.page_shift > 30) return WEFT_ERR_BAD_FIELD;
      if (entry.base % 8 != 0) return WEFT_ERR_BAD_ALIGN;
      {
        const std::uint64_t mask = (std::uint64_t{1} << entry.page_shift) - 1;
        const std::uint64_t last = (entry.va & mask) + (entry.length - 1);
        if (last < entry.length - 1 || (last >> entry.page_shift) >= entry.pages) return WEFT_ERR_BAD_RANGE;
        const std::uint64_t lists =
            entry.levels == 1 ? entry.pages : (entry.pages - 1) / kEntriesPerListPage + 1;  // of 8 bytes each
        if (lists > UINT64_MAX / 8 || wraps(entry.base, lists * 8)) return WEFT_ERR_BAD_RANGE;
      }
      break;
    case WEFT_REGION_SYNC: {
      const std::uint64_t bytes = std::uint64_t{contexts_.syncs(entry.ctx)} * 8;
      if (entry.base > bytes || entry.length > bytes - entry.base) return WEFT_ERR_BAD_RANGE;
      if (entry.va % 8 != 0 || entry.base % 8 != 0 || entry.length % 8 != 0) return WEFT_ERR_BAD_ALIGN;
      break;
    }
    default:
      return WEFT_ERR_BAD_FIELD;
  }
  return WEFT_ERR_OK;
}

Error RegionTable::create(const weft_region_entry& entry) {
  const std::uint32_t index = WEFT_KEY_INDEX(entry.key);
  if (index == 0 || index >= kRegions) return WEFT_ERR_BAD_KEY;
  if ((entry.rights & ~kAllRights) != 0 || (entry.flags & ~WEFT_REGION_FAST) != 0 || entry.levels > 2 ||
      entry.pd > WEFT_PD_MAX) {
    return WEFT_ERR_BAD_FIELD;
  }
  if (!contexts_.exists(entry.ctx)) return WEFT_ERR_MBOX_NOT_FOUND;
  const bool valid = !made_invalid(entry);
  if (const Error error = valid ? check_memory(entry) : check_invalid(entry); error != WEFT_ERR_OK) return error;
  std::unique_ptr<Page>& page = pages_[index / kPerPage];
  if (!page) page = std::make_unique<Page>();
  Region& region = (*page)[index % kPerPage];
  if (region.type != WEFT_REGION_NONE) return WEFT_ERR_MBOX_BUSY;
  if (region.key == entry.key) return WEFT_ERR_BAD_KEY;  // old copies of this key are still about
  region.key = entry.key;
  region.type = static_cast<weft_region_type>(entry.type);
  region.rights = entry.rights;
  region.page_shift = entry.page_shift;
  region.levels = entry.levels;
  region.valid = valid;
  region.context = entry.ctx;
  region.pd = entry.pd;
  region.va = entry.va;
  region.length = entry.length;
  region.base = entry.base;
  return WEFT_ERR_OK;
}

Error RegionTable::destroy(std::uint32_t key) {
  Region* region = slot(WEFT_KEY_INDEX(key));
  if (region == nullptr || region->type == WEFT_REGION_NONE || region->key != key) return WEFT_ERR_MBOX_NOT_FOUND;
  region->type = WEFT_REGION_NONE;  // the key stays: it is stale from now on
  return WEFT_ERR_OK;
}

void RegionTable::destroy_context(std::uint32_t context) {
  for (auto& page : pages_) {
    if (!page) continue;
    for (Region& region : *page) {
      if (region.context == context) region.type = WEFT_REGION_NONE;
    }
  }
}

void RegionTable::reset() {
  for (auto& page : pages_) page.reset();
}

Error RegionTable::lookup(Access who, Range range, const Region*& out) {
  const Region* region = slot(WEFT_KEY_INDEX(range.key));
  if (region == nullptr || region->key == 0) return WEFT_ERR_BAD_KEY;
  if (region->type == WEFT_REGION_NONE || region->key != range.key) {
    counters_.add(WEFT_CTR_dma_freed);
    return WEFT_ERR_BAD_KEY;
  }
  if (region->context != who.context) return WEFT_ERR_BAD_KEY;
  if (region->pd != who.pd) return WEFT_ERR_BAD_PD;
  if (!region->valid) return WEFT_ERR_KEY_INVALID;
  if (range.address < region->va) return WEFT_ERR_BAD_RANGE;
  const std::uint64_t offset = range.address - region->va;
  if (offset > region->length || range.length > region->length - offset) return WEFT_ERR_BAD_RANGE;
  if ((region->rights & who.right) == 0) return WEFT_ERR_BAD_RIGHTS;
  out = region;
  return WEFT_ERR_OK;
}

Error RegionTable::find(Access who, Range range, const Region*& region) {
  const Error error = lookup(who, range, region);
  if (error != WEFT_ERR_OK) return error;
  return region->type == WEFT_REGION_SYNC ? WEFT_ERR_BAD_RIGHTS : WEFT_ERR_OK;
}

Error RegionTable::page_addresses(const Region& region, std::uint64_t first, std::span<std::uint64_t> out) {
  const std::uint64_t mask = (std::uint64_t{1} << region.page_shift) - 1;
  std::span<std::uint64_t> rest = out;
  while (!rest.empty()) {
    std::uint64_t list = region.base + first * 8;
    std::uint64_t count = rest.size();
    if (region.levels == 2) {
      const std::uint64_t inside = first % kEntriesPerListPage;
      if (!host_.dma_read(region.base + first / kEntriesPerListPage * 8, std::as_writable_bytes(std::span(&list, 1)),
                          WEFT_ABI_DMA_CONTROL)) {
        return WEFT_ERR_DMA;
      }
      if (list % 4096 != 0) return WEFT_ERR_DMA;
      list += inside * 8;
      count = std::min(count, kEntriesPerListPage - inside);
    }
    if (!host_.dma_read(list, std::as_writable_bytes(rest.first(count)), WEFT_ABI_DMA_CONTROL)) return WEFT_ERR_DMA;
    first += count;
    rest = rest.subspan(count);
  }
  // A list that names half pages was not written for this page size.
  return std::ranges::any_of(out, [mask](std::uint64_t page) { return (page & mask) != 0; }) ? WEFT_ERR_DMA
                                                                                             : WEFT_ERR_OK;
}

template <class Move>
Error RegionTable::walk(const Region& region, std::uint64_t address, std::uint64_t bytes, Move move) {
  if (bytes == 0) return WEFT_ERR_OK;
  if (region.levels == 0) {
    return move(region.base + (address - region.va), 0, bytes) ? WEFT_ERR_OK : WEFT_ERR_DMA;
  }
  const std::uint64_t size = std::uint64_t{1} << region.page_shift;
  std::uint64_t position = (region.va & (size - 1)) + (address - region.va);  // in the list's pages
  std::uint64_t done = 0;
  std::array<std::uint64_t, 32> page;
  while (done < bytes) {
    const std::uint64_t first = position >> region.page_shift;
    const std::uint64_t last = (position + (bytes - done) - 1) >> region.page_shift;
    const std::size_t count = std::min<std::uint64_t>(last - first + 1, page.size());
    if (Error error = page_addresses(region, first, std::span(page).first(count)); error != WEFT_ERR_OK) return error;
    for (std::size_t i = 0; i < count;) {
      // Pages in a row on the bus go as one piece.
      std::size_t next = i + 1;
      while (next < count && page[next] == page[next - 1] + size) ++next;
      const std::uint64_t in_page = position & (size - 1);
      const std::uint64_t piece = std::min(bytes - done, (next - i) * size - in_page);
      if (!move(page[i] + in_page, done, piece)) return WEFT_ERR_DMA;
      done += piece;
      position += piece;
      i = next;
    }
  }
  return WEFT_ERR_OK;
}

Error RegionTable::load(const Region& region, std::uint64_t address, std::span<std::byte> out,
                        weft_abi_dma_class what) {
  if (out.empty()) return WEFT_ERR_OK;
  if (const std::byte* from = pointer(region, address)) {
    std::memcpy(out.data(), from, out.size());
    count_hbm_read(out.size());
    return WEFT_ERR_OK;
  }
  return walk(region, address, out.size(), [&](std::uint64_t iova, std::uint64_t offset, std::uint64_t bytes) {
    return host_.dma_read(iova, out.subspan(offset, bytes), what);
  });
}

Error RegionTable::store(const Region& region, std::uint64_t address, std::span<const std::byte> in,
                         weft_abi_dma_class what) {
  if (in.empty()) return WEFT_ERR_OK;
  if (std::byte* to = pointer(region, address)) {
    std::memcpy(to, in.data(), in.size());
    count_hbm_write(in.size());
    return WEFT_ERR_OK;
  }
  return walk(region, address, in.size(), [&](std::uint64_t iova, std::uint64_t offset, std::uint64_t bytes) {
    return host_.dma_write(iova, in.subspan(offset, bytes), what);
  });
}

Error RegionTable::check(Access who, Range range) {
  const Region* region = nullptr;
  return counted(find(who, range, region));
}

Error RegionTable::read(Access who, Range range, std::span<std::byte> out) {
  const Region* region = nullptr;
  if (Error error = find(who, range, region); error != WEFT_ERR_OK) return counted(error);
  if (out.size() < range.length) return counted(WEFT_ERR_BAD_FIELD);
  return counted(load(*region, range.address, out.first(range.length), WEFT_ABI_DMA_PAYLOAD));
}

Error RegionTable::write(Access who, Range range, std::span<const std::byte> in) {
  const Region* region = nullptr;
  if (Error error = find(who, range, region); error != WEFT_ERR_OK) return counted(error);
  if (in.size() < range.length) return counted(WEFT_ERR_BAD_FIELD);
  return counted(store(*region, range.address, in.first(range.length), WEFT_ABI_DMA_PAYLOAD));
}

Error RegionTable::signal(std::uint32_t context, std::uint32_t sync, std::uint64_t add) {
  return counted(contexts_.signal(context, sync, add));
}

Error RegionTable::atomic_word(Access who, std::uint32_t key, std::uint64_t address, const Region*& region) {
  if (Error error = lookup(who, {key, address, 8}, region); error != WEFT_ERR_OK) return error;
  if (address % 8 != 0) return WEFT_ERR_BAD_ALIGN;
  // PCIe atomics to host memory are not offered.
  if (region->type != WEFT_REGION_HBM && region->type != WEFT_REGION_SYNC) return WEFT_ERR_BAD_RIGHTS;
  return WEFT_ERR_OK;
}

Error RegionTable::fetch_add(Access who, std::uint32_t key, std::uint64_t address, std::uint64_t add,
                             std::uint64_t& old) {
  const Region* region = nullptr;
  if (Error error = atomic_word(who, key, address, region); error != WEFT_ERR_OK) return counted(error);
  if (region->type == WEFT_REGION_SYNC) {
    const std::uint64_t number = (region->base + (address - region->va)) / 8;
    return counted(contexts_.signal(who.context, static_cast<std::uint32_t>(number), add, &old));
  }
  // A CPU may use the same word through the BAR.
  auto* word = reinterpret_cast<std::uint64_t*>(pointer(*region, address));
  old = std::atomic_ref(*word).fetch_add(add);
  count_hbm_read(8);
  count_hbm_write(8);
  return WEFT_ERR_OK;
}

Error RegionTable::compare_swap(Access who, std::uint32_t key, std::uint64_t address, std::uint64_t compare,
                                std::uint64_t swap, std::uint64_t& old) {
  const Region* region = nullptr;
  if (Error error = atomic_word(who, key, address, region); error != WEFT_ERR_OK) return counted(error);
  // Sync objects only grow (weft/hw/mem.h: atomic adds only).
  if (region->type == WEFT_REGION_SYNC) return counted(WEFT_ERR_BAD_RIGHTS);
  auto* word = reinterpret_cast<std::uint64_t*>(pointer(*region, address));
  old = compare;
  std::atomic_ref(*word).compare_exchange_strong(old, swap);
  count_hbm_read(8);
  count_hbm_write(8);
  return WEFT_ERR_OK;
}

}  // namespace weft::model
