// SPDX-License-Identifier: MIT
// The event log: the last records, numbered from 1, as WEFT_MBOX_LOG_READ gives them.
#pragma once

#include <stdint.h>

#include "text.hpp"
#include "weft/hw/mbox.h"

namespace weft::fw {

// Syslog's.
enum class Severity : uint16_t { kError = 3, kWarning = 4, kInfo = 6 };

enum class LogCode : uint16_t {
  kBoot = 1,
  kPortChange = 2,
  kRefused = 3,
  kRefusedMore = 4,  // records of refused requests that were left out
  kHot = 5,
  kCool = 6,
  kSlow = 7,  // a table operation takes unusually long
  kFatal = 8,
};

class Log {
 public:
  static constexpr uint32_t kRecords = 64;  // a power of two

  // Gives the record's number.
  uint32_t append(Severity severity, LogCode code, uint64_t time_ms, const Text& text);
  // Up to three records from number `first` on, or from the oldest that is here.
  weft_mbox_log read(uint32_t first) const;
  uint32_t newest() const { return newest_; }

 private:
  weft_log_record records_[kRecords] = {};  // record n at (n - 1) mod kRecords
  uint32_t newest_ = 0;                     // 0: none yet
};

}  // namespace weft::fw
