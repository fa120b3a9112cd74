// SPDX-License-Identifier: MIT
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "report.hpp"
#include "stamp.hpp"
#include "weft/chart/chart.hpp"

namespace weft::doctor {
namespace {

using nlohmann::ordered_json;

ordered_json measured(double value) { return value > 0 ? ordered_json(value) : ordered_json(nullptr); }

ordered_json each_us(std::uint64_t ns, std::uint64_t count) {
  return count ? ordered_json(static_cast<double>(ns) / static_cast<double>(count) / 1e3) : ordered_json(nullptr);
}

ordered_json trial_json(const Trial& t, std::uint32_t ranks) {
  ordered_json j = {{"outcome", outcome_name(t.outcome)}};
  if (!t.error.empty()) j["error"] = t.error;
  if (t.path != wcclPathAuto) {
    j["path"] = wcclPathName(t.path);
    j["transport"] = t.transport;
    j["reason"] = t.reason;
  }
  if (t.host_copies) j["host_copies"] = *t.host_copies;
  if (!t.samples.empty()) {
    j["cpu_copies"] = t.cpu_copies;
    auto& rows = j["rows"] = ordered_json::array();
    for (const Sample& s : t.samples) {
      rows.push_back({{"bytes", s.bytes},
                      {"one_way_us", measured(s.one_way_us)},
                      {"one_way_GBps", measured(one_way_gbps(s))},
                      {"all_reduce_us", measured(s.all_reduce_us)},
                      {"busbw_GBps", measured(busbw_gbps(s, ranks))},
                      {"wrong", s.wrong},
                      {"registrations", s.registrations},
                      {"registration_us", s.registration_us}});
    }
  }
  if (t.first_use_us > 0) {
    j["cost"] = {{"bytes", t.cost_bytes},
                 {"first_use_us", t.first_use_us},
                 {"reuse_us", t.reuse_us},
                 {"registrations", t.registrations},
                 {"registration_us", each_us(t.registration_ns, t.registrations)},
                 {"teardowns", t.teardowns},
                 {"teardown_us", each_us(t.teardown_ns, t.teardowns)},
                 {"hits", t.hits},
                 {"misses", t.misses}};
  }
  return j;
}

}  // namespace

std::string json_report(const Survey& survey, const std::vector<Finding>& findings, const Criteria& criteria) {
  ordered_json j = {{"schema", 1}, {"command", survey.command}, {"accel", survey.accel}, {"note", stamp(survey.accel)}};
  j["expect"] = criteria.expect ? ordered_json(wcclPathName(*criteria.expect)) : ordered_json(nullptr);
  j["healthy"] = findings.empty();
  auto& found = j["findings"] = ordered_json::array();
  for (const Finding& f : findings)
    found.push_back({{"kind", kind_name(f.kind)}, {"ranks", f.ranks}, {"text", f.text}});
  auto& nodes = j["nodes"] = ordered_json::array();
  for (const Node& n : survey.nodes) {
    nodes.push_back({{"name", n.name}, {"ports", n.ports}, {"device", n.device}});
    if (!n.error.empty()) nodes.back()["error"] = n.error;
  }
  auto& pairs = j["pairs"] = ordered_json::array();
  for (const Pair& p : survey.pairs) {
    ordered_json pair = {{"ranks", {p.a, p.b}}, {"automatic", trial_json(p.automatic, 2)}};
    for (const Way way : kWays) pair["ways"][way_name(way)] = trial_json(p.way(way), 2);
    pairs.push_back(std::move(pair));
  }
  j["world"] =
      survey.world ? trial_json(*survey.world, static_cast<std::uint32_t>(survey.nodes.size())) : ordered_json(nullptr);
  return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + '\n';
}

std::string svg_report(const Survey& survey) {
  chart::Chart chart;
  chart.title = "Bandwidth by size and path, " + std::to_string(survey.nodes.size()) + " ranks";
  chart.subtitle = stamp(survey.accel);
  if (survey.pairs.size() > 1)
    chart.subtitle +=
        "; median of " + std::to_string(survey.pairs.size()) + " pairs, shaded from the least to the most";
  chart.x = {"message size", chart::Scale::kLog2};
  chart.y = {"one way, GB/s", chart::Scale::kLog};
  for (const Way way : kWays) {
    chart::Series series;
    chart::Band band;
    series.name = band.series = way_name(way);
    for (const std::uint64_t bytes : survey.sizes) {
      std::vector<double> values;
      for (const Pair& pair : survey.pairs) {
        for (const Sample& s : pair.way(way).samples) {
          if (s.bytes == bytes && one_way_gbps(s) > 0) values.push_back(one_way_gbps(s));
        }
      }
      if (values.empty()) continue;
      std::sort(values.begin(), values.end());
      const auto x = static_cast<double>(bytes);
      series.points.push_back({x, (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2});
      band.slices.push_back({x, values.front(), values.back()});
    }
    if (series.points.empty()) continue;
    if (survey.pairs.size() > 1 && band.slices.size() > 1) chart.bands.push_back(std::move(band));
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) throw std::runtime_error("nothing was measured, so there is nothing to draw");
  return chart::draw(chart);
}

}  // namespace weft::doctor
