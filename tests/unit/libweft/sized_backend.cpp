// SPDX-License-Identifier: MIT
// Backends whose tables are of another age than the library's: SHORT ends before the channels, LONG has one more
// call, which is NULL, NEWER has it set, HOLLOW lacks one that must be there.
#include <cerrno>
#include <cstddef>

#include "whole_table.hpp"

namespace {

struct Longer {
  weft_backend table = weft::test::whole_table("sized");
  void (*further)() = nullptr;
};

Longer make() {
  Longer made;
#if defined(SHORT)
  made.table.size = offsetof(weft_backend, channel_create);
#elif defined(LONG) || defined(NEWER)
  made.table.size = sizeof(Longer);
#endif
#if defined(NEWER)
  made.further = [] {};
#elif defined(HOLLOW)
  made.table.queue_ring = nullptr;
#endif
  return made;
}

}  // namespace

const weft_backend* weft_backend_entry(std::uint32_t version) {
  static const Longer made = make();
  return version == WEFT_BACKEND_VERSION ? &made.table : nullptr;
}
