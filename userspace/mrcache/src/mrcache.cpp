// SPDX-License-Identifier: MIT
#include "weft/mrcache.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <utility>

namespace weft::mr {
namespace {

std::uint64_t now_ns() {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

// Aligned out to `unit`, a power of two, and clamped to the object. `range` lies inside the object.
Range align_out(const Object& object, Range range, std::uint64_t unit) {
  const std::uint64_t begin = range.offset & ~(unit - 1);
  const std::uint64_t over = range.end() & (unit - 1);
  const std::uint64_t more = over == 0 ? 0 : unit - over;
  const std::uint64_t end = more > object.bytes - range.end() ? object.bytes : range.end() + more;
  return {begin, end - begin};
}

}  // namespace

Cache::Lease::Lease(Lease&& other) noexcept : cache_(std::exchange(other.cache_, nullptr)), entry_(other.entry_) {}

Cache::Lease& Cache::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    end();
    cache_ = std::exchange(other.cache_, nullptr);
    entry_ = other.entry_;
  }
  return *this;
}

void Cache::Lease::end() {
  if (Cache* cache = std::exchange(cache_, nullptr)) cache->release(entry_);
}

// Region and range of a ready entry do not change any more: no lock.
void* Cache::Lease::region() const { return entry_->region; }
Range Cache::Lease::range() const { return entry_->range; }

Cache::Cache(Registrar& registrar, Limits limits) : registrar_(registrar), limits_(limits) {
  limits_.granule = std::max(kPage, std::bit_floor(std::min(limits_.granule, limits_.bytes)));
}

Cache::~Cache() {
  clear();
  assert(busy_.empty() && "a lease outlives its cache");
}

Range Cache::granules(const Object& object, Range range) const { return align_out(object, range, limits_.granule); }

Cache::Entries::iterator Cache::covering(Known& known, Range range) {
  auto next = known.by_offset.upper_bound(range.offset);
  if (next == known.by_offset.begin()) return busy_.end();
  const Entries::iterator entry = std::prev(next)->second;
  return entry->range.end() >= range.end() ? entry : busy_.end();
}

int Cache::acquire(const Object& object, Range range, Lease* out) {
  *out = Lease();
  if (range.bytes == 0 || range.offset > object.bytes || range.bytes > object.bytes - range.offset) return -EINVAL;
  const Range exact = align_out(object, range, kPage);
  const Key key{object.id, object.generation};

  std::unique_lock lock(mutex_);
  for (;;) {
    Known& known = known_[key];
    if (known.freed) {
      ++counters_.failures;
      return -ESTALE;
    }
    if (const auto found = covering(known, exact); found != busy_.end()) return take(found, lock, out);

    // The entries that the new one would overlap or touch.
    Range merged = granules(object, exact);
    bool pending = false;
    auto next = known.by_offset.upper_bound(merged.end());
    while (next != known.by_offset.begin()) {
      const Entries::iterator entry = std::prev(next)->second;
      if (entry->range.end() < merged.offset) break;
      pending |= entry->state == State::kPending;
      const std::uint64_t end = std::max(merged.end(), entry->range.end());
      merged.offset = std::min(merged.offset, entry->range.offset);
      merged.bytes = end - merged.offset;
      --next;
    }
    if (pending) {
      changed_.wait(lock);
      continue;
    }
    ++counters_.misses;
    Entries leaving;
    const auto entry = reserve(known, object, exact, merged, &leaving);
    return fill(entry, std::move(leaving), lock, out);
  }
}

int Cache::take(Entries::iterator entry, std::unique_lock<std::mutex>& lock, Lease* out) {
  if (entry->refs++ == 0) {
    idle_bytes_ -= entry->range.bytes;
    busy_.splice(busy_.end(), idle_, entry);
  }
  if (entry->state == State::kPending) {
    ++counters_.waits;
    changed_.wait(lock, [&] { return entry->state != State::kPending; });
  }
  if (entry->state == State::kFailed) {
    const int error = entry->error;
    if (--entry->refs == 0) busy_.erase(entry);
    ++counters_.failures;
    return error;
  }
  ++counters_.hits;
  out->cache_ = this;
  out->entry_ = entry;
  return 0;
}

Cache::Entries::iterator Cache::reserve(Known& known, const Object& object, Range exact, Range merged,
                                        Entries* leaving) {
  ++known.calls;  // first, so that `known` stays whatever leaves
  // What would stay if all that is idle left and `merged` took its neighbours' place.
  std::uint64_t stay_entries = counters_.entries - idle_.size();
  std::uint64_t stay_bytes = counters_.bytes - idle_bytes_;
  auto first = known.by_offset.lower_bound(merged.offset);
  const auto last = known.by_offset.upper_bound(merged.end());
  for (auto i = first; i != last; ++i) {
    if (i->second->refs == 0) continue;
    --stay_entries;
    stay_bytes -= i->second->range.bytes;
  }
  const bool keep = !off() && merged.bytes <= limits_.bytes && stay_entries < limits_.entries &&
                    stay_bytes <= limits_.bytes - merged.bytes;
  const auto entry = busy_.insert(busy_.end(), Entry{});
  entry->object = object;
  entry->range = keep ? merged : exact;
  entry->refs = 1;
  if (!keep) {
    ++counters_.uncached;
  } else {
    while (first != last) {
      const Entries::iterator old = (first++)->second;
      forget(old, leaving);
      ++counters_.merges;
    }
    while (counters_.entries >= limits_.entries || counters_.bytes > limits_.bytes - merged.bytes) {
      forget(idle_.begin(), leaving);
      ++counters_.evictions;
    }
    known.by_offset.emplace(merged.offset, entry);
    entry->kept = true;
    ++counters_.entries;
    counters_.bytes += merged.bytes;
  }
  return entry;
}

