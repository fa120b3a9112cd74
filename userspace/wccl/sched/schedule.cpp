// SPDX-License-Identifier: MIT
#include "sched/schedule.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>
#include <utility>

#include "sched/match.hpp"

namespace weft::ccl {

Schedule::Schedule(Shape shape, std::vector<Rank> ranks) : shape_(std::move(shape)), ranks_(std::move(ranks)) {
  update_bounds();
}

Schedule::Schedule(const Source& source) : shape_(source.shape()), ranks_(source.shape().ranks) {
  OpView view;
  for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
    const std::uint32_t count = source.ops(rank);
    for (std::uint32_t index = 0; index < count; ++index) {
      source.op(rank, index, view);
      append(rank, view.op, {view.deps.data(), view.deps.size()});
    }
  }
  update_bounds();
}

void Schedule::op(std::uint32_t rank, std::uint32_t index, OpView& out) const {
  const Rank& table = ranks_[rank];
  out.op = table.ops[index];
  const auto first = table.deps.begin() + out.op.first_dep;
  out.deps.assign(first, first + out.op.deps);
}

void Schedule::append(std::uint32_t rank, wccl_sched_op op, std::span<const std::uint32_t> deps) {
  Rank& table = ranks_[rank];
  op.first_dep = static_cast<std::uint32_t>(table.deps.size());
  op.deps = static_cast<std::uint32_t>(deps.size());
  table.deps.insert(table.deps.end(), deps.begin(), deps.end());
  table.ops.push_back(op);
}

void Schedule::update_bounds() {
  shape_.max_ops = 0;
  shape_.max_chunks = 1;
  shape_.neighbours_only = true;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    shape_.max_ops = std::max(shape_.max_ops, ops(rank));
    for (const wccl_sched_op& op : ranks_[rank].ops) {
      shape_.max_chunks = std::max(shape_.max_chunks, op.chunks);
      if (op.code == WCCL_OP_SEND) {
        const std::uint32_t distance = (op.peer + shape_.ranks - rank) % shape_.ranks;
        if (distance != 1 && distance + 1 != shape_.ranks) shape_.neighbours_only = false;
      }
    }
  }
}

bool chunk_counts(wccl_sched_collective collective, std::uint32_t ranks, std::uint32_t parts, std::uint32_t& input,
                  std::uint32_t& output) {
  const std::uint64_t all = static_cast<std::uint64_t>(ranks) * parts;
  if (parts == 0 || ranks == 0 || all > WCCL_SCHED_MAX_CHUNKS) return false;
  const auto wide = static_cast<std::uint32_t>(all);
  switch (collective) {
    case WCCL_COLL_ALLREDUCE:
    case WCCL_COLL_BROADCAST:
    case WCCL_COLL_REDUCE:
    case WCCL_COLL_SENDRECV:
      input = output = parts;
      return true;
    case WCCL_COLL_ALLGATHER:
    case WCCL_COLL_GATHER:
      input = parts;
      output = wide;
      return true;
    case WCCL_COLL_REDUCESCATTER:
    case WCCL_COLL_SCATTER:
      input = wide;
      output = parts;
      return true;
    case WCCL_COLL_ALLTOALL:
      input = output = wide;
      return true;
    case WCCL_COLL_BARRIER:
      input = output = 0;
      return true;
  }
  return false;
}

Location location(const Shape& shape, std::uint32_t rank, bool in_place, std::uint8_t buffer, std::uint32_t chunk) {
  if (!in_place || buffer == WCCL_BUF_SCRATCH) return {buffer, chunk};
  const std::uint32_t mine = rank * shape.parts;
  switch (shape.collective) {
    case WCCL_COLL_ALLGATHER:
    case WCCL_COLL_GATHER:
      return {WCCL_BUF_OUTPUT, buffer == WCCL_BUF_INPUT ? mine + chunk : chunk};
    case WCCL_COLL_REDUCESCATTER:
    case WCCL_COLL_SCATTER:
      return {WCCL_BUF_INPUT, buffer == WCCL_BUF_OUTPUT ? mine + chunk : chunk};
    default:
      return {WCCL_BUF_OUTPUT, chunk};
  }
}

