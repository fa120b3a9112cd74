// SPDX-License-Identifier: MIT
// The ops of a group of sends and receives, of one rank alone.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sched/lower.hpp"
#include "sched/schedule.hpp"
#include "weft/weft.h"

namespace weft::ccl {

// One send or receive of a group.
struct PointToPoint {
  bool send = false;
  weft_va address = 0;
  std::uint64_t bytes = 0;
  std::uint32_t peer = 0;
  std::uint32_t element_bytes = 1;
};

// Chunk i of INPUT and OUTPUT is the memory of op i. A message without bytes is one all the same, so that the two ends
// stay in step.
class GroupSource final : public Source, public Layout {
 public:
  // Throws Failure when sends to the own rank and receives from it do not match.
  GroupSource(const std::vector<PointToPoint>& ops, std::uint32_t rank, std::uint32_t ranks);

  const Shape& shape() const override { return shape_; }
  std::uint32_t ops(std::uint32_t rank) const override {
    return rank == rank_ ? static_cast<std::uint32_t>(ops_.size()) : 0;
  }
  void op(std::uint32_t, std::uint32_t index, OpView& out) const override {
    out.op = ops_[index];
    out.deps.clear();
  }
  Place place(std::uint8_t, std::uint32_t chunk, std::uint32_t) const override { return places_[chunk]; }
  std::uint32_t slice_bytes(std::uint32_t peer) const override { return slot_bytes_(peer); }

  void set_slot_bytes(std::function<std::uint32_t(std::uint32_t)> slot_bytes) { slot_bytes_ = std::move(slot_bytes); }

 private:
  Shape shape_;
  std::uint32_t rank_;
  std::vector<wccl_sched_op> ops_;
  std::vector<Place> places_;
  std::function<std::uint32_t(std::uint32_t)> slot_bytes_;
};

}  // namespace weft::ccl
