// SPDX-License-Identifier: MIT
#include "sched/check.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "sched/match.hpp"

namespace weft::ccl {
namespace {

// Sets of 64-bit atoms as sorted, disjoint, non-adjacent intervals; each distinct set is kept once and named by a
// number. 0: no value.
class Sets {
 public:
  using Id = std::uint32_t;
  using Intervals = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // [first, second)
  static constexpr Id kUndefined = 0;

  Sets() { sets_.emplace_back(); }

  Id range(std::uint64_t first, std::uint64_t count) { return intern({{first, first + count}}); }

  // Union; `disjoint` becomes false when the sets share an atom.
  Id join(Id a, Id b, bool& disjoint) {
    if (a > b) std::swap(a, b);
    const std::uint64_t key = static_cast<std::uint64_t>(a) << 32 | b;
    if (const auto it = joined_.find(key); it != joined_.end()) {
      disjoint = disjoint && it->second.second;
      return it->second.first;
    }
    Intervals out;
    bool apart = true;
    const Intervals &x = sets_[a], &y = sets_[b];
    for (std::size_t i = 0, j = 0; i < x.size() || j < y.size();) {
      const auto next = j >= y.size() || (i < x.size() && x[i] < y[j]) ? x[i++] : y[j++];
      if (!out.empty() && next.first < out.back().second) apart = false;
      if (!out.empty() && next.first <= out.back().second) {
        out.back().second = std::max(out.back().second, next.second);
      } else {
        out.push_back(next);
      }
    }
    const Id id = intern(std::move(out));
    joined_.emplace(key, std::pair{id, apart});
    disjoint = disjoint && apart;
    return id;
  }

  std::string text(Id id, std::uint32_t ranks) const {
    if (id == kUndefined) return "nothing";
    std::string out;
    std::size_t shown = 0;
    for (const auto& [first, end] : sets_[id]) {
      if (++shown > 4) return out + ", ...";
      if (!out.empty()) out += ", ";
      out += "rank " + std::to_string(first % ranks) + " chunk " + std::to_string(first / ranks);
      if (end - first > 1) {
        out += " to rank " + std::to_string((end - 1) % ranks) + " chunk " + std::to_string((end - 1) / ranks);
      }
    }
    return out;
  }

 private:
  Id intern(Intervals set) {
    const auto [it, added] = index_.emplace(std::move(set), static_cast<Id>(sets_.size()));
    if (added) sets_.push_back(it->first);
    return it->second;
  }

  std::vector<Intervals> sets_;
  std::map<Intervals, Id> index_;
  std::unordered_map<std::uint64_t, std::pair<Id, bool>> joined_;
};

bool reduces(wccl_sched_collective collective) {
  return collective == WCCL_COLL_ALLREDUCE || collective == WCCL_COLL_REDUCE || collective == WCCL_COLL_REDUCESCATTER;
}

bool writes(std::uint8_t code) { return code != WCCL_OP_SEND; }

// The runs that an op reads and writes.
struct Access {
  std::uint8_t buffer;
  std::uint32_t chunk;
  bool write;
};
template <class F>
void for_each_access(const wccl_sched_op& op, F&& visit) {
  for (std::uint32_t i = 0; i < op.chunks; ++i) {
    if (op.code != WCCL_OP_RECV) visit(Access{op.src_buffer, op.src_chunk + i, false});
    if (op.code == WCCL_OP_REDUCE) visit(Access{op.src2_buffer, op.src2_chunk + i, false});
  }
  for (std::uint32_t i = 0; writes(op.code) && i < op.chunks; ++i) visit(Access{op.dst_buffer, op.dst_chunk + i, true});
}

class Checker {
 public:
  Checker(const Source& source, std::size_t limit) : source_(source), shape_(source.shape()), limit_(limit) {}

  Report run() {
    structure();
    if (report_.ok()) match();
    if (report_.ok()) order();
    for (const bool in_place : {false, true}) {
      if (in_place && !(shape_.flags & WCCL_SCHED_IN_PLACE)) continue;
      if (report_.ok()) races(in_place);
      if (report_.ok()) values(in_place);
    }
    return std::move(report_);
  }

