// SPDX-License-Identifier: MIT
#include <array>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "weft/chart/chart.hpp"

namespace weft::chart {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw std::invalid_argument(where + ": " + what);
}

void only(const json& value, const std::string& where, std::initializer_list<std::string_view> names) {
  if (!value.is_object()) fail(where, "must be an object");
  for (const auto& [name, member] : value.items()) {
    bool known = false;
    std::string all;
    for (const std::string_view n : names) {
      known = known || n == name;
      all += (all.empty() ? "" : ", ") + std::string(n);
    }
    if (!known) fail(where, '"' + name + "\" is not known here (known: " + all + ')');
  }
}

std::string text(const json& object, const char* name, const std::string& where) {
  const auto it = object.find(name);
  if (it == object.end()) return {};
  if (!it->is_string()) fail(where + '.' + name, "must be a string");
  return it->get<std::string>();
}

const json* list(const json& object, const char* name, const std::string& where) {
  const auto it = object.find(name);
  if (it == object.end()) return nullptr;
  if (!it->is_array()) fail(where + '.' + name, "must be an array");
  return &*it;
}

// `value` as an array of exactly n numbers.
template <std::size_t n>
std::array<double, n> numbers(const json& value, const std::string& where) {
  std::array<double, n> out;
  if (!value.is_array() || value.size() != n) fail(where, "must be an array of " + std::to_string(n) + " numbers");
  for (std::size_t i = 0; i < n; ++i) {
    if (!value[i].is_number()) fail(where, "must be an array of " + std::to_string(n) + " numbers");
    out[i] = value[i].get<double>();
  }
  return out;
}

double one_number(const json& object, const char* name, const std::string& where) {
  const auto it = object.find(name);
  if (it == object.end() || !it->is_number()) fail(where + '.' + name, "must be a number");
  return it->get<double>();
}

Axis axis(const json& chart, const char* name, Scale scale) {
  Axis axis{"", scale};
  const auto it = chart.find(name);
  if (it == chart.end()) return axis;
  only(*it, name, {"label", "scale"});
  axis.label = text(*it, "label", name);
  const std::string wanted = text(*it, "scale", name);
  if (wanted == "log2") {
    axis.scale = Scale::kLog2;
  } else if (wanted == "log") {
    axis.scale = Scale::kLog;
  } else if (wanted == "linear") {
    axis.scale = Scale::kLinear;
  } else if (it->contains("scale")) {
    fail(std::string(name) + ".scale", '"' + wanted + "\" is none of log2, log, linear");
  }
  return axis;
}

Series series(const json& value, const std::string& where) {
  only(value, where, {"name", "points"});
  Series s;
  s.name = text(value, "name", where);
  const json* points = list(value, "points", where);
  if (!points) fail(where, "has no points");
  for (std::size_t i = 0; i < points->size(); ++i) {
    const auto [x, y] = numbers<2>((*points)[i], where + ".points[" + std::to_string(i) + ']');
    s.points.push_back({x, y});
  }
  return s;
}

Band band(const json& value, const std::string& where) {
  only(value, where, {"name", "x", "y", "points", "series"});
  Band b;
  b.name = text(value, "name", where);
  b.series = text(value, "series", where);
  for (auto [name, range] : {std::pair{"x", &b.x}, {"y", &b.y}}) {
    if (!value.contains(name)) continue;
    const auto [from, to] = numbers<2>(value[name], where + '.' + name);
    *range = {from, to};
  }
  if (const json* slices = list(value, "points", where)) {
    for (std::size_t i = 0; i < slices->size(); ++i) {
      const auto [x, low, high] = numbers<3>((*slices)[i], where + ".points[" + std::to_string(i) + ']');
      b.slices.push_back({x, low, high});
    }
  }
  return b;
}

}  // namespace

Chart read_json(std::string_view input) {
  json value;
  try {
    value = json::parse(input);
  } catch (const json::exception& error) {
    throw std::invalid_argument(error.what());
  }
  only(value, "chart", {"title", "subtitle", "x", "y", "series", "bands", "labels"});
  Chart chart;
  chart.title = text(value, "title", "chart");
  chart.subtitle = text(value, "subtitle", "chart");
  chart.x = axis(value, "x", Scale::kLog2);
  chart.y = axis(value, "y", Scale::kLinear);
  const auto each = [&](const char* name, auto&& visit) {
    const json* all = list(value, name, "chart");
    for (std::size_t i = 0; all && i < all->size(); ++i)
      visit((*all)[i], std::string(name) + '[' + std::to_string(i) + ']');
  };
  each("series", [&](const json& v, const std::string& where) { chart.series.push_back(series(v, where)); });
  each("bands", [&](const json& v, const std::string& where) { chart.bands.push_back(band(v, where)); });
  each("labels", [&](const json& v, const std::string& where) {
    only(v, where, {"x", "y", "text"});
    chart.labels.push_back({{one_number(v, "x", where), one_number(v, "y", where)}, text(v, "text", where)});
  });
  return chart;
}

}  // namespace weft::chart
