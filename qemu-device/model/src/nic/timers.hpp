// SPDX-License-Identifier: MIT
// Deadlines of queue pairs. Moving a deadline to later costs nothing: the heap keeps the earlier one until it comes up.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace weft::model::nic {

class Timers {
 public:
  // What a timed object keeps for this class: the earliest entry for it in the heap.
  struct Hook {
    std::uint64_t entry = UINT64_MAX;
  };

  void arm(std::uint32_t id, Hook& hook, std::uint64_t deadline) {
    if (deadline >= hook.entry) return;
    hook.entry = deadline;
    heap_.emplace(deadline, id);
  }

  // `find(id)`: {hook or nullptr, real deadline}. Returns the next real deadline, UINT64_MAX: none.
  template <typename Find>
  std::uint64_t next(Find find) {
    while (!heap_.empty()) {
      const auto [entry, id] = heap_.top();
      const auto [hook, deadline] = find(id);
      if (hook != nullptr && hook->entry == entry) {
        if (deadline == entry) return entry;
        hook->entry = UINT64_MAX;
        heap_.pop();
        arm(id, *hook, deadline);
      } else {
        heap_.pop();  // superseded, or its owner is gone
      }
    }
    return UINT64_MAX;
  }

  // The first one that is due, or 0. The caller then changes its deadline.
  template <typename Find>
  std::uint32_t due(std::uint64_t now, Find find) {
    return next(find) <= now ? heap_.top().second : 0;
  }

  void clear() { heap_ = {}; }

 private:
  using Entry = std::pair<std::uint64_t, std::uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap_;
};

}  // namespace weft::model::nic
