// SPDX-License-Identifier: MIT
#include "judge.hpp"

#include <algorithm>
#include <cmath>

#include "weft/chart/text.hpp"

namespace weft::doctor {
namespace {

std::string plain(double value) { return chart::number(value); }
std::string size(std::uint64_t bytes) { return chart::bytes(static_cast<double>(bytes)); }

class Judge {
 public:
  Judge(const Survey& survey, const Criteria& criteria) : survey_(survey), criteria_(criteria) {}

  std::vector<Finding> findings() {
    for (std::uint32_t rank = 0; rank < survey_.nodes.size(); ++rank) {
      const Node& node = survey_.nodes[rank];
      if (!node.error.empty()) add(Kind::kBroken, node.name + ": " + node.error, {rank});
    }
    if (!survey_.cut_short.empty()) add(Kind::kBroken, survey_.cut_short, {});
    for (const Pair& pair : survey_.pairs) look_at(pair);
    if (survey_.world) look_at_world(*survey_.world);
    std::stable_sort(found_.begin(), found_.end(), [](const Finding& a, const Finding& b) { return a.kind < b.kind; });
    return std::move(found_);
  }

 private:
  void add(Kind kind, std::string text, std::vector<std::uint32_t> ranks) {
    found_.push_back({kind, std::move(text), std::move(ranks)});
  }
  std::string name(const Pair& pair, const char* between = "-") const {
    return survey_.nodes[pair.a].name + between + survey_.nodes[pair.b].name;
  }

  void look_at(const Pair& pair) {
    const std::vector<std::uint32_t> ranks = {pair.a, pair.b};
    const Trial& automatic = pair.automatic;
    if (automatic.outcome == Outcome::kImpossible || automatic.outcome == Outcome::kFailed)
      add(Kind::kBroken, name(pair, "->") + ": " + automatic.error, ranks);
    if (automatic.outcome == Outcome::kDone) detour(pair, ranks);
    for (const Way way : kWays) {
      const Trial& trial = pair.way(way);
      const std::string where = name(pair) + ", " + way_name(way) + ": ";
      if (trial.outcome == Outcome::kFailed) add(Kind::kBroken, where + trial.error, ranks);
      wrong_data(trial, where, ranks);
      registration(trial, where, ranks);
      falls_with_size(trial, where, ranks);
    }
  }

  void detour(const Pair& pair, const std::vector<std::uint32_t>& ranks) {
    const Trial& taken = pair.automatic;
    if (!worse(taken.path, criteria_.expect.value_or(natural_path(survey_, pair)))) return;
    const auto way = way_of(taken.path, taken.transport);
    const Trial* measured = way ? &pair.way(*way) : nullptr;
    std::string text;
    if (measured && !measured->samples.empty()) text = size(measured->samples.back().bytes) + ' ';
    text += name(pair, "->") + ": " + wcclPathName(taken.path);
    if (taken.path == wcclPathStaged) text += " over " + taken.transport;
    if (measured && measured->host_copies) {
      const double copies = *measured->host_copies;
      text += ", " + plain(copies) + (std::abs(copies - 1) < 0.005 ? " host copy" : " host copies");
    }
    add(Kind::kDetour, text + "; " + taken.reason, ranks);
  }

  void wrong_data(const Trial& trial, const std::string& where, const std::vector<std::uint32_t>& ranks) {
    for (const Sample& s : trial.samples) {
      if (s.wrong == 0) continue;
      add(Kind::kBroken, where + size(s.bytes) + " arrive wrong (" + std::to_string(s.wrong) + " words)", ranks);
    }
  }

  void registration(const Trial& trial, const std::string& where, const std::vector<std::uint32_t>& ranks) {
    // The size at which it weighs most.
    const Sample* most = nullptr;
    const auto share = [](const Sample& s) { return s.registration_us / s.one_way_us; };
    for (const Sample& s : trial.samples) {
      if (s.registrations < 0.5 || s.one_way_us <= 0) continue;
      if (!most || share(s) > share(*most)) most = &s;
    }
    if (!most) return;
    add(Kind::kRegistration,
        where + plain(most->registrations) + " registrations for each transfer, " + plain(most->registration_us) +
            " us of " + plain(most->one_way_us) + " us at " + size(most->bytes) +
            "; the registration cache is off or too small (WCCL_MR_CACHE_ENTRIES, WCCL_MR_CACHE_BYTES)",
        ranks);
  }

