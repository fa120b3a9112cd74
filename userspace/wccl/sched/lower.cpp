// SPDX-License-Identifier: MIT
#include "sched/lower.hpp"

#include <algorithm>
#include <stdexcept>

namespace weft::ccl {
namespace {

constexpr std::uint32_t kGrain = 64;    // bytes
constexpr std::size_t kExcusedMax = 8;  // deps that one op is excused from

bool is_receive(std::uint8_t code) { return code == WCCL_OP_RECV || code == WCCL_OP_RECV_REDUCE; }
bool is_local(std::uint8_t code) { return code == WCCL_OP_COPY || code == WCCL_OP_REDUCE; }

// Largest run of bytes of an op.
std::uint64_t max_run(const Shape& shape, std::uint64_t count, std::uint32_t element_bytes) {
  const std::uint64_t total = count * element_bytes;
  const std::uint64_t part = (total + shape.parts - 1) / shape.parts + kGrain;
  return std::min(part * shape.max_chunks,
                  std::max<std::uint64_t>(total, part) * ((shape.max_chunks + shape.parts - 1) / shape.parts));
}

}  // namespace

PartLayout::PartLayout(const Shape& shape, std::uint32_t rank, std::uint64_t count, std::uint32_t element_bytes,
                       bool in_place, std::uint32_t slice_bytes)
    : shape_(shape),
      rank_(rank),
      count_(count),
      element_bytes_(element_bytes),
      in_place_(in_place),
      slice_bytes_(slice_bytes) {}

std::uint64_t PartLayout::part_begin(std::uint64_t count, std::uint32_t element_bytes, std::uint32_t parts,
                                     std::uint32_t part) {
  // Counts are below 2^42 and parts below 2^22 (both checked where they come in), so the product fits.
  const std::uint64_t bytes = count * element_bytes;
  if (bytes >= static_cast<std::uint64_t>(kGrain) * parts) {
    const std::uint64_t grains = (bytes + kGrain - 1) / kGrain;
    return std::min(grains * part / parts * kGrain, bytes);
  }
  return count * part / parts * element_bytes;
}

std::uint64_t PartLayout::scratch_bytes(const Shape& shape, std::uint64_t count, std::uint32_t element_bytes) {
  const std::uint64_t units = (static_cast<std::uint64_t>(shape.scratch_chunks) + shape.parts - 1) / shape.parts;
  return units * count * element_bytes;
}

std::uint64_t PartLayout::offset(std::uint32_t chunk) const {
  return chunk / shape_.parts * count_ * element_bytes_ +
         part_begin(count_, element_bytes_, shape_.parts, chunk % shape_.parts);
}

Place PartLayout::place(std::uint8_t buffer, std::uint32_t chunk, std::uint32_t chunks) const {
  if (chunks == 0) return {buffer, 0, 0};
  const Location at = location(shape_, rank_, in_place_, buffer, chunk);
  const std::uint64_t begin = offset(at.chunk);
  return {at.buffer, begin, offset(at.chunk + chunks) - begin};
}

std::uint32_t choose_slice(const Shape& shape, std::uint64_t count, std::uint32_t element_bytes,
                           std::uint32_t slot_bytes, std::uint32_t entries, std::uint32_t least) {
  const std::uint64_t run = max_run(shape, count, element_bytes);
  std::uint64_t slice = std::max<std::uint64_t>((run / 4 + kGrain - 1) / kGrain * kGrain, least);
  for (;;) {
    slice = std::min<std::uint64_t>(slice, slot_bytes);
    // A SEND takes two slots and one for a record of the call, a receive two and one for the credit.
    const std::uint64_t need = (static_cast<std::uint64_t>(shape.max_ops) * 3 * ((run + slice - 1) / slice)) + 8;
    if (need <= entries) return static_cast<std::uint32_t>(slice);
    if (slice == slot_bytes) return 0;
    slice *= 2;
  }
}

std::string not_lowered(const Shape& shape) {
  if (shape.flags & WCCL_SCHED_VCOUNTS) return "schedules with v-counts do not run yet";
  if (shape.flags & WCCL_SCHED_ANY_ROOT) return "schedules whose root is bound when they run do not run yet";
  if (shape.link_classes != 1) return "schedules with several classes of links do not run yet";
  return {};
}

Lowering::Lowering(const Source& source, std::uint32_t rank, const Layout& layout, std::uint32_t slots, Flows& flows)
    : source_(source), rank_(rank), count_(source.ops(rank)), layout_(layout), slots_(slots), flows_(flows) {
  if (const std::string text = not_lowered(source.shape()); !text.empty()) throw std::invalid_argument(text);
  past_.reserve(count_);
}

Lowering::Runs Lowering::runs_of(const wccl_sched_op& op) const {
  Runs runs;
  runs.op = op;
  runs.slice_bytes = is_local(op.code) ? static_cast<std::uint32_t>(kLocalPiece) : layout_.slice_bytes(op.peer);
  if (op.code != WCCL_OP_SEND) runs.dst = layout_.place(op.dst_buffer, op.dst_chunk, op.chunks);
  if (op.code != WCCL_OP_RECV) runs.src = layout_.place(op.src_buffer, op.src_chunk, op.chunks);
  if (op.code == WCCL_OP_REDUCE) runs.src2 = layout_.place(op.src2_buffer, op.src2_chunk, op.chunks);
  return runs;
}

// 0: moves nothing. Both ends of an empty message agree on its size, so neither takes part; a copy may be one onto
// itself in place.
std::uint32_t Lowering::slices_of(const Runs& runs) {
  const wccl_sched_op& op = runs.op;
  const std::uint64_t bytes = op.code == WCCL_OP_SEND ? runs.src.bytes : runs.dst.bytes;
  if (op.chunks && bytes == 0) return 0;
  if (op.code == WCCL_OP_COPY && runs.dst.buffer == runs.src.buffer && runs.dst.offset == runs.src.offset) return 0;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (bytes + runs.slice_bytes - 1) / runs.slice_bytes));
}

