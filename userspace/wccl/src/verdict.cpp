// SPDX-License-Identifier: MIT
#include "verdict.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace weft::ccl {

std::optional<Note> decide(const std::vector<Suspicion>& suspicions) {
  if (suspicions.empty()) return std::nullopt;
  std::set<std::uint32_t> waiting;
  std::map<std::uint32_t, std::uint32_t> votes;  // definite ones, when there are such
  const bool definite = std::any_of(suspicions.begin(), suspicions.end(), [](const auto& s) { return s.definite; });
  for (const Suspicion& s : suspicions) {
    if (!s.definite) waiting.insert(s.from);
    if (s.definite == definite) ++votes[s.peer];
  }
  const Suspicion* best = nullptr;
  // Smaller is better.
  const auto rank_of = [&](const Suspicion& s) {
    const bool own = s.from == s.peer;  // a rank that accuses itself knows best
    return std::tuple(!own, definite ? false : waiting.contains(s.peer), definite ? 0 : s.order,
                      UINT32_MAX - votes[s.peer], s.peer, s.from);
  };
  for (const Suspicion& s : suspicions) {
    if (s.definite != definite) continue;
    if (!best || rank_of(s) < rank_of(*best)) best = &s;
  }
  return Note{best->peer, best->text};
}

}  // namespace weft::ccl
