// SPDX-License-Identifier: MIT
#include "bench.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "weft/sim.h"

namespace weft::perf {

using tools::interrupted;

namespace {

constexpr std::size_t kChunk = 4u << 20;         // bytes initialised or read back at a time
constexpr std::size_t kControlValues = 32;       // of the sums over processes
constexpr std::uint64_t kBatchBelow = 1u << 20;  // smaller sizes: several iterations are enqueued before a wait
constexpr std::uint32_t kBatch = 8;
constexpr std::uint64_t kPoison = 0xa5a5a5a5a5a5a5a5ull;

std::runtime_error device_error(const std::string& what) { return std::runtime_error(what + ": " + weft_last_error()); }

}  // namespace

Bench::Bench(const Options& options, const Launch& launch) : options_(options), launch_(launch) {
  buffer_bytes_ =
      std::max<std::uint64_t>(options.collective == Collective::kBarrier ? 0 : options.sizes().back(), 4096);
  chunk_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(buffer_bytes_, kChunk)));
  said_ = std::chrono::steady_clock::now();
  try {
    if (options.sim) {
      start_simulator();
      locals_.resize(options.ranks);
      ranks_ = options.ranks;
    } else {
      locals_.resize(options.devices);
      ranks_ = launch.ranks * options.devices;
    }
    open_devices();
    connect();
  } catch (...) {
    clean();
    throw;
  }
}

Bench::~Bench() { clean(); }

void Bench::clean() {
  for (Local& local : locals_) {
    if (local.comm) wcclCommAbort(local.comm);
    local.comm = nullptr;
  }
  for (Buffer& buffer : buffers_) free(buffer);
  for (Local& local : locals_) {
    for (weft_mem** mem : {&local.send, &local.receive, &local.control}) {
      if (*mem) weft_mem_free(*mem);
      *mem = nullptr;
    }
    if (local.device) weft_device_close(local.device);
    local.device = nullptr;
  }
  locals_.clear();
  if (simulator_) weft_sim_stop();
  simulator_ = false;
}

void Bench::start_simulator() {
  weft_sim_config config{};
  config.size = sizeof config;
  config.devices = options_.ranks;
  config.ports = options_.ports;
  config.seed = options_.seed;
  config.loss = options_.loss;
  if (!options_.event_log.empty()) config.log = options_.event_log.c_str();
  if (!options_.capture.empty()) config.capture = options_.capture.c_str();
  if (!options_.firmware.empty()) config.firmware = options_.firmware.c_str();
  // Two buffers, staging for the connections of a ring and of a barrier, and some room.
  const std::uint64_t connections = 2ull * options_.ports + 16;
  const std::uint64_t need = 2 * ((buffer_bytes_ + 4095) / 4096 * 4096) + connections * (4u << 20);
  config.hbm_bytes = options_.hbm ? options_.hbm : std::max<std::uint64_t>(std::bit_ceil(need), 128u << 20);
  if (weft_sim_start(&config) != 0) throw device_error("simulator");
  simulator_ = true;
}

void Bench::open_devices() {
  for (std::uint32_t i = 0; i < locals_.size(); ++i) {
    Local& local = locals_[i];
    local.rank = options_.sim ? i : launch_.rank * options_.devices + i;
    std::string spec = options_.device;
    if (options_.sim) {
      spec = "sim:" + std::to_string(i);
    } else if (spec.empty()) {
      const char* chosen = std::getenv("WEFT_DEVICE");
      spec = chosen && *chosen && locals_.size() == 1 && launch_.local_rank == 0
                 ? chosen
                 : "kernel:" + std::to_string(launch_.local_rank * options_.devices + i);
    }
    if (weft_device_open(spec.c_str(), &local.device) != 0) throw device_error("device " + spec);
    for (auto [mem, bytes] : {std::pair{&local.send, buffer_bytes_},
                              {&local.receive, buffer_bytes_},
                              {&local.control, std::uint64_t{4096}}}) {
      if (weft_mem_alloc(local.device, bytes, 0, mem) != 0)
        throw device_error("buffers of " + std::to_string(bytes) + " bytes on " + spec);
    }
  }
}

void Bench::check(wcclResult_t result, const Local& local, const char* what) const {
  if (result == wcclSuccess) return;
  if (interrupted()) throw Interrupted();
  throw std::runtime_error("rank " + std::to_string(local.rank) + ": " + what + ": " + wcclGetLastError(local.comm) +
                           " (" + wcclGetErrorString(result) + ')');
}