 private:
  bool add(Fault fault, std::uint32_t rank, std::uint32_t op, std::string text) {
    if (report_.findings.size() < limit_) report_.findings.push_back({fault, rank, op, std::move(text)});
    return report_.findings.size() < limit_;
  }

  bool full() const { return report_.findings.size() >= limit_; }

  void structure() {
    if (std::string text = shape_fault(shape_); !text.empty()) {
      add(Fault::kStructure, 0, UINT32_MAX, std::move(text));
      return;
    }
    OpView view;
    for (std::uint32_t rank = 0; rank < shape_.ranks && !full(); ++rank) {
      const std::uint32_t count = source_.ops(rank);
      report_.ops += count;
      for (std::uint32_t index = 0; index < count; ++index) {
        source_.op(rank, index, view);
        if (std::string text = op_fault(shape_, rank, index, view); !text.empty()) {
          if (!add(Fault::kStructure, rank, index, std::move(text))) break;
        }
      }
    }
  }

  void match() {
    std::string error;
    if (!match_messages(source_, messages_, error)) {
      add(Fault::kMatch, 0, UINT32_MAX, error);
      return;
    }
    report_.messages = messages_.size();
    OpView send, receive;
    const Message* before = nullptr;
    std::uint8_t link = 0;
    for (const Message& m : messages_) {
      source_.op(m.source, m.send, send);
      source_.op(m.destination, m.receive, receive);
      report_.message_chunks += send.op.chunks;
      const bool data = send.op.chunks != 0;
      const bool same_part = !data || send.op.src_chunk % shape_.parts == receive.op.dst_chunk % shape_.parts;
      const bool same_unit =
          !data || !(shape_.flags & WCCL_SCHED_VCOUNTS) || unit(m.source, send) == unit(m.destination, receive);
      const bool same_link =
          send.op.link == receive.op.link && (!before || !before->same_flow(m) || link == send.op.link);
      before = &m;
      link = send.op.link;
      if (send.op.chunks != receive.op.chunks || !same_part || !same_unit || !same_link) {
        if (!add(Fault::kMatch, m.destination, m.receive,
                 "receives " + describe(source_, m.destination, m.receive) + " but rank " + std::to_string(m.source) +
                     " sends " + describe(source_, m.source, m.send))) {
          return;
        }
      }
    }
  }

  // Of the unit table, where a message's data lies at its sender or receiver.
  std::uint64_t unit(std::uint32_t rank, const OpView& view) const {
    const bool send = view.op.code == WCCL_OP_SEND;
    return unit_of(shape_, rank, send ? view.op.src_buffer : view.op.dst_buffer,
                   send ? view.op.src_chunk : view.op.dst_chunk);
  }

  // Steps must be a linear order of dependencies, message ends (as one node) and flows. Then, whatever the buffering,
  // the op of the smallest step that is not complete can always run.
  void order() {
    OpView view, other;
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
      std::uint32_t last = 0;
      const std::uint32_t count = source_.ops(rank);
      for (std::uint32_t index = 0; index < count; ++index) {
        source_.op(rank, index, view);
        if (view.op.step < last && !add(Fault::kOrder, rank, index, "the list is not sorted by step")) return;
        last = view.op.step;
        for (const std::uint32_t dep : view.deps) {
          source_.op(rank, dep, other);
          if (other.op.step >= view.op.step &&
              !add(Fault::kOrder, rank, index, "depends on op " + std::to_string(dep) + " of no smaller step")) {
            return;
          }
        }
      }
    }
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& m = messages_[i];
      source_.op(m.source, m.send, view);
      source_.op(m.destination, m.receive, other);
      if (view.op.step != other.op.step && !add(Fault::kOrder, m.destination, m.receive,
                                                "step differs from that of its SEND, op " + std::to_string(m.send) +
                                                    " of rank " + std::to_string(m.source))) {
        return;
      }
      if (i == 0 || !messages_[i - 1].same_flow(m)) continue;
      source_.op(m.source, messages_[i - 1].send, other);
      if (other.op.step >= view.op.step &&
          !add(Fault::kOrder, m.source, m.send, "step is not larger than that of the message before it")) {
        return;
      }
    }
  }

