// SPDX-License-Identifier: MIT
#include "env.hpp"

#include <bit>
#include <cstdlib>

#include "error.hpp"
#include "weft/weft.h"

namespace weft::ccl {

Failure device_failure(const std::string& what) {
  const char* text = weft_last_error();
  return Failure(wcclUnhandledDeviceError, what + ": " + (text && *text ? text : "unknown device error"));
}

std::optional<std::string> env_text(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

std::uint64_t env_number(const char* name, std::uint64_t fallback, std::uint64_t least, std::uint64_t most) {
  const auto text = env_text(name);
  if (!text) return fallback;
  const auto refuse = [&] {
    return Failure(wcclInvalidArgument, std::string(name) + '=' + *text + " is not a number from " +
                                            std::to_string(least) + " to " + std::to_string(most));
  };
  if ((*text)[0] < '0' || (*text)[0] > '9') throw refuse();
  char* end = nullptr;
  std::uint64_t value = std::strtoull(text->c_str(), &end, 10);
  unsigned shift = 0;
  if (*end == 'k' || *end == 'K') shift = 10;
  if (*end == 'm' || *end == 'M') shift = 20;
  if (*end == 'g' || *end == 'G') shift = 30;
  if (shift) ++end;
  if (*end || value > (UINT64_MAX >> shift) || (value << shift) < least || (value << shift) > most) throw refuse();
  return value << shift;
}

Settings Settings::from_environment() {
  Settings s;
  s.timeout = std::chrono::milliseconds(env_number("WCCL_TIMEOUT", 30, 1, 86400) * 1000);
  if (env_text("WCCL_BUFFSIZE"))
    s.slot_bytes = static_cast<std::uint32_t>(env_number("WCCL_BUFFSIZE", 0, 4096, 64u << 20));
  s.slot_bytes = (s.slot_bytes + 4095) / 4096 * 4096;
  s.slots = static_cast<std::uint32_t>(env_number("WCCL_SLOTS", s.slots, 1, 64));
  s.queue_entries = static_cast<std::uint32_t>(env_number("WCCL_QUEUE_ENTRIES", s.queue_entries, 64, 65536));
  s.queue_entries = std::bit_ceil(s.queue_entries);
  s.lanes = static_cast<std::uint32_t>(env_number("WCCL_LANES", 0, 0, 24));
  s.rc_timeout = static_cast<std::uint8_t>(env_number("WCCL_IB_TIMEOUT", 0, 0, 31));
  s.rc_retries = static_cast<std::uint8_t>(env_number("WCCL_IB_RETRY_CNT", 0, 0, 7));
  s.algorithm = env_text("WCCL_ALGO").value_or("");
  s.schedule_file = env_text("WCCL_SCHED_FILE").value_or("");
  if (const auto path = env_text("WCCL_PATH")) {
    if (*path == "onchip") {
      s.path = wcclPathOnchip;
    } else if (*path == "peer") {
      s.path = wcclPathPeer;
    } else if (*path == "staged") {
      s.path = wcclPathStaged;
    } else if (*path != "auto") {
      throw Failure(wcclInvalidArgument, "WCCL_PATH=" + *path + " is none of auto, onchip, peer, staged");
    }
  }
  s.set_staged_over(env_text("WCCL_STAGED_OVER").value_or(""), "WCCL_STAGED_OVER");
  s.mr_cache_entries = env_number("WCCL_MR_CACHE_ENTRIES", s.mr_cache_entries, 0, 1u << 20);
  s.mr_cache_bytes = env_number("WCCL_MR_CACHE_BYTES", s.mr_cache_bytes, 0, std::uint64_t{1} << 46);
  if (const auto debug = env_text("WCCL_DEBUG")) {
    s.verbosity = *debug == "WARN" ? 1 : *debug == "INFO" || *debug == "TRACE" ? 2 : 0;
  }
  return s;
}

void Settings::set_staged_over(const std::string& value, const char* name) {
  if (!value.empty() && value != "efa" && value != "tcp") {
    throw Failure(wcclInvalidArgument, std::string(name) + '=' + value + " is none of efa, tcp");
  }
  staged_over = value;
}

}  // namespace weft::ccl
