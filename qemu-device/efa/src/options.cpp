// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "wire.hpp"

namespace weft::efa {

namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view right) {
  throw std::invalid_argument(std::string(key) + "=" + std::string(value) + ": " + std::string(right));
}

Mac parse_mac(std::string_view key, std::string_view value) {
  constexpr std::string_view kRight = "six bytes of a unicast MAC address, as 02:00:00:00:00:01";
  Mac mac{};
  if (value.size() != 17) refuse(key, value, kRight);
  for (std::size_t i = 0; i < mac.size(); ++i) {
    const char* at = value.data() + 3 * i;
    const auto [end, error] = std::from_chars(at, at + 2, mac[i], 16);
    if (error != std::errc() || end != at + 2 || (i < 5 && at[2] != ':')) refuse(key, value, kRight);
  }
  if ((mac[0] & 1) != 0 || mac == Mac{}) refuse(key, value, kRight);
  return mac;
}

bool parse_switch(std::string_view key, std::string_view value) {
  if (value == "on" || value == "off") return value == "on";
  refuse(key, value, "on or off");
}

}  // namespace

Options parse_options(const weft_abi_config& config) {
  Options options;
  for (std::uint32_t i = 0; i < config.options; ++i) {
    const std::string_view key = config.option[i].key ? config.option[i].key : "";
    const std::string_view value = config.option[i].value ? config.option[i].value : "";
    if (key == "mac") {
      options.mac = parse_mac(key, value);
    } else if (key == "mtu") {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options.mtu);
      if (error != std::errc() || end != value.data() + value.size() || options.mtu < 256 ||
          options.mtu > wire::kPayloadMax) {
        refuse(key, value, "bytes, 256 to " + std::to_string(wire::kPayloadMax));
      }
    } else if (key == "spray") {
      options.spray = parse_switch(key, value);
    } else if (key == "posted") {
      options.posted = parse_switch(key, value);
    } else if (key == "serial") {
      if (value.empty() || value.size() > 31 ||
          !std::ranges::all_of(value, [](char c) { return c > ' ' && c < 0x7f; })) {
        refuse(key, value, "1 to 31 printable characters without blanks");
      }
      options.serial = value;
    } else {
      refuse(key, value, "unknown option; there are mac, mtu, spray, posted, serial");
    }
  }
  return options;
}

Gid gid_of(const Mac& mac) {
  return {0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<std::uint8_t>(mac[0] ^ 2),
          mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
}

std::optional<Mac> mac_of(const Gid& gid) {
  const Mac mac = {static_cast<std::uint8_t>(gid[8] ^ 2), gid[9], gid[10], gid[13], gid[14], gid[15]};
  if (gid_of(mac) != gid || (mac[0] & 1) != 0) return std::nullopt;
  return mac;
}

}  // namespace weft::efa