int Cache::fill(Entries::iterator entry, Entries leaving, std::unique_lock<std::mutex>& lock, Lease* out) {
  const Key key = entry->key();
  int error;
  void* region = nullptr;
  for (;;) {
    tear_down(&leaving, lock);
    const Object object = entry->object;
    const Range range = entry->range;
    lock.unlock();
    const std::uint64_t begin = now_ns();
    error = registrar_.add(object, range, &region);
    const std::uint64_t took = now_ns() - begin;
    lock.lock();
    counters_.registration_ns += took;
    if ((error != -ENOMEM && error != -ENOSPC) || idle_.empty()) break;
    // The NIC has no more room: it gets some back, one region at a time.
    forget(idle_.begin(), &leaving);
    ++counters_.evictions;
  }
  if (error == 0) {
    ++counters_.registrations;
    counters_.registration_bytes += entry->range.bytes;
    ++counters_.registered_regions;
    counters_.registered_bytes += entry->range.bytes;
    entry->region = region;
    if (known_[key].freed) {
      Entries stale;
      Entry copy = *entry;
      copy.kept = false;
      stale.push_back(copy);
      ++known_[key].calls;
      tear_down(&stale, lock);
      error = -ESTALE;
    }
  }
  if (error != 0) {
    ++counters_.failures;
    entry->error = error;
    entry->state = State::kFailed;
    if (entry->kept) forget(entry, nullptr);
    if (--entry->refs == 0) busy_.erase(entry);
  } else {
    entry->state = State::kReady;
    out->cache_ = this;
    out->entry_ = entry;
  }
  call_ended(key);
  return error;
}

void Cache::forget(Entries::iterator entry, Entries* leaving) {
  const auto known = known_.find(entry->key());
  known->second.by_offset.erase(entry->range.offset);
  entry->kept = false;
  --counters_.entries;
  counters_.bytes -= entry->range.bytes;
  if (entry->refs == 0) {
    idle_bytes_ -= entry->range.bytes;
    leaving->splice(leaving->end(), idle_, entry);
    ++known->second.calls;  // before the lock is given up, so that invalidate() waits for it
  } else if (known->second.by_offset.empty() && known->second.calls == 0 && !known->second.freed) {
    known_.erase(known);
  }
}

void Cache::tear_down(Entries* leaving, std::unique_lock<std::mutex>& lock) {
  if (leaving->empty()) return;
  lock.unlock();
  const std::uint64_t begin = now_ns();
  for (Entry& entry : *leaving) registrar_.remove(entry.region);
  const std::uint64_t took = now_ns() - begin;
  lock.lock();
  counters_.teardown_ns += took;
  for (Entry& entry : *leaving) {
    ++counters_.teardowns;
    --counters_.registered_regions;
    counters_.registered_bytes -= entry.range.bytes;
    call_ended(entry.key());
  }
  leaving->clear();
}

void Cache::call_ended(const Key& key) {
  const auto known = known_.find(key);
  --known->second.calls;
  if (known->second.calls == 0 && known->second.by_offset.empty() && !known->second.freed) known_.erase(known);
  changed_.notify_all();
}

void Cache::release(Entries::iterator entry) {
  std::unique_lock lock(mutex_);
  if (--entry->refs != 0) return;
  if (entry->kept) {
    idle_bytes_ += entry->range.bytes;
    idle_.splice(idle_.end(), busy_, entry);
    return;
  }
  Entries leaving;
  leaving.splice(leaving.end(), busy_, entry);
  ++known_[entry->key()].calls;
  tear_down(&leaving, lock);
}

void Cache::invalidate(std::uint64_t id, std::uint64_t generation) {
  const Key key{id, generation};
  std::unique_lock lock(mutex_);
  const auto found = known_.find(key);
  if (found == known_.end()) return;
  Known& known = found->second;
  if (known.freed) return;
  known.freed = true;
  Entries leaving;
  while (!known.by_offset.empty()) {
    forget(known.by_offset.begin()->second, &leaving);
    ++counters_.invalidations;
  }
  tear_down(&leaving, lock);
  changed_.wait(lock, [&] { return known.calls == 0; });
  known_.erase(key);
}

void Cache::clear() {
  std::unique_lock lock(mutex_);
  Entries leaving;
  while (!idle_.empty()) forget(idle_.begin(), &leaving);
  tear_down(&leaving, lock);
}

Counters Cache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace weft::mr
