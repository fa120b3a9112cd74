// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "weft/hw/regs.h"

namespace weft::model {

namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view right) {
  throw std::invalid_argument(std::string(key) + "=" + std::string(value) + ": " + std::string(right));
}

// A number in [low, high]; with `units` also followed by K, M, G or T (powers of 1024).
std::uint64_t number(std::string_view key, std::string_view value, std::uint64_t low, std::uint64_t high, bool units,
                     std::string_view right) {
  std::uint64_t result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  std::string_view rest = value.substr(static_cast<std::size_t>(end - value.data()));
  unsigned shift = 0;
  if (units && !rest.empty()) {
    const std::size_t unit = std::string_view("KMGT").find(static_cast<char>(rest[0] & ~0x20));
    if (unit != std::string_view::npos) {
      shift = 10 * static_cast<unsigned>(unit + 1);
      rest.remove_prefix(1);
    }
  }
  if (error != std::errc() || !rest.empty() || result > high >> shift || result << shift < low)
    refuse(key, value, right);
  return result << shift;
}

bool name(std::string_view value) {
  return !value.empty() && value.size() < 32 && std::ranges::all_of(value, [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

Options parse_options(const weft_abi_config& config) {
  Options options;
  bool hbm_given = false;
  for (std::uint32_t i = 0; i < config.options; ++i) {
    const std::string_view key = config.option[i].key ? config.option[i].key : "";
    const std::string_view value = config.option[i].value ? config.option[i].value : "";
    if (key == "kind") {
      if (value != "accelerator" && value != "nic") refuse(key, value, "accelerator or nic");
      options.accelerator = value == "accelerator";
    } else if (key == "hbm") {
      hbm_given = true;
      constexpr std::string_view kRight = "a power of two from 1M to 1T";
      options.hbm_bytes = number(key, value, std::uint64_t{1} << 20, std::uint64_t{1} << 40, true, kRight);
      if (!std::has_single_bit(options.hbm_bytes)) refuse(key, value, kRight);
    } else if (key == "ports") {
      options.ports = static_cast<std::uint32_t>(number(key, value, 1, WEFT_PORTS_MAX, false, "1 to 24"));
    } else if (key == "link") {
      options.link_mbps = static_cast<std::uint32_t>(number(key, value, 1, 1600000, false, "Mb/s, 1 to 1600000"));
    } else if (key == "serial") {
      if (!name(value)) refuse(key, value, "1 to 31 printable characters without blanks");
      options.serial = value;
    } else if (key == "firmware") {
      if (value != "native" && value != "image") refuse(key, value, "native or image");
      options.native_firmware = value == "native";
    } else if (key == "fault") {
      if (!value.empty() && value != "none") refuse(key, value, "this model has no faults to plant; none");
    } else {
      refuse(key, value, "unknown option; there are kind, hbm, ports, link, serial, firmware, fault");
    }
  }
  if (!options.accelerator) {
    if (hbm_given) refuse("hbm", std::to_string(options.hbm_bytes), "a NIC alone has no HBM");
    options.hbm_bytes = 0;
  }
  return options;
}

}  // namespace weft::model