void Bench::connect() {
  wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
  if (options_.timeout_s > 0) config.timeoutMs = static_cast<int>(options_.timeout_s * 1000);
  if (options_.sim || launch_.ranks == 1) {
    std::vector<weft_device*> devices;
    for (const Local& local : locals_) devices.push_back(local.device);
    std::vector<wcclComm_t> comms(locals_.size());
    check(wcclCommInitAllConfig(comms.data(), static_cast<int>(comms.size()), devices.data(), &config), locals_[0],
          "init");
    for (std::size_t i = 0; i < comms.size(); ++i) locals_[i].comm = comms[i];
    return;
  }
  if (!launch_.root.empty()) setenv("WCCL_COMM_ID", launch_.root.c_str(), 1);
  wcclUniqueId id;
  check(wcclGetUniqueId(&id), locals_[0], "unique id");
  // Each rank's init waits for all others, so each device of this process has a thread for it.
  std::vector<std::string> errors(locals_.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    threads.emplace_back([&, i] {
      wcclConfig_t mine = config;
      mine.device = locals_[i].device;
      const wcclResult_t result = wcclCommInitRankConfig(&locals_[i].comm, static_cast<int>(ranks_), id,
                                                         static_cast<int>(locals_[i].rank), &mine);
      if (result != wcclSuccess)
        errors[i] = std::string(wcclGetLastError(nullptr)) + " (" + wcclGetErrorString(result) + ')';
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!errors[i].empty())
      throw std::runtime_error("rank " + std::to_string(locals_[i].rank) + ": init: " + errors[i]);
  }
}

std::string Bench::path() const {
  wcclPath_t path = wcclPathAuto;
  const std::uint32_t peer = ranks_ > 1 ? (locals_[0].rank + 1) % ranks_ : 0;
  wcclCommPath(locals_[0].comm, static_cast<int>(peer), &path, nullptr, 0);
  return wcclPathName(path);
}

std::string Bench::transport() const { return stats(locals_[0]).transport; }

std::vector<std::string> Bench::paths() const {
  // Pairs of this process's first rank; runs of peers with the same path and reason make one line.
  std::vector<std::string> lines;
  const std::uint32_t me = locals_[0].rank;
  std::string last;
  std::uint32_t first = 0;
  const auto close = [&](std::uint32_t end) {
    if (last.empty()) return;
    lines.push_back("rank " + std::to_string(me) + " - rank " + std::to_string(first) +
                    (end - 1 > first ? ".." + std::to_string(end - 1) : "") + ": " + last);
  };
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (peer == me && ranks_ > 1) {
      close(peer);
      last.clear();
      continue;
    }
    char reason[512] = "";
    wcclPath_t path = wcclPathAuto;
    wcclCommPath(locals_[0].comm, static_cast<int>(peer), &path, reason, sizeof reason);
    const std::string text = std::string(wcclPathName(path)) + " (" + reason + ')';
    if (text != last) {
      close(peer);
      last = text;
      first = peer;
    }
  }
  close(ranks_);
  return lines;
}

template <class... A>
void Bench::progress(const char* format, A... values) {
  const auto now = std::chrono::steady_clock::now();
  if (!reports() || now - said_ < std::chrono::seconds(5)) return;
  said_ = now;
  char text[128];
  std::snprintf(text, sizeof text, format, values...);
  std::fprintf(stderr, "# %s\n", text);
}

template <class F>
void Bench::in_pieces(const Local& local, const char* doing, std::uint64_t bytes, F&& visit) {
  for (std::uint64_t at = 0; at < bytes;) {
    if (interrupted()) throw Interrupted();
    const std::span piece(chunk_.data(), static_cast<std::size_t>(std::min<std::uint64_t>(chunk_.size(), bytes - at)));
    if (visit(at, piece) != 0) throw device_error("rank " + std::to_string(local.rank) + ": " + doing);
    at += piece.size();
    progress("rank %u, %s: %llu of %llu MiB", local.rank, doing, static_cast<unsigned long long>(at >> 20),
             static_cast<unsigned long long>(bytes >> 20));
  }
}

void Bench::fill(const Local& local, const Pattern& pattern, weft_mem* mem, std::uint64_t bytes) {
  const std::uint32_t element = type_bytes(pattern.type);
  in_pieces(local, "initialising", bytes, [&](std::uint64_t at, std::span<std::byte> piece) {
    pattern.input(local.rank, at / element, piece);
    return weft_write(local.device, weft_mem_va(mem) + at, piece.data(), piece.size());
  });
}

