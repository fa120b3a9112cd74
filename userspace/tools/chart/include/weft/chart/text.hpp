// SPDX-License-Identifier: MIT
// Text and numbers for SVG.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::chart {

// `text` as XML character data or attribute value. What XML 1.0 or UTF-8 does not allow becomes U+FFFD.
std::string escape(std::string_view text);

// Code points, near enough to columns.
std::size_t columns(std::string_view text);
// At most `most` columns, the last an ellipsis when something was left out.
std::string shorten(std::string_view text, std::size_t most);
// Lines of at most `most` columns, broken at spaces where there are any.
std::vector<std::string> wrap(std::string_view text, std::size_t most);

// A coordinate: at most 2 decimals.
std::string coordinate(double value);
// "0.25", "20", "1.5k", "3M": 4 significant digits.
std::string number(double value);
// "512 B", "4 KiB", "1.5 MiB".
std::string bytes(double value);

}  // namespace weft::chart
