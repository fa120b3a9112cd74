// SPDX-License-Identifier: MIT
#include "weft/chart/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

namespace weft::chart {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// The code point at the start of `text` and its length; length 0: not UTF-8.
struct Decoded {
  std::uint32_t point = 0;
  std::size_t length = 0;
};

Decoded decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
  if (length == 0 || first > 0xf4 || text.size() < length) return {};
  std::uint32_t point = first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    point = point << 6 | (byte(i) & 0x3f);
  }
  static constexpr std::array<std::uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (point < kLeast[length] || point > 0x10ffff) return {};
  return {point, length};
}

// XML 1.0 section 2.2, Char.
bool allowed(std::uint32_t point) {
  if (point < 0x20) return point == '\t' || point == '\n' || point == '\r';
  return (point < 0xd800 || point > 0xdfff) && point != 0xfffe && point != 0xffff;
}

std::string plain(double value, std::chars_format format, int precision) {
  std::array<char, 400> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, format, precision).ptr;
  return {text.data(), end};
}

// Without the zeros after the point that say nothing.
std::string trimmed(std::string text) {
  if (text.find('.') != std::string::npos && text.find('e') == std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto [point, length] = decode(text);
    if (length == 0 || !allowed(point)) {
      out += kReplacement;
    } else if (point == '&') {
      out += "&amp;";
    } else if (point == '<') {
      out += "&lt;";
    } else if (point == '>') {
      out += "&gt;";
    } else if (point == '"') {
      out += "&quot;";
    } else if (point == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::size_t columns(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string shorten(std::string_view text, std::size_t most) {
  if (columns(text) <= most) return std::string(text);
  std::size_t end = 0;
  for (std::size_t seen = 0; end < text.size(); ++end) {
    if ((text[end] & 0xc0) != 0x80 && seen++ == most - 1) break;
  }
  return std::string(text.substr(0, end)) + "\xe2\x80\xa6";
}

std::vector<std::string> wrap(std::string_view text, std::size_t most) {
  std::vector<std::string> lines;
  std::string line;
  const auto add = [&](std::string_view word) {
    if (word.empty()) return;
    if (!line.empty() && columns(line) + 1 + columns(word) > most) {
      lines.push_back(std::move(line));
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += shorten(word, most);
  };
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find_first_of(" \n\t", begin)) != std::string_view::npos; begin = at + 1)
    add(text.substr(begin, at - begin));
  add(text.substr(begin));
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string coordinate(double value) { return trimmed(plain(value, std::chars_format::fixed, 2)); }

std::string number(double value) {
  static constexpr std::array<std::string_view, 7> kSuffix = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  // 999.95 and more would be rounded to 1000 of the smaller unit.
  while (std::abs(value) >= 999.95 && unit + 1 < kSuffix.size()) {
    value /= 1000;
    ++unit;
  }
  return trimmed(plain(value, std::chars_format::general, 4)) + std::string(kSuffix[unit]);
}

std::string bytes(double value) {
  static constexpr std::array<std::string_view, 7> kSuffix = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
  std::size_t unit = 0;
  while (std::abs(value) >= 1024 && unit + 1 < kSuffix.size()) {
    value /= 1024;
    ++unit;
  }
  return trimmed(plain(value, std::chars_format::general, 4)) + std::string(kSuffix[unit]);
}

}  // namespace weft::chart
