// SPDX-License-Identifier: MIT
#include "event_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <string>
#include <system_error>

namespace weft::sim {
namespace {

constexpr std::size_t kValues = 8;  // of one event; more are cut
constexpr std::size_t kName = 64;

}  // namespace

EventLog::EventLog(const char* path) {
  if (path == nullptr) return;
  file_.reset(std::fopen(path, "w"));
  if (!file_) throw std::system_error(errno, std::generic_category(), std::string("event log ") + path);
}

void EventLog::add(std::uint64_t time_ns, std::uint32_t who, std::string_view event,
                   std::span<const std::uint64_t> values) {
  std::array<char, 32 + kName + 21 * (kValues + 2)> line;
  char* at = line.data();
  char* const end = line.data() + line.size();
  const auto number = [&](std::uint64_t value) { at = std::to_chars(at, end, value).ptr; };
  const auto text = [&](std::string_view value) {
    if (value.size() < static_cast<std::size_t>(end - at)) at = std::copy(value.begin(), value.end(), at);
  };
  number(time_ns);
  if (who == kSwitch) {
    text(" switch ");
  } else {
    text(" dev");
    number(who);
    *at++ = ' ';
  }
  text(event.substr(0, kName));
  for (std::uint64_t value : values.first(std::min(values.size(), kValues))) {
    *at++ = ' ';
    number(value);
  }
  *at++ = '\n';
  for (const char* byte = line.data(); byte != at; ++byte) {
    hash_ ^= static_cast<unsigned char>(*byte);
    hash_ *= 0x100000001b3ull;
  }
  ++lines_;
  if (file_) std::fwrite(line.data(), 1, static_cast<std::size_t>(at - line.data()), file_.get());
}

void EventLog::flush() {
  if (file_) std::fflush(file_.get());
}

}  // namespace weft::sim
