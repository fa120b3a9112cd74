// SPDX-License-Identifier: MIT
#include "path.hpp"

#include <utility>

#include "error.hpp"

namespace weft::ccl {
namespace {

constexpr Way kWays[] = {
    {wcclPathOnchip, "roce"}, {wcclPathPeer, "efa-direct"}, {wcclPathStaged, "efa-direct"}, {wcclPathStaged, "tcp"}};

const char* staged_name(const Way& way) { return std::string(way.transport) == "tcp" ? "tcp" : "efa"; }

// The first obstacle with its rank, and how many others there are. Empty: none.
std::string obstacle_of(std::span<const std::string> obstacles, const std::vector<Wish>& ranks) {
  std::string text;
  std::size_t also = 0;
  for (std::size_t rank = 0; rank < obstacles.size(); ++rank) {
    if (obstacles[rank].empty()) continue;
    if (text.empty()) {
      text = obstacles[rank] + " (rank " + std::to_string(rank) +
             (ranks[rank].host.empty() ? "" : " on " + ranks[rank].host) + ')';
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

PathSearch::PathSearch(std::vector<Wish> ranks) : ranks_(std::move(ranks)) {
  const Wish& wish = ranks_.at(0);
  const auto asks = [](const Wish& w) {
    return std::string(path_name(w.path)) + (w.staged_over.empty() ? "" : " (staged over " + w.staged_over + ')');
  };
  for (std::size_t rank = 1; rank < ranks_.size(); ++rank) {
    if (asks(ranks_[rank]) == asks(wish)) continue;
    throw Failure(wcclInvalidUsage, "rank 0 asks for path " + asks(wish) + ", rank " + std::to_string(rank) + " for " +
                                        asks(ranks_[rank]));
  }
  for (const Way& way : kWays) {
    if (wish.path != wcclPathAuto && wish.path != way.path) continue;
    if (way.path == wcclPathStaged && !wish.staged_over.empty() && wish.staged_over != staged_name(way)) continue;
    ways_.push_back(way);
  }
}

bool PathSearch::answers(std::span<const std::string> obstacles) {
  const std::string why = obstacle_of(obstacles, ranks_);
  if (why.empty()) return true;
  const bool asked = ranks_[0].path != wcclPathAuto;
  const std::string over =
      way().path == wcclPathStaged ? std::string(asked ? "" : " ") + "over " + staged_name(way()) : "";
  reasons_ += (reasons_.empty() ? "" : "; ") + (asked ? over : std::string("not ") + path_name(way().path) + over) +
              (asked && over.empty() ? "" : ": ") + why;
  if (++at_ < ways_.size()) return false;
  if (asked) {
    throw Failure(wcclInvalidUsage,
                  "path " + std::string(path_name(ranks_[0].path)) + " was asked for, but " + reasons_);
  }
  throw Failure(wcclInvalidUsage, "no path between the ranks: " + reasons_);
}

PathChoice PathSearch::choice() const {
  const bool asked = ranks_[0].path != wcclPathAuto;
  return {way().path, way().transport,
          std::string(asked ? "asked for" : "") + (asked && !reasons_.empty() ? "; not " : "") +
              (reasons_.empty() && !asked ? "first choice" : reasons_)};
}

}  // namespace weft::ccl
