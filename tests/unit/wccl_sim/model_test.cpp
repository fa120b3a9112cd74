// SPDX-License-Identifier: MIT
// The time model's replay moves the same bytes through the same resources as the device does.
#include <gtest/gtest.h>

#include "cluster.hpp"
#include "model/replay.hpp"
#include "sched/algorithms.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;

constexpr weft_counter kCounters[] = {WEFT_CTR_commands,     WEFT_CTR_rdma_ops,       WEFT_CTR_rdma_bytes,
                                      WEFT_CTR_copy_ops,     WEFT_CTR_copy_bytes,     WEFT_CTR_reduce_ops,
                                      WEFT_CTR_reduce_bytes, WEFT_CTR_hbm_read_bytes, WEFT_CTR_hbm_write_bytes};
constexpr const char* kNames[] = {"commands",   "rdma_ops",     "rdma_bytes",     "copy_ops",       "copy_bytes",
                                  "reduce_ops", "reduce_bytes", "hbm_read_bytes", "hbm_write_bytes"};

std::vector<std::uint64_t> sums(Cluster& c) {
  std::vector<std::uint64_t> out;
  for (const weft_counter counter : kCounters) {
    std::uint64_t sum = 0;
    for (std::size_t r = 0; r < c.devices.size(); ++r) sum += c.counter(r, counter);
    out.push_back(sum);
  }
  return out;
}

TEST(Model, ReplayEqualsTheLiveCounters) {
  for (const std::uint32_t n : {1u, 2u, 3u, 8u}) {
    for (const std::uint32_t ports : {1u, 2u}) {
      for (const std::size_t count : {std::size_t{100}, std::size_t{250000}}) {
        Cluster c({.devices = n, .ports = ports});
        std::vector<void*> send, receive;
        for (std::size_t r = 0; r < n; ++r) {
          send.push_back(c.allocate(r, count * 4));
          receive.push_back(c.allocate(r, count * 4));
        }
        const auto before = sums(c);
        for (std::size_t r = 0; r < n; ++r) {
          ASSERT_EQ(wcclAllReduce(send[r], receive[r], count, wcclFloat32, wcclSum, c.comms[r], nullptr), wcclSuccess);
        }
        for (std::size_t r = 0; r < n; ++r) ASSERT_EQ(wcclCommWait(c.comms[r]), wcclSuccess);
        weft_sim_run(1'000'000'000);  // the last credits
        const auto after = sums(c);

        model::Request request;
        request.count = count;
        const auto source = find_algorithm(WCCL_COLL_ALLREDUCE)->make({n, ports, 0});
        const model::Usage u = model::replay(*source, request, model::load_profile("weft")).usage;
        // Beside what the schedule moves: of each rank a record of the call, 40 bytes, to the next one, on each lane.
        const std::uint64_t records = n > 1 ? n * ports : 0, bytes = 40 * records;
        const std::uint64_t want[] = {u.commands + records,
                                      u.rdma_ops + records,
                                      u.rdma_bytes + bytes,
                                      u.copy_ops,
                                      u.copy_bytes,
                                      u.reduce_ops,
                                      u.reduce_bytes,
                                      u.hbm_read_bytes + bytes,
                                      u.hbm_write_bytes + bytes};
        // The device fetches a frame again that had to wait for link credit, at most a path MTU each time.
        std::uint64_t stalls = 0;
        for (weft_device* device : c.devices) {
          for (std::uint32_t port = 0; port < ports; ++port) {
            std::uint64_t value[WEFT_PCTR_COUNT] = {};
            weft_counters(device, static_cast<int>(port), value, WEFT_PCTR_COUNT);
            EXPECT_EQ(value[WEFT_PCTR_retransmits], 0u);
            stalls += value[WEFT_PCTR_tx_stalls];
          }
        }
        for (std::size_t i = 0; i < std::size(kCounters); ++i) {
          if (kCounters[i] == WEFT_CTR_hbm_read_bytes) {
            EXPECT_GE(after[i] - before[i], want[i]);
            EXPECT_LE(after[i] - before[i], want[i] + stalls * 8192);
            continue;
          }
          EXPECT_EQ(after[i] - before[i], want[i])
              << kNames[i] << ", " << n << " ranks, " << ports << " ports, " << count;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::ccl
