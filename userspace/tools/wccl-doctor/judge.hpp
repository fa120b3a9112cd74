// SPDX-License-Identifier: MIT
// From what a walk found to what is wrong with it. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "survey.hpp"

namespace weft::doctor {

struct Criteria {
  std::optional<wcclPath_t> expect;  // the worst path that is good enough
  double size_fall = 4;              // bandwidth may be this many times lower than at a smaller size
  double rank_fall = 3;              // and the world's all-reduce this many times slower than the slowest pair's
};

enum class Kind {
  kBroken,        // a rank, a pair or a way that ought to work does not
  kDetour,        // bytes take a worse path than they could or should
  kRegistration,  // each transfer registers its buffer again
  kFallsWithSize,
  kFallsWithRanks,
};
const char* kind_name(Kind kind);

struct Finding {
  Kind kind = Kind::kBroken;
  std::string text;
  std::vector<std::uint32_t> ranks;
};

// Onchip before peer before staged: true when bytes on `path` go a worse way than on `than`.
bool worse(wcclPath_t path, wcclPath_t than);

// What the pair's hardware is made for: on-chip where both have ports, else peer-direct.
wcclPath_t natural_path(const Survey& survey, const Pair& pair);

// Worst kinds first. Empty: healthy.
std::vector<Finding> judge(const Survey& survey, const Criteria& criteria);

// 0; 1: something is broken; 3: a detour, or a registration for each transfer, though a path was expected.
int exit_code(const std::vector<Finding>& findings, const Criteria& criteria);

}  // namespace weft::doctor
