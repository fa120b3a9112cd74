// SPDX-License-Identifier: MIT
#include "walk.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace weft::doctor {
namespace {

using Clock = std::chrono::steady_clock;

class Walk {
 public:
  Walk(const Options& options, Crew& crew) : options_(options), crew_(crew) {}

  Survey go() {
    Survey survey;
    const auto ranks = static_cast<std::uint32_t>(crew_.nodes().size());
    survey.sizes = options_.sizes;
    const std::uint32_t pairs = ranks * (ranks - 1) / 2;
    for (std::uint32_t a = 0; a < ranks; ++a) {
      for (std::uint32_t b = a + 1; b < ranks; ++b) {
        Pair pair;
        pair.a = a;
        pair.b = b;
        const std::string where = "pair " + std::to_string(survey.pairs.size() + 1) + " of " + std::to_string(pairs) +
                                  ": " + crew_.nodes()[a].name + '-' + crew_.nodes()[b].name + ", ";
        pair.automatic = trial(where + "automatic", {a, b}, WCCL_CONFIG_UNDEF, nullptr, false);
        for (const Way way : kWays)
          pair.way(way) = trial(where + way_name(way), {a, b}, way_path(way), way_over(way), true);
        survey.pairs.push_back(std::move(pair));
      }
    }
    if (ranks > 2) {
      std::vector<std::uint32_t> all(ranks);
      std::iota(all.begin(), all.end(), 0);
      survey.world = trial("all ranks", all, WCCL_CONFIG_UNDEF, nullptr, true);
    }
    survey.nodes = crew_.nodes();
    if (skipped_ > 0) {
      survey.cut_short = "the walk was not over after " + std::to_string(static_cast<long>(options_.limit_s)) +
                         " s: " + std::to_string(skipped_) + " trials are missing (--limit, or smaller -e or -n)";
    }
    return survey;
  }

 private:
  Trial trial(const std::string& where, std::vector<std::uint32_t> ranks, int path, const char* over, bool measure) {
    const auto now = Clock::now();
    if (now - begin_ > std::chrono::duration<double>(options_.limit_s)) {
      ++skipped_;
      Trial out;
      out.error = "not tried: the walk took too long";
      return out;
    }
    if (now - said_ > std::chrono::seconds(5)) {
      said_ = now;
      std::fprintf(stderr, "# %s\n", where.c_str());
    }
    Order order;
    order.ranks = std::move(ranks);
    order.path = path;
    if (over) order.over = over;
    if (measure) order.sizes = options_.sizes;
    order.iterations = options_.iterations;
    order.timeout_s = options_.timeout_s;
    return crew_.run(std::move(order));
  }

  const Options& options_;
  Crew& crew_;
  const Clock::time_point begin_ = Clock::now();
  Clock::time_point said_ = begin_;
  std::uint64_t skipped_ = 0;
};

}  // namespace

Survey walk(const Options& options, Crew& crew) { return Walk(options, crew).go(); }

}  // namespace weft::doctor