std::uint64_t count_units(const Shape& shape) {
  switch (shape.collective) {
    case WCCL_COLL_ALLGATHER:
    case WCCL_COLL_GATHER:
    case WCCL_COLL_REDUCESCATTER:
    case WCCL_COLL_SCATTER:
      return shape.ranks;
    case WCCL_COLL_ALLTOALL:
      return static_cast<std::uint64_t>(shape.ranks) * shape.ranks;
    default:
      return 0;
  }
}

std::uint64_t unit_of(const Shape& shape, std::uint32_t rank, std::uint8_t buffer, std::uint32_t chunk) {
  const std::uint64_t unit = chunk / shape.parts, n = shape.ranks;
  const bool input = buffer == WCCL_BUF_INPUT;
  if (shape.collective == WCCL_COLL_ALLTOALL) return input ? rank * n + unit : unit * n + rank;
  const bool narrow = (input ? shape.input_chunks : shape.output_chunks) == shape.parts;
  return narrow ? rank : unit;
}

namespace {

bool has_root(wccl_sched_collective collective) {
  return collective == WCCL_COLL_BROADCAST || collective == WCCL_COLL_REDUCE || collective == WCCL_COLL_GATHER ||
         collective == WCCL_COLL_SCATTER;
}

// Of the units that one rank has in a buffer: none may overlap another, neither where they are written nor where
// several are read.
std::string count_fault(const Shape& shape) {
  const std::uint64_t n = shape.ranks;
  const bool pairs = shape.collective == WCCL_COLL_ALLTOALL;
  const bool gathers = shape.collective == WCCL_COLL_ALLGATHER || shape.collective == WCCL_COLL_GATHER;
  using Range = std::pair<std::uint64_t, std::uint64_t>;
  const auto apart = [](std::vector<Range>& ranges) {
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first < ranges[i - 1].second) return false;
    }
    return true;
  };
  for (const wccl_sched_count& one : shape.counts) {
    for (const std::uint64_t offset : {one.input_offset, one.output_offset}) {
      if (one.count > WCCL_SCHED_MAX_ELEMENTS || offset > WCCL_SCHED_MAX_ELEMENTS - one.count)
        return "a v-count ends too far out";
    }
    if (!pairs && (gathers ? one.input_offset : one.output_offset) != 0) return "a v-count's unused offset is set";
  }
  std::vector<Range> ranges;
  for (std::uint64_t rank = 0; rank < (pairs ? n : 1); ++rank) {
    for (const bool input : {true, false}) {
      if (!pairs && input == gathers) continue;
      ranges.clear();
      for (std::uint64_t i = 0; i < n; ++i) {
        const wccl_sched_count& one = shape.counts[pairs ? (input ? rank * n + i : i * n + rank) : i];
        const std::uint64_t begin = input ? one.input_offset : one.output_offset;
        if (one.count != 0) ranges.emplace_back(begin, begin + one.count);
      }
      if (!apart(ranges)) return "v-counts overlap in the " + std::string(input ? "input" : "output");
    }
  }
  return {};
}

}  // namespace

std::string shape_fault(const Shape& s) {
  constexpr std::uint32_t kFlags = WCCL_SCHED_IN_PLACE | WCCL_SCHED_NO_STEPS | WCCL_SCHED_VCOUNTS | WCCL_SCHED_ANY_ROOT;
  if (s.flags & ~kFlags) return "unknown flags";
  if (s.collective < WCCL_COLL_ALLREDUCE || s.collective > WCCL_COLL_BARRIER) return "unknown collective";
  if (s.ranks == 0 || s.ranks > WCCL_SCHED_MAX_RANKS) return "ranks out of range";
  if (s.root >= s.ranks) return "root is not a rank";
  if (s.root != 0 && !has_root(s.collective) && s.collective != WCCL_COLL_SENDRECV)
    return "root of " + std::string(collective_name(s.collective)) + ", which has none";
  if ((s.flags & WCCL_SCHED_ANY_ROOT) && (!has_root(s.collective) || s.root != 0))
    return "ANY_ROOT without a root that is 0";
  if (s.lanes == 0 || s.lanes > WCCL_SCHED_MAX_LANES) return "lanes out of range";
  if (s.link_classes == 0 || s.link_classes > WCCL_SCHED_MAX_LINKS) return "link classes out of range";
  if (s.scratch_chunks > WCCL_SCHED_MAX_CHUNKS) return "too many scratch chunks";
  std::uint32_t input = 0, output = 0;
  if (!chunk_counts(s.collective, s.ranks, s.parts, input, output) || input != s.input_chunks ||
      output != s.output_chunks) {
    return "chunk counts are not those of " + std::string(collective_name(s.collective));
  }
  if (!(s.flags & WCCL_SCHED_VCOUNTS)) return s.counts.empty() ? "" : "counts without VCOUNTS";
  if (count_units(s) == 0) return "v-counts of " + std::string(collective_name(s.collective)) + ", which has no units";
  if (s.scratch_chunks) return "scratch chunks beside v-counts";
  if (s.counts.empty()) return {};
  if (s.counts.size() != count_units(s))
    return std::to_string(s.counts.size()) + " v-counts, not " + std::to_string(count_units(s));
  return count_fault(s);
}

