// SPDX-License-Identifier: MIT
#include "table.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <string>
#include <string_view>

namespace weft::smi {
namespace {

std::string fixed(double value, const char* unit) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, unit);
  return text.data();
}

std::string bytes(std::uint64_t value) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto scaled = static_cast<double>(value);
  for (; scaled >= 1024 && unit + 1 < kUnits.size(); ++unit) scaled /= 1024;
  return unit == 0 ? std::to_string(value) + " B" : fixed(scaled, kUnits[unit]);
}

struct Unit {
  std::string_view ending;
  const char* name;
};
constexpr std::array<Unit, 4> kThousandths = {{{"_mc", "C"}, {"_mw", "W"}, {"_mv", "V"}, {"_ms", "s"}}};

std::string cell(std::string_view key, const nlohmann::ordered_json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_unsigned()) return value.dump();
  const auto number = value.get<std::uint64_t>();
  if (key.ends_with("_bytes")) return bytes(number);
  for (const Unit& unit : kThousandths)
    if (key.ends_with(unit.ending)) return fixed(static_cast<double>(number) / 1000, unit.name);
  return std::to_string(number);
}

std::string heading(std::string_view key) {
  if (key.ends_with("_bytes")) key.remove_suffix(6);
  for (const Unit& unit : kThousandths)
    if (key.ends_with(unit.ending)) key.remove_suffix(unit.ending.size());
  std::string text(key);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

}  // namespace

void print_table(std::ostream& out, const std::vector<Row>& rows) {
  if (rows.empty()) return;
  std::vector<std::vector<std::string>> lines(1);
  std::vector<bool> right;
  for (const auto& [key, value] : rows.front().items()) {
    lines.front().push_back(heading(key));
    right.push_back(value.is_number());
  }
  for (const Row& row : rows) {
    lines.emplace_back();
    for (const auto& [key, value] : row.items()) lines.back().push_back(cell(key, value));
  }
  std::vector<std::size_t> width(right.size());
  for (const auto& line : lines)
    for (std::size_t i = 0; i < width.size(); ++i) width[i] = std::max(width[i], line[i].size());
  for (const auto& line : lines) {
    std::string text;
    for (std::size_t i = 0; i < width.size(); ++i) {
      const std::string gap(width[i] - line[i].size(), ' ');
      text += (i == 0 ? "" : "  ") + (right[i] ? gap + line[i] : line[i] + gap);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out << text << '\n';
  }
}

}  // namespace weft::smi
