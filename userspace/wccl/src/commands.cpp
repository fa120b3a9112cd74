// SPDX-License-Identifier: MIT
#include "commands.hpp"

#include <cstring>

namespace weft::ccl {
namespace {

// wccl's numbers are the device's: nothing is translated.
static_assert(static_cast<int>(wcclInt8) == WEFT_I8 && static_cast<int>(wcclUint64) == WEFT_U64 &&
              static_cast<int>(wcclFloat16) == WEFT_F16 && static_cast<int>(wcclBfloat16) == WEFT_BF16 &&
              static_cast<int>(wcclFloat8e5m2) == WEFT_F8E5M2);
static_assert(static_cast<int>(wcclSum) == WEFT_SUM && static_cast<int>(wcclMax) == WEFT_MAX &&
              static_cast<int>(wcclMin) == WEFT_MIN && static_cast<int>(wcclAvg) == WEFT_AVG);

}  // namespace

weft_cmd empty_command(weft_cmd_op op) {
  weft_cmd cmd{};
  cmd.op = static_cast<std::uint8_t>(op);
  cmd.version = WEFT_CMD_VERSION;
  cmd.wait_id = WEFT_SYNC_NONE;
  cmd.signal_id = WEFT_SYNC_NONE;
  return cmd;
}

LocalCommand local_command(const Work& work, const Step& step, const Operand& slot) {
  LocalCommand out{empty_command(WEFT_OP_NOP), 0};
  weft_cmd& cmd = out.cmd;
  const auto operand = [&](int i, const Operand& memory) { set_operand(cmd, i, memory.va, memory.key); };
  const bool receive = step.kind == StepKind::kRecvCopy || step.kind == StepKind::kRecvReduce;
  if (step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce) {
    cmd.op = WEFT_OP_REDUCE;
    cmd.arg0 = static_cast<std::uint8_t>(work.type);
    cmd.arg1 = static_cast<std::uint8_t>(work.op);
    if (work.op == wcclAvg) {
      cmd.arg1 = step.final ? WEFT_AVG : WEFT_SUM;
      out.divisor = step.final ? static_cast<std::uint16_t>(work.source->shape().ranks) : 0;
    }
    cmd.length = static_cast<std::uint32_t>(step.bytes / work.element_bytes);
    operand(0, work.resolve(step.dst));
    operand(1, work.resolve(step.src));
    operand(2, receive ? slot : work.resolve(step.src2));
  } else if (step.bytes) {
    cmd.op = WEFT_OP_COPY;
    cmd.length = static_cast<std::uint32_t>(step.bytes);
    operand(0, work.resolve(step.dst));
    operand(1, receive ? slot : work.resolve(step.src));
  }
  return out;
}

void append_command(std::vector<weft_cmd>& out, weft_cmd cmd, std::uint16_t divisor, std::span<const SyncWait> waits) {
  if (!waits.empty()) {
    cmd.wait_id = waits[0].object;
    cmd.wait_value = waits[0].value;
  }
  if (waits.size() <= 1 && !divisor) {
    out.push_back(cmd);
    return;
  }
  cmd.flags |= WEFT_CMD_EXT;
  weft_cmd_ext ext{};
  ext.version = WEFT_CMD_VERSION;
  ext.arg16 = divisor;
  for (std::uint8_t i = 1; i < waits.size(); ++i) {
    ext.wait_id[i - 1] = waits[i].object;
    ext.wait_value[i - 1] = waits[i].value;
    ext.waits = i;
  }
  out.push_back(cmd);
  static_assert(sizeof ext == sizeof cmd);
  std::memcpy(&out.emplace_back(), &ext, sizeof ext);
}

}  // namespace weft::ccl