std::string_view collective_name(std::uint32_t collective) {
  static constexpr std::array<std::string_view, 11> kNames = {"none",       "all_reduce",     "broadcast",  "reduce",
                                                              "all_gather", "reduce_scatter", "all_to_all", "gather",
                                                              "scatter",    "sendrecv",       "barrier"};
  return collective < kNames.size() ? kNames[collective] : "unknown";
}

std::string_view op_name(std::uint32_t code) {
  static constexpr std::array<std::string_view, 6> kNames = {"NONE", "SEND", "RECV", "RECV_REDUCE", "COPY", "REDUCE"};
  return code < kNames.size() ? kNames[code] : "UNKNOWN";
}

std::string_view buffer_name(std::uint32_t buffer) {
  static constexpr std::array<std::string_view, 3> kNames = {"input", "output", "scratch"};
  return buffer < kNames.size() ? kNames[buffer] : "unknown";
}

namespace {

std::string run_text(std::uint8_t buffer, std::uint32_t chunk, std::uint32_t chunks) {
  std::string text(buffer_name(buffer));
  text += '[' + std::to_string(chunk);
  if (chunks != 1) text += ".." + std::to_string(static_cast<std::uint64_t>(chunk) + chunks - 1);
  return text + ']';
}

bool uses_dst(std::uint8_t code) { return code != WCCL_OP_SEND; }
bool uses_src(std::uint8_t code) { return code != WCCL_OP_RECV; }
bool is_message(std::uint8_t code) {
  return code == WCCL_OP_SEND || code == WCCL_OP_RECV || code == WCCL_OP_RECV_REDUCE;
}
bool is_reduction(std::uint8_t code) { return code == WCCL_OP_REDUCE || code == WCCL_OP_RECV_REDUCE; }

std::uint32_t chunks_of(const Shape& shape, std::uint8_t buffer) {
  switch (buffer) {
    case WCCL_BUF_INPUT:
      return shape.input_chunks;
    case WCCL_BUF_OUTPUT:
      return shape.output_chunks;
    case WCCL_BUF_SCRATCH:
      return shape.scratch_chunks;
  }
  return 0;
}

// Two runs of one op: the same memory, or no memory in common, with and without aliasing.
bool overlap_in_part(const Shape& shape, std::uint32_t rank, std::uint32_t chunks, std::uint8_t a_buffer,
                     std::uint32_t a, std::uint8_t b_buffer, std::uint32_t b) {
  for (const bool in_place : {false, true}) {
    if (in_place && !(shape.flags & WCCL_SCHED_IN_PLACE)) continue;
    const Location x = location(shape, rank, in_place, a_buffer, a);
    const Location y = location(shape, rank, in_place, b_buffer, b);
    if (x.buffer != y.buffer || x.chunk == y.chunk) continue;
    const std::uint32_t low = std::min(x.chunk, y.chunk), high = std::max(x.chunk, y.chunk);
    if (high - low < chunks) return true;
  }
  return false;
}

}  // namespace

