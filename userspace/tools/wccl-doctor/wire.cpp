// SPDX-License-Identifier: MIT
#include "wire.hpp"

namespace weft::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sample, bytes, one_way_us, all_reduce_us, wrong, registrations, registration_us)

void to_json(nlohmann::json& j, const Order& o) {
  j = {{"ranks", o.ranks},        {"id", o.id},       {"path", o.path},
       {"over", o.over},          {"sizes", o.sizes}, {"iterations", o.iterations},
       {"timeout_s", o.timeout_s}};
}

void from_json(const nlohmann::json& j, Order& o) {
  j.at("ranks").get_to(o.ranks);
  j.at("id").get_to(o.id);
  j.at("path").get_to(o.path);
  j.at("over").get_to(o.over);
  j.at("sizes").get_to(o.sizes);
  j.at("iterations").get_to(o.iterations);
  j.at("timeout_s").get_to(o.timeout_s);
}

void to_json(nlohmann::json& j, const Trial& t) {
  j = {{"outcome", static_cast<int>(t.outcome)},
       {"error", t.error},
       {"path", static_cast<int>(t.path)},
       {"transport", t.transport},
       {"reason", t.reason},
       {"samples", t.samples},
       {"host_copies", t.host_copies ? nlohmann::json(*t.host_copies) : nlohmann::json()},
       {"cpu_copies", t.cpu_copies},
       {"registrations", t.registrations},
       {"registration_ns", t.registration_ns},
       {"teardowns", t.teardowns},
       {"teardown_ns", t.teardown_ns},
       {"hits", t.hits},
       {"misses", t.misses},
       {"first_use_us", t.first_use_us},
       {"reuse_us", t.reuse_us},
       {"cost_bytes", t.cost_bytes}};
}

void from_json(const nlohmann::json& j, Trial& t) {
  t.outcome = static_cast<Outcome>(j.at("outcome").get<int>());
  j.at("error").get_to(t.error);
  t.path = static_cast<wcclPath_t>(j.at("path").get<int>());
  j.at("transport").get_to(t.transport);
  j.at("reason").get_to(t.reason);
  j.at("samples").get_to(t.samples);
  if (!j.at("host_copies").is_null()) t.host_copies = j.at("host_copies").get<double>();
  j.at("cpu_copies").get_to(t.cpu_copies);
  j.at("registrations").get_to(t.registrations);
  j.at("registration_ns").get_to(t.registration_ns);
  j.at("teardowns").get_to(t.teardowns);
  j.at("teardown_ns").get_to(t.teardown_ns);
  j.at("hits").get_to(t.hits);
  j.at("misses").get_to(t.misses);
  j.at("first_use_us").get_to(t.first_use_us);
  j.at("reuse_us").get_to(t.reuse_us);
  j.at("cost_bytes").get_to(t.cost_bytes);
}

void to_json(nlohmann::json& j, const Node& n) {
  j = {{"name", n.name}, {"ports", n.ports}, {"device", n.device}, {"error", n.error}};
}

void from_json(const nlohmann::json& j, Node& n) {
  j.at("name").get_to(n.name);
  j.at("ports").get_to(n.ports);
  j.at("device").get_to(n.device);
  j.at("error").get_to(n.error);
}

std::string line(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weft::doctor
