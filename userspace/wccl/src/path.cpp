// SPDX-License-Identifier: MIT
#include "path.hpp"

namespace weft::ccl {
namespace {

const std::string& missing(const PathFacts& facts, wcclPath_t path) {
  return path == wcclPathOnchip ? facts.no_onchip : path == wcclPathPeer ? facts.no_peer : facts.no_staged;
}

// Why a path is not possible, or empty.
std::string obstacle(std::span<const PathFacts> ranks, wcclPath_t path) {
  std::string text;
  std::size_t also = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::string& why = missing(ranks[rank], path);
    if (why.empty()) continue;
    if (text.empty()) {
      text = why + " (rank " + std::to_string(rank) + (ranks[rank].host.empty() ? "" : " on " + ranks[rank].host) + ')';
    } else {
      ++also;
    }
  }
  if (also) text += " and " + std::to_string(also) + " more rank" + (also > 1 ? "s" : "");
  return text;
}

}  // namespace

const char* path_name(wcclPath_t path) {
  static constexpr const char* kNames[] = {"auto", "onchip", "peer", "staged"};
  return path >= wcclPathAuto && path < wcclNumPaths ? kNames[path] : "unknown";
}

PathChoice choose_path(std::span<const PathFacts> ranks) {
  const wcclPath_t asked = ranks.empty() ? wcclPathAuto : ranks[0].asked;
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].asked != asked) {
      return {wcclPathAuto, "rank 0 asks for path " + std::string(path_name(asked)) + ", rank " + std::to_string(rank) +
                                " for " + path_name(ranks[rank].asked)};
    }
  }
  if (asked != wcclPathAuto) {
    const std::string why = obstacle(ranks, asked);
    if (why.empty()) return {asked, "asked for"};
    return {wcclPathAuto, "path " + std::string(path_name(asked)) + " was asked for, but " + why};
  }
  std::string reasons;
  for (const wcclPath_t path : {wcclPathOnchip, wcclPathPeer, wcclPathStaged}) {
    const std::string why = obstacle(ranks, path);
    if (why.empty()) return {path, reasons.empty() ? "first choice" : reasons};
    reasons += (reasons.empty() ? "" : "; ") + std::string("not ") + path_name(path) + ": " + why;
  }
  return {wcclPathAuto, "no path between the ranks: " + reasons};
}

}  // namespace weft::ccl