void Lowering::find_last_credits() {
  for (std::uint32_t index = 0; index < count_; ++index) {
    source_.op(rank_, index, view_);
    const wccl_sched_op& op = view_.op;
    if (!is_receive(op.code)) continue;
    const std::uint64_t key = flow_key(op.peer, op.lane);
    const auto [it, added] = late_from_.try_emplace(key, 0);
    if (added) {
      const auto flow = flows_.find(key);
      it->second = flow == flows_.end() ? 0 : flow->second.received;
    }
    it->second += slices_of(runs_of(op));
  }
  for (auto& [key, end] : late_from_) end = end > slots_ ? end - slots_ : 0;
}

void Lowering::load(Current& current, std::uint32_t index) {
  current = Current{};
  Runs& runs = current.runs = runs_of(view_.op);
  Past& past = current.past;
  const wccl_sched_op& op = runs.op;
  past.slices = slices_of(runs);
  if (past.slices) {
    if (is_local(op.code)) {
      if (locals_ < kLocalObjects) past.local = locals_++;
    } else {
      Flow& flow = flows_[flow_key(op.peer, op.lane)];
      std::uint64_t& seq = op.code == WCCL_OP_SEND ? flow.sent : flow.received;
      past.first_seq = seq;
      seq += past.slices;
    }
    for (const std::uint32_t dep : view_.deps) add_dep(current, index, dep);
  }
  past_.push_back(past);
}