std::string describe(const Source& source, std::uint32_t rank, std::uint32_t index) {
  OpView view;
  source.op(rank, index, view);
  const wccl_sched_op& op = view.op;
  std::string text = std::to_string(index) + " step " + std::to_string(op.step) + ' ' + std::string(op_name(op.code));
  const std::string route = " rank " + std::to_string(op.peer) + " lane " + std::to_string(op.lane) +
                            (op.link ? " link " + std::to_string(op.link) : "");
  const std::string dst = run_text(op.dst_buffer, op.dst_chunk, op.chunks);
  const std::string src = run_text(op.src_buffer, op.src_chunk, op.chunks);
  switch (op.code) {
    case WCCL_OP_SEND:
      text += (op.chunks ? ' ' + src : " token") + " ->" + route;
      break;
    case WCCL_OP_RECV:
      text += (op.chunks ? ' ' + dst : " token") + " <-" + route;
      break;
    case WCCL_OP_RECV_REDUCE:
      text += ' ' + dst + " <- " + src + " +" + route;
      break;
    case WCCL_OP_COPY:
      text += ' ' + dst + " <- " + src;
      break;
    case WCCL_OP_REDUCE:
      text += ' ' + dst + " <- " + src + " + " + run_text(op.src2_buffer, op.src2_chunk, op.chunks);
      break;
    default:
      break;
  }
  if (op.flags & WCCL_OP_FINAL) text += " final";
  if (!view.deps.empty()) {
    text += " after";
    for (const std::uint32_t dep : view.deps) text += ' ' + std::to_string(dep);
  }
  return text;
}

std::string op_fault(const Shape& shape, std::uint32_t rank, std::uint32_t index, const OpView& view) {
  const wccl_sched_op& op = view.op;
  if (op.code < WCCL_OP_SEND || op.code > WCCL_OP_REDUCE) return "unknown code " + std::to_string(op.code);
  if (op.flags & ~WCCL_OP_FINAL) return "reserved bits are set";
  if ((op.flags & WCCL_OP_FINAL) && !is_reduction(op.code)) return "FINAL on an op that does not reduce";

  if (is_message(op.code)) {
    if (op.peer >= shape.ranks || op.peer == rank) return "peer " + std::to_string(op.peer) + " is not another rank";
    if (op.lane >= shape.lanes) return "lane " + std::to_string(op.lane) + " of " + std::to_string(shape.lanes);
    if (op.link >= shape.link_classes)
      return "link class " + std::to_string(op.link) + " of " + std::to_string(shape.link_classes);
  } else if (op.peer || op.lane || op.link) {
    return "peer, lane or link class on a local op";
  }

  if (op.chunks == 0) {
    if (op.code != WCCL_OP_SEND && op.code != WCCL_OP_RECV) return "no chunks";
    if (op.dst_buffer || op.dst_chunk || op.src_buffer || op.src_chunk) return "a token names chunks";
  }
  struct Run {
    bool used;
    std::uint8_t buffer;
    std::uint32_t chunk;
    const char* name;
  };
  const Run runs[] = {{uses_dst(op.code), op.dst_buffer, op.dst_chunk, "destination"},
                      {uses_src(op.code), op.src_buffer, op.src_chunk, "source"},
                      {op.code == WCCL_OP_REDUCE, op.src2_buffer, op.src2_chunk, "second source"}};
  const Run* first = nullptr;
  for (const Run& run : runs) {
    if (!run.used) {
      if (run.buffer || run.chunk) return std::string("unused ") + run.name + " is set";
      continue;
    }
    if (op.chunks == 0) continue;
    const std::uint32_t room = chunks_of(shape, run.buffer);
    if (run.buffer > WCCL_BUF_SCRATCH || run.chunk >= room || op.chunks > room - run.chunk) {
      return std::string(run.name) + ' ' + run_text(run.buffer, run.chunk, op.chunks) + " is outside the buffer";
    }
    const bool units = (shape.flags & WCCL_SCHED_VCOUNTS) != 0;
    if (units && run.chunk / shape.parts != (run.chunk + op.chunks - 1) / shape.parts)
      return std::string(run.name) + ' ' + run_text(run.buffer, run.chunk, op.chunks) + " leaves its unit";
    if (!first) {
      first = &run;
    } else {
      if (units && unit_of(shape, rank, run.buffer, run.chunk) != unit_of(shape, rank, first->buffer, first->chunk))
        return "runs are of different units";
      if (run.chunk % shape.parts != first->chunk % shape.parts) return "runs start at different parts";
    }
  }
  if (uses_dst(op.code) && op.chunks) {
    if (op.dst_buffer == WCCL_BUF_INPUT) return "writes the input";
    if (uses_src(op.code) &&
        overlap_in_part(shape, rank, op.chunks, op.dst_buffer, op.dst_chunk, op.src_buffer, op.src_chunk)) {
      return "destination and source overlap in part";
    }
    if (op.code == WCCL_OP_REDUCE &&
        overlap_in_part(shape, rank, op.chunks, op.dst_buffer, op.dst_chunk, op.src2_buffer, op.src2_chunk)) {
      return "destination and second source overlap in part";
    }
    if (op.code == WCCL_OP_COPY && op.dst_buffer == op.src_buffer && op.dst_chunk == op.src_chunk) {
      return "copies a chunk onto itself";
    }
  }
  for (const std::uint32_t dep : view.deps) {
    if (dep >= index) return "depends on op " + std::to_string(dep) + ", which is not earlier";
  }
  if (op.step >= std::max(shape.steps, 1u))
    return "step " + std::to_string(op.step) + " of " + std::to_string(shape.steps);
  return {};
}

