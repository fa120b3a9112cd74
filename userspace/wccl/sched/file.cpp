// SPDX-License-Identifier: MIT
#include "sched/file.hpp"

#include <algorithm>
#include <boost/crc.hpp>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

namespace weft::ccl {
namespace {

constexpr std::uint64_t kFileMax = std::uint64_t{1} << 34;

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  constexpr std::size_t at = offsetof(wccl_sched_header, crc32);
  constexpr std::byte zero[4]{};
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), at);
  crc.process_bytes(zero, sizeof zero);
  crc.process_bytes(bytes.data() + at + sizeof zero, bytes.size() - at - sizeof zero);
  return crc.checksum();
}

std::uint64_t align8(std::uint64_t value) { return (value + 7) & ~std::uint64_t{7}; }

// [offset, offset + count * size) lies in the file, aligned. `count` and `size` are bounded by 2^32.
bool table_fits(std::uint64_t offset, std::uint64_t count, std::uint64_t size, std::uint64_t file) {
  return offset % 8 == 0 && offset <= file && count * size <= file - offset;
}

}  // namespace

std::vector<std::byte> write_schedule(const Source& source) {
  const Shape& shape = source.shape();
  std::vector<wccl_sched_rank> ranks(shape.ranks);
  std::vector<wccl_sched_op> ops;
  std::vector<std::uint32_t> deps;
  OpView view;
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank) {
    ranks[rank].first_op = ops.size();
    ranks[rank].first_dep = deps.size();
    const std::uint32_t count = source.ops(rank);
    for (std::uint32_t index = 0; index < count; ++index) {
      source.op(rank, index, view);
      view.op.first_dep = static_cast<std::uint32_t>(deps.size() - ranks[rank].first_dep);
      view.op.deps = static_cast<std::uint32_t>(view.deps.size());
      ops.push_back(view.op);
      deps.insert(deps.end(), view.deps.begin(), view.deps.end());
    }
    ranks[rank].ops = count;
    ranks[rank].deps = static_cast<std::uint32_t>(deps.size() - ranks[rank].first_dep);
  }
  wccl_sched_header head{};
  head.magic = WCCL_SCHED_MAGIC;
  head.version = WCCL_SCHED_VERSION;
  head.header_bytes = sizeof head;
  head.rank_bytes = sizeof(wccl_sched_rank);
  head.op_bytes = sizeof(wccl_sched_op);
  head.collective = shape.collective;
  head.flags = shape.flags;
  head.ranks = shape.ranks;
  head.root = shape.root;
  head.parts = shape.parts;
  head.input_chunks = shape.input_chunks;
  head.output_chunks = shape.output_chunks;
  head.scratch_chunks = shape.scratch_chunks;
  head.lanes = shape.lanes;
  head.steps = shape.steps;
  head.ops = ops.size();
  head.deps = deps.size();
  head.rank_offset = sizeof head;
  head.op_offset = head.rank_offset + ranks.size() * sizeof(wccl_sched_rank);
  head.dep_offset = head.op_offset + ops.size() * sizeof(wccl_sched_op);
  head.link_classes = shape.link_classes;
  head.counts = shape.counts.size();
  head.count_offset = align8(head.dep_offset + deps.size() * sizeof(std::uint32_t));
  head.file_bytes = head.count_offset + shape.counts.size() * sizeof(wccl_sched_count);
  std::memcpy(head.name, shape.name.data(), std::min(shape.name.size(), sizeof head.name - 1));

  std::vector<std::byte> bytes(head.file_bytes);
  const auto put = [&](std::uint64_t offset, const void* from, std::size_t size) {
    if (size) std::memcpy(bytes.data() + offset, from, size);
  };
  put(0, &head, sizeof head);
  put(head.rank_offset, ranks.data(), ranks.size() * sizeof ranks[0]);
  put(head.op_offset, ops.data(), ops.size() * sizeof ops[0]);
  put(head.dep_offset, deps.data(), deps.size() * sizeof deps[0]);
  put(head.count_offset, shape.counts.data(), shape.counts.size() * sizeof(wccl_sched_count));
  head.crc32 = crc_of(bytes);
  put(0, &head, sizeof head);
  return bytes;
}