bool Lowering::load_group() {
  group_begin_ += group_size_;
  group_size_ = 0;
  group_slices_ = 0;
  std::uint32_t step = 0;
  while (group_begin_ + group_size_ < count_) {
    source_.op(rank_, group_begin_ + group_size_, view_);
    if (group_size_ == 0) {
      step = view_.op.step;
    } else if (view_.op.step != step) {
      break;
    }
    if (group_.size() == group_size_) group_.emplace_back();
    Current& current = group_[group_size_];
    load(current, group_begin_ + group_size_);
    group_slices_ = std::max(group_slices_, current.past.slices);
    ++group_size_;
  }
  slice_ = phase_ = at_ = 0;
  return group_size_ != 0;
}

bool Lowering::next(Step& out) {
  if (!started_) {
    started_ = true;
    find_last_credits();
  }
  for (;;) {
    if (slice_ >= group_slices_ && (ended_ || !load_group())) return emit_tail(out);
    for (; slice_ < group_slices_; ++slice_, phase_ = 0) {
      for (; phase_ < 3; ++phase_, at_ = 0) {
        while (at_ < group_size_) {
          const std::uint32_t i = at_++;
          if (emit(group_[i], group_begin_ + i, out)) return true;
        }
      }
    }
  }
}

namespace {

// The places of an op; the destination first.
std::array<const Place*, 3> places(const wccl_sched_op& op, const Place& dst, const Place& src, const Place& src2) {
  return {op.code != WCCL_OP_SEND ? &dst : nullptr, op.code != WCCL_OP_RECV ? &src : nullptr,
          op.code == WCCL_OP_REDUCE ? &src2 : nullptr};
}

bool overlap(const Place& x, const Place& y) {
  return x.buffer == y.buffer && x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
}

}  // namespace

// Slice j of b needs no more of a than slice j: each pair of their places is the same or apart, and one is the same.
bool Lowering::slicewise(const Runs& a, std::uint32_t a_slices, const Runs& b, std::uint32_t b_slices) {
  if (a_slices != b_slices || a.slice_bytes != b.slice_bytes) return false;
  if (a.op.chunks == 0 && b.op.chunks == 0) return true;  // tokens
  bool same = false;
  for (const Place* x : places(a.op, a.dst, a.src, a.src2)) {
    for (const Place* y : places(b.op, b.dst, b.src, b.src2)) {
      if (!x || !y || !overlap(*x, *y)) continue;
      if (x->offset != y->offset || x->bytes != y->bytes) return false;
      same = true;
    }
  }
  return same;
}

// One writes what the other touches.
bool Lowering::conflict(const Runs& a, const Runs& b) {
  const auto a_places = places(a.op, a.dst, a.src, a.src2), b_places = places(b.op, b.dst, b.src, b.src2);
  for (std::size_t i = 0; i < a_places.size(); ++i) {
    for (std::size_t k = 0; k < b_places.size(); ++k) {
      if ((i == 0 || k == 0) && a_places[i] && b_places[k] && overlap(*a_places[i], *b_places[k])) return true;
    }
  }
  return false;
}

void Lowering::add_dep(Current& current, std::uint32_t index, std::uint32_t dep) {
  const Past& past = past_[dep];
  source_.op(rank_, dep, dep_view_);
  const wccl_sched_op op = dep_view_.op;
  if (const auto inherited = excused_.find(dep); inherited != excused_.end()) {
    const std::vector<std::uint32_t> again = inherited->second;
    for (const std::uint32_t earlier : again) add_dep(current, index, earlier);
  }
  if (past.slices == 0 || (is_local(op.code) && past.local == kLocalObjects)) {
    current.fenced = true;
    return;
  }
  const Runs runs = runs_of(op);
  // A dependency that matters only in place, or to who depends on this op. Tokens order for the order's sake.
  if (op.chunks && current.runs.op.chunks && !conflict(runs, current.runs)) {
    std::vector<std::uint32_t>& excused = excused_[index];
    if (excused.size() < kExcusedMax) {
      if (std::find(excused.begin(), excused.end(), dep) == excused.end()) excused.push_back(dep);
      return;
    }
  }
  if (is_local(op.code)) {
    current.deps.push_back({{EventKind::kLocal, 0, past.local, past.slices}, false});
    return;
  }
  const WaitFor wait{op.code == WCCL_OP_SEND ? EventKind::kSent : EventKind::kDone, op.lane, op.peer, past.first_seq};
  if (!is_local(current.runs.op.code) && slicewise(runs, past.slices, current.runs, current.past.slices)) {
    current.deps.push_back({wait, true});
  } else if (past.slices == 1) {
    current.deps.push_back({wait, false});
  } else {
    current.fenced = true;
  }
}

