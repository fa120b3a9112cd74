// SPDX-License-Identifier: MIT
// Runs a schedule on numbers in a random order that its dependencies allow: what the checker's verdicts are held
// against.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "sched/schedule.hpp"

namespace weft::ccl::test {

struct Number {
  std::uint64_t sum = 0;
  std::uint32_t finals = 0;
  bool operator==(const Number&) const = default;
};

struct Outcome {
  bool finished = false;                     // every op ran; false: deadlock, or a message without its other end
  std::vector<std::vector<Number>> outputs;  // [rank][chunk]
};

// Messages are rendezvous: both ends run at once, when both are ready and first in their flow.
inline Outcome interpret(const Source& source, const std::vector<std::vector<Number>>& inputs, bool in_place,
                         std::mt19937_64& random) {
  const Shape& shape = source.shape();
  struct Rank {
    std::vector<OpView> ops;
    std::vector<bool> done;
    std::vector<Number> memory[3];
  };
  std::vector<Rank> ranks(shape.ranks);
  for (std::uint32_t r = 0; r < shape.ranks; ++r) {
    ranks[r].ops.resize(source.ops(r));
    ranks[r].done.resize(source.ops(r));
    for (std::uint32_t i = 0; i < ranks[r].ops.size(); ++i) source.op(r, i, ranks[r].ops[i]);
    const std::uint32_t room[3] = {shape.input_chunks, shape.output_chunks, shape.scratch_chunks};
    for (int b = 0; b < 3; ++b) {
      for (std::uint32_t c = 0; c < room[b]; ++c) ranks[r].memory[b].push_back({random(), 1000});
    }
    for (std::uint32_t c = 0; c < shape.input_chunks; ++c) {
      const Location at = location(shape, r, in_place, WCCL_BUF_INPUT, c);
      ranks[r].memory[at.buffer][at.chunk] = inputs[r][c];
    }
  }
  const auto cell = [&](std::uint32_t r, std::uint8_t buffer, std::uint32_t chunk) -> Number& {
    const Location at = location(shape, r, in_place, buffer, chunk);
    return ranks[r].memory[at.buffer][at.chunk];
  };
  const auto ready = [&](std::uint32_t r, std::uint32_t i) {
    if (ranks[r].done[i]) return false;
    for (const std::uint32_t dep : ranks[r].ops[i].deps) {
      if (!ranks[r].done[dep]) return false;
    }
    return true;
  };
  const auto receives = [](const wccl_sched_op& op) {
    return op.code == WCCL_OP_RECV || op.code == WCCL_OP_RECV_REDUCE;
  };
  // The first op in rank r's list that is not done and is of the flow; -1: none.
  const auto head = [&](std::uint32_t r, bool send, std::uint32_t peer, std::uint32_t lane) {
    for (std::uint32_t i = 0; i < ranks[r].ops.size(); ++i) {
      const wccl_sched_op& op = ranks[r].ops[i].op;
      if (!ranks[r].done[i] && (send ? op.code == WCCL_OP_SEND : receives(op)) && op.peer == peer && op.lane == lane) {
        return static_cast<std::int64_t>(i);
      }
    }
    return std::int64_t{-1};
  };
  const auto add = [](Number a, Number b, std::uint8_t flags) {
    return Number{a.sum + b.sum, a.finals + b.finals + ((flags & WCCL_OP_FINAL) ? 1u : 0u)};
  };

  Outcome outcome;
  for (;;) {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> can;
    bool left = false;
    for (std::uint32_t r = 0; r < shape.ranks; ++r) {
      for (std::uint32_t i = 0; i < ranks[r].ops.size(); ++i) {
        left = left || !ranks[r].done[i];
        if (!ready(r, i)) continue;
        const wccl_sched_op& op = ranks[r].ops[i].op;
        if (op.code == WCCL_OP_SEND) {
          if (head(r, true, op.peer, op.lane) != i) continue;
          const std::int64_t other = head(op.peer, false, r, op.lane);
          if (other < 0 || !ready(op.peer, static_cast<std::uint32_t>(other))) continue;
        } else if (receives(op)) {
          continue;  // runs with its SEND
        }
        can.emplace_back(r, i);
      }
    }
    if (can.empty()) {
      outcome.finished = !left;
      break;
    }
    const auto [r, i] = can[random() % can.size()];
    const wccl_sched_op& op = ranks[r].ops[i].op;
    ranks[r].done[i] = true;
    if (op.code == WCCL_OP_SEND) {
      const auto other = static_cast<std::uint32_t>(head(op.peer, false, r, op.lane));
      const wccl_sched_op& in = ranks[op.peer].ops[other].op;
      ranks[op.peer].done[other] = true;
      if (in.chunks != op.chunks) break;
      for (std::uint32_t c = 0; c < op.chunks; ++c) {
        const Number value = cell(r, op.src_buffer, op.src_chunk + c);
        Number& dst = cell(op.peer, in.dst_buffer, in.dst_chunk + c);
        dst = in.code == WCCL_OP_RECV ? value : add(cell(op.peer, in.src_buffer, in.src_chunk + c), value, in.flags);
      }
      continue;
    }
    for (std::uint32_t c = 0; c < op.chunks; ++c) {
      const Number src = cell(r, op.src_buffer, op.src_chunk + c);
      cell(r, op.dst_buffer, op.dst_chunk + c) =
          op.code == WCCL_OP_COPY ? src : add(src, cell(r, op.src2_buffer, op.src2_chunk + c), op.flags);
    }
  }
  outcome.outputs.resize(shape.ranks);
  for (std::uint32_t r = 0; r < shape.ranks; ++r) {
    for (std::uint32_t c = 0; c < shape.output_chunks; ++c) outcome.outputs[r].push_back(cell(r, WCCL_BUF_OUTPUT, c));
  }
  return outcome;
}

}  // namespace weft::ccl::test
