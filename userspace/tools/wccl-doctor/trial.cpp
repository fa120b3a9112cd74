// SPDX-License-Identifier: MIT
#include "trial.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <utility>

#include "interrupt.hpp"
#include "weft/chart/text.hpp"
#include "weft/sim.h"

namespace weft::doctor {
namespace {

using tools::Interrupted;

constexpr std::uint64_t kVolume = 32u << 20;    // bytes one way a size, at most; at least 2 iterations
constexpr std::uint64_t kCostBytes = 1u << 20;  // of a transfer from fresh memory
constexpr std::uint32_t kCostRounds = 5;
constexpr std::size_t kWindow = 4096;  // bytes compared at the start, in the middle and at the end of a buffer
constexpr std::uint64_t kPoison = 0xa5a5a5a5a5a5a5a5ull;

struct Failure : std::runtime_error {
  Failure(wcclResult_t why, const std::string& what) : std::runtime_error(what), result(why) {}
  wcclResult_t result;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// What the rank's buffers hold, in each 32-bit element: sums of a few ranks do not overflow.
std::uint64_t pattern(std::uint32_t index) {
  const std::uint64_t element = 0x00010203u * (index + 1ull) & 0xffffffffu;
  return element << 32 | element;
}

wcclUniqueId parse_id(const std::string& text) {
  wcclUniqueId id{};
  if (text.size() != 2 * sizeof id.internal) throw Failure(wcclInternalError, "the order's id is damaged");
  for (std::size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

class Run {
 public:
  Run(const Order& order, bool simulator, Trial& out) : order_(order), simulator_(simulator), out_(out) {}
  ~Run() { clean(); }

  void add(std::uint32_t index, weft_device* device) { locals_.push_back({index, device, nullptr, nullptr, nullptr}); }

  void all() {
    connect();
    const Local& first = locals_[0];
    const auto ranks = static_cast<std::uint32_t>(order_.ranks.size());
    char reason[1024] = "";
    check(wcclCommPath(first.comm, static_cast<int>((first.index + 1) % ranks), &out_.path, reason, sizeof reason),
          first, "path");
    out_.reason = reason;
    out_.transport = stats().transport;
    if (!order_.sizes.empty()) {
      allocate(order_.sizes.back());
      for (const std::uint64_t bytes : order_.sizes) measure(bytes);
      free_buffers();
      if (ranks == 2 && out_.path != wcclPathOnchip && timed()) costs();
    }
    for (Local& local : locals_) {
      const wcclResult_t result = wcclCommDestroy(std::exchange(local.comm, nullptr));
      if (result != wcclSuccess) throw Failure(result, std::string("end: ") + wcclGetLastError(nullptr));
    }
    out_.outcome = Outcome::kDone;
  }

 private:
  struct Local {
    std::uint32_t index;
    weft_device* device;
    wcclComm_t comm;
    weft_mem *send, *receive;
  };

  void clean() {
    for (Local& local : locals_) {
      if (local.comm) wcclCommAbort(std::exchange(local.comm, nullptr));
    }
    free_buffers();
  }

  void check(wcclResult_t result, const Local& local, const std::string& what) const {
    if (result == wcclSuccess) return;
    if (tools::interrupted()) throw Interrupted();
    throw Failure(result, what + ": " + wcclGetLastError(local.comm) + " (" + wcclGetErrorString(result) + ')');
  }
  void device_check(int error, const std::string& what) const {
    if (error == 0) return;
    throw Failure(wcclUnhandledDeviceError, what + ": " + weft_last_error());
  }

  double now_us() const {
    if (simulator_) return static_cast<double>(weft_sim_time()) / 1e3;
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void connect() {
    wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
    config.path = order_.path;
    if (!order_.over.empty()) config.stagedOver = order_.over.c_str();
    if (order_.timeout_s > 0) config.timeoutMs = static_cast<int>(order_.timeout_s * 1000);
    wcclResult_t result = wcclSuccess;
    if (order_.id.empty()) {
      std::vector<weft_device*> devices;
      for (const Local& local : locals_) devices.push_back(local.device);
      std::vector<wcclComm_t> comms(locals_.size());
      result = wcclCommInitAllConfig(comms.data(), static_cast<int>(comms.size()), devices.data(), &config);
      for (std::size_t i = 0; i < comms.size(); ++i) locals_[i].comm = comms[i];
    } else {
      const wcclUniqueId id = parse_id(order_.id);
      config.device = locals_[0].device;
      result = wcclCommInitRankConfig(&locals_[0].comm, static_cast<int>(order_.ranks.size()), id,
                                      static_cast<int>(locals_[0].index), &config);
    }
    if (result == wcclSuccess) return;
    if (tools::interrupted()) throw Interrupted();
    std::string text = wcclGetLastError(nullptr);
    // A path that is asked for and cannot be had is a finding of the search, not a failure.
    if (result == wcclInvalidUsage) {
      out_.outcome = Outcome::kImpossible;
      const std::string asked = " was asked for, but ";
      const std::size_t at = text.find(asked);
      if (at != std::string::npos) text.erase(0, at + asked.size());
    } else {
      text = "init: " + text + " (" + wcclGetErrorString(result) + ')';
    }
    throw Failure(result, text);
  }

  void allocate(std::uint64_t bytes) {
    for (Local& local : locals_) {
      device_check(weft_mem_alloc(local.device, bytes, 0, &local.send), "a buffer");
      device_check(weft_mem_alloc(local.device, bytes, 0, &local.receive), "a buffer");
    }
  }

  void free_buffers() {
    for (Local& local : locals_) {
      for (weft_mem** mem : {&local.send, &local.receive}) {
        if (*mem) weft_mem_free(std::exchange(*mem, nullptr));
      }
    }
  }

  wcclStats_t stats() const {
    wcclStats_t sum{};
    for (const Local& local : locals_) add_stats(local.index, sum);
    return sum;
  }

  void add_stats(std::uint32_t index, wcclStats_t& sum) const {
    for (const Local& local : locals_) {
      if (local.index != index) continue;
      wcclStats_t one{};
      one.size = sizeof one;
      check(wcclCommStats(local.comm, &one), local, "statistics");
      std::copy(std::begin(one.transport), std::end(one.transport), sum.transport);
      for (auto field : {&wcclStats_t::cpuCopies, &wcclStats_t::hostDramBytes, &wcclStats_t::mrHits,
                         &wcclStats_t::mrMisses, &wcclStats_t::mrRegistrations, &wcclStats_t::mrRegistrationNs,
                         &wcclStats_t::mrTeardowns, &wcclStats_t::mrTeardownNs}) {
        sum.*field += one.*field;
      }
    }
  }

  void wait(const std::string& what) const {
    for (const Local& local : locals_) check(wcclCommWait(local.comm), local, what);
    if (tools::interrupted()) throw Interrupted();
  }

  void barrier() const {
    for (const Local& local : locals_) check(wcclBarrier(local.comm, nullptr), local, "barrier");
    wait("barrier");
  }

  static void* at(weft_mem* mem) { return reinterpret_cast<void*>(weft_mem_va(mem)); }

  // From the member `from` to the member `to`.
  void move(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, const std::string& what) const {
    for (const Local& local : locals_) {
      if (local.index == from)
        check(wcclSend(at(local.send), bytes, wcclUint8, static_cast<int>(to), local.comm, nullptr), local, what);
      if (local.index == to)
        check(wcclRecv(at(local.receive), bytes, wcclUint8, static_cast<int>(from), local.comm, nullptr), local, what);
    }
    wait(what);
  }

  // There and back; half of the time.
  // `account` gets each member's statistics when no message is under way to it: the second one's before its answer, for
  // the first may send again as soon as it has that. Both have then sent and received equally often since the last
  // time.
  double ping(std::uint64_t bytes, const std::string& what, wcclStats_t* account = nullptr) const {
    const double begin = now_us();
    move(0, 1, bytes, what);
    if (account) add_stats(1, *account);
    move(1, 0, bytes, what);
    if (account) add_stats(0, *account);
    return (now_us() - begin) / 2;
  }

  void fill(std::uint64_t bytes) const {
    for (const Local& local : locals_) {
      device_check(weft_fill(local.device, weft_mem_va(local.send), pattern(local.index), bytes), "filling a buffer");
      device_check(weft_fill(local.device, weft_mem_va(local.receive), kPoison, bytes), "filling a buffer");
    }
  }

  // Words of the members' receive buffers that are not what `want` says for the member.
  std::uint64_t differing(std::uint64_t bytes, const std::function<std::uint64_t(std::uint32_t)>& want) const {
    std::uint64_t wrong = 0;
    for (const Local& local : locals_) {
      const std::uint64_t window = std::min<std::uint64_t>(bytes, kWindow);
      for (const std::uint64_t offset : {std::uint64_t{0}, (bytes - window) / 2 / 8 * 8, bytes - window}) {
        std::vector<std::uint64_t> words(window / 8);
        device_check(weft_read(local.device, words.data(), weft_mem_va(local.receive) + offset, window),
                     "reading back");
        const std::uint64_t right = want(local.index);
        wrong += static_cast<std::uint64_t>(
            std::count_if(words.begin(), words.end(), [&](std::uint64_t word) { return word != right; }));
      }
    }
    return wrong;
  }

  void measure(std::uint64_t bytes) {
    const std::string size = chart::bytes(static_cast<double>(bytes));
    const auto iterations = std::clamp<std::uint64_t>(kVolume / bytes, 2, std::max(order_.iterations, 2u));
    Sample sample;
    sample.bytes = bytes;
    if (order_.ranks.size() == 2) {
      fill(bytes);
      barrier();
      const std::string what = "send and receive of " + size;
      wcclStats_t before{}, after{};
      ping(bytes, what);  // the first use of the buffers registers them
      ping(bytes, what, &before);
      std::vector<double> times;
      for (std::uint64_t i = 1; i <= iterations; ++i) {
        times.push_back(ping(bytes, what, i == iterations ? &after : nullptr));
      }
      sample.wrong += differing(bytes, [](std::uint32_t index) { return pattern(1 - index); });
      const double transfers = 2.0 * static_cast<double>(iterations);
      sample.one_way_us = has_first() && timed() ? median(times) : 0;
      sample.registrations = static_cast<double>(after.mrRegistrations - before.mrRegistrations) / transfers;
      sample.registration_us = static_cast<double>(after.mrRegistrationNs - before.mrRegistrationNs) / transfers / 1e3;
      // A byte into and out of host DRAM, at the sender and at the receiver.
      out_.host_copies =
          static_cast<double>(after.hostDramBytes - before.hostDramBytes) / 2 / transfers / static_cast<double>(bytes);
      out_.cpu_copies += after.cpuCopies - before.cpuCopies;
    }
    fill(bytes);
    barrier();
    std::vector<double> times;
    for (std::uint64_t i = 0; i <= iterations; ++i) {
      const double begin = now_us();
      for (const Local& local : locals_) {
        check(wcclAllReduce(at(local.send), at(local.receive), bytes / 4, wcclUint32, wcclSum, local.comm, nullptr),
              local, "all-reduce of " + size);
      }
      wait("all-reduce of " + size);
      if (i > 0) times.push_back(now_us() - begin);
    }
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < order_.ranks.size(); ++i) sum += pattern(i) & 0xffffffffu;
    sum &= 0xffffffffu;
    sample.wrong += differing(bytes, [&](std::uint32_t) { return sum << 32 | sum; });
    sample.all_reduce_us = timed() ? median(times) : 0;
    out_.samples.push_back(sample);
  }

  // Virtual time stands still while a host moves bytes.
  bool timed() const { return !simulator_ || out_.path == wcclPathOnchip; }
  bool has_first() const { return locals_[0].index == 0; }

  // Transfers from memory that was never used before, and again; then the memory goes.
  void costs() {
    const std::uint64_t bytes = std::min(kCostBytes, order_.sizes.back());
    const wcclStats_t before = stats();
    std::vector<double> first, again;
    for (std::uint32_t i = 0; i < kCostRounds; ++i) {
      allocate(bytes);
      barrier();
      first.push_back(ping(bytes, "first use of a buffer"));
      again.push_back(ping(bytes, "use of a buffer again"));
      free_buffers();
    }
    const wcclStats_t after = stats();
    out_.cost_bytes = bytes;
    out_.first_use_us = has_first() ? median(first) : 0;
    out_.reuse_us = has_first() ? median(again) : 0;
    out_.hits = after.mrHits - before.mrHits;
    out_.misses = after.mrMisses - before.mrMisses;
    out_.registrations = after.mrRegistrations - before.mrRegistrations;
    out_.registration_ns = after.mrRegistrationNs - before.mrRegistrationNs;
    out_.teardowns = after.mrTeardowns - before.mrTeardowns;
    out_.teardown_ns = after.mrTeardownNs - before.mrTeardownNs;
  }

  const Order& order_;
  const bool simulator_;
  Trial& out_;
  std::vector<Local> locals_;
};

}  // namespace

Trial run_trial(const Order& order, const std::vector<Member>& members, bool simulator) {
  Trial out;
  out.outcome = Outcome::kFailed;
  try {
    Run run(order, simulator, out);
    for (std::uint32_t i = 0; i < order.ranks.size(); ++i) {
      for (const Member& member : members) {
        if (member.rank == order.ranks[i]) run.add(i, member.device);
      }
    }
    run.all();
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    out.error = error.what();
  }
  return out;
}

Trial merge(const std::vector<Trial>& parts) {
  Trial out = parts.at(0);
  for (std::size_t p = 1; p < parts.size(); ++p) {
    const Trial& part = parts[p];
    // Failed says more than done, and impossible more than failed: it is the reason of a search that all took part in.
    const auto weight = [](Outcome o) {
      return o == Outcome::kImpossible ? 3 : o == Outcome::kFailed ? 2 : o == Outcome::kNotTried ? 1 : 0;
    };
    if (weight(part.outcome) > weight(out.outcome)) {
      out.outcome = part.outcome;
      out.error = part.error;
    }
    out.samples.resize(std::min(out.samples.size(), part.samples.size()));
    for (std::size_t i = 0; i < out.samples.size(); ++i) {
      Sample& s = out.samples[i];
      const Sample& other = part.samples[i];
      s.one_way_us = std::max(s.one_way_us, other.one_way_us);
      s.all_reduce_us = std::max(s.all_reduce_us, other.all_reduce_us);
      s.wrong += other.wrong;
      s.registrations += other.registrations;
      s.registration_us += other.registration_us;
    }
    if (part.host_copies) out.host_copies = out.host_copies.value_or(0) + *part.host_copies;
    for (auto field : {&Trial::cpu_copies, &Trial::registrations, &Trial::registration_ns, &Trial::teardowns,
                       &Trial::teardown_ns, &Trial::hits, &Trial::misses}) {
      out.*field += part.*field;
    }
    for (auto field : {&Trial::first_use_us, &Trial::reuse_us}) out.*field = std::max(out.*field, part.*field);
  }
  return out;
}

std::string make_id() {
  wcclUniqueId id;
  if (wcclGetUniqueId(&id) != wcclSuccess)
    throw std::runtime_error(std::string("unique id: ") + wcclGetLastError(nullptr));
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : id.internal) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

}  // namespace weft::doctor
