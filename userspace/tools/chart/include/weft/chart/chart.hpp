// SPDX-License-Identifier: MIT
// Line charts as standalone SVG: no script, no outside font, legible in light and in dark mode, and the same bytes for
// the same input, whatever the locale.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::chart {

// kLog2 labels its ticks as bytes (4 KiB), kLog and kLinear as numbers (20k). A linear y axis includes 0.
enum class Scale { kLinear, kLog, kLog2 };

struct Axis {
  std::string label;
  Scale scale = Scale::kLinear;
};

struct Point {
  double x = 0, y = 0;
};

// Drawn in order of x, in the legend by its name.
struct Series {
  std::string name;
  std::vector<Point> points;
};

// A shaded area: what x and y leave open reaches over the whole plot; or between two curves.
struct Band {
  std::string name;                               // in the legend, unless empty
  std::optional<std::pair<double, double>> x, y;  // from, to
  struct Slice {
    double x = 0, low = 0, high = 0;
  };
  std::vector<Slice> slices;  // instead of x and y: at least 2
  std::string series;         // takes the colour of the series of this name; empty: grey
};

// Text at a point of the plot.
struct Label {
  Point at;
  std::string text;
};

struct Chart {
  std::string title;
  std::string subtitle;  // the stamp: what the figures were taken on
  Axis x{"", Scale::kLog2}, y;
  std::vector<Series> series;
  std::vector<Band> bands;
  std::vector<Label> labels;
};

// The SVG document. Throws std::invalid_argument when there is nothing to draw, or a value cannot be drawn (not finite;
// not positive on a logarithmic axis); the message names the series and the point.
std::string draw(const Chart& chart);

// Reads {title, subtitle, x: {label, scale}, y: {label, scale}, series: [{name, points: [[x, y], ...]}],
// bands: [{name, x: [from, to], y: [from, to], points: [[x, low, high], ...], series}], labels: [{x, y, text}]}. scale:
// "log2" (x's default), "log" or "linear" (y's default). Only series is required; a member of another name is an error.
// Throws std::invalid_argument that says where.
Chart read_json(std::string_view text);

}  // namespace weft::chart
