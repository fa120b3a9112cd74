// SPDX-License-Identifier: MIT
// What was found, as text, JSON and SVG.
#pragma once

#include <string>
#include <vector>

#include "judge.hpp"
#include "survey.hpp"

namespace weft::doctor {

// The table, and a line for each finding, or "healthy".
std::string text_report(const Survey& survey, const std::vector<Finding>& findings);

std::string json_report(const Survey& survey, const std::vector<Finding>& findings, const Criteria& criteria);

// Bandwidth by size and path; with several pairs their median, in a band from least to most. Throws std::runtime_error
// when nothing was measured.
std::string svg_report(const Survey& survey);

}  // namespace weft::doctor
