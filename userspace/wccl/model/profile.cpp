// SPDX-License-Identifier: MIT
#include "model/profile.hpp"

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "builtin_profiles.hpp"

namespace weft::ccl::model {

Profile parse_profile(const std::string& text) {
  Profile p;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    throw std::invalid_argument(std::string("profile: ") + error.what());
  }
  if (!json.is_object()) throw std::invalid_argument("profile: not an object");
  const auto positive = [](double& field, bool zero) {
    return [&field, zero](const std::string& key, const nlohmann::json& value) {
      if (!value.is_number()) throw std::invalid_argument("profile: " + key + " is not a number");
      const double number = value.get<double>();
      if (!std::isfinite(number) || number < 0 || (number == 0 && !zero)) {
        throw std::invalid_argument("profile: " + key + " is out of range");
      }
      field = number;
    };
  };
  const auto whole = [](std::uint32_t& field, std::uint32_t least, std::uint32_t most) {
    return [&field, least, most](const std::string& key, const nlohmann::json& value) {
      if (!value.is_number_integer() || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
        throw std::invalid_argument("profile: " + key + " is not a whole number from " + std::to_string(least) +
                                    " to " + std::to_string(most));
      }
      field = value.get<std::uint32_t>();
    };
  };
  const auto string = [](std::string& field) {
    return [&field](const std::string& key, const nlohmann::json& value) {
      if (!value.is_string()) throw std::invalid_argument("profile: " + key + " is not text");
      field = value.get<std::string>();
    };
  };
  std::uint32_t schema = 0;
  const std::map<std::string, std::function<void(const std::string&, const nlohmann::json&)>> keys = {
      {"schema", whole(schema, 1, 1)},
      {"name", string(p.name)},
      {"text", string(p.text)},
      {"sources",
       [&](const std::string& key, const nlohmann::json& value) {
         if (!value.is_array()) throw std::invalid_argument("profile: " + key + " is not a list");
         for (const auto& item : value) string(p.sources.emplace_back())(key, item);
       }},
      {"published",
       [&](const std::string& key, const nlohmann::json& value) {
         if (!value.is_array()) throw std::invalid_argument("profile: " + key + " is not a list");
         for (const auto& item : value) {
           Published& one = p.published.emplace_back();
           double bytes = 0;
           for (const auto& [name, field] :
                {std::pair<const char*, double*>{"bytes", &bytes}, {"low", &one.low}, {"high", &one.high}})
             positive(*field, false)(key + "." + name, item.value(name, nlohmann::json()));
           string(one.text)(key + ".text", item.value("text", nlohmann::json()));
           one.bytes = static_cast<std::uint64_t>(bytes);
         }
       }},
      {"link_gbps", positive(p.link_gbps, false)},
      {"links", whole(p.links, 1, 64)},
      {"mtu", whole(p.mtu, 256, 1 << 20)},
      {"packet_bytes", whole(p.packet_bytes, 0, 65536)},
      {"message_bytes", whole(p.message_bytes, 0, 65536)},
      {"wire_ns", positive(p.wire_ns, true)},
      {"hbm_GBps", positive(p.hbm_GBps, false)},
      {"reduce_GBps", positive(p.reduce_GBps, false)},
      {"copy_GBps", positive(p.copy_GBps, false)},
      {"command_ns", positive(p.command_ns, true)},
      {"reduce_ns", positive(p.reduce_ns, true)},
      {"copy_ns", positive(p.copy_ns, true)},
      {"window", whole(p.window, 1, 1 << 16)},
      {"doorbell_ns", positive(p.doorbell_ns, true)},
      {"completion_ns", positive(p.completion_ns, true)},
      {"host_nic_gbps", positive(p.host_nic_gbps, false)},
      {"host_nic_sharers", whole(p.host_nic_sharers, 1, 64)},
      {"host_nic_mtu", whole(p.host_nic_mtu, 256, 1 << 20)},
      {"host_nic_packet_bytes", whole(p.host_nic_packet_bytes, 0, 65536)},
      {"host_nic_message_bytes", whole(p.host_nic_message_bytes, 0, 65536)},
      {"host_wire_ns", positive(p.host_wire_ns, true)},
      {"pcie_GBps", positive(p.pcie_GBps, false)},
      {"pcie_payload_bytes", whole(p.pcie_payload_bytes, 64, 1 << 20)},
      {"pcie_packet_bytes", whole(p.pcie_packet_bytes, 0, 65536)},
      {"d2h_GBps", positive(p.d2h_GBps, false)},
      {"h2d_GBps", positive(p.h2d_GBps, false)},
      {"cpu_copy_GBps", positive(p.cpu_copy_GBps, false)},
      {"host_step_ns", positive(p.host_step_ns, true)},
      {"host_command_ns", positive(p.host_command_ns, true)},
      {"host_notice_ns", positive(p.host_notice_ns, true)},
      {"flush_ns", positive(p.flush_ns, true)},
      {"slots", whole(p.slots, 1, 4096)},
      {"slot_bytes", whole(p.slot_bytes, 64, 1u << 30)},
  };
  for (const auto& [key, value] : json.items()) {
    const auto it = keys.find(key);
    if (it == keys.end()) throw std::invalid_argument("profile: unknown key " + key);
    it->second(key, value);
  }
  if (schema != 1) throw std::invalid_argument("profile: schema 1 is missing");
  if (p.slot_bytes % 64) throw std::invalid_argument("profile: slot_bytes is not a multiple of 64");
  return p;
}

Profile load_profile(const std::string& name_or_path) {
  for (const auto& [name, text] : kBuiltinProfiles) {
    if (name == name_or_path) return parse_profile(std::string(text));
  }
  std::ifstream file(name_or_path);
  if (!file) {
    std::string known;
    for (const std::string& name : builtin_profiles()) known += (known.empty() ? "" : ", ") + name;
    throw std::invalid_argument("profile " + name_or_path + ": no such file, and not one of " + known);
  }
  std::stringstream text;
  text << file.rdbuf();
  return parse_profile(text.str());
}

std::vector<std::string> builtin_profiles() {
  std::vector<std::string> names;
  for (const auto& [name, text] : kBuiltinProfiles) names.emplace_back(name);
  return names;
}

}  // namespace weft::ccl::model