  // Flat index of a location of one rank.
  std::size_t slot(std::uint32_t rank, bool in_place, std::uint8_t buffer, std::uint32_t chunk) const {
    const Location at = location(shape_, rank, in_place, buffer, chunk);
    std::size_t base = 0;
    if (at.buffer >= WCCL_BUF_OUTPUT) base += shape_.input_chunks;
    if (at.buffer >= WCCL_BUF_SCRATCH) base += shape_.output_chunks;
    return base + at.chunk;
  }
  std::size_t slots() const {
    return static_cast<std::size_t>(shape_.input_chunks) + shape_.output_chunks + shape_.scratch_chunks;
  }

  // Is `early` an ancestor of `late` by dependencies?
  bool ordered(const std::vector<OpView>& ops, std::uint32_t early, std::uint32_t late) {
    if (visited_.size() < ops.size()) visited_.resize(ops.size(), 0);
    ++stamp_;
    stack_.assign(1, late);
    while (!stack_.empty()) {
      const std::uint32_t at = stack_.back();
      stack_.pop_back();
      for (const std::uint32_t dep : ops[at].deps) {
        if (dep == early) return true;
        if (dep < early || visited_[dep] == stamp_) continue;
        visited_[dep] = stamp_;
        stack_.push_back(dep);
      }
    }
    return false;
  }

  void races(bool in_place) {
    constexpr std::uint32_t kNobody = UINT32_MAX;
    std::vector<std::uint32_t> writer(slots());
    std::vector<std::vector<std::uint32_t>> readers(slots());
    std::vector<OpView> ops;
    for (std::uint32_t rank = 0; rank < shape_.ranks && !full(); ++rank) {
      std::fill(writer.begin(), writer.end(), kNobody);
      for (auto& list : readers) list.clear();
      ops.resize(source_.ops(rank));
      for (std::uint32_t index = 0; index < ops.size(); ++index) source_.op(rank, index, ops[index]);
      const auto conflict = [&](std::uint32_t early, std::uint32_t late, const Access& access) {
        if (early == late || ordered(ops, early, late)) return;
        add(Fault::kRace, rank, late,
            "races with op " + std::to_string(early) + " on " + std::string(buffer_name(access.buffer)) + '[' +
                std::to_string(access.chunk) + ']' + (in_place ? " in place" : ""));
      };
      for (std::uint32_t index = 0; index < ops.size() && !full(); ++index) {
        for_each_access(ops[index].op, [&](const Access& access) {
          const std::size_t at = slot(rank, in_place, access.buffer, access.chunk);
          if (writer[at] != kNobody) conflict(writer[at], index, access);
          if (!access.write) {
            readers[at].push_back(index);
            return;
          }
          for (const std::uint32_t reader : readers[at]) conflict(reader, index, access);
          readers[at].clear();
          writer[at] = index;
        });
      }
    }
  }

  struct Value {
    Sets::Id set = Sets::kUndefined;
    bool final = false;
    bool operator==(const Value&) const = default;
  };

  // All contributions to input chunk `chunk`.
  Sets::Id everybody(std::uint32_t chunk) { return sets_.range(atom(0, chunk), shape_.ranks); }
  std::uint64_t atom(std::uint32_t rank, std::uint32_t chunk) const {
    return static_cast<std::uint64_t>(chunk) * shape_.ranks + rank;
  }

  void values(bool in_place) {
    std::vector<std::vector<Value>> memory(shape_.ranks, std::vector<Value>(slots()));
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
      const bool has_input =
          (shape_.collective != WCCL_COLL_BROADCAST && shape_.collective != WCCL_COLL_SCATTER) || rank == shape_.root;
      for (std::uint32_t chunk = 0; has_input && chunk < shape_.input_chunks; ++chunk) {
        memory[rank][slot(rank, in_place, WCCL_BUF_INPUT, chunk)].set = sets_.range(atom(rank, chunk), 1);
      }
    }

