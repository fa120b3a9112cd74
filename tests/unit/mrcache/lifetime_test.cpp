// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <future>
#include <thread>
#include <vector>

#include "heap.hpp"

namespace weft::mr::test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Lets a thread stand in a registrar call until it is opened.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(lock_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    std::lock_guard lock(lock_);
    open_ = true;
    changed_.notify_all();
  }
  void await(int threads) {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [&] { return waiting_ >= threads; });
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_ = false;
};

TEST(MrCache, RegistersSmallObjectsWhole) {
  Heap heap;
  Cache cache(heap, {16, 1ull << 40, 4 * kMiB});
  const Object object{1, 1, 3 * kMiB};
  heap.allocate(object);
  Cache::Lease a, b;
  ASSERT_EQ(cache.acquire(object, {kMiB + 17, 100}, &a), 0);
  ASSERT_EQ(cache.acquire(object, {0, 3 * kMiB}, &b), 0);
  EXPECT_EQ(a.region(), b.region());
  EXPECT_EQ(a.range().offset, 0u);
  EXPECT_EQ(a.range().bytes, 3 * kMiB);
  EXPECT_EQ(cache.counters().hits, 1u);
}

TEST(MrCache, UnitesNeighbours) {
  Heap heap;
  Cache cache(heap, {16, 1ull << 40, kMiB});
  const Object object{1, 1, 16 * kMiB};
  heap.allocate(object);
  Cache::Lease first, third, middle;
  ASSERT_EQ(cache.acquire(object, {0, 10}, &first), 0);
  ASSERT_EQ(cache.acquire(object, {2 * kMiB, 10}, &third), 0);
  EXPECT_EQ(cache.counters().entries, 2u);
  ASSERT_EQ(cache.acquire(object, {kMiB, 10}, &middle), 0);
  EXPECT_EQ(middle.range().offset, 0u);
  EXPECT_EQ(middle.range().bytes, 3 * kMiB);
  EXPECT_EQ(cache.counters().entries, 1u);
  EXPECT_EQ(cache.counters().merges, 2u);
  // The old ones are in use: they stay registered until then.
  EXPECT_EQ(heap.regions(), 3u);
  first.end();
  third.end();
  EXPECT_EQ(heap.regions(), 1u);
}

TEST(MrCache, RejectsRangesOutsideTheObject) {
  Heap heap;
  Cache cache(heap);
  const Object object{1, 1, kMiB};
  heap.allocate(object);
  Cache::Lease lease;
  EXPECT_EQ(cache.acquire(object, {0, 0}, &lease), -EINVAL);
  EXPECT_EQ(cache.acquire(object, {kMiB, 1}, &lease), -EINVAL);
  EXPECT_EQ(cache.acquire(object, {1, kMiB}, &lease), -EINVAL);
  EXPECT_EQ(cache.acquire(object, {8, UINT64_MAX - 4}, &lease), -EINVAL);
  EXPECT_FALSE(lease);
  EXPECT_EQ(heap.adds, 0u);
}

TEST(MrCache, FreedMemoryIsNeverFound) {
  Heap heap;
  Cache cache(heap);
  const Object object{1, 1, kMiB};
  heap.allocate(object);
  Cache::Lease lease;
  ASSERT_EQ(cache.acquire(object, {0, 100}, &lease), 0);
  lease.end();
  EXPECT_EQ(heap.regions_of(1, 1), 1u);
  cache.invalidate(1, 1);
  EXPECT_EQ(heap.regions_of(1, 1), 0u) << "idle: gone when invalidate() returns";
  heap.free(1, 1);
  EXPECT_EQ(heap.held(), 0u);
  EXPECT_EQ(cache.acquire(object, {0, 100}, &lease), -ENOENT) << "the registrar's word: there is no such object";
  // The same address comes back as another generation.
  const Object again{1, 2, 2 * kMiB};
  heap.allocate(again);
  ASSERT_EQ(cache.acquire(again, {kMiB, 100}, &lease), 0);
  EXPECT_EQ(region_of(lease).object.generation, 2u);
  EXPECT_EQ(cache.counters().invalidations, 1u);
}

TEST(MrCache, FreedMemoryIsReusableAfterItsLastLease) {
  Heap heap;
  Cache cache(heap);
  const Object object{1, 1, kMiB};
  heap.allocate(object);
  Cache::Lease a, b;
  ASSERT_EQ(cache.acquire(object, {0, 100}, &a), 0);
  ASSERT_EQ(cache.acquire(object, {200, 100}, &b), 0);
  cache.invalidate(1, 1);
  heap.free(1, 1);
  EXPECT_EQ(heap.held(), 1u);
  a.end();
  EXPECT_EQ(heap.held(), 1u) << "one transfer still runs";
  EXPECT_EQ(region_of(b).object.id, 1u);
  b.end();
  EXPECT_EQ(heap.held(), 0u);
  EXPECT_EQ(heap.regions(), 0u);
}

