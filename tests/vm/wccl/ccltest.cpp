// SPDX-License-Identifier: MIT
// weft-ccltest: one rank of a node.
//   account BYTES ROUNDS   all-reduces; prints, as JSON, what was moved by whom, and what of the accelerator is mapped
//   check BYTES ROUNDS     all-reduces; prints how many elements were wrong in all of them
//   free BYTES             frees a buffer under a running all-reduce; then a new communicator must work
//   until NAME BYTES       all-reduces, each looked at, until some rank finds a file NAME-stop; NAME-progress-RANK
//                          holds how many are done. Prints rounds, wrong elements and what went wrong
// CCLTEST_SIGNALS=restart|plain: a timer's signal every 2 ms, handled with or without SA_RESTART. WCCL_COMM_ID: where
// the ranks meet; CCLTEST_TIMEOUT: the communicators' limit in ms.
#include <dirent.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "wccl/wccl.h"
#include "weft/weft.h"

namespace {

int timeout_ms() {
  const char* value = std::getenv("CCLTEST_TIMEOUT");
  return value ? std::atoi(value) : 20'000;
}

void need(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// `text` is called when it is needed: its answer is that of the last call, which is only then `ok`'s.
template <class Text>
  requires std::is_invocable_v<Text>
void need(bool ok, Text text) {
  if (!ok) throw std::runtime_error(text());
}

int number(const char* name) {
  const char* value = std::getenv(name);
  need(value, std::string(name) + " is not set");
  return std::atoi(value);
}

class Rank {
 public:
  explicit Rank(std::uint64_t bytes) : bytes_(bytes), rank_(number("WEFT_RANK")), ranks_(number("WEFT_SIZE")) {
    need(weft_device_open(nullptr, &device_) == 0, weft_last_error);
    allocate();
  }
  ~Rank() {
    if (comm_) wcclCommAbort(comm_);
    weft_mem_free(send_);
    weft_mem_free(receive_);
    weft_device_close(device_);
  }

  void allocate() {
    need(weft_mem_alloc(device_, bytes_, 0, &send_) == 0, weft_last_error);
    need(weft_mem_alloc(device_, bytes_, 0, &receive_) == 0, weft_last_error);
    for (std::uint64_t at = 0; at < bytes_; at += kBlock) {
      const auto value = static_cast<std::uint64_t>(element(at / 4, rank_ + 1));
      need(weft_fill(device_, weft_mem_va(send_) + at, value << 32 | value, std::min(kBlock, bytes_ - at)) == 0,
           weft_last_error);
    }
  }

  // The `turn`-th communicator of this test; its ranks meet at node 0.
  void connect(int turn) {
    if (!std::getenv("WCCL_COMM_ID") || turn > 0) {
      const std::string at = std::getenv("WEFT_ADDRS");
      const std::string id = at.substr(0, at.find(',')) + ':' + std::to_string(29700 + turn);
      setenv("WCCL_COMM_ID", id.c_str(), 1);
    }
    wcclUniqueId unique;
    wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
    config.device = device_;
    config.timeoutMs = timeout_ms();
    need(wcclGetUniqueId(&unique) == wcclSuccess, [] { return wcclGetLastError(nullptr); });
    need(wcclCommInitRankConfig(&comm_, ranks_, unique, rank_, &config) == wcclSuccess,
         [] { return wcclGetLastError(nullptr); });
  }
  void abort() {
    wcclCommAbort(comm_);
    comm_ = nullptr;
  }
  // The end in good order: waits for the other ranks. An abort after the last wait could overtake theirs.
  void destroy() {
    need(wcclCommDestroy(std::exchange(comm_, nullptr)) == wcclSuccess, [] { return wcclGetLastError(nullptr); });
  }

  wcclResult_t reduce() {
    return wcclAllReduce(address(send_), address(receive_), bytes_ / 4, wcclInt32, wcclSum, comm_, nullptr);
  }
  wcclResult_t wait() { return wcclCommWait(comm_); }
  void barrier() {
    need(wcclBarrier(comm_, nullptr) == wcclSuccess && wait() == wcclSuccess, [&] { return error(); });
  }
  void free_send() {
    weft_mem_free(send_);
    send_ = nullptr;
  }
  void free_receive() {
    weft_mem_free(receive_);
    receive_ = nullptr;
  }

  std::uint64_t wrong() {
    std::vector<std::int32_t> host(bytes_ / 4);
    need(weft_read(device_, host.data(), weft_mem_va(receive_), bytes_) == 0, weft_last_error);
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < host.size(); ++i) count += host[i] != element(i, ranks_ * (ranks_ + 1) / 2);
    return count;
  }
  std::vector<std::uint64_t> counters() {
    std::vector<std::uint64_t> value(WEFT_CTR_COUNT);
    need(weft_counters(device_, -1, value.data(), value.size()) == WEFT_CTR_COUNT, "counters");
    return value;
  }
  wcclStats_t stats() {
    wcclStats_t out{};
    out.size = sizeof out;
    need(wcclCommStats(comm_, &out) == wcclSuccess, [&] { return error(); });
    return out;
  }
  std::string path() {
    wcclPath_t path;
    need(wcclCommPath(comm_, (rank_ + 1) % ranks_, &path, nullptr, 0) == wcclSuccess, [&] { return error(); });
    return wcclPathName(path);
  }
  const char* error() { return wcclGetLastError(comm_); }
  void fill(std::int32_t value) {
    const auto word = static_cast<std::uint32_t>(value);
    need(weft_fill(device_, weft_mem_va(send_), std::uint64_t{word} << 32 | word, bytes_) == 0, weft_last_error);
  }
  std::vector<std::int32_t> received() {
    std::vector<std::int32_t> host(bytes_ / 4);
    need(weft_read(device_, host.data(), weft_mem_va(receive_), bytes_) == 0, weft_last_error);
    return host;
  }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

 private:
  // Differs from block to block, so that a slice that came late, or twice, is seen.
  static constexpr std::uint64_t kBlock = 65536;
  static std::int32_t element(std::uint64_t index, int factor) {
    return static_cast<std::int32_t>(index * 4 / kBlock % 1000 + 1) * factor;
  }
  static void* address(weft_mem* mem) { return reinterpret_cast<void*>(weft_mem_va(mem)); }

  const std::uint64_t bytes_;
  const int rank_, ranks_;
  weft_device* device_ = nullptr;
  weft_mem *send_ = nullptr, *receive_ = nullptr;
  wcclComm_t comm_ = nullptr;
};

// The largest mapping of an accelerator in any process of this node, bytes.
std::uint64_t largest_mapping() {
  std::uint64_t largest = 0;
  DIR* processes = opendir("/proc");
  need(processes, "/proc");
  while (const dirent* process = readdir(processes)) {
    std::FILE* maps = std::fopen((std::string("/proc/") + process->d_name + "/maps").c_str(), "r");
    if (!maps) continue;
    char line[512];
    while (std::fgets(line, sizeof line, maps)) {
      std::uint64_t begin = 0, end = 0;
      if (std::strstr(line, "/dev/accel/") && std::sscanf(line, "%" SCNx64 "-%" SCNx64, &begin, &end) == 2) {
        largest = std::max(largest, end - begin);
      }
    }
    std::fclose(maps);
  }
  closedir(processes);
  return largest;
}

int account(std::uint64_t bytes, int rounds) {
  Rank rank(bytes);
  rank.connect(0);
  rank.barrier();
  const auto before = rank.counters();
  for (int i = 0; i < rounds; ++i) need(rank.reduce() == wcclSuccess, [&] { return rank.error(); });
  need(rank.wait() == wcclSuccess, [&] { return rank.error(); });
  const std::uint64_t mapped = largest_mapping();
  rank.barrier();
  const auto after = rank.counters();
  const auto moved = [&](int counter) {
    return after[static_cast<std::size_t>(counter)] - before[static_cast<std::size_t>(counter)];
  };
  const wcclStats_t stats = rank.stats();
  std::printf(
      "{\"path\": \"%s\", \"transport\": \"%s\", \"sent\": %" PRIu64 ", \"host_dram\": %" PRIu64
      ", \"cpu_copies\": %" PRIu64 ", \"flushes\": %" PRIu64 ", \"records\": %" PRIu64 ", \"device_read\": %" PRIu64
      ", \"device_wrote\": %" PRIu64 ", \"dma_freed\": %" PRIu64 ", \"mapped\": %" PRIu64 ", \"wrong\": %" PRIu64 "}\n",
      rank.path().c_str(), stats.transport,
      stats.bytes[wcclPathOnchip] + stats.bytes[wcclPathPeer] + stats.bytes[wcclPathStaged], stats.hostDramBytes,
      stats.cpuCopies, stats.flushes, stats.callRecords, moved(WEFT_CTR_host_payload_read_bytes),
      moved(WEFT_CTR_host_payload_write_bytes), moved(WEFT_CTR_dma_freed), mapped, rank.wrong());
  rank.destroy();
  return 0;
}

int check(std::uint64_t bytes, int rounds) {
  Rank rank(bytes);
  rank.connect(0);
  std::uint64_t wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    need(rank.reduce() == wcclSuccess && rank.wait() == wcclSuccess, [&] { return rank.error(); });
    wrong += rank.wrong();
  }
  std::printf("%" PRIu64 "\n", wrong);
  rank.destroy();
  return 0;
}

