// SPDX-License-Identifier: MIT
// Traces of all-reduces on buffers that come and go: what their registrations cost, and what the cache saves.
#include <algorithm>
#include <stdexcept>

#include "bench.hpp"
#include "weft/weft.h"

namespace weft::perf {
namespace {

constexpr std::uint64_t kUnit = 64 * 1024;
constexpr std::uint32_t kBuffers = 40, kReallocated = 5, kEvery = 4;  // one buffer in 5, every 4 steps
constexpr std::uint64_t kPoison = 0xa5a5a5a5a5a5a5a5ull;

std::runtime_error device_error(const std::string& what) { return std::runtime_error(what + ": " + weft_last_error()); }

}  // namespace

void Bench::free(Buffer& buffer) {
  for (weft_mem* mem : buffer.mems) {
    if (mem) weft_mem_free(mem);
  }
  buffer.mems.clear();
}

void Bench::allocate(Buffer& buffer, const Pattern& pattern) {
  for (const Local& local : locals_) {
    weft_mem*& mem = buffer.mems.emplace_back(nullptr);
    if (weft_mem_alloc(local.device, 2 * buffer.bytes, 0, &mem) != 0) throw device_error("a buffer of the trace");
    fill(local, pattern, mem, buffer.bytes);
    if (weft_fill(local.device, weft_mem_va(mem) + buffer.bytes, kPoison, buffer.bytes) != 0)
      throw device_error("initialising");
  }
}

void Bench::trace(TraceRow& row) {
  const Pattern pattern{Collective::kAllReduce, wcclFloat32, wcclSum, ranks_};
  const bool training = options_.trace == "training";
  row.name = options_.trace;
  row.path = path();
  row.transport = transport();
  row.buffers = training ? kBuffers : 1;
  row.steps = options_.iterations;
  buffers_.resize(row.buffers);
  for (std::uint32_t i = 0; i < row.buffers; ++i) {
    buffers_[i].bytes = training ? kUnit * (1 + i * 7 % 16) : kUnit;  // up to 1 MiB
    allocate(buffers_[i], pattern);
  }
  barrier();
  const Counts before = counts();
  double us = 0;
  for (std::uint32_t step = 0; step < row.steps; ++step) {
    for (std::uint32_t i = 0; i < row.buffers && training && step % kEvery == kEvery - 1; i += kReallocated) {
      free(buffers_[i]);
      allocate(buffers_[i], pattern);
      ++row.reallocations;
    }
    barrier();
    const auto begin = std::chrono::steady_clock::now();
    for (const Buffer& buffer : buffers_) {
      for (std::size_t d = 0; d < locals_.size(); ++d) {
        const weft_va va = weft_mem_va(buffer.mems[d]);
        check(wcclAllReduce(reinterpret_cast<void*>(va), reinterpret_cast<void*>(va + buffer.bytes), buffer.bytes / 4,
                            wcclFloat32, wcclSum, locals_[d].comm, nullptr),
              locals_[d], "all-reduce");
      }
      row.bytes += buffer.bytes;
      ++row.collectives;
    }
    wait();
    us += std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  const Counts after = counts();
  std::uint64_t wrong = 0;
  for (const Buffer& buffer : buffers_) {
    for (std::size_t d = 0; d < locals_.size() && options_.check; ++d) {
      for (std::uint64_t at = 0; at < buffer.bytes;) {
        const std::span piece(chunk_.data(),
                              static_cast<std::size_t>(std::min<std::uint64_t>(chunk_.size(), buffer.bytes - at)));
        if (weft_read(locals_[d].device, piece.data(), weft_mem_va(buffer.mems[d]) + buffer.bytes + at, piece.size()) !=
            0)
          throw device_error("reading back");
        wrong += pattern.wrong(locals_[d].rank, at / 4, piece);
        at += piece.size();
      }
    }
  }
  const std::vector<double> totals = sum({us, static_cast<double>(wrong)});
  row.time_us = totals[0] / (options_.sim ? 1 : launch_.ranks);
  if (options_.check) row.wrong = static_cast<std::uint64_t>(totals[1]);
  row.nic = sum(after.nic, before.nic);
}

}  // namespace weft::perf
