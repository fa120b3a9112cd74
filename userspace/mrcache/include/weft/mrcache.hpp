// SPDX-License-Identifier: MIT
// The registration cache: which parts of which memory objects a host NIC has registered, kept while they may be used
// again. DESIGN section 7.
//
// An entry is (object, generation, range) -> region, where a region is whatever a Registrar makes of the range (for the
// NIC: DMA-BUF, then memory region). What an entry covers: the asked range, aligned out to `Limits::granule` and
// clamped to the object, united with the object's entries that it overlaps or touches. So an object up to a granule is
// registered whole at its first use, and a walk through a larger one ends in one region. The reason: accelerator memory
// is contiguous on the bus, so the NIC needs the same one or two large pages for much of it as for little, and the cost
// of a registration is the calls, not the bytes; but a whole object of many GiB would use up `Limits::bytes` at once.
//
// An entry is idle when no lease holds it; idle ones leave in the order in which they became idle. What cannot be kept
// within the limits (all else is in use, or it is larger than they are) is registered for its lease alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>

namespace weft::mr {

inline constexpr std::uint64_t kPage = 4096;

struct Object {
  std::uint64_t id = 0;          // as the registrar knows it
  std::uint64_t generation = 0;  // never used twice with this id
  std::uint64_t bytes = 0;
};

struct Range {
  std::uint64_t offset = 0;  // bytes from the object's begin
  std::uint64_t bytes = 0;
  std::uint64_t end() const { return offset + bytes; }
};

// Makes and ends registrations. Both calls come from several threads at once, never with a lock of the cache held, and
// must end in bounded time.
class Registrar {
 public:
  virtual ~Registrar() = default;
  // Registers `range`, which is page-aligned and inside the object (its end may be the object's unaligned end): 0 and
  // *region, or a negative errno value. After -ENOMEM or -ENOSPC the cache gives up an idle region and asks again.
  virtual int add(const Object& object, Range range, void** region) = 0;
  virtual void remove(void* region) = 0;
};

struct Limits {
  std::uint64_t entries = 1024;          // WCCL_MR_CACHE_ENTRIES; 0: no cache
  std::uint64_t bytes = 16ull << 30;     // WCCL_MR_CACHE_BYTES; 0: no cache
  std::uint64_t granule = 128ull << 20;  // a power of two; lowered to what `bytes` can hold
};

struct Counters {
  // Of lookups. hits + misses = all that were in bounds and not of an object being freed.
  std::uint64_t hits = 0;
  std::uint64_t waits = 0;  // hits and failures that waited for another thread's registration
  std::uint64_t misses = 0;
  std::uint64_t uncached = 0;  // misses that were registered for one lease alone
  std::uint64_t failures = 0;  // lookups that ended in an error
  // Of entries that left the cache.
  std::uint64_t evictions = 0;
  std::uint64_t merges = 0;         // a larger one took their place
  std::uint64_t invalidations = 0;  // their memory was freed
  // Of the registrar.
  std::uint64_t registrations = 0, registration_bytes = 0, registration_ns = 0;
  std::uint64_t teardowns = 0, teardown_ns = 0;
  // Now.
  std::uint64_t entries = 0, bytes = 0;                        // kept, within the limits
  std::uint64_t registered_regions = 0, registered_bytes = 0;  // all, with those that only leases hold
};

class Cache {
  struct Entry;

 public:
  // The right to use a region. The region stays registered, even when its memory is freed or it leaves the cache,
  // until the last lease on it ends. Must end before the cache does.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { end(); }
    void end();
    explicit operator bool() const { return cache_ != nullptr; }
    void* region() const;
    Range range() const;  // what the region covers: more than was asked for

   private:
    friend class Cache;
    Cache* cache_ = nullptr;
    std::list<Entry>::iterator entry_;
  };

  explicit Cache(Registrar& registrar, Limits limits = {});
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // A region that covers `range` of `object`. 0, -EINVAL (empty or out of the object), -ESTALE (the object is freed
  // meanwhile), or what the registrar says. Waits while another thread registers the same or neighbouring ranges.
  int acquire(const Object& object, Range range, Lease* out);

  // The object is about to be freed: no later lookup returns a region of it. On return its idle regions are
  // unregistered and no registrar call on it is running; regions in use end with their last lease.
  void invalidate(std::uint64_t id, std::uint64_t generation);

  // Unregister all idle regions.
  void clear();

  Counters counters() const;

 private:
  struct Key {
    std::uint64_t id, generation;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return static_cast<std::size_t>((key.id * 0x9e3779b97f4a7c15u) ^ (key.generation * 0xc2b2ae3d27d4eb4fu));
    }
  };
  enum class State { kPending, kReady, kFailed };
  struct Entry {
    Object object;
    Range range;
    void* region = nullptr;
    State state = State::kPending;
    int error = 0;
    bool kept = false;       // in the index, counted against the limits
    std::uint32_t refs = 0;  // leases, and threads that wait for it to get ready
    Key key() const { return {object.id, object.generation}; }
  };
  using Entries = std::list<Entry>;
  struct Known {
    std::map<std::uint64_t, Entries::iterator> by_offset;  // never overlapping, never touching
    std::uint32_t calls = 0;                               // registrar calls that run for it
    bool freed = false;                                    // invalidate() waits for them
  };

  bool off() const { return limits_.entries == 0 || limits_.bytes == 0; }
  Range granules(const Object& object, Range range) const;
  Entries::iterator covering(Known& known, Range range);
  int take(Entries::iterator entry, std::unique_lock<std::mutex>& lock, Lease* out);
  // Reserves a place for the region to be made, for one lease alone when the limits leave none.
  Entries::iterator reserve(Known& known, const Object& object, Range exact, Range merged, Entries* leaving);
  int fill(Entries::iterator entry, Entries leaving, std::unique_lock<std::mutex>& lock, Lease* out);
  void forget(Entries::iterator entry, Entries* leaving);  // out of the index; idle: to `leaving`
  void tear_down(Entries* leaving, std::unique_lock<std::mutex>& lock);
  void call_ended(const Key& key);
  void release(Entries::iterator entry);

  Registrar& registrar_;
  Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // a registrar call ended
  std::unordered_map<Key, Known, KeyHash> known_;
  Entries busy_;  // pending, or with leases
  Entries idle_;  // kept and without leases; first is the next to leave
  std::uint64_t idle_bytes_ = 0;
  Counters counters_;
};

}  // namespace weft::mr
