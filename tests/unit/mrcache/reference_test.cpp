// SPDX-License-Identifier: MIT
// The cache against a model of it that is written another way: ranges are sets of granules, recency is a time stamp,
// and every question is answered by a walk over a plain list.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <list>
#include <optional>
#include <random>
#include <vector>

#include "heap.hpp"

namespace weft::mr::test {
namespace {

constexpr std::uint64_t kGranule = 64 * 1024;

class Reference {
 public:
  Reference(std::uint64_t most_entries, std::uint64_t most_bytes) : most_entries_(most_entries), most_(most_bytes) {}

  struct Entry {
    std::uint64_t id, generation, bytes_of_object;
    std::uint32_t granules;  // bit i: bytes [i, i + 1) * kGranule of the object
    std::uint64_t exact_bytes;
    int users;
    bool kept;
    std::uint64_t idle_since;
  };

  Entry* acquire(const Object& object, std::uint32_t granules, std::uint64_t exact_bytes) {
    for (Entry& e : list)
      if (mine(e, object) && (granules & ~e.granules) == 0) {
        ++hits, ++e.users;
        return &e;
      }
    ++misses;
    std::uint32_t all = granules;
    for (bool grown = true; grown;) {
      grown = false;
      for (const Entry& e : list)
        if (mine(e, object) && (e.granules & (all | all << 1 | all >> 1)) != 0 && (e.granules & ~all) != 0)
          all |= e.granules, grown = true;
    }
    Entry made{object.id, object.generation, object.bytes, all, exact_bytes, 1, true, 0};
    std::uint64_t used_entries = 0, used = 0;
    for (const Entry& e : list)
      if (e.kept && e.users > 0 && !(mine(e, object) && (e.granules & all) != 0)) ++used_entries, used += size(e);
    if (used_entries + 1 > most_entries_ || used + size(made) > most_ || most_entries_ == 0) {
      ++uncached;
      made.kept = false;
      made.granules = granules;
      list.push_back(made);
      return &list.back();
    }
    for (Entry& e : list)
      if (mine(e, object) && (e.granules & all) != 0) e.kept = false, ++merges;
    tidy();
    while (entries() + 1 > most_entries_ || bytes() + size(made) > most_) {
      Entry* oldest = nullptr;
      for (Entry& e : list)
        if (e.kept && e.users == 0 && (oldest == nullptr || e.idle_since < oldest->idle_since)) oldest = &e;
      oldest->kept = false;
      ++evictions;
      tidy();
    }
    list.push_back(made);
    return &list.back();
  }

  void release(Entry* e) {
    if (--e->users == 0) e->idle_since = ++clock_;
    tidy();
  }

  void invalidate(std::uint64_t id, std::uint64_t generation) {
    for (Entry& e : list)
      if (e.kept && e.id == id && e.generation == generation) e.kept = false, ++invalidations;
    tidy();
  }

  std::uint64_t entries() const {
    return static_cast<std::uint64_t>(std::count_if(list.begin(), list.end(), [](auto& e) { return e.kept; }));
  }
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const Entry& e : list) sum += e.kept ? size(e) : 0;
    return sum;
  }

  std::uint64_t hits = 0, misses = 0, uncached = 0, evictions = 0, merges = 0, invalidations = 0;
  std::list<Entry> list;

 private:
  static bool mine(const Entry& e, const Object& o) { return e.kept && e.id == o.id && e.generation == o.generation; }
  static std::uint64_t size(const Entry& e) {
    std::uint64_t sum = 0;
    for (unsigned i = 0; i < 32; ++i)
      if (e.granules >> i & 1) sum += std::min(kGranule, e.bytes_of_object - i * kGranule);
    return sum;
  }
  void tidy() {
    list.remove_if([](const Entry& e) { return !e.kept && e.users == 0; });
  }

  std::uint64_t most_entries_, most_, clock_ = 0;
};

struct Case {
  const char* name;
  std::uint64_t entries, bytes;
  int operations;
};

class AgainstReference : public ::testing::TestWithParam<Case> {};

