// SPDX-License-Identifier: MIT
// Orders and results as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "survey.hpp"
#include "trial.hpp"

// What was not measured is null.
template <typename T>
struct nlohmann::adl_serializer<std::optional<T>> {
  static void to_json(json& j, const std::optional<T>& value) { j = value ? json(*value) : json(); }
  static void from_json(const json& j, std::optional<T>& value) {
    value = j.is_null() ? std::nullopt : std::optional(j.get<T>());
  }
};

namespace weft::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Sample, bytes, one_way_us, all_reduce_us, wrong, registrations, registration_us)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Order, ranks, id, path, over, sizes, iterations, timeout_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Trial, outcome, error, path, transport, reason, samples, host_copies, cpu_copies,
                                   registrations, registration_ns, teardowns, teardown_ns, hits, misses, first_use_us,
                                   reuse_us, cost_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Node, name, ports, device, error)

// One line; what is not UTF-8 is replaced.
inline std::string line(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weft::doctor
