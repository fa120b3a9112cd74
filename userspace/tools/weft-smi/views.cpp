// SPDX-License-Identifier: MIT
#include "views.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <deque>
#include <string>

#include "weft/hw/counters.h"

namespace weft::smi {
namespace {

void check(int result) {
  if (result < 0) throw Error(weft_last_error());
}

struct weft_device_info info_of(const Device& device) {
  struct weft_device_info info{};
  info.size = sizeof(info);
  check(weft_device_info(device.get(), &info));
  return info;
}

std::string version(std::uint32_t number) {
  return std::to_string(number >> 16) + "." + std::to_string(number & 0xffff);
}

template <std::size_t N>
std::string joined(const std::uint8_t (&bytes)[N], const char* format, char between) {
  std::string text;
  for (std::size_t i = 0; i < N; ++i) {
    std::array<char, 8> part{};
    std::snprintf(part.data(), part.size(), format, bytes[i]);
    if (i > 0) text += between;
    text += part.data();
  }
  return text;
}

template <std::size_t N>
bool any(const std::uint8_t (&bytes)[N]) {
  return std::any_of(bytes, bytes + N, [](std::uint8_t byte) { return byte != 0; });
}

std::string ipv6(const std::uint8_t (&bytes)[16]) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, bytes, text.data(), text.size());
}

std::string severity(std::uint16_t number) {
  switch (number) {
    case 3:
      return "error";
    case 4:
      return "warning";
    case 6:
      return "info";
    default:
      return std::to_string(number);
  }
}

Row counter(const Device& device, const Row& port, const char* name, std::uint64_t value, const char* text) {
  return {{"device", device.name()}, {"port", port}, {"counter", name}, {"value", value}, {"meaning", text}};
}

struct Name {
  const char* name;
  const char* text;
};
#define WEFT_SMI_NAME(name, text) Name{#name, text},
constexpr std::array<Name, WEFT_CTR_COUNT> kCounters = {WEFT_COUNTERS(WEFT_SMI_NAME)};
constexpr std::array<Name, WEFT_PCTR_COUNT> kPortCounters = {WEFT_PORT_COUNTERS(WEFT_SMI_NAME)};
#undef WEFT_SMI_NAME

}  // namespace

std::vector<Row> list(const Device& device) {
  const auto info = info_of(device);
  return {{{"device", device.name()},
           {"serial", info.serial},
           {"bus", info.bdf},
           {"hbm_bytes", info.hbm_bytes},
           {"hbm_used_bytes", info.hbm_used},
           {"ports", info.ports},
           {"hardware", version(info.hw_version)},
           {"firmware", version(info.fw_version)},
           {"resets", info.resets}}};
}

std::vector<Row> hbm(const Device& device) {
  const auto info = info_of(device);
  return {{{"device", device.name()},
           {"total_bytes", info.hbm_bytes},
           {"used_bytes", info.hbm_used},
           {"free_bytes", info.hbm_bytes - info.hbm_used},
           {"largest_free_bytes", info.hbm_largest_free}}};
}

std::vector<Row> ports(const Device& device) {
  std::vector<Row> rows;
  const auto info = info_of(device);
  for (std::uint32_t number = 0; number < info.ports; ++number) {
    weft_mbox_port port{};
    check(weft_port(device.get(), number, &port));
    rows.push_back({{"device", device.name()},
                    {"port", number},
                    {"state", port.state == WEFT_PORT_ACTIVE ? "active"
                              : port.admin_up != 0           ? "down"
                                                             : "disabled"},
                    {"mac", joined(port.mac, "%02x", ':')},
                    {"ipv4", any(port.ipv4) ? Row(joined(port.ipv4, "%u", '.')) : Row(nullptr)},
                    {"ipv6", any(port.ipv6) ? Row(ipv6(port.ipv6)) : Row(nullptr)},
                    {"mtu", port.mtu},
                    {"speed_mbps", port.speed_mbps}});
  }
  return rows;
}

std::vector<Row> firmware(const Device& device) {
  const auto info = info_of(device);
  return {{{"device", device.name()},
           {"name", info.fw_name},
           {"version", version(info.fw_version)},
           {"interface", version(info.hw_version)},
           {"resets", info.resets}}};
}

std::vector<Row> log(const Device& device) {
  constexpr std::size_t kShown = 256;  // the newest
  std::vector<Row> rows;
  std::array<weft_log_record, 64> records{};
  std::deque<weft_log_record> newest;
  for (std::uint32_t first = 1;;) {
    const int count = weft_log(device.get(), first, records.data(), records.size());
    check(count);
    if (count == 0) break;
    newest.insert(newest.end(), records.begin(), records.begin() + count);
    while (newest.size() > kShown) newest.pop_front();
    const std::uint32_t next = newest.back().number + 1;
    if (next <= first) break;
    first = next;
  }
  for (const weft_log_record& record : newest) {
    const auto* text = reinterpret_cast<const char*>(record.text);
    rows.push_back({{"device", device.name()},
                    {"number", record.number},
                    {"time_ms", record.time_ms},
                    {"severity", severity(record.severity)},
                    {"code", record.code},
                    {"text", std::string(text, strnlen(text, sizeof(record.text)))}});
  }
  return rows;
}

std::vector<Row> sensors(const Device& device) {
  weft_mbox_sensors sensors{};
  check(weft_sensors(device.get(), &sensors));
  return {{{"device", device.name()},
           {"temperature_mc", sensors.temperature_mc},
           {"hbm_temperature_mc", sensors.hbm_temperature_mc},
           {"power_mw", sensors.power_mw},
           {"voltage_mv", sensors.voltage_mv},
           {"clock_mhz", sensors.clock_mhz}}};
}

std::vector<Row> counters(const Device& device, bool zeros) {
  std::vector<Row> rows;
  std::array<std::uint64_t, WEFT_CTR_COUNT> values{};
  const int count = weft_counters(device.get(), -1, values.data(), values.size());
  check(count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    if (zeros || values[i] != 0)
      rows.push_back(counter(device, nullptr, kCounters[i].name, values[i], kCounters[i].text));
  for (std::uint32_t port = 0; port < info_of(device).ports; ++port) {
    std::array<std::uint64_t, WEFT_PCTR_COUNT> of_port{};
    const int known = weft_counters(device.get(), static_cast<int>(port), of_port.data(), of_port.size());
    check(known);
    for (std::size_t i = 0; i < static_cast<std::size_t>(known); ++i)
      if (zeros || of_port[i] != 0)
        rows.push_back(counter(device, port, kPortCounters[i].name, of_port[i], kPortCounters[i].text));
  }
  return rows;
}

}  // namespace weft::smi
