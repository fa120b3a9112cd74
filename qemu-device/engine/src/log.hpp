// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "weft/engine/engine.h"

namespace weft::engine {

// Lines for the host's log. A guest can cause any number of warnings, so they are limited: a burst, then some a second.
// Under the model's lock.
class Log {
 public:
  static constexpr unsigned kBurst = 50;
  static constexpr unsigned kPerSecond = 10;

  Log(const weft_engine_host& host, std::string name) : host_(host), name_(std::move(name)) {}

  void event(weft_abi_log_level level, const char* event, std::span<const std::uint64_t> values);
  std::uint64_t suppressed() const { return suppressed_; }

 private:
  bool wanted(weft_abi_log_level level) const;
  bool admit();

  const weft_engine_host& host_;
  const std::string name_;
  unsigned tokens_ = kBurst;
  std::chrono::steady_clock::time_point filled_ = std::chrono::steady_clock::now();
  std::uint64_t suppressed_ = 0;
  std::uint64_t untold_ = 0;  // of them, not yet mentioned
};

}  // namespace weft::engine