int free_under_way(std::uint64_t bytes) {
  Rank rank(bytes);
  rank.connect(0);
  rank.barrier();
  wcclResult_t first = wcclSuccess;
  for (int i = 0; i < 8 && first == wcclSuccess; ++i) first = rank.reduce();
  if (number("WEFT_RANK") == 0) {
    rank.free_send();
    rank.free_receive();
  }
  if (first == wcclSuccess) first = rank.wait();
  std::printf("first: %s: %s\n", wcclGetErrorString(first), first == wcclSuccess ? "" : rank.error());
  rank.abort();
  if (number("WEFT_RANK") == 0) rank.allocate();
  rank.connect(1);
  need(rank.reduce() == wcclSuccess && rank.wait() == wcclSuccess, [&] { return rank.error(); });
  rank.destroy();
  std::printf("then: %" PRIu64 " wrong\n", rank.wrong());
  return 0;
}

int until(const std::string& name, std::uint64_t bytes) {
  Rank rank(bytes);
  rank.connect(0);
  const std::string progress = name + "-progress-" + std::to_string(rank.rank()), stop = name + "-stop";
  std::uint64_t wrong = 0;
  int round = 0;
  wcclResult_t result = wcclSuccess;
  for (bool more = true; more && result == wcclSuccess; ++round) {
    // Every rank sends the round, or a million where it has seen that it is time to end: so all know it in one round.
    const int end = access(stop.c_str(), F_OK) == 0 ? 1'000'000 : 0;
    rank.fill(end + round % 1000);
    result = rank.reduce();
    if (result == wcclSuccess) result = rank.wait();
    if (result != wcclSuccess) break;
    const auto got = rank.received();
    more = got[0] < 1'000'000;
    for (const std::int32_t value : got) wrong += value != got[0] || value % 1'000'000 != rank.ranks() * (round % 1000);
    const std::string fresh = progress + ".new";
    std::FILE* file = std::fopen(fresh.c_str(), "w");
    need(file, fresh);
    std::fprintf(file, "%d\n", round + 1);
    std::fclose(file);
    std::rename(fresh.c_str(), progress.c_str());
  }
  const std::string why = result == wcclSuccess ? "" : rank.error();  // it is valid until the next call
  std::printf("%s: %d rounds, %" PRIu64 " wrong, %s: %s: %s\n", rank.path().c_str(), round, wrong, name.c_str(),
              wcclGetErrorString(result), why.c_str());
  if (result != wcclSuccess) {
    rank.abort();
  } else {
    rank.destroy();
  }
  return result == wcclSuccess && wrong == 0 ? 0 : 1;
}

