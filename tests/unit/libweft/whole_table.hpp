// SPDX-License-Identifier: MIT
// A table with every call that must be there; those that tests do not use refuse.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "weft/backend.h"

namespace weft::test {

inline weft_backend whole_table(const char* name) {
  const auto refuse = [](auto...) { return -EOPNOTSUPP; };
  const auto nothing = [](auto...) {};
  weft_backend made{};
  made.size = sizeof(made);
  made.version = WEFT_BACKEND_VERSION;
  made.name = name;
  made.count = [] { return 1; };
  made.open = [](const char*, void** device, char*, std::size_t) {
    *device = nullptr;
    return 0;
  };
  made.close = nothing;
  made.info = refuse;
  made.counters = refuse;
  made.sensors = refuse;
  made.port = refuse;
  made.log = refuse;
  made.mem_alloc = refuse;
  made.mem_register = refuse;
  made.mem_free = nothing;
  made.mem_map = [](void*, weft_backend_mem*) -> void* { return nullptr; };
  made.mem_unmap = nothing;
  made.sync_alloc = refuse;
  made.sync_free = nothing;
  made.sync_value = [](void*, std::uint32_t) -> std::uint64_t { return 0; };
  made.sync_signal = refuse;
  made.sync_wait = refuse;
  made.queue_create = refuse;
  made.queue_destroy = nothing;
  made.queue_ring = nothing;
  return made;
}

}  // namespace weft::test
