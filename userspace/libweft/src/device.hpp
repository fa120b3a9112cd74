// SPDX-License-Identifier: MIT
// The objects behind libweft's opaque handles.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "backends.hpp"
#include "range_map.hpp"
#include "weft/weft.h"

struct weft_mem {
  weft_device* device = nullptr;
  weft_backend_mem backend{};
  std::mutex map_lock;
  void* base = nullptr;  // CPU mapping
  unsigned maps = 0;     // weft_mem_map calls not yet undone
};

struct weft_queue {
  weft_device* device = nullptr;
  weft_backend_queue backend{};
  std::uint64_t producer = 0;  // slots written, free-running
};

struct weft_channel {
  weft_device* device = nullptr;
  weft_backend_channel backend{};
};

namespace weft::front {

class Copies;

}  // namespace weft::front

struct weft_device {
  weft_device(const weft_backend* table, void* backend_device);
  ~weft_device();
  weft_device(const weft_device&) = delete;
  weft_device& operator=(const weft_device&) = delete;

  const weft_backend* backend;
  void* handle;

  mutable std::shared_mutex memory_lock;
  weft::front::RangeMap<weft_mem> memory;  // guarded by memory_lock

  std::shared_mutex on_free_lock;
  std::vector<std::pair<weft_mem_free_fn*, void*>> on_free;  // guarded by on_free_lock; called with it held

  std::mutex objects_lock;
  std::set<weft_queue*> queues;      // guarded by objects_lock
  std::set<weft_stream*> streams;    // guarded by objects_lock
  std::set<weft_channel*> channels;  // guarded by objects_lock

  std::unique_ptr<weft::front::Copies> copies;
};
