// SPDX-License-Identifier: MIT
#include "memory.hpp"

#include <algorithm>
#include <utility>

namespace weft::efa {

namespace {

constexpr std::uint32_t kIndexMask = hw::kRegions - 1;
constexpr unsigned kGenerationShift = 16;
constexpr std::uint32_t kRemoteTag = 0xa5000000;  // an rkey is never a valid lkey by mistake
static_assert((hw::kRegions & kIndexMask) == 0 && kIndexMask < 1u << kGenerationShift);

}  // namespace

bool Regions::read_pages(const hw::RegMrCommand& command, std::vector<std::uint64_t>& pages) {
  if (command.head.flags & hw::kControlIndirect) {
    std::uint64_t at = command.list.address.value();
    std::size_t done = 0;
    while (done < pages.size()) {
      hw::PageListChunk chunk;
      if (!host_.read(at, std::as_writable_bytes(std::span(&chunk, 1)), WEFT_ABI_DMA_CONTROL)) return false;
      for (const std::uint64_t list : chunk.list) {
        const std::size_t count = std::min<std::size_t>(hw::kPagesPerList, pages.size() - done);
        if (count == 0) break;
        const auto part = std::as_writable_bytes(std::span(pages).subspan(done, count));
        if (!host_.read(list, part, WEFT_ABI_DMA_CONTROL)) return false;
        done += count;
      }
      at = chunk.next.address.value();
    }
    return true;
  }
  if (command.head.flags & hw::kControlData) {
    return host_.read(command.list.address.value(), std::as_writable_bytes(std::span(pages)), WEFT_ABI_DMA_CONTROL);
  }
  if (pages.size() > hw::kInlinePages) return false;
  std::copy_n(command.page, pages.size(), pages.begin());
  return true;
}

hw::AdminStatus Regions::add(const hw::RegMrCommand& command, hw::RegMrReply& reply) {
  using enum hw::AdminStatus;
  const unsigned shift = command.flags & hw::kPageShiftMask;
  if (command.flags & hw::kPhysicalMode) return kUnsupported;
  if ((hw::kPageSizes >> shift & 1) == 0) return kIllegalParameter;
  const std::uint64_t page = std::uint64_t{1} << shift;
  const std::uint64_t first = command.iova & (page - 1);
  if (command.length == 0 || command.iova + (command.length - 1) < command.iova) return kIllegalParameter;
  if (command.length - 1 > UINT64_MAX - page - first) return kIllegalParameter;
  const std::uint64_t count = (first + command.length - 1) / page + 1;
  // The field is redundant; a driver that fills it must mean the same.
  if (command.pages != 0 && command.pages != count) return kIllegalParameter;
  if (count > hw::kRegionPages || count > hw::kTotalPages - pages_) return kNoResource;

  if (free_.empty() && table_.size() == hw::kRegions) return kNoResource;
  std::vector<std::uint64_t> pages(count);
  if (!read_pages(command, pages)) return kIllegalParameter;
  // No page wraps around the bus.
  if (std::ranges::any_of(pages, [&](std::uint64_t p) { return p > UINT64_MAX - (page - 1); }))
    return kIllegalParameter;

  if (table_.empty()) table_.resize(1);  // index 0 stays free: key 0 is never valid
  std::uint32_t index;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(table_.size());
    table_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Region& region = table_[index];
  const std::uint32_t lkey = std::uint32_t{region.generation} << kGenerationShift | index;
  region.used = true;
  region.pd = command.pd;
  region.rights = command.rights;
  region.page_shift = static_cast<std::uint8_t>(shift);
  region.rkey = lkey | kRemoteTag;
  region.iova = command.iova;
  region.length = command.length;
  region.pages = std::move(pages);
  pages_ += count;
  reply = {};
  reply.lkey = lkey;
  reply.rkey = region.rkey;
  return kSuccess;
}

int Regions::remove(std::uint32_t lkey) {
  const Region* found = local(lkey);
  if (found == nullptr) return -1;
  // Whoever deregisters may reuse the memory at once.
  payload_.flush();
  Region& region = table_[lkey & kIndexMask];
  pages_ -= region.pages.size();
  const std::uint8_t generation = static_cast<std::uint8_t>(region.generation + 1);
  const int pd = region.pd;
  region = {};
  region.generation = generation;
  free_.push_back(lkey & kIndexMask);
  return pd;
}

void Regions::clear() {
  free_.clear();
  for (std::uint32_t i = 1; i < table_.size(); ++i) {
    const bool used = table_[i].used;
    const std::uint8_t generation = static_cast<std::uint8_t>(table_[i].generation + (used ? 1 : 0));
    table_[i] = {};
    table_[i].generation = generation;
    free_.push_back(i);
  }
  pages_ = 0;
}

const Region* Regions::local(std::uint32_t lkey) const {
  const std::uint32_t index = lkey & kIndexMask;
  if (lkey > hw::kLkeyMask || index >= table_.size()) return nullptr;
  const Region& region = table_[index];
  return region.used && region.generation == lkey >> kGenerationShift ? &region : nullptr;
}

const Region* Regions::remote(std::uint32_t rkey) const {
  const Region* region = local(rkey & hw::kLkeyMask);
  return region != nullptr && region->rkey == rkey ? region : nullptr;
}

// access(bus address, offset, bytes) on each contiguous piece of at most WEFT_ABI_MAP_MAX.
template <class Access>
bool Regions::walk(const Region& region, std::uint64_t address, std::uint64_t bytes, Access access) {
  const std::uint64_t page = std::uint64_t{1} << region.page_shift;
  std::uint64_t at = (region.iova & (page - 1)) + (address - region.iova);
  std::uint64_t done = 0;
  while (done < bytes) {
    const std::uint64_t bus = region.pages[at >> region.page_shift] + (at & (page - 1));
    const std::uint64_t most = std::min<std::uint64_t>(bytes - done, WEFT_ABI_MAP_MAX);
    std::uint64_t piece = std::min(most, page - (at & (page - 1)));
    while (piece < most && region.pages[(at + piece) >> region.page_shift] == bus + piece) {
      piece = std::min(most, piece + page);
    }
    if (!access(bus, done, piece)) return false;
    at += piece;
    done += piece;
  }
  return true;
}

bool Regions::read(const Region& region, std::uint64_t address, std::span<std::byte> out) {
  return walk(region, address, out.size(), [&](std::uint64_t bus, std::uint64_t offset, std::uint64_t bytes) {
    return payload_.read(bus, out.subspan(offset, bytes));
  });
}

bool Regions::write(const Region& region, std::uint64_t address, std::span<const std::byte> in) {
  return walk(region, address, in.size(), [&](std::uint64_t bus, std::uint64_t offset, std::uint64_t bytes) {
    return payload_.write(bus, in.subspan(offset, bytes));
  });
}

}  // namespace weft::efa
