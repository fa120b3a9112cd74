// SPDX-License-Identifier: MIT
// A registrar over memory objects that remember what is registered of them, as a driver with DMA-BUF attachments does.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "weft/mrcache.hpp"

namespace weft::mr::test {

struct Region {
  Object object;
  Range range;
};

class Heap : public Registrar {
 public:
  using Name = std::pair<std::uint64_t, std::uint64_t>;  // id, generation

  void allocate(const Object& object) {
    std::lock_guard guard(lock_);
    memory_[{object.id, object.generation}] = {object.bytes, true, 0};
  }

  // As the driver's free: the range is reusable when nothing is registered of it any more.
  void free(std::uint64_t id, std::uint64_t generation) {
    std::lock_guard guard(lock_);
    Memory& memory = memory_.at({id, generation});
    EXPECT_TRUE(memory.alive);
    memory.alive = false;
    if (memory.regions == 0) memory_.erase({id, generation});
  }

  int add(const Object& object, Range range, void** region) override {
    if (before_add) before_add(object, range);
    std::lock_guard guard(lock_);
    ++adds;
    const auto found = memory_.find({object.id, object.generation});
    if (found == memory_.end() || !found->second.alive) return -ENOENT;
    if (regions_.size() >= most_regions) return -ENOMEM;
    EXPECT_EQ(range.offset % kPage, 0u);
    EXPECT_TRUE(range.end() % kPage == 0 || range.end() == found->second.bytes);
    EXPECT_GT(range.bytes, 0u);
    EXPECT_LE(range.end(), found->second.bytes);
    ++found->second.regions;
    auto* made = new Region{object, range};
    regions_.insert(made);
    *region = made;
    return 0;
  }

  void remove(void* region) override {
    if (before_remove) before_remove(*static_cast<Region*>(region));
    std::lock_guard guard(lock_);
    auto* gone = static_cast<Region*>(region);
    ASSERT_EQ(regions_.erase(gone), 1u) << "removed twice, or never added";
    const auto found = memory_.find({gone->object.id, gone->object.generation});
    ASSERT_NE(found, memory_.end());
    if (--found->second.regions == 0 && !found->second.alive) memory_.erase(found);
    ++removes;
    delete gone;
  }

  ~Heap() override {
    EXPECT_TRUE(regions_.empty()) << regions_.size() << " regions leaked";
    for (Region* region : regions_) delete region;
  }

  std::size_t regions() const {
    std::lock_guard guard(lock_);
    return regions_.size();
  }
  std::size_t regions_of(std::uint64_t id, std::uint64_t generation) const {
    std::lock_guard guard(lock_);
    const auto found = memory_.find({id, generation});
    return found == memory_.end() ? 0 : found->second.regions;
  }
  // Freed, but still registered somewhere: not reusable yet.
  std::size_t held() const {
    std::lock_guard guard(lock_);
    std::size_t count = 0;
    for (const auto& [name, memory] : memory_) count += !memory.alive;
    return count;
  }

  std::function<void(const Object&, Range)> before_add;
  std::function<void(const Region&)> before_remove;
  std::size_t most_regions = SIZE_MAX;
  std::uint64_t adds = 0, removes = 0;

 private:
  struct Memory {
    std::uint64_t bytes;
    bool alive;
    std::size_t regions;
  };
  mutable std::mutex lock_;
  std::map<Name, Memory> memory_;
  std::set<Region*> regions_;
};

inline const Region& region_of(const Cache::Lease& lease) { return *static_cast<Region*>(lease.region()); }

}  // namespace weft::mr::test
