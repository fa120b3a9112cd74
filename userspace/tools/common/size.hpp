// SPDX-License-Identifier: MIT
// Sizes on command lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft::tools {

// "4K", "4KiB", "32M", "1G" or plain bytes, up to 4 TiB.
std::optional<std::uint64_t> parse_size(const std::string& text);

}  // namespace weft::tools
