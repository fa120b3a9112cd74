// SPDX-License-Identifier: MIT
#include "call_book.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "sched/schedule.hpp"

namespace weft::ccl {
namespace {

constexpr const char* kTypes[wcclNumTypes] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                              "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
constexpr const char* kOps[wcclNumOps] = {"sum", "prod", "max", "min", "avg"};

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

std::uint64_t mix(std::uint64_t hash, const Call& call) {
  std::uint64_t word[2];
  static_assert(sizeof word == sizeof call);
  std::memcpy(word, &call, sizeof word);
  return mix(mix(hash, word[0]), word[1]);
}

// Not 0 for a record of zeros.
std::uint64_t sum_of(const CallRecord& record) { return mix(mix(record.number + 1, record.chain), record.call); }

// The record in an entry; nothing where none is yet, or while it is being written.
std::optional<CallRecord> read(std::span<const std::byte> ring, std::uint64_t entry) {
  CallRecord record;
  std::memcpy(&record, ring.data() + entry * sizeof record, sizeof record);
  if (record.sum != sum_of(record)) return std::nullopt;
  return record;
}

}  // namespace

std::string Call::text() const {
  const std::string n = std::to_string(count);
  if (collective == WCCL_COLL_SENDRECV) return "a message of " + n + " bytes";
  if (collective == WCCL_COLL_BARRIER) return "barrier";
  std::string name(collective_name(collective));
  std::replace(name.begin(), name.end(), '_', '-');
  return name + " of " + n + ' ' + (type < wcclNumTypes ? kTypes[type] : "?") + " (" +
         (op < wcclNumOps ? kOps[op] : "?") + ')';
}

bool CallBook::note(Draft& draft, Call call, const Step& step) const {
  if (step.kind > StepKind::kRecvReduce || step.slice != 0) return false;  // not the first slice of a message
  const bool send = step.kind == StepKind::kSend;
  const bool message = call.collective == WCCL_COLL_SENDRECV;
  if (message) call.count = step.message;
  const std::uint64_t key = flow_key(step.peer, step.lane);
  const auto [it, fresh] = draft.last[send].try_emplace(key);
  if (!fresh && !message) return false;
  Last& last = it->second;
  if (const auto before = last_[send].find(key); fresh && before != last_[send].end()) last = before->second;
  last.chain = mix(last.chain, call);
  CallRecord record{last.chain, last.count++, call, 0};
  record.sum = sum_of(record);
  if (send) {
    draft.sent.push_back(record);
  } else {
    draft.expected.emplace_back(key, record);
  }
  return send;
}

void CallBook::commit(std::uint64_t ticket, Draft&& draft) {
  for (int send = 0; send < 2; ++send) {
    for (const auto& [key, last] : draft.last[send]) last_[send][key] = last;
  }
  for (const auto& [key, record] : draft.expected) expected_[key].push_back({ticket, record});
}

CallBook::Answer CallBook::look(std::uint64_t ticket, const Rings& rings) {
  Answer all;
  for (auto it = expected_.begin(); it != expected_.end();) {
    auto& [key, expected] = *it;
    Answer one = compare(expected, rings(key));
    if (one.state == State::kDisagreed) {
      one.peer = static_cast<std::uint32_t>(key >> 32);
      return one;
    }
    if (!expected.empty() && expected.front().ticket <= ticket) all.state = State::kPending;
    it = expected.empty() ? expected_.erase(it) : std::next(it);
  }
  return all;
}

CallBook::Answer CallBook::compare(std::deque<Expected>& expected, std::span<const std::byte> ring) {
  const std::uint64_t entries = ring.size() / sizeof(CallRecord);
  const std::uint64_t first = expected.front().record.number, last = expected.back().record.number;
  std::uint64_t agreed = first;  // all before it do
  std::optional<CallRecord> other;
  // The newest comes first: mostly it is there, and stands for all.
  for (std::uint64_t back = 0; back < entries && agreed <= last; ++back) {
    const auto record = read(ring, (last + entries - back) % entries);
    if (!record || record->number < first) continue;                         // seen before
    if (record->number > last && record->number < last + entries) continue;  // of a call that we have yet to make
    if (record->number <= last && record->chain == expected[record->number - first].record.chain) {
      agreed = std::max(agreed, record->number + 1);
    } else if (!other || record->number < other->number) {
      other = record;  // the earliest that differs
    }
  }
  if (other) {
    const Call& ours = expected[std::min(other->number, last) - first].record.call;
    return {State::kDisagreed, 0, other->call, ours, other->number > last || other->call == ours};
  }
  expected.erase(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(agreed - first));
  return {};
}

}  // namespace weft::ccl
