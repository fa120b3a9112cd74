// SPDX-License-Identifier: MIT
// The walk: every pair of ranks, every way, then all ranks together.
#pragma once

#include "crew.hpp"
#include "options.hpp"
#include "survey.hpp"

namespace weft::doctor {

// Goes on where a pair fails; says on stderr where it is when it takes long. Throws tools::Interrupted.
Survey walk(const Options& options, Crew& crew);

}  // namespace weft::doctor
