// SPDX-License-Identifier: MIT
// The cache behind libweft's memory objects: what weft_mem_free does to it.
#include <gtest/gtest.h>

#include "heap.hpp"
#include "weft/weft.h"

namespace weft::mr::test {
namespace {

TEST(MrCacheLibweft, FreeingMemoryEndsItsRegistrations) {
  weft_device* device = nullptr;
  ASSERT_EQ(weft_device_open("null", &device), 0) << weft_last_error();
  Heap heap;
  Cache cache(heap);
  auto on_free = [](void* arg, weft_mem* mem) {
    static_cast<Cache*>(arg)->invalidate(weft_mem_va(mem), weft_mem_generation(mem));
  };
  ASSERT_EQ(weft_mem_on_free(device, on_free, &cache), 0);
  EXPECT_EQ(weft_mem_on_free(device, nullptr, nullptr), -EINVAL);

  auto object_of = [](const weft_mem* mem) {
    return Object{weft_mem_va(mem), weft_mem_generation(mem), weft_mem_bytes(mem)};
  };
  Object last{};
  for (int i = 0; i < 4; ++i) {  // the allocator may give the same address again: another generation
    weft_mem* mem = nullptr;
    ASSERT_EQ(weft_mem_alloc(device, 1 << 20, 0, &mem), 0) << weft_last_error();
    const Object object = object_of(mem);
    EXPECT_NE(object.generation, last.generation);
    last = object;
    heap.allocate(object);
    Cache::Lease lease;
    ASSERT_EQ(cache.acquire(object, {4096, 100}, &lease), 0);
    weft_mem_info info{};
    info.size = sizeof(info);
    ASSERT_EQ(weft_mem_find(device, object.id + 4096, 100, &info), 0);
    EXPECT_EQ(info.va, object.id);
    EXPECT_EQ(info.generation, object.generation);
    lease.end();
    EXPECT_EQ(heap.regions(), 1u);
    weft_mem_free(mem);
    EXPECT_EQ(heap.regions(), 0u);
    heap.free(object.id, object.generation);
  }
  EXPECT_EQ(cache.counters().invalidations, 4u);

  weft_mem_off_free(device, on_free, &cache);
  weft_mem* mem = nullptr;
  ASSERT_EQ(weft_mem_alloc(device, 4096, 0, &mem), 0);
  const Object object = object_of(mem);
  heap.allocate(object);
  Cache::Lease lease;
  ASSERT_EQ(cache.acquire(object, {0, 100}, &lease), 0);
  weft_mem_free(mem);
  EXPECT_EQ(cache.counters().invalidations, 4u) << "nobody tells the cache any more";
  weft_device_close(device);
}

}  // namespace
}  // namespace weft::mr::test
