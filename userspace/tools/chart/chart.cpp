// SPDX-License-Identifier: MIT
#include "weft/chart/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "axis.hpp"
#include "weft/chart/text.hpp"

namespace weft::chart {
namespace {

// Pixels.
constexpr double kWidth = 880, kPlot = 360, kLeft = 84, kRight = 28, kBottom = 66;
constexpr double kTitle = 24, kSubtitle = 17, kLegend = 22;  // of a line
constexpr double kColumn = 7.2;                              // a character of 12 px, on the wide side
constexpr std::size_t kMostName = 60;                        // columns of a name in the legend

// Colours that the common kinds of colour blindness keep apart (after Okabe and Ito), for a light and a dark ground;
// series beyond them take them again, dashed. Each series has a marker of its own as well.
struct Colour {
  std::string_view light, dark;
};
constexpr std::array<Colour, 7> kColours = {{{"#0072b2", "#56b4e9"},
                                             {"#d55e00", "#ff8f45"},
                                             {"#007f5c", "#2fcf9f"},
                                             {"#a3447f", "#e79ccb"},
                                             {"#8a6d00", "#e9cc4d"},
                                             {"#5b4bc4", "#a99cff"},
                                             {"#59636e", "#b1bac4"}}};
constexpr std::array<std::string_view, 4> kDashes = {"", "7 4", "2 4", "9 3 2 3"};

std::string colour_class(std::size_t series) { return "c" + std::to_string(series % kColours.size()); }

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

void check(double value, const Axis& axis, const char* name, const std::string& where) {
  if (!std::isfinite(value)) throw std::invalid_argument(where + ": " + name + " is not finite");
  if (axis.scale != Scale::kLinear && value <= 0)
    throw std::invalid_argument(where + ": " + name + " is " + number(value) +
                                ", a logarithmic axis shows positive values only");
}

std::size_t find_series(const Chart& chart, const std::string& name) {
  const auto it =
      std::find_if(chart.series.begin(), chart.series.end(), [&](const Series& s) { return s.name == name; });
  return static_cast<std::size_t>(it - chart.series.begin());
}

void check(const Chart& chart, Range& x, Range& y) {
  if (chart.series.empty()) throw std::invalid_argument("the chart has no series");
  const auto add_x = [&](double v, const std::string& where) {
    check(v, chart.x, "x", where);
    x.add(v);
  };
  const auto add_y = [&](double v, const std::string& where) {
    check(v, chart.y, "y", where);
    y.add(v);
  };
  for (const Series& s : chart.series) {
    if (s.points.empty()) throw std::invalid_argument("series \"" + s.name + "\" has no points");
    for (std::size_t i = 0; i < s.points.size(); ++i) {
      const std::string where = "series \"" + s.name + "\", point " + std::to_string(i);
      add_x(s.points[i].x, where);
      add_y(s.points[i].y, where);
    }
  }
  for (const Band& b : chart.bands) {
    const std::string where = "band \"" + b.name + '"';
    if (!b.series.empty() && find_series(chart, b.series) == chart.series.size())
      throw std::invalid_argument(where + ": there is no series \"" + b.series + '"');
    if (b.slices.empty() ? !b.x && !b.y : b.x || b.y || b.slices.size() < 2)
      throw std::invalid_argument(where + " needs x, y, or at least 2 points");
    for (const auto& slice : b.slices) {
      add_x(slice.x, where);
      add_y(slice.low, where);
      add_y(slice.high, where);
    }
    for (const double v : b.x ? std::array{b.x->first, b.x->second} : std::array{x.low, x.high}) add_x(v, where);
    for (const double v : b.y ? std::array{b.y->first, b.y->second} : std::array{y.low, y.high}) add_y(v, where);
  }
  for (const Label& l : chart.labels) {
    add_x(l.at.x, "label \"" + l.text + '"');
    add_y(l.at.y, "label \"" + l.text + '"');
  }
}

// Builds the document, an element a line.
class Svg {
 public:
  void line(const std::string& text) { text_ += text + '\n'; }
  void text(double x, double y, const std::string& attributes, std::string_view content) {
    line("<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" " + attributes + '>' + escape(content) +
         "</text>");
  }
  void segment(double x1, double y1, double x2, double y2, const std::string& attributes) {
    line("<line x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" + coordinate(x2) + "\" y2=\"" +
         coordinate(y2) + "\" " + attributes + "/>");
  }
  void rect(double x, double y, double width, double height, const std::string& attributes) {
    line("<rect x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" width=\"" + coordinate(width) + "\" height=\"" +
         coordinate(height) + "\" " + attributes + "/>");
  }
  // A marker that differs from series to series; `tip` is shown by viewers that hover.
  void marker(double x, double y, std::size_t series, const std::string& tip) {
    const auto point = [&](double dx, double dy) { return coordinate(x + dx) + ',' + coordinate(y + dy) + ' '; };
    std::string shape;
    switch (series % 5) {
      case 0:
        shape = "<circle cx=\"" + coordinate(x) + "\" cy=\"" + coordinate(y) + "\" r=\"4\"";
        break;
      case 1:
        shape = "<polygon points=\"" + point(-4, -4) + point(4, -4) + point(4, 4) + point(-4, 4) + '"';
        break;
      case 2:
        shape = "<polygon points=\"" + point(0, -5) + point(5, 4) + point(-5, 4) + '"';
        break;
      case 3:
        shape = "<polygon points=\"" + point(0, -5.5) + point(5.5, 0) + point(0, 5.5) + point(-5.5, 0) + '"';
        break;
      default:
        shape = "<polygon points=\"" + point(0, 5) + point(5, -4) + point(-5, -4) + '"';
    }
    const std::string tag = series % 5 == 0 ? "circle" : "polygon";
    line(shape + " class=\"m " + colour_class(series) + "\">" +
         (tip.empty() ? "" : "<title>" + escape(tip) + "</title>") + "</" + tag + '>');
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string style() {
  const auto rules = [](std::string_view ground, std::string_view ink, std::string_view dim, std::string_view grid,
                        bool dark) {
    std::string out;
    const auto rule = [&](const std::string& selector, const std::string& what) { out += selector + '{' + what + '}'; };
    rule(".bg", "fill:" + std::string(ground));
    rule("text", "fill:" + std::string(ink));
    rule(".dim", "fill:" + std::string(dim));
    rule(".grid", "stroke:" + std::string(grid));
    rule(".axis", "stroke:" + std::string(dim));
    rule(".band", "fill:" + std::string(dim));
    for (std::size_t i = 0; i < kColours.size(); ++i) {
      const std::string colour(dark ? kColours[i].dark : kColours[i].light);
      rule(".l." + colour_class(i), "stroke:" + colour);
      rule(".m." + colour_class(i) + ",.band." + colour_class(i), "fill:" + colour);
    }
    rule(".m", "stroke:" + std::string(ground));
    return out;
  };
  return "<style>text{font:12px sans-serif}.title{font-size:17px;font-weight:600}.l{fill:none;stroke-width:2;"
         "stroke-linejoin:round}.m{stroke-width:1}.band{opacity:.18}" +
         rules("#ffffff", "#1f2328", "#59636e", "#d8dee4", false) + "@media(prefers-color-scheme:dark){" +
         rules("#0d1117", "#f0f6fc", "#9aa4ae", "#2f3742", true) + "}</style>";
}

// Where each entry of the legend goes.
struct Entry {
  std::string name;
  double x = 0;
  std::size_t row = 0;
};

std::size_t lay_out(std::vector<Entry>& entries) {
  double x = kLeft;
  std::size_t row = 0;
  for (Entry& e : entries) {
    const double width = 44 + kColumn * static_cast<double>(columns(e.name));
    if (x > kLeft && x + width > kWidth - kRight) {
      x = kLeft;
      ++row;
    }
    e.x = x;
    e.row = row;
    x += width;
  }
  return row + 1;
}

std::string value_text(const Axis& axis, double value) {
  return axis.scale == Scale::kLog2 ? bytes(value) : number(value);
}

void draw_band(Svg& svg, const Chart& chart, const Band& band, const Mapping& x, const Mapping& y, const Range& xs,
               const Range& ys) {
  const std::string shade =
      "class=\"band" + (band.series.empty() ? "" : ' ' + colour_class(find_series(chart, band.series))) + '"';
  if (band.slices.empty()) {
    const auto [x1, x2] = band.x.value_or(std::pair{xs.low, xs.high});
    const auto [y1, y2] = band.y.value_or(std::pair{ys.low, ys.high});
    svg.rect(std::min(x.at(x1), x.at(x2)), std::min(y.at(y1), y.at(y2)), std::abs(x.at(x2) - x.at(x1)),
             std::abs(y.at(y2) - y.at(y1)), shade);
    return;
  }
  auto slices = band.slices;
  std::stable_sort(slices.begin(), slices.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  std::string points;
  for (const auto& s : slices) points += coordinate(x.at(s.x)) + ',' + coordinate(y.at(s.high)) + ' ';
  std::reverse(slices.begin(), slices.end());
  for (const auto& s : slices) points += coordinate(x.at(s.x)) + ',' + coordinate(y.at(s.low)) + ' ';
  svg.line("<polygon points=\"" + points + "\" " + shade + "/>");
}

void draw_series(Svg& svg, const Chart& chart, std::size_t index, const Mapping& x, const Mapping& y) {
  const Series& s = chart.series[index];
  auto points = s.points;
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  std::string path;
  for (const Point& p : points) path += coordinate(x.at(p.x)) + ',' + coordinate(y.at(p.y)) + ' ';
  const std::string_view dash = kDashes[index / kColours.size() % kDashes.size()];
  svg.line("<g><title>" + escape(s.name) + "</title><polyline points=\"" + path + "\" class=\"l " +
           colour_class(index) + '"' + (dash.empty() ? "" : " stroke-dasharray=\"" + std::string(dash) + '"') + "/>");
  for (const Point& p : points) {
    svg.marker(x.at(p.x), y.at(p.y), index, s.name + ": " + value_text(chart.x, p.x) + ", " + value_text(chart.y, p.y));
  }
  svg.line("</g>");
}

}  // namespace

std::string draw(const Chart& chart) {
  Range xs, ys;
  check(chart, xs, ys);

  const auto title = wrap(chart.title, 84), subtitle = wrap(chart.subtitle, 116);
  std::vector<Entry> legend;
  for (const Series& s : chart.series) legend.push_back({shorten(s.name, kMostName)});
  std::vector<const Band*> named;
  for (const Band& b : chart.bands) {
    if (b.name.empty()) continue;
    named.push_back(&b);
    legend.push_back({shorten(b.name, kMostName)});
  }
  const std::size_t legend_rows = lay_out(legend);
  const double titles =
      14 + kTitle * static_cast<double>(title.size()) + kSubtitle * static_cast<double>(subtitle.size());
  const double top = titles + 12 + kLegend * static_cast<double>(legend_rows);
  const double bottom = top + kPlot, right = kWidth - kRight, height = bottom + kBottom;
  const Mapping x(chart.x.scale, xs.low, xs.high, kLeft + 10, right - 10, false);
  const Mapping y(chart.y.scale, ys.low, ys.high, bottom, top + 6, true);

  Svg svg;
  const std::string size = coordinate(kWidth) + "\" height=\"" + coordinate(height);
  svg.line("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + size + "\" viewBox=\"0 0 " + coordinate(kWidth) +
           ' ' + coordinate(height) + "\" role=\"img\">");
  svg.line("<title>" + escape(chart.title) + "</title>");
  svg.line("<desc>" + escape(chart.subtitle) + "</desc>");
  svg.line(style());
  svg.rect(0, 0, kWidth, height, "class=\"bg\"");
  double at = 8;
  for (const std::string& line : title) svg.text(kLeft, at += kTitle, "class=\"title\"", line);
  for (const std::string& line : subtitle) svg.text(kLeft, at += kSubtitle, "class=\"dim\"", line);

  for (std::size_t i = 0; i < legend.size(); ++i) {
    const double lx = legend[i].x, ly = titles + 10 + kLegend * static_cast<double>(legend[i].row);
    if (i < chart.series.size()) {
      const std::string_view dash = kDashes[i / kColours.size() % kDashes.size()];
      svg.segment(lx, ly, lx + 24, ly,
                  "class=\"l " + colour_class(i) + '"' +
                      (dash.empty() ? "" : " stroke-dasharray=\"" + std::string(dash) + '"'));
      svg.marker(lx + 12, ly, i, "");
    } else {
      const Band& band = *named[i - chart.series.size()];
      svg.rect(lx, ly - 6, 24, 12,
               "class=\"band" + (band.series.empty() ? "" : ' ' + colour_class(find_series(chart, band.series))) + '"');
    }
    svg.text(lx + 30, ly + 4, "class=\"name\"", legend[i].name);
  }

  for (const Tick& tick : y.ticks()) {
    const double py = y.at(tick.value);
    svg.segment(kLeft, py, right, py, "class=\"grid\"");
    svg.text(kLeft - 8, py + 4, "class=\"dim\" text-anchor=\"end\"", tick.label);
  }
  for (const Tick& tick : x.ticks()) {
    const double px = x.at(tick.value);
    svg.segment(px, bottom, px, bottom + 5, "class=\"axis\"");
    svg.text(px, bottom + 20, "class=\"dim\" text-anchor=\"middle\"", tick.label);
  }
  svg.segment(kLeft, bottom, right, bottom, "class=\"axis\"");
  svg.text((kLeft + right) / 2, bottom + 46, "text-anchor=\"middle\"", shorten(chart.x.label, 100));
  const double middle = (top + bottom) / 2;
  svg.text(20, middle, "text-anchor=\"middle\" transform=\"rotate(-90 20 " + coordinate(middle) + ")\"",
           shorten(chart.y.label, 50));

  for (const Band& band : chart.bands) draw_band(svg, chart, band, x, y, xs, ys);
  for (std::size_t i = 0; i < chart.series.size(); ++i) draw_series(svg, chart, i, x, y);
  for (const Label& label : chart.labels) {
    const double px = x.at(label.at.x), py = y.at(label.at.y);
    // Right of its point, unless that leaves the plot.
    const bool flip = px + 8 + kColumn * static_cast<double>(columns(label.text)) > right;
    svg.text(px + (flip ? -8 : 8), py - 6, flip ? "text-anchor=\"end\"" : "text-anchor=\"start\"", label.text);
  }
  svg.line("</svg>");
  return svg.take();
}

}  // namespace weft::chart
