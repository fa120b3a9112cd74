// SPDX-License-Identifier: MIT
#include "weft/chart/chart.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "axis.hpp"
#include "weft/chart/text.hpp"

namespace weft::chart {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST(ChartText, EscapesWhatXmlReserves) {
  EXPECT_EQ(escape("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape("\xc3\xbc\xe4\xb8\xad\xf0\x9f\x98\x80"), "\xc3\xbc\xe4\xb8\xad\xf0\x9f\x98\x80");
}

// Cases of the Unicode standard, table 3-7: overlong, surrogate, beyond U+10FFFF, cut off, lone continuation.
TEST(ChartText, ReplacesWhatIsNotUtf8) {
  for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\x80", "\xef\xbf\xbf", "\x01"}) {
    const std::string out = escape(bad);
    EXPECT_GE(count(out, "\xef\xbf\xbd"), 1u) << bad;
    EXPECT_EQ(count(out, "\xef\xbf\xbd") * 3, out.size()) << bad;
  }
}

TEST(ChartText, WrapsAndShortensByColumns) {
  EXPECT_EQ(shorten("abcdef", 6), "abcdef");
  EXPECT_EQ(shorten("abcdefg", 6), "abcde\xe2\x80\xa6");
  EXPECT_EQ(shorten("\xc3\xbc\xc3\xbc\xc3\xbc", 2), "\xc3\xbc\xe2\x80\xa6");
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_TRUE(wrap("", 7).empty());
}

TEST(ChartText, NamesNumbersAndBytes) {
  EXPECT_EQ(number(0), "0");
  EXPECT_EQ(number(0.25), "0.25");
  EXPECT_EQ(number(999.94), "999.9");
  EXPECT_EQ(number(999.96), "1k");
  EXPECT_EQ(number(1500), "1.5k");
  EXPECT_EQ(number(-2e6), "-2M");
  EXPECT_EQ(bytes(512), "512 B");
  EXPECT_EQ(bytes(4096), "4 KiB");
  EXPECT_EQ(bytes(1.5 * 1024 * 1024), "1.5 MiB");
  EXPECT_EQ(bytes(std::ldexp(1, 40)), "1 TiB");
}

TEST(ChartAxis, IsStrictlyMonotonicOnEveryScale) {
  for (const Scale scale : {Scale::kLinear, Scale::kLog, Scale::kLog2}) {
    for (const bool widen : {false, true}) {
      const Mapping m(scale, 0.003, 7e8, 100, 500, widen);
      double last = m.at(0.003);
      EXPECT_GE(last, 100 - 1e-6);
      for (double v = 0.0033; v <= 7e8; v *= 1.1) {
        ASSERT_GT(m.at(v), last) << v;
        last = m.at(v);
      }
      EXPECT_LE(last, 500 + 1e-6);
    }
  }
}

TEST(ChartAxis, TicksAreFewInsideAndInOrder) {
  for (const Scale scale : {Scale::kLinear, Scale::kLog, Scale::kLog2}) {
    for (const auto& [low, high] :
         {std::pair{4096.0, 268435456.0}, {1.0, 1.0}, {3.0, 5.0}, {1e-9, 1e12}, {0.02, 0.9}}) {
      const Mapping m(scale, low, high, 0, 400, true);
      ASSERT_GE(m.ticks().size(), 2u) << low << ' ' << high;
      ASSERT_LE(m.ticks().size(), 13u) << low << ' ' << high;
      double last = -1e-6;
      for (const Tick& tick : m.ticks()) {
        EXPECT_GE(m.at(tick.value), last);
        EXPECT_LE(m.at(tick.value), 400 + 1e-6);
        last = m.at(tick.value) + 1;
      }
    }
  }
}

TEST(ChartAxis, RoundEnds) {
  const Mapping m(Scale::kLinear, 3, 47, 0, 500, true);
  EXPECT_DOUBLE_EQ(m.at(0), 0);  // 0 belongs to it
  EXPECT_DOUBLE_EQ(m.at(50), 500);
  EXPECT_EQ(m.ticks().front().label, "0");
  EXPECT_EQ(m.ticks().back().label, "50");
  const Mapping bytes(Scale::kLog2, 4096, 16384, 0, 200, false);
  ASSERT_EQ(bytes.ticks().size(), 3u);
  EXPECT_EQ(bytes.ticks()[1].label, "8 KiB");
  EXPECT_DOUBLE_EQ(bytes.at(8192), 100);
}

TEST(Chart, DrawsPointsBandsAndLabels) {
  Chart chart;
  chart.title = "T";
  chart.subtitle = "emulator speed, not hardware (TCG)";
  chart.series = {{"a", {{4096, 1}, {1024, 2}}}, {"b", {{4096, 3}}}};
  chart.bands = {{"one", std::nullopt, std::pair{1.5, 2.0}, {}, ""},
                 {"two", {}, {}, {{1024, 1, 2}, {4096, 1, 3}}, "a"}};
  chart.labels = {{{4096, 3}, "here"}};
  const std::string svg = draw(chart);
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<title>a: "), 2u);
  EXPECT_EQ(count(svg, "<title>b: 4 KiB, 3</title>"), 1u);
  EXPECT_EQ(count(svg, "class=\"band\""), 2u);     // the first, and its legend
  EXPECT_EQ(count(svg, "class=\"band c0\""), 2u);  // the second
  EXPECT_EQ(count(svg, ">here<"), 1u);
  EXPECT_EQ(count(svg, ">emulator speed, not hardware (TCG)<"), 2u);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
}

TEST(Chart, RefusesWhatCannotBeDrawn) {
  Chart chart;
  EXPECT_THROW(draw(chart), std::invalid_argument);
  chart.series = {{"a", {{4096, std::numeric_limits<double>::quiet_NaN()}}}};
  EXPECT_THROW(draw(chart), std::invalid_argument);
  chart.series = {{"a", {{std::numeric_limits<double>::infinity(), 1}}}};
  EXPECT_THROW(draw(chart), std::invalid_argument);
  chart.series = {{"a", {{4096, 1}}}};
  EXPECT_NO_THROW(draw(chart));
  chart.bands = {{"b", {}, {}, {{4096, 1, 2}}, ""}};  // a band of one point has no area
  EXPECT_THROW(draw(chart), std::invalid_argument);
}

}  // namespace
}  // namespace weft::chart
