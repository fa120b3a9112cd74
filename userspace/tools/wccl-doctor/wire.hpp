// SPDX-License-Identifier: MIT
// Orders and results as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "survey.hpp"
#include "trial.hpp"

namespace weft::doctor {

void to_json(nlohmann::json& json, const Order& order);
void from_json(const nlohmann::json& json, Order& order);
void to_json(nlohmann::json& json, const Trial& trial);
void from_json(const nlohmann::json& json, Trial& trial);
void to_json(nlohmann::json& json, const Node& node);
void from_json(const nlohmann::json& json, Node& node);

// One line; what is not UTF-8 is replaced.
std::string line(const nlohmann::json& json);

}  // namespace weft::doctor
