// SPDX-License-Identifier: MIT
// Schedules in memory: what algorithms make, files hold, and executors, checker and time model run.
#pragma once

#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wccl/sched.h"

namespace weft::ccl {

// What all ranks of a schedule share: the header without the file's bookkeeping.
struct Shape {
  wccl_sched_collective collective = WCCL_COLL_BARRIER;
  std::uint32_t flags = 0;  // WCCL_SCHED_*
  std::uint32_t ranks = 1;
  std::uint32_t root = 0;
  std::uint32_t parts = 1;
  std::uint32_t input_chunks = 0;
  std::uint32_t output_chunks = 0;
  std::uint32_t scratch_chunks = 0;
  std::uint32_t lanes = 1;
  std::uint32_t steps = 0;
  std::uint32_t link_classes = 1;
  std::vector<wccl_sched_count> counts;  // with WCCL_SCHED_VCOUNTS; empty: bound when it runs
  std::string name;

  // These bound what one rank has to do. They depend on the schedule alone, so all ranks compute the same limits from
  // them.
  std::uint32_t max_ops = 0;     // ops of the busiest rank
  std::uint32_t max_chunks = 1;  // longest run of chunks of an op
  bool neighbours_only = true;   // every message goes to rank +- 1 (mod ranks)
};

struct OpView {
  wccl_sched_op op{};
  boost::container::small_vector<std::uint32_t, 4> deps;
};

// A schedule, stored or computed op by op. A source may know only the ops of some ranks (point-to-point groups do).
class Source {
 public:
  virtual ~Source() = default;
  virtual const Shape& shape() const = 0;
  virtual std::uint32_t ops(std::uint32_t rank) const = 0;
  // Op `index` < ops(rank); `first_dep` of the result is meaningless, its deps are in `out.deps`.
  virtual void op(std::uint32_t rank, std::uint32_t index, OpView& out) const = 0;
};

// A stored schedule.
class Schedule final : public Source {
 public:
  struct Rank {
    std::vector<wccl_sched_op> ops;
    std::vector<std::uint32_t> deps;
  };

  Schedule() = default;
  Schedule(Shape shape, std::vector<Rank> ranks);  // computes Shape's bounds
  explicit Schedule(const Source& source);         // a copy of all its ops

  const Shape& shape() const override { return shape_; }
  std::uint32_t ops(std::uint32_t rank) const override { return static_cast<std::uint32_t>(ranks_[rank].ops.size()); }
  void op(std::uint32_t rank, std::uint32_t index, OpView& out) const override;

  // For those who build or break schedules.
  Shape& mutable_shape() { return shape_; }
  std::vector<Rank>& mutable_ranks() { return ranks_; }
  void append(std::uint32_t rank, wccl_sched_op op, std::span<const std::uint32_t> deps = {});
  void update_bounds();

 private:
  Shape shape_;
  std::vector<Rank> ranks_;
};

// Chunks of INPUT and OUTPUT that a collective has by definition; false: unknown collective or too many.
bool chunk_counts(wccl_sched_collective collective, std::uint32_t ranks, std::uint32_t parts, std::uint32_t& input,
                  std::uint32_t& output);

// Units of the count table that a collective with v-counts has: of each rank, or of each pair; 0: it has no units.
std::uint64_t count_units(const Shape& shape);
// Which of them holds a chunk of `rank`'s INPUT or OUTPUT.
std::uint64_t unit_of(const Shape& shape, std::uint32_t rank, std::uint8_t buffer, std::uint32_t chunk);

// Checks what all ranks share. Empty, or what is wrong.
std::string shape_fault(const Shape& shape);

// Where a chunk lies when a collective runs in place: INPUT and OUTPUT chunks that are the same memory get the same
// name.
struct Location {
  std::uint8_t buffer = 0;
  std::uint32_t chunk = 0;
};
Location location(const Shape& shape, std::uint32_t rank, bool in_place, std::uint8_t buffer, std::uint32_t chunk);

std::string_view collective_name(std::uint32_t collective);
std::string_view op_name(std::uint32_t code);
std::string_view buffer_name(std::uint32_t buffer);

// One line, e.g. "  3 step 1 SEND output[2] -> rank 1 lane 0 after 1".
std::string describe(const Source& source, std::uint32_t rank, std::uint32_t index);

// Checks one op by itself: codes, ranges, reserved fields, deps and steps. Empty, or what is wrong.
std::string op_fault(const Shape& shape, std::uint32_t rank, std::uint32_t index, const OpView& view);

// Computes steps for a schedule without them and sorts each rank's ops by step. False, with the reason: messages cannot
// be matched, or wait for each other in a circle.
bool assign_steps(Schedule& schedule, std::string& error);

}  // namespace weft::ccl
