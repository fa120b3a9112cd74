// SPDX-License-Identifier: MIT
#include "size.hpp"

#include <cstdlib>
#include <map>

namespace weft::tools {

std::optional<std::uint64_t> parse_size(const std::string& text) {
  char* end = nullptr;
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const std::uint64_t value = std::strtoull(text.c_str(), &end, 10);
  static const std::map<std::string, unsigned> kShift = {{"", 0},     {"B", 0},  {"k", 10},  {"K", 10},
                                                         {"KiB", 10}, {"m", 20}, {"M", 20},  {"MiB", 20},
                                                         {"g", 30},   {"G", 30}, {"GiB", 30}};
  const auto it = kShift.find(end);
  if (it == kShift.end() || value > (1ull << 42) >> it->second) return std::nullopt;
  return value << it->second;
}

}  // namespace weft::tools
