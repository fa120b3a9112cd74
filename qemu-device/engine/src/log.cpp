// SPDX-License-Identifier: MIT
#include "log.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace weft::engine {

bool Log::wanted(weft_abi_log_level level) const {
  if (host_.log == nullptr) return false;
  if (host_.log_wanted != nullptr) return host_.log_wanted(host_.opaque, level) != 0;
  return level <= WEFT_ABI_LOG_WARNING;
}

bool Log::admit() {
  const auto now = std::chrono::steady_clock::now();
  constexpr auto kTokenTime = std::chrono::milliseconds(1000 / kPerSecond);
  const auto earned = (now - filled_) / kTokenTime;
  if (earned > 0) {
    tokens_ = static_cast<unsigned>(std::min<std::int64_t>(kBurst, tokens_ + earned));
    filled_ += earned * kTokenTime;
  }
  if (tokens_ == 0) {
    ++suppressed_;
    ++untold_;
    return false;
  }
  --tokens_;
  return true;
}

void Log::event(weft_abi_log_level level, const char* event, std::span<const std::uint64_t> values) {
  // Traces are asked for, and are wanted whole.
  if (!wanted(level) || (level < WEFT_ABI_LOG_TRACE && !admit())) return;
  std::string text = name_ + ": " + (event != nullptr ? event : "event");
  for (const std::uint64_t value : values.first(std::min<std::size_t>(values.size(), 16))) {
    char number[24];
    std::snprintf(number, sizeof(number), " 0x%" PRIx64, value);
    text += number;
  }
  if (untold_ > 0) {
    text += " (" + std::to_string(untold_) + " before it not shown)";
    untold_ = 0;
  }
  host_.log(host_.opaque, level, text.c_str());
}

}  // namespace weft::engine