void Bench::enqueue(const Row& row) {
  const auto pointer = [](weft_mem* mem) { return reinterpret_cast<void*>(weft_mem_va(mem)); };
  if (options_.collective == Collective::kSendRecv) wcclGroupStart();
  for (const Local& local : locals_) {
    void* receive = pointer(local.receive);
    const void* send = row.in_place ? receive : pointer(local.send);
    switch (options_.collective) {
      case Collective::kAllReduce:
        check(wcclAllReduce(send, receive, row.count, row.type, row.op, local.comm, nullptr), local, "all-reduce");
        break;
      case Collective::kSendRecv:
        check(wcclSend(send, row.count, row.type, static_cast<int>((local.rank + 1) % ranks_), local.comm, nullptr),
              local, "send");
        check(wcclRecv(receive, row.count, row.type, static_cast<int>((local.rank + ranks_ - 1) % ranks_), local.comm,
                       nullptr),
              local, "receive");
        break;
      case Collective::kBarrier:
        check(wcclBarrier(local.comm, nullptr), local, "barrier");
        break;
    }
  }
  if (options_.collective == Collective::kSendRecv) {
    const wcclResult_t result = wcclGroupEnd();
    if (result != wcclSuccess) check(result, Local{}, "group");
  }
}

void Bench::wait() {
  for (const Local& local : locals_) check(wcclCommWait(local.comm), local, "wait");
  if (interrupted()) throw Interrupted();
}

void Bench::barrier() {
  for (const Local& local : locals_) check(wcclBarrier(local.comm, nullptr), local, "barrier");
  wait();
}

wcclStats_t Bench::stats(const Local& local) const {
  wcclStats_t stats{};
  stats.size = sizeof stats;
  check(wcclCommStats(local.comm, &stats), local, "statistics");
  return stats;
}

Bench::Counts Bench::counts() const {
  Counts c;
  for (const Local& local : locals_) {
    std::uint64_t value[WEFT_CTR_COUNT] = {};
    if (weft_counters(local.device, -1, value, WEFT_CTR_COUNT) < 0) throw device_error("counters");
    c.host_payload += value[WEFT_CTR_host_payload_read_bytes] + value[WEFT_CTR_host_payload_write_bytes];
    c.doorbells += value[WEFT_CTR_doorbells];
    const wcclStats_t s = stats(local);
    c.cpu_copies += s.cpuCopies;
    for (int p = 0; p < wcclNumPaths; ++p) c.bytes[p] += s.bytes[p];
    c.nic.flushes += s.flushes;
    c.nic.hits += s.mrHits;
    c.nic.misses += s.mrMisses;
    c.nic.evictions += s.mrEvictions;
    c.nic.invalidations += s.mrInvalidations;
    c.nic.registrations += s.mrRegistrations;
    c.nic.registration_ns += s.mrRegistrationNs;
    c.nic.teardowns += s.mrTeardowns;
    c.nic.teardown_ns += s.mrTeardownNs;
  }
  return c;
}

Nic Bench::sum(const Nic& after, const Nic& before) {
  std::vector<double> values;
  for (const auto field : Nic::kAll) values.push_back(static_cast<double>(after.*field - before.*field));
  values = sum(values);
  Nic out;
  for (std::size_t i = 0; i < values.size(); ++i) out.*Nic::kAll[i] = static_cast<std::uint64_t>(values[i]);
  return out;
}

Nic Bench::nic() { return sum(counts().nic, Nic{}); }

std::vector<double> Bench::sum(const std::vector<double>& values) {
  if (launch_.ranks == 1 || options_.sim) return values;
  std::vector<double> data(kControlValues, 0.0);
  for (std::size_t i = 0; i < locals_.size(); ++i) {
    // Each process's values count once.
    std::fill(data.begin(), data.end(), 0.0);
    if (i == 0) std::copy(values.begin(), values.end(), data.begin());
    if (weft_write(locals_[i].device, weft_mem_va(locals_[i].control), data.data(), data.size() * 8) != 0)
      throw device_error("summing up");
  }
  for (const Local& local : locals_) {
    void* at = reinterpret_cast<void*>(weft_mem_va(local.control));
    check(wcclAllReduce(at, at, data.size(), wcclFloat64, wcclSum, local.comm, nullptr), local, "summing up");
  }
  wait();
  if (weft_read(locals_[0].device, data.data(), weft_mem_va(locals_[0].control), data.size() * 8) != 0)
    throw device_error("summing up");
  data.resize(values.size());
  return data;
}

std::uint64_t Bench::sum(std::uint64_t value) {
  // Doubles hold 32-bit pieces, and sums of 65535 of them, exactly.
  const std::vector<double> parts = sum({static_cast<double>(value >> 32), static_cast<double>(value & 0xffffffffu)});
  return (static_cast<std::uint64_t>(parts[0]) << 32) + static_cast<std::uint64_t>(parts[1]);
}

