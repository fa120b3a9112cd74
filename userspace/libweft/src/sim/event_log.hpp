// SPDX-License-Identifier: MIT
// The simulator's event log: one line of text an event, "TIME_NS WHO EVENT NUMBER..."; and a hash over its bytes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>

namespace weft::sim {

class EventLog {
 public:
  static constexpr std::uint32_t kSwitch = 0xffffffffu;  // `who` of the switch; others are device numbers

  // Writes the lines to `path` unless it is nullptr; throws std::system_error when it cannot be made.
  explicit EventLog(const char* path);

  void add(std::uint64_t time_ns, std::uint32_t who, std::string_view event, std::span<const std::uint64_t> values);

  // FNV-1a, 64 bits (draft-eastlake-fnv), of all lines so far: equal to that of the file's bytes.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t lines() const { return lines_; }
  void flush();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
  std::uint64_t lines_ = 0;
};

}  // namespace weft::sim