void start_signals() {
  const char* kind = std::getenv("CCLTEST_SIGNALS");
  if (!kind) return;
  struct sigaction action{};
  action.sa_handler = [](int) {};
  action.sa_flags = std::strcmp(kind, "restart") == 0 ? SA_RESTART : 0;
  need(sigaction(SIGALRM, &action, nullptr) == 0, "sigaction");
  const itimerval every{{0, 2000}, {0, 2000}};
  need(setitimer(ITIMER_REAL, &every, nullptr) == 0, "setitimer");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    start_signals();
    if (argc == 4 && !std::strcmp(argv[1], "until")) return until(argv[2], std::strtoull(argv[3], nullptr, 0));
    if (argc == 4 && !std::strcmp(argv[1], "account")) {
      return account(std::strtoull(argv[2], nullptr, 0), std::atoi(argv[3]));
    }
    if (argc == 4 && !std::strcmp(argv[1], "check")) {
      return check(std::strtoull(argv[2], nullptr, 0), std::atoi(argv[3]));
    }
    if (argc == 3 && !std::strcmp(argv[1], "free")) return free_under_way(std::strtoull(argv[2], nullptr, 0));
    std::fprintf(stderr, "usage: weft-ccltest account|check BYTES ROUNDS | free BYTES | until NAME BYTES\n");
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft-ccltest: %s\n", error.what());
    return 1;
  }
}