void Bench::measure(Row& row) {
  const Pattern pattern{options_.collective, row.type, row.op, ranks_};
  const bool data = options_.collective != Collective::kBarrier;
  const std::uint32_t element = type_bytes(row.type);
  row.count = row.bytes / element;
  row.bytes = row.count * element;
  row.path = path();
  row.transport = transport();
  const auto initialise = [&] {
    for (const Local& local : locals_) {
      if (!data) continue;
      if (row.in_place) {
        fill(local, pattern, local.receive, row.bytes);
        continue;
      }
      fill(local, pattern, local.send, row.bytes);
      if (weft_fill(local.device, weft_mem_va(local.receive), kPoison, (row.bytes + 7) / 8 * 8) != 0)
        throw device_error("initialising");
    }
  };
  initialise();
  const std::uint32_t batch = row.bytes < kBatchBelow ? kBatch : 1;
  const auto run = [&](std::uint32_t iterations, std::uint32_t done) {
    for (std::uint32_t i = 0; i < iterations; ++i) {
      enqueue(row);
      if ((i + 1) % batch == 0) wait();
      progress("%llu bytes, %s: iteration %u of %u", static_cast<unsigned long long>(row.bytes),
               row.in_place ? "in place" : "out of place", done + i + 1, options_.warmup + options_.iterations);
    }
    wait();
  };
  barrier();
  run(options_.warmup, 0);
  barrier();
  const Counts before = counts();
  const auto begin = std::chrono::steady_clock::now();
  run(options_.iterations, options_.warmup);
  const auto end = std::chrono::steady_clock::now();
  const Counts after = counts();

  std::uint64_t wrong = 0, hash = 0;
  if (data && (options_.check || options_.hash)) {
    if (row.in_place) {  // what the iterations made of their own results says nothing
      initialise();
      barrier();
      enqueue(row);
      wait();
    }
    for (const Local& local : locals_) {
      std::uint64_t rank_hash = kHashStart;
      in_pieces(local, "checking", row.bytes, [&](std::uint64_t at, std::span<std::byte> piece) {
        const int error = weft_read(local.device, piece.data(), weft_mem_va(local.receive) + at, piece.size());
        if (error == 0 && options_.check) wrong += pattern.wrong(local.rank, at / element, piece);
        if (error == 0 && options_.hash) rank_hash = hash_bytes(piece, rank_hash);
        return error;
      });
      if (options_.hash) hash += rank_hash;
    }
  }
  const double us = std::chrono::duration<double, std::micro>(end - begin).count() / options_.iterations;
  std::vector<double> totals = {us, static_cast<double>(wrong),
                                static_cast<double>(after.host_payload - before.host_payload),
                                static_cast<double>(after.cpu_copies - before.cpu_copies),
                                static_cast<double>(after.doorbells - before.doorbells)};
  for (int p = 0; p < wcclNumPaths; ++p) totals.push_back(static_cast<double>(after.bytes[p] - before.bytes[p]));
  totals = sum(totals);
  row.hash = sum(hash);
  row.nic = sum(after.nic, before.nic);
  row.time_us = totals[0] / (options_.sim ? 1 : launch_.ranks);
  if (data && options_.check) row.wrong = static_cast<std::uint64_t>(totals[1]);
  row.host_dram_bytes = static_cast<std::uint64_t>(totals[2]);
  row.cpu_copies = static_cast<std::uint64_t>(totals[3]);
  row.doorbells = totals[4] / options_.iterations / ranks_;
  std::uint64_t moved = 0;
  for (int p = 0; p < wcclNumPaths; ++p) {
    row.path_bytes[p] = static_cast<std::uint64_t>(totals[5 + static_cast<std::size_t>(p)]);
    moved += row.path_bytes[p];
  }
  set_bandwidth(row, options_.collective, ranks_);
  // Sizes below one element run, as nccl-tests runs them: there is nothing to do.
  const bool work = row.doorbells != 0 && (!data || ranks_ == 1 || moved != 0);
  if (!work && (row.count != 0 || !data)) throw std::runtime_error("the run did no work");
}

void Bench::finish() {
  for (Local& local : locals_) {
    const wcclComm_t comm = local.comm;
    local.comm = nullptr;
    const wcclResult_t result = wcclCommDestroy(comm);
    if (result != wcclSuccess)
      check(result, Local{local.device, nullptr, nullptr, nullptr, nullptr, local.rank}, "destroy");
  }
}

std::uint64_t Bench::event_hash() const { return weft_sim_hash(); }

}  // namespace weft::perf
