// SPDX-License-Identifier: MIT
#include "sched/algorithms.hpp"

#include <stdexcept>
#include <string>

namespace weft::ccl {
namespace {

class Computed : public Source {
 public:
  const Shape& shape() const override { return shape_; }

 protected:
  Computed(wccl_sched_collective collective, std::string name, const AlgorithmParams& params, std::uint64_t parts,
           std::uint64_t steps, std::uint64_t max_ops) {
    if (params.ranks == 0 || params.ranks > WCCL_SCHED_MAX_RANKS) throw std::invalid_argument("ranks out of range");
    if (params.lanes == 0 || params.lanes > WCCL_SCHED_MAX_LANES) throw std::invalid_argument("lanes out of range");
    if (parts > WCCL_SCHED_MAX_CHUNKS) throw std::invalid_argument("too many chunks");
    shape_.collective = collective;
    shape_.name = std::move(name);
    shape_.ranks = params.ranks;
    shape_.lanes = params.lanes;
    shape_.parts = static_cast<std::uint32_t>(parts);
    shape_.steps = static_cast<std::uint32_t>(steps);
    shape_.max_ops = static_cast<std::uint32_t>(max_ops);
    if (!chunk_counts(collective, params.ranks, shape_.parts, shape_.input_chunks, shape_.output_chunks)) {
      throw std::invalid_argument("too many chunks");
    }
  }

  std::uint32_t wrap(std::int64_t rank) const {
    const std::int64_t n = shape_.ranks;
    return static_cast<std::uint32_t>(((rank % n) + n) % n);
  }

  Shape shape_;
};

// One rank of any collective that leaves its own data: a copy of the input, which in place is nothing.
wccl_sched_op copy_all(const Shape& shape) {
  wccl_sched_op op{};
  op.code = WCCL_OP_COPY;
  op.dst_buffer = WCCL_BUF_OUTPUT;
  op.src_buffer = WCCL_BUF_INPUT;
  op.chunks = shape.parts;
  return op;
}

// Ring all-reduce (Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms, JPDC 2009): n - 1 steps in which rank r
// sends part r - k to r + 1 and reduces part r - k - 1, then n - 1 steps in which the finished parts go round. Lane l
// does this on its own n parts, l * n ...
class RingAllReduce final : public Computed {
 public:
  explicit RingAllReduce(const AlgorithmParams& params)
      : Computed(WCCL_COLL_ALLREDUCE, "ring", params,
                 params.ranks == 1 ? 1 : static_cast<std::uint64_t>(params.ranks) * params.lanes,
                 params.ranks == 1 ? 1 : 2ull * (params.ranks - 1),
                 params.ranks == 1 ? 1 : 4ull * (params.ranks - 1) * params.lanes) {
    shape_.flags = WCCL_SCHED_IN_PLACE;
  }

  std::uint32_t ops(std::uint32_t) const override { return shape_.max_ops; }

  void op(std::uint32_t rank, std::uint32_t index, OpView& out) const override {
    out.deps.clear();
    if (shape_.ranks == 1) {
      out.op = copy_all(shape_);
      return;
    }
    const std::uint32_t n = shape_.ranks, lanes = shape_.lanes;
    const std::uint32_t step = index / (2 * lanes), lane = index / 2 % lanes;
    const bool receive = index & 1, gather = step >= n - 1;
    const std::uint32_t k = gather ? step - (n - 1) : step;
    const auto part = [&](std::int64_t r) { return lane * n + wrap(r); };
    const std::int64_t r = rank;

    wccl_sched_op op{};
    op.lane = static_cast<std::uint16_t>(lane);
    op.step = step;
    op.chunks = 1;
    op.peer = wrap(receive ? r - 1 : r + 1);
    if (!receive) {
      op.code = WCCL_OP_SEND;
      op.src_buffer = step == 0 ? WCCL_BUF_INPUT : WCCL_BUF_OUTPUT;
      op.src_chunk = part(gather ? r + 1 - k : r - k);
      if (step > 0) out.deps.push_back(at(step - 1, lane, true));  // made this part
    } else if (!gather) {
      op.code = WCCL_OP_RECV_REDUCE;
      op.flags = step == n - 2 ? WCCL_OP_FINAL : 0;
      op.dst_buffer = WCCL_BUF_OUTPUT;
      op.src_buffer = WCCL_BUF_INPUT;
      op.dst_chunk = op.src_chunk = part(r - k - 1);
    } else {
      op.code = WCCL_OP_RECV;
      op.dst_buffer = WCCL_BUF_OUTPUT;
      op.dst_chunk = part(r - k);
      out.deps.push_back(at(k, lane, false));  // read this part, to send it on half made
    }
    out.op = op;
  }

 private:
  std::uint32_t at(std::uint32_t step, std::uint32_t lane, bool receive) const {
    return (step * shape_.lanes + lane) * 2 + (receive ? 1 : 0);
  }
};

// Everybody sends its input to the rank at a fixed distance.
class DirectSendRecv final : public Computed {
 public:
  explicit DirectSendRecv(const AlgorithmParams& params)
      : Computed(WCCL_COLL_SENDRECV, "direct", params, self(params) ? 1 : params.lanes, 1,
                 self(params) ? 1 : 2ull * params.lanes) {
    shape_.root = params.root % params.ranks;
    shape_.neighbours_only = shape_.root <= 1 || shape_.root + 1 == shape_.ranks;
    shape_.flags = shape_.root == 0 ? WCCL_SCHED_IN_PLACE : 0;
  }