TEST(MrCache, TwoThreadsShareOneRegistration) {
  Heap heap;
  Gate gate;
  heap.before_add = [&](const Object&, Range) { gate.pass(); };
  Cache cache(heap);
  const Object object{1, 1, kMiB};
  heap.allocate(object);
  auto ask = [&] {
    Cache::Lease lease;
    EXPECT_EQ(cache.acquire(object, {0, 100}, &lease), 0);
  };
  std::thread first(ask);
  gate.await(1);
  std::thread second(ask), third(ask);
  while (cache.counters().waits < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gate.open();
  first.join();
  second.join();
  third.join();
  EXPECT_EQ(heap.adds, 1u);
  EXPECT_EQ(cache.counters().hits, 2u);
  EXPECT_EQ(cache.counters().misses, 1u);
}

TEST(MrCache, WaitersShareAFailure) {
  Heap heap;
  Gate gate;
  heap.before_add = [&](const Object&, Range) { gate.pass(); };
  Cache cache(heap);
  const Object object{1, 1, kMiB};  // never allocated: -ENOENT
  auto ask = [&] {
    Cache::Lease lease;
    EXPECT_EQ(cache.acquire(object, {0, 100}, &lease), -ENOENT);
    EXPECT_FALSE(lease);
  };
  std::thread first(ask);
  gate.await(1);
  std::thread second(ask);
  while (cache.counters().waits < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  gate.open();
  first.join();
  second.join();
  EXPECT_EQ(heap.adds, 1u);
  EXPECT_EQ(cache.counters().failures, 2u);
  EXPECT_EQ(cache.counters().entries, 0u);
}

TEST(MrCache, FreeWaitsForTheRegistrationThatRuns) {
  Heap heap;
  Gate gate;
  heap.before_add = [&](const Object&, Range) { gate.pass(); };
  Cache cache(heap);
  const Object object{1, 1, kMiB};
  heap.allocate(object);
  std::thread asker([&] {
    Cache::Lease lease;
    EXPECT_EQ(cache.acquire(object, {0, 100}, &lease), -ESTALE);
  });
  gate.await(1);
  auto freed = std::async(std::launch::async, [&] { cache.invalidate(1, 1); });
  while (cache.counters().invalidations < 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  Cache::Lease lease;
  EXPECT_EQ(cache.acquire(object, {0, 100}, &lease), -ESTALE) << "while it is being freed";
  EXPECT_EQ(freed.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  gate.open();
  freed.get();
  EXPECT_EQ(heap.regions_of(1, 1), 0u);
  asker.join();
  heap.free(1, 1);
}

TEST(MrCache, GivesUpIdleRegionsWhenTheNicIsFull) {
  Heap heap;
  heap.most_regions = 4;
  Cache cache(heap);
  std::vector<Cache::Lease> held(3);
  for (std::uint64_t i = 0; i < 8; ++i) heap.allocate({i, 1, kMiB});
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_EQ(cache.acquire({i, 1, kMiB}, {0, 1}, &held[i]), 0);
  Cache::Lease lease;
  for (std::uint64_t i = 3; i < 8; ++i) {
    ASSERT_EQ(cache.acquire({i, 1, kMiB}, {0, 1}, &lease), 0);
    lease.end();
  }
  EXPECT_EQ(cache.counters().evictions, 4u);
  heap.allocate({8, 1, kMiB});
  Cache::Lease fourth;
  ASSERT_EQ(cache.acquire({8, 1, kMiB}, {0, 1}, &fourth), 0);
  EXPECT_EQ(cache.acquire({7, 1, kMiB}, {0, 1}, &lease), -ENOMEM) << "all are in use";
}

TEST(MrCache, BoundsHoldWhenAllIsInUse) {
  Heap heap;
  Cache cache(heap, {2, 1ull << 40, kMiB});
  std::vector<Cache::Lease> held(4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    heap.allocate({i, 1, kMiB});
    ASSERT_EQ(cache.acquire({i, 1, kMiB}, {0, 5000}, &held[i]), 0);
  }
  EXPECT_EQ(cache.counters().entries, 2u);
  EXPECT_EQ(cache.counters().uncached, 2u);
  EXPECT_EQ(held[3].range().bytes, 2 * kPage) << "for one lease alone: no more than was asked for";
  EXPECT_EQ(heap.regions(), 4u);
  held.clear();
  EXPECT_EQ(heap.regions(), 2u);
}

TEST(MrCache, OffRegistersAnew) {
  for (const Limits limits : {Limits{0, 1 << 30, kMiB}, Limits{16, 0, kMiB}}) {
    Heap heap;
    Cache cache(heap, limits);
    heap.allocate({1, 1, kMiB});
    for (int i = 0; i < 10; ++i) {
      Cache::Lease lease;
      ASSERT_EQ(cache.acquire({1, 1, kMiB}, {100, 64}, &lease), 0);
      EXPECT_EQ(lease.range().bytes, kPage);
    }
    EXPECT_EQ(heap.adds, 10u);
    EXPECT_EQ(heap.regions(), 0u);
    EXPECT_EQ(cache.counters().hits, 0u);
  }
}

TEST(MrCache, LeasesMove) {
  Heap heap;
  Cache cache(heap);
  heap.allocate({1, 1, kMiB});
  heap.allocate({2, 1, kMiB});
  Cache::Lease a, b;
  ASSERT_EQ(cache.acquire({1, 1, kMiB}, {0, 1}, &a), 0);
  ASSERT_EQ(cache.acquire({2, 1, kMiB}, {0, 1}, &b), 0);
  a = std::move(b);
  EXPECT_FALSE(b);
  EXPECT_EQ(region_of(a).object.id, 2u);
  cache.clear();
  EXPECT_EQ(heap.regions(), 1u) << "1 became idle";
}

}  // namespace
}  // namespace weft::mr::test
