// SPDX-License-Identifier: MIT
// Commands of one rank's steps.
#pragma once

#include <cstdint>
#include <vector>

#include "executor.hpp"
#include "weft/hw/cmd.h"

namespace weft::ccl {

weft_cmd empty_command(weft_cmd_op op);

inline void set_operand(weft_cmd& cmd, int i, weft_va va, std::uint32_t key) {
  cmd.addr[i] = va;
  cmd.key[i] = key;
}

// A COPY or REDUCE with its places, without waits and signals, and what it divides its result by (0: nothing).
struct LocalCommand {
  weft_cmd cmd{};
  std::uint16_t divisor = 0;
};

// What a step that is no message does on the device: dst <- src, or dst <- src (op) src2. A receive step's slot is
// `slot`.
LocalCommand local_command(const Work& work, const Step& step, const Operand& slot);

// Adds the command, with an extension if it needs one. At most three waits.
struct SyncWait {
  std::uint32_t object = 0;
  std::uint64_t value = 0;
};
void append_command(std::vector<weft_cmd>& out, weft_cmd cmd, std::uint16_t divisor, std::span<const SyncWait> waits);

}  // namespace weft::ccl