bool assign_steps(Schedule& schedule, std::string& error) {
  const std::uint32_t ranks = schedule.shape().ranks;
  std::vector<Message> messages;
  if (!match_messages(schedule, messages, error)) return false;

  // Nodes: one for each message, one for each local op. first_node[r] + i -> node of op i of rank r.
  std::vector<std::size_t> first(ranks + 1, 0);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) first[rank + 1] = first[rank] + schedule.ops(rank);
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint32_t> node(first[ranks], kNone);
  std::uint32_t nodes = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    node[first[m.source] + m.send] = nodes;
    node[first[m.destination] + m.receive] = nodes;
    if (i && messages[i - 1].same_flow(m)) edges.emplace_back(nodes - 1, nodes);
    ++nodes;
  }
  for (std::uint32_t& n : node) {
    if (n == kNone) n = nodes++;
  }
  OpView view;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t index = 0; index < schedule.ops(rank); ++index) {
      schedule.op(rank, index, view);
      for (const std::uint32_t dep : view.deps) edges.emplace_back(node[first[rank] + dep], node[first[rank] + index]);
    }
  }
  // Longest paths by Kahn's algorithm.
  std::sort(edges.begin(), edges.end());
  std::vector<std::size_t> begin(nodes + 1, 0);
  std::vector<std::uint32_t> missing(nodes, 0), step(nodes, 0), ready;
  for (const auto& [from, to] : edges) {
    ++begin[from + 1];
    ++missing[to];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (std::uint32_t n = 0; n < nodes; ++n) {
    if (missing[n] == 0) ready.push_back(n);
  }
  std::uint32_t done = 0, steps = 0;
  while (!ready.empty()) {
    const std::uint32_t n = ready.back();
    ready.pop_back();
    ++done;
    steps = std::max(steps, step[n] + 1);
    for (std::size_t e = begin[n]; e < begin[n + 1]; ++e) {
      const std::uint32_t to = edges[e].second;
      step[to] = std::max(step[to], step[n] + 1);
      if (--missing[to] == 0) ready.push_back(to);
    }
  }
  if (done != nodes) {
    error = "deadlock: messages wait for each other in a circle";
    return false;
  }

  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Schedule::Rank& table = schedule.mutable_ranks()[rank];
    const auto count = static_cast<std::uint32_t>(table.ops.size());
    std::vector<std::uint32_t> order(count), place(count);
    std::iota(order.begin(), order.end(), 0u);
    const auto step_of = [&](std::uint32_t index) { return step[node[first[rank] + index]]; };
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return step_of(a) < step_of(b); });
    for (std::uint32_t i = 0; i < count; ++i) place[order[i]] = i;
    std::vector<wccl_sched_op> ops;
    ops.reserve(count);
    for (const std::uint32_t index : order) {
      ops.push_back(table.ops[index]);
      ops.back().step = step_of(index);
    }
    for (std::uint32_t& dep : table.deps) dep = place[dep];
    table.ops = std::move(ops);
  }
  schedule.mutable_shape().steps = steps;
  schedule.mutable_shape().flags &= ~WCCL_SCHED_NO_STEPS;
  return true;
}

}  // namespace weft::ccl
