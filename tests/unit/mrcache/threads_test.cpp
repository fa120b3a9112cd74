// SPDX-License-Identifier: MIT
// Eight threads use, free and allocate the same objects. Run it under -fsanitize=thread.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "heap.hpp"

namespace weft::mr::test {
namespace {

constexpr int kThreads = 8;
constexpr int kOperations = 1'000'000 / kThreads;
constexpr std::uint64_t kGranule = 64 * 1024;
constexpr std::uint64_t kBytes = 10 * kGranule;

struct Slot {
  std::atomic<std::uint64_t> current{1};  // generation to be used
  std::atomic<std::uint64_t> freed{0};    // all up to this one are freed: invalidate() returned
  std::mutex free_lock;
};

TEST(MrCacheThreads, NoLookupReturnsAFreedObject) {
  Heap heap;
  // Others get on while a registration runs.
  heap.before_add = [](const Object&, Range) { std::this_thread::yield(); };
  heap.before_remove = [](const Region&) { std::this_thread::yield(); };
  Cache cache(heap, {12, 40 * kGranule, kGranule});
  std::array<Slot, 10> slots;
  for (std::size_t i = 0; i < slots.size(); ++i) heap.allocate({i, 1, kBytes});
  std::atomic<std::uint64_t> good{0}, refused{0}, frees{0};

  auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    auto below = [&](std::uint64_t n) { return static_cast<std::uint64_t>(random()) % n; };
    std::vector<Cache::Lease> held;
    for (int step = 0; step < kOperations; ++step) {
      const std::size_t which = below(slots.size());
      Slot& slot = slots[which];
      const std::uint64_t dice = below(100);
      if (dice < 2) {
        std::unique_lock guard(slot.free_lock, std::try_to_lock);
        if (!guard) continue;
        const std::uint64_t generation = slot.current;
        heap.allocate({which, generation + 1, kBytes});
        slot.current = generation + 1;
        cache.invalidate(which, generation);
        heap.free(which, generation);
        slot.freed = generation;
        ++frees;
      } else if (dice < 55 && held.size() < 4) {
        std::uint64_t generation = slot.current;
        if (below(50) == 0) generation -= generation > 1;  // a stale user
        const bool was_freed = slot.freed >= generation;
        const std::uint64_t offset = below(kBytes), bytes = 1 + below(std::min(kBytes - offset, 2 * kGranule));
        Cache::Lease lease;
        const int error = cache.acquire({which, generation, kBytes}, {offset, bytes}, &lease);
        if (error == 0) {
          ASSERT_FALSE(was_freed) << "a region of a freed object";
          const Region& region = region_of(lease);
          ASSERT_EQ(region.object.id, which);
          ASSERT_EQ(region.object.generation, generation);
          ASSERT_LE(region.range.offset, offset);
          ASSERT_GE(region.range.end(), offset + bytes);
          held.push_back(std::move(lease));
          good.fetch_add(1, std::memory_order_relaxed);
        } else {
          ASSERT_TRUE(error == -ESTALE || error == -ENOENT) << error;
          refused.fetch_add(1, std::memory_order_relaxed);
        }
      } else if (!held.empty()) {
        std::swap(held[below(held.size())], held.back());
        held.pop_back();
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) threads.emplace_back(work, 1000 + i);
  for (std::thread& thread : threads) thread.join();

  const Counters end = cache.counters();
  EXPECT_EQ(heap.held(), 0u) << "memory that was freed and has no lease is reusable";
  EXPECT_LE(end.entries, 12u);
  EXPECT_EQ(end.registered_regions, end.entries);
  EXPECT_EQ(heap.regions(), end.entries);
  EXPECT_EQ(end.registrations - end.teardowns, end.registered_regions);
  EXPECT_GE(end.hits + end.registrations, good) << "a registration may end stale";
  std::printf("%llu leases, %llu refused, %llu frees, %llu hits (%llu waits), %llu misses, %llu evictions\n",
              static_cast<unsigned long long>(good), static_cast<unsigned long long>(refused),
              static_cast<unsigned long long>(frees), static_cast<unsigned long long>(end.hits),
              static_cast<unsigned long long>(end.waits), static_cast<unsigned long long>(end.misses),
              static_cast<unsigned long long>(end.evictions));
  EXPECT_GT(good, 0u);
  EXPECT_GT(refused, 0u);
}

}  // namespace
}  // namespace weft::mr::test
