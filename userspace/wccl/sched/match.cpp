// SPDX-License-Identifier: MIT
#include "sched/match.hpp"

#include <algorithm>
#include <tuple>

namespace weft::ccl {
namespace {

struct End {
  std::uint32_t source, destination, lane, op;
  auto flow() const { return std::tie(source, destination, lane); }
};

std::string flow_text(const End& end) {
  return "rank " + std::to_string(end.source) + " -> rank " + std::to_string(end.destination) + " lane " +
         std::to_string(end.lane);
}

}  // namespace

bool match_messages(const Source& source, std::vector<Message>& out, std::string& error) {
  std::vector<End> sends, receives;
  OpView view;
  for (std::uint32_t rank = 0; rank < source.shape().ranks; ++rank) {
    const std::uint32_t count = source.ops(rank);
    for (std::uint32_t index = 0; index < count; ++index) {
      source.op(rank, index, view);
      if (view.op.code == WCCL_OP_SEND) {
        sends.push_back({rank, view.op.peer, view.op.lane, index});
      } else if (view.op.code == WCCL_OP_RECV || view.op.code == WCCL_OP_RECV_REDUCE) {
        receives.push_back({view.op.peer, rank, view.op.lane, index});
      }
    }
  }
  const auto by_flow = [](const End& a, const End& b) { return a.flow() < b.flow(); };
  std::stable_sort(sends.begin(), sends.end(), by_flow);
  std::stable_sort(receives.begin(), receives.end(), by_flow);
  out.clear();
  out.reserve(sends.size());
  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    const bool no_send = i >= sends.size() || (i < receives.size() && receives[i].flow() < sends[i].flow());
    const bool no_receive = i >= receives.size() || (i < sends.size() && sends[i].flow() < receives[i].flow());
    if (no_send) {
      error = "no SEND for op " + std::to_string(receives[i].op) + " of " + flow_text(receives[i]);
      return false;
    }
    if (no_receive) {
      error = "no receive for op " + std::to_string(sends[i].op) + " of " + flow_text(sends[i]);
      return false;
    }
    out.push_back({sends[i].source, sends[i].destination, sends[i].lane, sends[i].op, receives[i].op});
  }
  return true;
}

}  // namespace weft::ccl