std::optional<Schedule> read_schedule(std::span<const std::byte> bytes, std::string& error) {
  const auto fail = [&](std::string text) {
    error = std::move(text);
    return std::nullopt;
  };
  wccl_sched_header head;
  if (bytes.size() < sizeof head) return fail("shorter than a header");
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != WCCL_SCHED_MAGIC) return fail("not a schedule: magic differs");
  if (head.version != WCCL_SCHED_VERSION) return fail("version " + std::to_string(head.version) + " is not known");
  if (head.header_bytes < sizeof head || head.rank_bytes < sizeof(wccl_sched_rank) ||
      head.op_bytes < sizeof(wccl_sched_op)) {
    return fail("structures are smaller than those of version 2");
  }
  if (head.file_bytes != bytes.size()) {
    return fail("holds " + std::to_string(bytes.size()) + " bytes, its header says " + std::to_string(head.file_bytes));
  }
  if (crc_of(bytes) != head.crc32) return fail("CRC-32 differs");
  if (head.reserved) return fail("reserved bits are set");
  if (head.ops > WCCL_SCHED_MAX_OPS || head.deps > WCCL_SCHED_MAX_DEPS) return fail("too many ops or deps");
  if (head.steps > WCCL_SCHED_MAX_OPS) return fail("too many steps");
  if (head.collective > WCCL_COLL_BARRIER) return fail("unknown collective");
  if (head.ranks > WCCL_SCHED_MAX_RANKS) return fail("ranks out of range");
  if (head.counts > WCCL_SCHED_MAX_COUNTS) return fail("too many v-counts");
  if (!table_fits(head.rank_offset, head.ranks, head.rank_bytes, bytes.size()) ||
      !table_fits(head.op_offset, head.ops, head.op_bytes, bytes.size()) ||
      !table_fits(head.dep_offset, head.deps, sizeof(std::uint32_t), bytes.size()) ||
      !table_fits(head.count_offset, head.counts, sizeof(wccl_sched_count), bytes.size())) {
    return fail("a table lies outside the file");
  }
  Shape shape;
  shape.collective = static_cast<wccl_sched_collective>(head.collective);
  shape.flags = head.flags;
  shape.ranks = head.ranks;
  shape.root = head.root;
  shape.parts = head.parts;
  shape.input_chunks = head.input_chunks;
  shape.output_chunks = head.output_chunks;
  shape.scratch_chunks = head.scratch_chunks;
  shape.lanes = head.lanes;
  shape.steps = head.steps;
  shape.link_classes = head.link_classes;
  shape.counts.resize(head.counts);
  if (head.counts)
    std::memcpy(shape.counts.data(), bytes.data() + head.count_offset, head.counts * sizeof(wccl_sched_count));
  if (std::string text = shape_fault(shape); !text.empty()) return fail(std::move(text));
  for (const std::uint8_t c : head.name) {
    if (c == 0) break;
    shape.name += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
  }
  shape.name.resize(std::min<std::size_t>(shape.name.size(), sizeof head.name - 1));

  std::vector<Schedule::Rank> ranks(head.ranks);
  std::vector<wccl_sched_rank> entries(head.ranks);
  std::uint64_t total_ops = 0, total_deps = 0;
  for (std::uint32_t rank = 0; rank < head.ranks; ++rank) {
    wccl_sched_rank& entry = entries[rank];
    std::memcpy(&entry, bytes.data() + head.rank_offset + static_cast<std::uint64_t>(rank) * head.rank_bytes,
                sizeof entry);
    // Ranks must not share entries: else a small file could ask for much memory.
    total_ops += entry.ops;
    total_deps += entry.deps;
    if (entry.first_op > head.ops || entry.ops > head.ops - entry.first_op || entry.first_dep > head.deps ||
        entry.deps > head.deps - entry.first_dep || total_ops > head.ops || total_deps > head.deps) {
      return fail("rank " + std::to_string(rank) + ": entries outside the tables, or used twice");
    }
  }
  OpView view;
  for (std::uint32_t rank = 0; rank < head.ranks; ++rank) {
    const std::string who = "rank " + std::to_string(rank);
    const wccl_sched_rank& entry = entries[rank];
    Schedule::Rank& table = ranks[rank];
    table.deps.resize(entry.deps);
    if (entry.deps) {
      std::memcpy(table.deps.data(), bytes.data() + head.dep_offset + entry.first_dep * sizeof(std::uint32_t),
                  entry.deps * sizeof(std::uint32_t));
    }
    table.ops.resize(entry.ops);
    std::uint64_t used = 0;
    for (std::uint32_t index = 0; index < entry.ops; ++index) {
      wccl_sched_op& op = table.ops[index];
      std::memcpy(&op, bytes.data() + head.op_offset + (entry.first_op + index) * head.op_bytes, sizeof op);
      used += op.deps;
      if (op.first_dep > entry.deps || op.deps > entry.deps - op.first_dep || used > entry.deps) {
        return fail(who + " op " + std::to_string(index) + ": deps outside the table");
      }
      const auto first = table.deps.begin() + op.first_dep;
      view.op = op;
      view.deps.assign(first, first + op.deps);
      if (std::string text = op_fault(shape, rank, index, view); !text.empty()) {
        return fail(who + " op " + std::to_string(index) + ": " + text);
      }
    }
  }
  std::optional<Schedule> schedule(std::in_place, std::move(shape), std::move(ranks));
  if (head.flags & WCCL_SCHED_NO_STEPS) {
    if (!assign_steps(*schedule, error)) return std::nullopt;
  }
  return schedule;
}

std::optional<Schedule> load_schedule(const std::string& path, std::string& error) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (size < 0 || static_cast<std::uint64_t>(size) > kFileMax) {
    error = path + ": " + (size < 0 ? std::strerror(errno ? errno : EIO) : "too large for a schedule");
    return std::nullopt;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), size);
  if (!file) {
    error = path + ": cannot be read";
    return std::nullopt;
  }
  auto schedule = read_schedule(bytes, error);
  if (!schedule) error = path + ": " + error;
  return schedule;
}

bool save_schedule(const Source& source, const std::string& path, std::string& error) {
  const std::vector<std::byte> bytes = write_schedule(source);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (file) return true;
  error = path + ": cannot be written";
  return false;
}

}  // namespace weft::ccl
