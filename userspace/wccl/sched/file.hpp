// SPDX-License-Identifier: MIT
// Schedule files (wccl/sched.h). What a file says is untrusted: everything is bounded before use.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sched/schedule.hpp"

namespace weft::ccl {

// Bytes of a file that holds the schedule; its name is cut at 31 bytes.
std::vector<std::byte> write_schedule(const Source& source);

// A well-formed schedule (every op passed op_fault(), steps assigned), or nothing with the reason in `error`. It may
// still not compute what it says: see check().
std::optional<Schedule> read_schedule(std::span<const std::byte> bytes, std::string& error);

// The same from and to a path; `error` names the path.
std::optional<Schedule> load_schedule(const std::string& path, std::string& error);
bool save_schedule(const Source& source, const std::string& path, std::string& error);

}  // namespace weft::ccl
