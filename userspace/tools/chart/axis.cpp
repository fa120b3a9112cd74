// SPDX-License-Identifier: MIT
#include "axis.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "weft/chart/text.hpp"

namespace weft::chart {
namespace {

constexpr int kMostTicks = 10;
constexpr std::array<double, 3> kRound = {1, 2, 5};

// The largest 1, 2 or 5 times a power of ten that is at most `value`, or the smallest that is at least `value`.
double round_down(double value) {
  const double decade = std::pow(10, std::floor(std::log10(value)));
  double best = decade;
  for (const double m : kRound) {
    if (m * decade <= value * (1 + 1e-9)) best = m * decade;
  }
  return best;
}

double round_up(double value) {
  const double below = round_down(value);
  if (below >= value * (1 - 1e-9)) return below;
  const double decade = std::pow(10, std::floor(std::log10(below) + 1e-9));
  const double m = std::round(below / decade);
  return decade * (m < 1.5 ? 2 : m < 3 ? 5 : 10);
}

}  // namespace

Mapping::Mapping(Scale scale, double low, double high, double from, double to, bool widen)
    : scale_(scale), from_(from), to_(to) {
  switch (scale) {
    case Scale::kLinear:
      linear(low, high, widen);
      break;
    case Scale::kLog:
      log10(low, high);
      break;
    case Scale::kLog2:
      log2(low, high);
      break;
  }
}

double Mapping::unit(double value) const {
  switch (scale_) {
    case Scale::kLog:
      return std::log10(value);
    case Scale::kLog2:
      return std::log2(value);
    default:
      return value;
  }
}

double Mapping::at(double value) const { return from_ + (unit(value) - low_) / (high_ - low_) * (to_ - from_); }

void Mapping::linear(double low, double high, bool widen) {
  if (widen) {  // 0 belongs to a linear y axis
    low = std::min(low, 0.0);
    high = std::max(high, 0.0);
  }
  if (low == high) {
    low -= widen ? 0 : 1;
    high += 1;
  }
  const double step = round_up((high - low) / (kMostTicks - 4));
  if (widen) {
    low = std::floor(low / step + 1e-9) * step;
    high = std::ceil(high / step - 1e-9) * step;
  }
  low_ = low;
  high_ = high;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; (first + i) * step <= high + step * 1e-9; ++i) {
    const double value = (first + i) * step;
    ticks_.push_back({value, number(value)});
  }
}

void Mapping::log10(double low, double high) {
  low = round_down(low);
  high = round_up(high);
  if (low == high) {
    low /= 10;
    high *= 10;
  }
  low_ = std::log10(low);
  high_ = std::log10(high);
  const int first = static_cast<int>(std::floor(low_ + 1e-9)), last = static_cast<int>(std::ceil(high_ - 1e-9));
  const int step = (last - first + kMostTicks) / kMostTicks;
  for (int decade = first; decade <= last; decade += step) {
    for (const double m : kRound) {
      if (m > 1 && last - first > 3) break;
      const double value = m * std::pow(10, decade);
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks_.push_back({value, number(value)});
    }
  }
}

void Mapping::log2(double low, double high) {
  if (low == high) {
    low /= 2;
    high *= 2;
  }
  low_ = std::log2(low);
  high_ = std::log2(high);
  if (std::floor(high_) - std::ceil(low_) < 1) {  // else there would be less than two ticks
    low_ = std::floor(low_);
    high_ = std::ceil(high_);
  }
  const int first = static_cast<int>(std::ceil(low_ - 1e-9)), last = static_cast<int>(std::floor(high_ + 1e-9));
  const int step = std::max(1, (last - first + kMostTicks - 1) / kMostTicks);
  for (int power = first; power <= last; power += step) {
    const double value = std::ldexp(1, power);
    ticks_.push_back({value, bytes(value)});
  }
}

}  // namespace weft::chart
