// SPDX-License-Identifier: MIT
// What the cache saves: the same trace with the cache off and on, in units of the registrar (calls, pages), not of
// time.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "heap.hpp"

namespace weft::mr::test {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

struct Cost {
  std::uint64_t registrations, teardowns, bytes;
};

// A training step: gradients of 40 buffers are reduced, some in slices; activations come and go between steps.
Cost train(Limits limits, int steps) {
  Heap heap;
  Cache cache(heap, limits);
  std::mt19937 random(7);
  struct Buffer {
    Object object;
    bool kept;
  };
  std::vector<Buffer> buffers;
  for (std::uint64_t i = 0; i < 40; ++i) {
    buffers.push_back({{i, 1, (1 + random() % 32) * kMiB}, i % 5 != 0});  // one in five is reallocated
    heap.allocate(buffers.back().object);
  }
  for (int step = 0; step < steps; ++step) {
    for (Buffer& buffer : buffers) {
      if (!buffer.kept && step % 4 == 3) {
        cache.invalidate(buffer.object.id, buffer.object.generation);
        heap.free(buffer.object.id, buffer.object.generation);
        ++buffer.object.generation;
        heap.allocate(buffer.object);
      }
      for (std::uint64_t at = 0; at < buffer.object.bytes; at += 8 * kMiB) {
        Cache::Lease lease;
        EXPECT_EQ(cache.acquire(buffer.object, {at, std::min(8 * kMiB, buffer.object.bytes - at)}, &lease), 0);
        EXPECT_EQ(region_of(lease).object.generation, buffer.object.generation);
      }
    }
  }
  const Counters c = cache.counters();
  return {c.registrations, c.teardowns, c.registration_bytes};
}

TEST(MrCacheTrace, TrainingLike) {
  constexpr int kSteps = 50;
  const Cost off = train({0, 0, 0}, kSteps), on = train({}, kSteps);
  // Closed form: 40 buffers once, and 8 of them again after each of the 12 reallocations.
  EXPECT_EQ(on.registrations, 40u + 8 * (kSteps / 4));
  EXPECT_EQ(off.registrations, off.teardowns);
  const double ratio = static_cast<double>(off.registrations) / static_cast<double>(on.registrations);
  std::printf("training-like trace: registrations off/on %llu/%llu = %.1f, registered bytes off/on = %.1f\n",
              static_cast<unsigned long long>(off.registrations), static_cast<unsigned long long>(on.registrations),
              ratio, static_cast<double>(off.bytes) / static_cast<double>(on.bytes));
  EXPECT_GT(ratio, 10);
}

TEST(MrCacheTrace, SmallLoop) {
  constexpr int kLoops = 1000;
  std::array<std::uint64_t, 2> made{};
  for (int on = 0; on < 2; ++on) {
    Heap heap;
    Cache cache(heap, on == 0 ? Limits{0, 0, 0} : Limits{});
    heap.allocate({1, 1, 64 * 1024});
    for (int i = 0; i < kLoops; ++i) {
      Cache::Lease lease;
      ASSERT_EQ(cache.acquire({1, 1, 64 * 1024}, {0, 64 * 1024}, &lease), 0);
    }
    made[on] = cache.counters().registrations;
  }
  EXPECT_EQ(made[0], static_cast<std::uint64_t>(kLoops));
  EXPECT_EQ(made[1], 1u);
  std::printf("64 KiB loop of %d: registrations off/on = %.0f\n", kLoops,
              static_cast<double>(made[0]) / static_cast<double>(made[1]));
}

TEST(MrCacheTrace, SweepThroughALargeObject) {
  // In order and in slices: one region in the end, the others merged into it, at most one registration a granule.
  Heap heap;
  Cache cache(heap, {64, 16ull << 30, 128 * kMiB});
  const Object object{1, 1, 1024 * kMiB};
  heap.allocate(object);
  for (std::uint64_t at = 0; at < object.bytes; at += 4 * kMiB) {
    Cache::Lease lease;
    ASSERT_EQ(cache.acquire(object, {at, 4 * kMiB}, &lease), 0);
  }
  const Counters c = cache.counters();
  EXPECT_EQ(c.registrations, 8u);
  EXPECT_EQ(c.hits, 256u - 8u);
  EXPECT_EQ(c.entries, 1u);
  EXPECT_EQ(c.bytes, object.bytes);
}

}  // namespace
}  // namespace weft::mr::test