void Lowering::add_wait(Step& out, const WaitFor& wait) {
  if (out.waits < out.wait.size()) {
    out.wait[out.waits++] = wait;
  } else {
    out.fenced = true;
  }
}

bool Lowering::emit_tail(Step& out) {
  out = Step{};
  if (!ended_) {
    ended_ = true;
    out.kind = StepKind::kEnd;
    out.fenced = true;
    return true;
  }
  if (late_at_ == late_.size()) return false;
  const Late& late = late_[late_at_++];
  out.kind = StepKind::kCredit;
  out.op = late.op;
  out.peer = late.peer;
  out.lane = late.lane;
  out.seq = late.seq;
  return true;
}

bool Lowering::emit(const Current& current, std::uint32_t index, Step& out) {
  const Runs& runs = current.runs;
  const wccl_sched_op& op = runs.op;
  if (slice_ >= current.past.slices) return false;
  const bool credit = is_receive(op.code) && phase_ == 2;
  if (phase_ != (is_receive(op.code) ? 1u : 0u) && !credit) return false;
  if (credit && current.past.first_seq + slice_ >= late_from_.at(flow_key(op.peer, op.lane))) {
    late_.push_back({index, op.peer, op.lane, current.past.first_seq + slice_});
    return false;
  }

  out = Step{};
  out.op = index;
  out.slice = slice_;
  out.lane = op.lane;
  out.peer = op.peer;
  out.seq = current.past.first_seq + slice_;
  if (credit) {
    out.kind = StepKind::kCredit;
    add_wait(out, {EventKind::kDone, op.lane, op.peer, out.seq});
    return true;
  }
  const std::uint64_t begin = static_cast<std::uint64_t>(slice_) * runs.slice_bytes;
  const std::uint64_t total = op.code == WCCL_OP_SEND ? runs.src.bytes : runs.dst.bytes;
  out.message = total;
  out.bytes = std::min<std::uint64_t>(runs.slice_bytes, total - begin);
  const auto cut = [&](const Place& whole) { return Place{whole.buffer, whole.offset + begin, out.bytes}; };
  out.dst = cut(runs.dst);
  out.src = cut(runs.src);
  out.src2 = cut(runs.src2);
  out.final = op.flags & WCCL_OP_FINAL;
  out.local = current.past.local;
  switch (op.code) {
    case WCCL_OP_SEND:
      out.kind = StepKind::kSend;
      if (out.seq >= slots_) add_wait(out, {EventKind::kCredit, op.lane, op.peer, out.seq});
      break;
    case WCCL_OP_RECV:
    case WCCL_OP_RECV_REDUCE:
      out.kind = op.code == WCCL_OP_RECV ? StepKind::kRecvCopy : StepKind::kRecvReduce;
      add_wait(out, {EventKind::kArrival, op.lane, op.peer, out.seq});
      break;
    default:
      out.kind = op.code == WCCL_OP_COPY ? StepKind::kCopy : StepKind::kReduce;
      break;
  }
  out.fenced = current.fenced && slice_ == 0;  // later slices come after the fence of the first
  for (const Dep& dep : current.deps) {
    WaitFor wait = dep.wait;
    if (dep.per_slice) wait.seq += slice_;
    add_wait(out, wait);
  }
  return true;
}

}  // namespace weft::ccl