TEST_P(AgainstReference, SameHitsMissesEvictions) {
  const Case& c = GetParam();
  Heap heap;
  Cache cache(heap, {c.entries, c.bytes, kGranule});
  Reference reference(c.bytes == 0 ? 0 : c.entries, c.bytes);
  const std::uint32_t seed = 20261129;
  std::mt19937 random(seed);
  auto below = [&](std::uint64_t n) { return static_cast<std::uint64_t>(random()) % n; };

  std::vector<Object> objects(24);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    objects[i] = {i, 1, (1 + below(16 * 16)) * kPage};  // up to 16 granules, the last one ragged
    heap.allocate(objects[i]);
  }
  struct Held {
    Cache::Lease lease;
    Reference::Entry* entry;
  };
  std::vector<Held> held;

  for (int step = 0; step < c.operations; ++step) {
    const std::uint64_t dice = below(100);
    if (dice < 3) {
      Object& object = objects[below(objects.size())];
      cache.invalidate(object.id, object.generation);
      reference.invalidate(object.id, object.generation);
      heap.free(object.id, object.generation);
      object = {object.id, object.generation + 1, (1 + below(16 * 16)) * kPage};
      heap.allocate(object);
    } else if (dice < 52 && held.size() < 16) {
      // Some objects are used more than others.
      const Object& object = objects[std::min(below(objects.size()), below(objects.size()))];
      const std::uint64_t offset = below(object.bytes);
      const std::uint64_t bytes = 1 + below(std::min<std::uint64_t>(object.bytes - offset, 3 * kGranule));
      const std::uint64_t first_page = offset / kPage, last_page = (offset + bytes - 1) / kPage;
      std::uint32_t granules = 0;
      for (std::uint64_t page = first_page; page <= last_page; ++page) granules |= 1u << (page * kPage / kGranule);
      Held h;
      ASSERT_EQ(cache.acquire(object, {offset, bytes}, &h.lease), 0);
      h.entry = reference.acquire(object, granules, (last_page - first_page + 1) * kPage);
      // What was got covers what was asked, and is the range that the reference says.
      const Region& region = region_of(h.lease);
      ASSERT_EQ(region.object.id, object.id);
      ASSERT_EQ(region.object.generation, object.generation);
      ASSERT_LE(region.range.offset, offset);
      ASSERT_GE(region.range.end(), offset + bytes);
      if (h.entry->kept) {
        ASSERT_EQ(region.range.offset, std::countr_zero(h.entry->granules) * kGranule);
        ASSERT_EQ(region.range.end(), std::min(object.bytes, std::bit_width(h.entry->granules) * kGranule));
      } else {
        ASSERT_EQ(region.range.bytes, h.entry->exact_bytes);
      }
      held.push_back(std::move(h));
    } else if (!held.empty()) {
      const std::uint64_t which = below(held.size());
      std::swap(held[which], held.back());
      held.back().lease.end();
      reference.release(held.back().entry);
      held.pop_back();
    }
    const Counters now = cache.counters();
    ASSERT_EQ(now.hits, reference.hits) << "step " << step << ", seed " << seed;
    ASSERT_EQ(now.misses, reference.misses) << "step " << step;
    ASSERT_EQ(now.uncached, reference.uncached) << "step " << step;
    ASSERT_EQ(now.evictions, reference.evictions) << "step " << step;
    ASSERT_EQ(now.merges, reference.merges) << "step " << step;
    ASSERT_EQ(now.invalidations, reference.invalidations) << "step " << step;
    if (step % 64 == 0) {
      ASSERT_EQ(now.entries, reference.entries());
      ASSERT_EQ(now.bytes, reference.bytes());
      ASSERT_EQ(now.registered_regions, reference.list.size());
      ASSERT_EQ(heap.regions(), reference.list.size());
      ASSERT_LE(now.entries, c.entries);
      ASSERT_LE(now.bytes, c.bytes);
    }
  }
  const Counters end = cache.counters();
  EXPECT_EQ(end.failures, 0u);
  EXPECT_EQ(end.registrations, end.misses);
  EXPECT_EQ(end.registrations - end.teardowns, end.registered_regions);
  ::testing::Test::RecordProperty("hits", std::to_string(end.hits));
  std::printf(
      "%s: %d operations: %llu hits, %llu misses (%llu uncached), %llu evictions, %llu merges, %llu invalidations\n",
      c.name, c.operations, static_cast<unsigned long long>(end.hits), static_cast<unsigned long long>(end.misses),
      static_cast<unsigned long long>(end.uncached), static_cast<unsigned long long>(end.evictions),
      static_cast<unsigned long long>(end.merges), static_cast<unsigned long long>(end.invalidations));
  held.clear();
}

INSTANTIATE_TEST_SUITE_P(Limits, AgainstReference,
                         ::testing::Values(Case{"wide", 1024, 1ull << 40, 100'000},
                                           Case{"entries", 8, 1ull << 40, 1'000'000},
                                           Case{"bytes", 1024, 5 * 1024 * 1024, 200'000},
                                           Case{"tight", 3, 600 * 1024, 200'000}, Case{"off", 0, 1ull << 40, 50'000}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft::mr::test