  void falls_with_size(const Trial& trial, const std::string& where, const std::vector<std::uint32_t>& ranks) {
    const Sample* best = nullptr;
    for (const Sample& s : trial.samples) {
      const double gbps = one_way_gbps(s);
      if (gbps <= 0) continue;
      if (best && gbps * criteria_.size_fall < one_way_gbps(*best)) {
        add(Kind::kFallsWithSize,
            where + plain(one_way_gbps(*best)) + " GB/s at " + size(best->bytes) + " but " + plain(gbps) + " GB/s at " +
                size(s.bytes) + " (more than " + plain(criteria_.size_fall) + " times less)",
            ranks);
        return;
      }
      if (!best || gbps > one_way_gbps(*best)) best = &s;
    }
  }

  void look_at_world(const Trial& world) {
    const auto ranks = static_cast<std::uint32_t>(survey_.nodes.size());
    const std::string where = "all " + std::to_string(ranks) + " ranks: ";
    if (world.outcome == Outcome::kImpossible || world.outcome == Outcome::kFailed) {
      add(Kind::kBroken, where + world.error, {});
      return;
    }
    wrong_data(world, where, {});
    if (world.samples.empty()) return;
    // Small all-reduces are a matter of latency, which grows with the ranks; the largest is one of bandwidth.
    const Sample& largest = world.samples.back();
    const double world_gbps = busbw_gbps(largest, ranks);
    const Pair* slowest = nullptr;
    double slowest_gbps = 0;
    for (const Pair& pair : survey_.pairs) {
      const auto way = way_of(pair.automatic.path, pair.automatic.transport);
      if (!way) continue;
      for (const Sample& s : pair.way(*way).samples) {
        const double gbps = busbw_gbps(s, 2);
        if (s.bytes != largest.bytes || gbps <= 0 || (slowest && gbps >= slowest_gbps)) continue;
        slowest = &pair;
        slowest_gbps = gbps;
      }
    }
    if (!slowest || world_gbps <= 0) return;
    // Emulated nodes share the processors of one machine: 2 of them leave each other n / 2 times what n do.
    const bool shared = survey_.accel == "tcg" || survey_.accel == "kvm";
    const double allowed = criteria_.rank_fall * (shared ? ranks / 2.0 : 1);
    if (world_gbps * allowed >= slowest_gbps) return;
    add(Kind::kFallsWithRanks,
        where + "all-reduce of " + size(largest.bytes) + " at " + plain(world_gbps) + " GB/s (" +
            wcclPathName(world.path) + "), the slowest pair " + name(*slowest) + " at " + plain(slowest_gbps) +
            " GB/s (more than " + plain(allowed) + " times)",
        {});
  }

  const Survey& survey_;
  const Criteria& criteria_;
  std::vector<Finding> found_;
};

}  // namespace

const char* kind_name(Kind kind) {
  static constexpr const char* kNames[] = {"broken", "detour", "registration", "falls with size", "falls with ranks"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool worse(wcclPath_t path, wcclPath_t than) { return path > than; }  // wcclPath_t is in this order
static_assert(wcclPathOnchip < wcclPathPeer && wcclPathPeer < wcclPathStaged);

wcclPath_t natural_path(const Survey& survey, const Pair& pair) {
  return survey.nodes[pair.a].ports > 0 && survey.nodes[pair.b].ports > 0 ? wcclPathOnchip : wcclPathPeer;
}

std::vector<Finding> judge(const Survey& survey, const Criteria& criteria) {
  return Judge(survey, criteria).findings();
}

int exit_code(const std::vector<Finding>& findings, const Criteria& criteria) {
  const auto any = [&](Kind kind) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) { return f.kind == kind; });
  };
  if (any(Kind::kBroken)) return 1;
  return criteria.expect && (any(Kind::kDetour) || any(Kind::kRegistration)) ? 3 : 0;
}

}  // namespace weft::doctor
