// SPDX-License-Identifier: MIT
// Devices, communicators and buffers of this process, and the measurement of one row.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "interrupt.hpp"
#include "launch.hpp"
#include "options.hpp"
#include "report.hpp"
#include "weft/weft.h"

namespace weft::perf {

using tools::Interrupted;
using tools::Launch;

class Bench {
 public:
  Bench(const Options& options, const Launch& launch);  // throws std::runtime_error
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  std::uint32_t ranks() const { return ranks_; }
  bool reports() const { return launch_.rank == 0; }
  std::vector<std::string> paths() const;
  std::string path() const;
  std::string transport() const;
  // Fills all of `row` but modelled_us; `row` names bytes, type, op and in_place. All ranks call it.
  void measure(Row& row);
  // The trace that the options name; fills all of `row`. All ranks call it.
  void trace(TraceRow& row);
  // Of all ranks, since the communicators' begin. All ranks call it.
  Nic nic();
  // Ends the communicators in good order; throws when that fails.
  void finish();
  std::uint64_t event_hash() const;

 private:
  struct Local {
    weft_device* device = nullptr;
    wcclComm_t comm = nullptr;
    weft_mem* send = nullptr;
    weft_mem* receive = nullptr;
    weft_mem* control = nullptr;
    std::uint32_t rank = 0;
  };
  struct Counts {
    std::uint64_t host_payload = 0, doorbells = 0, cpu_copies = 0;
    std::uint64_t bytes[wcclNumPaths] = {};
    Nic nic;
  };
  // Memory for a trace's input, and as much again for its result, on each device.
  struct Buffer {
    std::uint64_t bytes = 0;
    std::vector<weft_mem*> mems;
  };

  void clean();
  void start_simulator();
  void open_devices();
  void connect();
  void fill(const Local& local, const Pattern& pattern, weft_mem* mem, std::uint64_t bytes);
  // Calls visit(offset, piece of chunk_) for pieces of `bytes`, and says how far it is.
  template <class F>
  void in_pieces(const Local& local, const char* doing, std::uint64_t bytes, F&& visit);
  void enqueue(const Row& row);
  void wait();
  void barrier();
  Counts counts() const;
  wcclStats_t stats(const Local& local) const;
  Nic sum(const Nic& after, const Nic& before);
  void allocate(Buffer& buffer, const Pattern& pattern);
  void free(Buffer& buffer);
  // Sums over all processes.
  std::vector<double> sum(const std::vector<double>& values);
  std::uint64_t sum(std::uint64_t value);
  void check(wcclResult_t result, const Local& local, const char* what) const;
  // Rank 0 says on standard error what goes on, every five seconds at most.
  template <class... A>
  void progress(const char* format, A... values);

  const Options& options_;
  const Launch launch_;
  std::uint32_t ranks_ = 0;
  std::uint64_t buffer_bytes_ = 0;
  bool simulator_ = false, connected_ = false;
  std::vector<Local> locals_;
  std::vector<Buffer> buffers_;  // of a trace
  std::vector<std::byte> chunk_;
  std::chrono::steady_clock::time_point said_;
};

}  // namespace weft::perf
