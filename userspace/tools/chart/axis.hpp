// SPDX-License-Identifier: MIT
// From values to pixels, and where the ticks are.
#pragma once

#include <string>
#include <vector>

#include "weft/chart/chart.hpp"

namespace weft::chart {

struct Tick {
  double value = 0;
  std::string label;
};

class Mapping {
 public:
  // Values low .. high become pixels from .. to, strictly monotonic. The range may be widened to round ends (`widen`),
  // and is where it would be empty.
  Mapping(Scale scale, double low, double high, double from, double to, bool widen);

  double at(double value) const;
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  double unit(double value) const;  // on the axis' own scale: value or its logarithm
  void linear(double low, double high, bool widen);
  void log10(double low, double high);
  void log2(double low, double high);

  Scale scale_;
  double from_, to_;
  double low_ = 0, high_ = 1;  // units
  std::vector<Tick> ticks_;
};

}  // namespace weft::chart
