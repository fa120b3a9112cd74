// SPDX-License-Identifier: MIT
#include "group_source.hpp"

#include <algorithm>
#include <map>

#include "error.hpp"

namespace weft::ccl {

GroupSource::GroupSource(const std::vector<PointToPoint>& ops, std::uint32_t rank, std::uint32_t ranks) : rank_(rank) {
  shape_.collective = WCCL_COLL_SENDRECV;
  shape_.name = "group";
  shape_.ranks = ranks;
  std::map<std::pair<std::uint32_t, bool>, std::uint32_t> nth;  // of the messages with a peer, in a direction
  std::vector<std::uint32_t> self[2];
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const PointToPoint& p = ops[i];
    places_.push_back({p.send ? static_cast<std::uint8_t>(WCCL_BUF_INPUT) : static_cast<std::uint8_t>(WCCL_BUF_OUTPUT),
                       p.address, p.bytes});
    if (p.peer == rank) {
      self[p.send].push_back(i);
      continue;
    }
    wccl_sched_op op{};
    op.code = p.send ? WCCL_OP_SEND : WCCL_OP_RECV;
    op.peer = p.peer;
    op.chunks = p.bytes ? 1 : 0;
    op.step = nth[{p.peer, p.send}]++;
    if (p.send) {
      op.src_chunk = i;
    } else {
      op.dst_buffer = WCCL_BUF_OUTPUT;
      op.dst_chunk = i;
    }
    ops_.push_back(op);
  }
  if (self[0].size() != self[1].size()) {
    throw Failure(wcclInvalidUsage, "sends to the own rank and receives from it differ in number");
  }
  for (std::size_t i = 0; i < self[0].size(); ++i) {
    if (ops[self[0][i]].bytes != ops[self[1][i]].bytes) {
      throw Failure(wcclInvalidUsage, "a send to the own rank of " + std::to_string(ops[self[1][i]].bytes) +
                                          " bytes and its receive of " + std::to_string(ops[self[0][i]].bytes) +
                                          " differ in size");
    }
    if (ops[self[0][i]].bytes == 0) continue;
    wccl_sched_op op{};
    op.code = WCCL_OP_COPY;
    op.dst_buffer = WCCL_BUF_OUTPUT;
    op.dst_chunk = self[0][i];
    op.src_chunk = self[1][i];
    op.chunks = 1;
    ops_.push_back(op);
  }
  std::stable_sort(ops_.begin(), ops_.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  shape_.steps = ops_.empty() ? 0 : ops_.back().step + 1;
}

}  // namespace weft::ccl
