// SPDX-License-Identifier: MIT
// Who is to blame when ranks wait for each other: most of them wait only because somebody else does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous.hpp"

namespace weft::ccl {

// Decides from what every rank that waits, or found its connection broken, says. Definite ones count first. Then a rank
// that others wait for and that does not wait itself (it hangs, or never called) is the culprit. If all wait in a
// circle, it is the one that is waited for in the earliest step.
std::optional<Note> decide(const std::vector<Suspicion>& suspicions);

}  // namespace weft::ccl
