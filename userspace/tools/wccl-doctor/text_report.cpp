// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstdio>

#include "report.hpp"
#include "stamp.hpp"
#include "weft/chart/text.hpp"

namespace weft::doctor {
namespace {

std::string pad(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

std::string cell(double value, int width = 10) {
  char out[32];
  if (value <= 0) {
    std::snprintf(out, sizeof out, "%*s", width, "-");
  } else {
    std::snprintf(out, sizeof out, value < 100 ? "%*.3g" : "%*.0f", width, value);
  }
  return out;
}

class Table {
 public:
  Table(const Survey& survey, const std::vector<Finding>& findings) : survey_(survey), findings_(findings) {
    for (const Pair& pair : survey.pairs) names_ = std::max(names_, name(pair).size());
  }

  std::string text() {
    out_ = "# wccl-doctor, " + std::to_string(survey_.nodes.size()) + " ranks (" + survey_.launcher +
           "); * marks the path that is taken by itself\n# " + stamp(survey_.accel) + '\n';
    out_ += "#\n" + header("one way, GB/s", "   latency");
    for (const Pair& pair : survey_.pairs) {
      for (const Way way : kWays) {
        const Trial& trial = pair.way(way);
        row(pair, way, [&] {
          std::string cells = cell(trial.samples.empty() ? 0 : trial.samples[0].one_way_us);
          for (const Sample& s : trial.samples) cells += cell(one_way_gbps(s));
          return cells;
        });
      }
    }
    out_ += "#\n" + header("all-reduce, bus GB/s", "          ");
    for (const Pair& pair : survey_.pairs) {
      for (const Way way : kWays) {
        const Trial& trial = pair.way(way);
        if (trial.samples.empty()) continue;
        row(pair, way, [&] {
          std::string cells(10, ' ');
          for (const Sample& s : trial.samples) cells += cell(busbw_gbps(s, 2));
          return cells;
        });
      }
    }
    if (survey_.world && !survey_.world->samples.empty()) {
      const auto way = way_of(survey_.world->path, survey_.world->transport);
      out_ += "  " + pad("all ranks", names_) + "  * " + pad(way ? way_name(*way) : "?", 12) + std::string(10, ' ');
      for (const Sample& s : survey_.world->samples)
        out_ += cell(busbw_gbps(s, static_cast<std::uint32_t>(survey_.nodes.size())));
      out_ += '\n';
    }
    costs();
    out_ += "#\n";
    for (const Finding& f : findings_) out_ += std::string(kind_name(f.kind)) + ": " + f.text + '\n';
    if (findings_.empty()) out_ += "healthy\n";
    return out_;
  }

 private:
  std::string name(const Pair& pair) const { return survey_.nodes[pair.a].name + '-' + survey_.nodes[pair.b].name; }

  std::string header(const std::string& what, const std::string& first) const {
    std::string line = "# " + pad("pair", names_) + "    " + pad("path", 12) + first;
    for (const std::uint64_t bytes : survey_.sizes) {
      const std::string text = chart::bytes(static_cast<double>(bytes));
      line += std::string(text.size() < 10 ? 10 - text.size() : 1, ' ') + text;
    }
    const std::string unit = first.find_first_not_of(' ') == std::string::npos ? "" : "(us)";
    return "# " + std::string(names_ + 16, ' ') + pad(std::string(10 - unit.size(), ' ') + unit, 14) + what + '\n' +
           line + '\n';
  }

  template <class F>
  void row(const Pair& pair, Way way, F&& cells) {
    const Trial& trial = pair.way(way);
    const bool taken =
        pair.automatic.outcome == Outcome::kDone && way_of(pair.automatic.path, pair.automatic.transport) == way;
    out_ += "  " + pad(name(pair), names_) + (taken ? "  * " : "    ") + pad(way_name(way), 12);
    if (trial.outcome == Outcome::kDone || !trial.samples.empty()) {
      out_ += cells();
      if (trial.outcome == Outcome::kFailed) out_ += "  failed";
    } else {
      out_ +=
          "  " + (trial.outcome == Outcome::kNotTried ? trial.error
                                                      : std::string(outcome_name(trial.outcome)) + ": " + trial.error);
    }
    out_ += '\n';
  }

  void costs() {
    bool first = true;
    for (const Pair& pair : survey_.pairs) {
      for (const Way way : kWays) {
        const Trial& t = pair.way(way);
        if (t.first_use_us <= 0) continue;
        if (first) {
          out_ += "#\n# " + std::string(names_ + 16, ' ') + "of a buffer of " +
                  chart::bytes(static_cast<double>(t.cost_bytes)) + ", us\n# " + pad("pair", names_) + "    " +
                  pad("path", 12) + "  first use    reuse  register  teardown\n";
          first = false;
        }
        const auto each = [](std::uint64_t ns, std::uint64_t n) {
          return n ? static_cast<double>(ns) / static_cast<double>(n) / 1e3 : 0;
        };
        row(pair, way, [&] {
          return ' ' + cell(t.first_use_us) + cell(t.reuse_us, 9) + cell(each(t.registration_ns, t.registrations)) +
                 cell(each(t.teardown_ns, t.teardowns));
        });
      }
    }
  }

  const Survey& survey_;
  const std::vector<Finding>& findings_;
  std::size_t names_ = 4;
  std::string out_;
};

}  // namespace

std::string stamp(const std::string& accel) {
  if (accel == "sim") return "simulated time, not hardware";
  return "emulator speed, not hardware (" + accel + ')';
}

std::string text_report(const Survey& survey, const std::vector<Finding>& findings) {
  return Table(survey, findings).text();
}

}  // namespace weft::doctor