  std::uint32_t ops(std::uint32_t) const override { return shape_.max_ops; }

  void op(std::uint32_t rank, std::uint32_t index, OpView& out) const override {
    out.deps.clear();
    if (shape_.root == 0) {
      out.op = copy_all(shape_);
      return;
    }
    wccl_sched_op op{};
    op.lane = static_cast<std::uint16_t>(index / 2);
    op.chunks = 1;
    if (index % 2 == 0) {
      op.code = WCCL_OP_SEND;
      op.peer = wrap(static_cast<std::int64_t>(rank) + shape_.root);
      op.src_buffer = WCCL_BUF_INPUT;
      op.src_chunk = index / 2;
    } else {
      op.code = WCCL_OP_RECV;
      op.peer = wrap(static_cast<std::int64_t>(rank) - shape_.root);
      op.dst_buffer = WCCL_BUF_OUTPUT;
      op.dst_chunk = index / 2;
    }
    out.op = op;
  }

 private:
  static bool self(const AlgorithmParams& params) { return params.ranks == 0 || params.root % params.ranks == 0; }
};

std::uint32_t rounds_of(std::uint32_t ranks) {
  std::uint32_t rounds = 0;
  while ((1ull << rounds) < ranks) ++rounds;
  return rounds;
}

// Dissemination barrier (Hensgen, Finkel, Manber 1988): in round k rank r tells r + 2^k what it has heard so far.
class DisseminationBarrier final : public Computed {
 public:
  explicit DisseminationBarrier(const AlgorithmParams& params)
      : Computed(WCCL_COLL_BARRIER, "dissemination", {params.ranks, 1, 0}, 1, rounds_of(params.ranks),
                 2ull * rounds_of(params.ranks)) {
    shape_.flags = WCCL_SCHED_IN_PLACE;
    shape_.neighbours_only = params.ranks <= 3;
  }

  std::uint32_t ops(std::uint32_t) const override { return shape_.max_ops; }

  void op(std::uint32_t rank, std::uint32_t index, OpView& out) const override {
    out.deps.clear();
    const std::uint32_t round = index / 2;
    const std::int64_t r = rank, distance = std::int64_t{1} << round;
    wccl_sched_op op{};
    op.step = round;
    op.code = index % 2 == 0 ? WCCL_OP_SEND : WCCL_OP_RECV;
    op.peer = wrap(index % 2 == 0 ? r + distance : r - distance);
    if (round > 0) out.deps.push_back(2 * round - 1);  // the receive of the round before
    out.op = op;
  }
};

// Two tokens round the ring: the first says that all came, the second that all may go.
class RingBarrier final : public Computed {
 public:
  explicit RingBarrier(const AlgorithmParams& params)
      : Computed(WCCL_COLL_BARRIER, "ring", {params.ranks, 1, 0}, 1, params.ranks == 1 ? 0 : 2ull * params.ranks,
                 params.ranks == 1 ? 0 : 4) {
    shape_.flags = WCCL_SCHED_IN_PLACE;
  }

  std::uint32_t ops(std::uint32_t) const override { return shape_.max_ops; }

  // Rank 0: SEND, RECV, SEND, RECV; the others: RECV, SEND, RECV, SEND. Hop h of lap l is step l * n + h.
  void op(std::uint32_t rank, std::uint32_t index, OpView& out) const override {
    out.deps.clear();
    const std::uint32_t n = shape_.ranks, lap = index / 2;
    const bool send = (index % 2 == 0) == (rank == 0);
    const std::uint32_t hop = send ? rank : (rank + n - 1) % n;
    wccl_sched_op op{};
    op.code = send ? WCCL_OP_SEND : WCCL_OP_RECV;
    op.peer = wrap(static_cast<std::int64_t>(rank) + (send ? 1 : -1));
    op.step = lap * n + hop;
    if (index > 0) out.deps.push_back(index - 1);
    out.op = op;
  }
};

template <class T>
std::unique_ptr<Source> make(const AlgorithmParams& params) {
  return std::make_unique<T>(params);
}

constexpr Algorithm kAlgorithms[] = {
    {WCCL_COLL_ALLREDUCE, "ring", "reduce-scatter, then all-gather, round a ring; any number of ranks",
     make<RingAllReduce>},
    {WCCL_COLL_SENDRECV, "direct", "one message from each rank to the rank at a distance", make<DirectSendRecv>},
    {WCCL_COLL_BARRIER, "dissemination", "ceil(log2 n) rounds of tokens at doubling distances",
     make<DisseminationBarrier>},
    {WCCL_COLL_BARRIER, "ring", "two tokens round a ring", make<RingBarrier>},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* find_algorithm(wccl_sched_collective collective, std::string_view name) {
  for (const Algorithm& entry : kAlgorithms) {
    if (entry.collective == collective && (name.empty() || entry.name == name)) return &entry;
  }
  return nullptr;
}

}  // namespace weft::ccl