    // Messages carry values and, for a barrier, what the sender knew.
    std::vector<std::vector<std::uint32_t>> message_of(shape_.ranks);
    for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) message_of[rank].resize(source_.ops(rank));
    for (std::uint32_t i = 0; i < messages_.size(); ++i) {
      message_of[messages_[i].source][messages_[i].send] = i;
      message_of[messages_[i].destination][messages_[i].receive] = i;
    }
    std::vector<std::vector<Value>> carried(messages_.size());
    std::vector<Sets::Id> told(messages_.size());
    const bool barrier = shape_.collective == WCCL_COLL_BARRIER;
    std::vector<std::vector<Sets::Id>> known(barrier ? shape_.ranks : 0);
    for (std::uint32_t rank = 0; rank < known.size(); ++rank) known[rank].resize(source_.ops(rank));

    // Steps order everything; within one, sends come first and the rest of a rank is independent.
    std::vector<std::uint32_t> next(shape_.ranks, 0);
    OpView view;
    for (std::uint32_t step = 0; step < std::max(shape_.steps, 1u) && !full(); ++step) {
      for (const bool sends : {true, false}) {
        for (std::uint32_t rank = 0; rank < shape_.ranks; ++rank) {
          std::uint32_t index = next[rank];
          for (; index < source_.ops(rank); ++index) {
            source_.op(rank, index, view);
            if (view.op.step != step) break;
            if ((view.op.code == WCCL_OP_SEND) != sends) continue;
            const std::uint32_t message = view.op.code <= WCCL_OP_RECV_REDUCE ? message_of[rank][index] : 0;
            if (barrier) {
              learn(rank, index, view, known[rank], told, message);
              continue;
            }
            execute(rank, index, view.op, in_place, memory[rank],
                    view.op.code <= WCCL_OP_RECV_REDUCE ? &carried[message] : nullptr);
          }
          if (!sends) next[rank] = index;
        }
      }
    }
    if (full()) return;
    if (barrier) {
      const Sets::Id all = sets_.range(0, shape_.ranks);
      for (std::uint32_t rank = 0; rank < shape_.ranks && !full(); ++rank) {
        Sets::Id heard = sets_.range(rank, 1);
        bool disjoint = true;
        for (const Sets::Id id : known[rank]) heard = sets_.join(heard, id, disjoint);
        if (heard != all) {
          add(Fault::kValue, rank, UINT32_MAX,
              "is through when it has heard of no more than " + sets_.text(heard, shape_.ranks));
        }
      }
      return;
    }
    for (std::uint32_t rank = 0; rank < shape_.ranks && !full(); ++rank) {
      for (std::uint32_t chunk = 0; chunk < shape_.output_chunks && !full(); ++chunk)
        expect(rank, chunk, in_place, memory[rank]);
    }
  }

  void learn(std::uint32_t rank, std::uint32_t index, const OpView& view, std::vector<Sets::Id>& known,
             std::vector<Sets::Id>& told, std::uint32_t message) {
    bool disjoint = true;
    Sets::Id id = sets_.range(rank, 1);
    for (const std::uint32_t dep : view.deps) id = sets_.join(id, known[dep], disjoint);
    if (view.op.code == WCCL_OP_SEND) told[message] = id;
    if (view.op.code == WCCL_OP_RECV || view.op.code == WCCL_OP_RECV_REDUCE)
      id = sets_.join(id, told[message], disjoint);
    known[index] = id;
  }

  void execute(std::uint32_t rank, std::uint32_t index, const wccl_sched_op& op, bool in_place,
               std::vector<Value>& memory, std::vector<Value>* message) {
    for (std::uint32_t i = 0; i < op.chunks && !full(); ++i) {
      const auto read = [&](std::uint8_t buffer, std::uint32_t chunk) {
        const Value value = memory[slot(rank, in_place, buffer, chunk)];
        if (value.set == Sets::kUndefined) {
          add(Fault::kValue, rank, index,
              "reads " + std::string(buffer_name(buffer)) + '[' + std::to_string(chunk) + "] before it was written");
        }
        return value;
      };
      Value result;
      switch (op.code) {
        case WCCL_OP_SEND:
          message->push_back(read(op.src_buffer, op.src_chunk + i));
          continue;
        case WCCL_OP_RECV:
          result = (*message)[i];
          break;
        case WCCL_OP_RECV_REDUCE:
          result = reduce(rank, index, op, read(op.src_buffer, op.src_chunk + i), (*message)[i]);
          break;
        case WCCL_OP_COPY:
          result = read(op.src_buffer, op.src_chunk + i);
          break;
        case WCCL_OP_REDUCE:
          result =
              reduce(rank, index, op, read(op.src_buffer, op.src_chunk + i), read(op.src2_buffer, op.src2_chunk + i));
          break;
      }
      memory[slot(rank, in_place, op.dst_buffer, op.dst_chunk + i)] = result;
    }
  }

  Value reduce(std::uint32_t rank, std::uint32_t index, const wccl_sched_op& op, Value a, Value b) {
    if (a.set == Sets::kUndefined || b.set == Sets::kUndefined) return {};
    if (!reduces(shape_.collective)) {
      add(Fault::kValue, rank, index, "reduces in a collective that does not");
      return {};
    }
    if (a.final || b.final) add(Fault::kValue, rank, index, "reduces what a FINAL op has completed");
    bool disjoint = true;
    const Value result{sets_.join(a.set, b.set, disjoint), (op.flags & WCCL_OP_FINAL) != 0};
    if (!disjoint) {
      add(Fault::kValue, rank, index,
          "adds a contribution twice: " + sets_.text(a.set, shape_.ranks) + " and " + sets_.text(b.set, shape_.ranks));
    }
    return result;
  }

  void expect(std::uint32_t rank, std::uint32_t chunk, bool in_place, const std::vector<Value>& memory) {
    const std::uint32_t unit = chunk / shape_.parts, part = chunk % shape_.parts, n = shape_.ranks;
    Value want{Sets::kUndefined, reduces(shape_.collective) && n > 1};
    switch (shape_.collective) {
      case WCCL_COLL_REDUCE:
        if (rank != shape_.root) return;
        [[fallthrough]];
      case WCCL_COLL_ALLREDUCE:
        want.set = everybody(chunk);
        break;
      case WCCL_COLL_BROADCAST:
        want.set = sets_.range(atom(shape_.root, chunk), 1);
        break;
      case WCCL_COLL_GATHER:
        if (rank != shape_.root) return;
        [[fallthrough]];
      case WCCL_COLL_ALLGATHER:
        want.set = sets_.range(atom(unit, part), 1);
        break;
      case WCCL_COLL_REDUCESCATTER:
        want.set = everybody(rank * shape_.parts + part);
        break;
      case WCCL_COLL_SCATTER:
        want.set = sets_.range(atom(shape_.root, rank * shape_.parts + part), 1);
        break;
      case WCCL_COLL_ALLTOALL:
        want.set = sets_.range(atom(unit, rank * shape_.parts + part), 1);
        break;
      case WCCL_COLL_SENDRECV:
        want.set = sets_.range(atom((rank + n - shape_.root) % n, chunk), 1);
        break;
      case WCCL_COLL_BARRIER:
        return;
    }
    const Value got = memory[slot(rank, in_place, WCCL_BUF_OUTPUT, chunk)];
    if (got == want) return;
    std::string text = "output[" + std::to_string(chunk) + "] ends" + (in_place ? " in place" : "") + " with ";
    if (got.set != want.set) {
      text += sets_.text(got.set, n) + ", not " + sets_.text(want.set, n);
    } else {
      text += want.final ? "a result that no FINAL op made" : "a result of a FINAL op";
    }
    add(Fault::kValue, rank, UINT32_MAX, std::move(text));
  }

  const Source& source_;
  const Shape& shape_;
  const std::size_t limit_;
  Report report_;
  std::vector<Message> messages_;
  Sets sets_;
  std::vector<std::uint32_t> visited_, stack_;
  std::uint32_t stamp_ = 0;
};

}  // namespace

std::string_view fault_name(Fault fault) {
  static constexpr std::array<std::string_view, 5> kNames = {"structure", "match", "order", "race", "value"};
  return kNames[static_cast<std::size_t>(fault)];
}

Report check(const Source& source, std::size_t limit) { return Checker(source, std::max<std::size_t>(limit, 1)).run(); }

}  // namespace weft::ccl
