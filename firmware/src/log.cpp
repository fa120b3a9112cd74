// SPDX-License-Identifier: MIT
#include "log.hpp"

namespace weft::fw {

uint32_t Log::append(Severity severity, LogCode code, uint64_t time_ms, const Text& text) {
  weft_log_record& record = records_[newest_ % kRecords];
  record.number = ++newest_;
  record.severity = static_cast<uint16_t>(severity);
  record.code = static_cast<uint16_t>(code);
  record.time_ms = time_ms;
  __builtin_memcpy(record.text, text.bytes(), sizeof(record.text));
  return newest_;
}

weft_mbox_log Log::read(uint32_t first) const {
  weft_mbox_log out = {};
  constexpr uint32_t kMost = sizeof(out.record) / sizeof(out.record[0]);
  out.newest = newest_;
  const uint32_t oldest = newest_ < kRecords ? 1 : newest_ - kRecords + 1;
  if (first < oldest) first = oldest;
  // newest_ - first is only computed when first <= newest_.
  while (out.count < kMost && first <= newest_ && newest_ - first >= out.count) {
    const uint32_t number = first + out.count;
    out.record[out.count++] = records_[(number - 1) % kRecords];
  }
  return out;
}

}  // namespace weft::fw
