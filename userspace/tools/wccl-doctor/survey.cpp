// SPDX-License-Identifier: MIT
#include "survey.hpp"

namespace weft::doctor {

const char* way_name(Way way) {
  static constexpr const char* kNames[] = {"onchip", "peer", "staged/efa", "staged/tcp"};
  return kNames[static_cast<std::size_t>(way)];
}

wcclPath_t way_path(Way way) {
  return way == Way::kOnchip ? wcclPathOnchip : way == Way::kPeer ? wcclPathPeer : wcclPathStaged;
}

const char* way_over(Way way) { return way == Way::kStagedEfa ? "efa" : way == Way::kStagedTcp ? "tcp" : nullptr; }

std::optional<Way> way_of(wcclPath_t path, const std::string& transport) {
  switch (path) {
    case wcclPathOnchip:
      return Way::kOnchip;
    case wcclPathPeer:
      return Way::kPeer;
    case wcclPathStaged:
      return transport == "tcp" ? Way::kStagedTcp : Way::kStagedEfa;
    default:
      return std::nullopt;
  }
}

double one_way_gbps(const Sample& s) {
  return s.one_way_us > 0 ? static_cast<double>(s.bytes) / s.one_way_us / 1e3 : 0;
}

double busbw_gbps(const Sample& s, std::uint32_t ranks) {
  if (s.all_reduce_us <= 0) return 0;
  const double n = ranks;
  return static_cast<double>(s.bytes) / s.all_reduce_us / 1e3 * 2 * (n - 1) / n;
}

const char* outcome_name(Outcome outcome) {
  static constexpr const char* kNames[] = {"not tried", "impossible", "failed", "done"};
  return kNames[static_cast<std::size_t>(outcome)];
}

}  // namespace weft::doctor
