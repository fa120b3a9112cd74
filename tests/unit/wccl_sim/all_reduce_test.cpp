// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstring>

#include "cluster.hpp"
#include "pattern.hpp"

namespace weft::ccl {
namespace {

using perf::Collective;
using perf::Pattern;
using test::Cluster;
using test::ClusterOptions;

// One all-reduce of the pattern on all ranks; the number of wrong elements.
std::uint64_t all_reduce(Cluster& c, std::size_t count, wcclDataType_t type, wcclRedOp_t op, bool in_place) {
  const auto ranks = static_cast<std::uint32_t>(c.comms.size());
  const Pattern pattern{Collective::kAllReduce, type, op, ranks};
  const std::size_t bytes = count * perf::type_bytes(type);
  std::vector<void*> send, receive;
  const std::size_t kept = c.memory.size();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    send.push_back(c.allocate(r, std::max<std::size_t>(bytes, 1)));
    receive.push_back(in_place ? send[r] : c.allocate(r, std::max<std::size_t>(bytes, 1)));
    std::vector<std::byte> data(bytes);
    pattern.input(r, 0, data);
    c.write(r, send[r], data);
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(wcclAllReduce(send[r], receive[r], count, type, op, c.comms[r], nullptr), wcclSuccess)
        << wcclGetLastError(c.comms[r]);
  }
  std::uint64_t wrong = 0;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    EXPECT_EQ(wcclCommWait(c.comms[r]), wcclSuccess) << wcclGetLastError(c.comms[r]);
    wrong += pattern.wrong(r, 0, c.read<std::byte>(r, receive[r], bytes));
    if (!in_place) {  // the input is as it was
      std::vector<std::byte> data(bytes);
      pattern.input(r, 0, data);
      EXPECT_EQ(c.read<std::byte>(r, send[r], bytes), data);
    }
  }
  while (c.memory.size() > kept) {
    weft_mem_free(c.memory.back());
    c.memory.pop_back();
  }
  return wrong;
}

void every_type_and_operation(std::uint32_t ranks) {
  Cluster c({.devices = ranks});
  for (int type = 0; type <= wcclBfloat16; ++type) {
    for (int op = 0; op < wcclNumOps; ++op) {
      const auto t = static_cast<wcclDataType_t>(type);
      const auto o = static_cast<wcclRedOp_t>(op);
      EXPECT_EQ(all_reduce(c, 1021, t, o, (type + op) % 2), 0u) << perf::type_name(t) << ' ' << perf::op_name(o);
    }
  }
}

class Ranks : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Ranks, EveryTypeAndOperation) { every_type_and_operation(GetParam()); }

TEST_P(Ranks, EverySize) {
  Cluster c({.devices = GetParam()});
  const std::uint32_t n = GetParam();
  // Nothing, less than a part each, odd, around a slice of 64 KiB and around a slot of 512 KiB a part.
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{n - 1}, std::size_t{n}, std::size_t{n + 1}, std::size_t{4097},
        std::size_t{16384} * n - 1, std::size_t{16384} * n + 1, std::size_t{131072} * n + 3}) {
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(all_reduce(c, count, wcclInt32, wcclSum, in_place), 0u) << count;
      EXPECT_EQ(all_reduce(c, count, wcclFloat32, wcclAvg, in_place), 0u) << count;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllReduce, Ranks, testing::Values(1, 2, 3, 5, 8));

TEST(AllReduce, ExactWithLoss) {
  for (const double loss : {0.01, 0.05}) {
    Cluster c({.devices = 4, .seed = 11, .loss = loss});
    EXPECT_EQ(all_reduce(c, 300001, wcclFloat32, wcclSum, false), 0u) << loss;
    EXPECT_EQ(all_reduce(c, 50000, wcclInt64, wcclProd, true), 0u) << loss;
    std::uint64_t retransmits = 0;
    for (weft_device* device : c.devices) {
      std::uint64_t value[WEFT_PCTR_COUNT] = {};
      weft_counters(device, 0, value, WEFT_PCTR_COUNT);
      retransmits += value[WEFT_PCTR_retransmits];
    }
    EXPECT_GT(retransmits, 0u);
  }
}

TEST(AllReduce, OverSeveralPorts) {
  Cluster c({.devices = 3, .ports = 3});
  EXPECT_EQ(all_reduce(c, 100003, wcclFloat32, wcclSum, false), 0u);
  for (weft_device* device : c.devices) {
    for (int port = 0; port < 3; ++port) {
      std::uint64_t value[WEFT_PCTR_COUNT] = {};
      weft_counters(device, port, value, WEFT_PCTR_COUNT);
      EXPECT_GT(value[WEFT_PCTR_tx_payload_bytes], 0u) << port;
    }
  }
}

// Many collectives, without a wait between them: slots go round many times, the ring wraps.
TEST(AllReduce, ManyInARow) {
  Cluster c({.devices = 2});
  const std::size_t count = 5000;
  std::vector<void*> buffer;
  for (std::uint32_t r = 0; r < 2; ++r) {
    buffer.push_back(c.allocate(r, count * 8));
    c.write(r, buffer[r], std::vector<std::int64_t>(count, r + 1));
  }
  for (int i = 0; i < 40; ++i) {
    for (std::uint32_t r = 0; r < 2; ++r) {
      ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], count, wcclInt64, i % 2 ? wcclMax : wcclSum, c.comms[r], nullptr),
                wcclSuccess);
    }
  }
  for (std::uint32_t r = 0; r < 2; ++r) {
    ASSERT_EQ(wcclCommWait(c.comms[r]), wcclSuccess);
    EXPECT_EQ(c.read<std::int64_t>(r, buffer[r], count), std::vector<std::int64_t>(count, 3ll << 19));
  }
}

// More work than the ring holds at once: the call waits for room, which the other rank's work makes.
TEST(AllReduce, FullRingMakesTheCallWait) {
  setenv("WCCL_QUEUE_ENTRIES", "64", 1);
  {
    Cluster c({.devices = 2});
    std::vector<void*> buffer;
    for (std::uint32_t r = 0; r < 2; ++r) buffer.push_back(c.allocate(r, 4096));
    for (int i = 0; i < 100; ++i) {
      for (std::uint32_t r = 0; r < 2; ++r) {
        ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], 1024, wcclFloat32, wcclMax, c.comms[r], nullptr), wcclSuccess)
            << wcclGetLastError(c.comms[r]);
      }
    }
    for (std::uint32_t r = 0; r < 2; ++r) ASSERT_EQ(wcclCommWait(c.comms[r]), wcclSuccess);
    // What can never fit is refused with what to do.
    void* large = c.allocate(0, 16 << 20);
    EXPECT_EQ(wcclAllReduce(large, large, 4 << 20, wcclFloat32, wcclSum, c.comms[0], nullptr), wcclInvalidUsage);
    EXPECT_NE(std::string(wcclGetLastError(nullptr)).find("WCCL_BUFFSIZE"), std::string::npos);
  }
  unsetenv("WCCL_QUEUE_ENTRIES");
}

TEST(AllReduce, OneDoorbellAndNoHostMemory) {
  Cluster c({.devices = 2});
  const std::size_t count = 1 << 20;
  std::vector<void*> buffer;
  for (std::uint32_t r = 0; r < 2; ++r) buffer.push_back(c.allocate(r, count * 4));
  std::uint64_t doorbells[2], payload[2];
  const auto host = [&](std::uint32_t r) {
    return c.counter(r, WEFT_CTR_host_payload_read_bytes) + c.counter(r, WEFT_CTR_host_payload_write_bytes);
  };
  for (std::uint32_t r = 0; r < 2; ++r) {
    doorbells[r] = c.counter(r, WEFT_CTR_doorbells);
    payload[r] = host(r);
    ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], count, wcclFloat32, wcclSum, c.comms[r], nullptr), wcclSuccess);
  }
  for (std::uint32_t r = 0; r < 2; ++r) ASSERT_EQ(wcclCommWait(c.comms[r]), wcclSuccess);
  for (std::uint32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(c.counter(r, WEFT_CTR_doorbells), doorbells[r] + 1);
    EXPECT_EQ(host(r), payload[r]);
    wcclStats_t stats{};
    stats.size = sizeof stats;
    ASSERT_EQ(wcclCommStats(c.comms[r], &stats), wcclSuccess);
    EXPECT_EQ(stats.bytes[wcclPathOnchip], count * 4);  // 2 (n - 1) / n of it
    EXPECT_EQ(stats.bytes[wcclPathPeer] + stats.bytes[wcclPathStaged] + stats.cpuCopies + stats.hostDramBytes, 0u);
    EXPECT_EQ(stats.doorbells, 1u);
    EXPECT_EQ(stats.callRecords, 1u);
  }
}

std::uint64_t log_hash(std::uint64_t seed) {
  Cluster c({.devices = 4, .seed = seed, .loss = 0.02});
  EXPECT_EQ(all_reduce(c, 20000, wcclFloat32, wcclSum, false), 0u);
  return weft_sim_hash();
}

TEST(AllReduce, SameSeedSameLog) {
  const std::uint64_t first = log_hash(5);
  EXPECT_EQ(log_hash(5), first);
  EXPECT_NE(log_hash(6), first);
}

TEST(AllReduce, RefusesBadArguments) {
  Cluster c({.devices = 2});
  void* a = c.allocate(0, 4096);
  char* b = static_cast<char*>(c.allocate(0, 4096));
  const auto call = [&](const void* s, void* r, std::size_t n, int t, int o) {
    return wcclAllReduce(s, r, n, static_cast<wcclDataType_t>(t), static_cast<wcclRedOp_t>(o), c.comms[0], nullptr);
  };
  EXPECT_EQ(call(a, b, 16, 99, wcclSum), wcclInvalidArgument);
  EXPECT_EQ(call(a, b, 16, wcclFloat32, 7), wcclInvalidArgument);
  EXPECT_EQ(call(a, b, 1025, wcclFloat32, wcclSum), wcclInvalidArgument);    // beyond the buffer
  EXPECT_EQ(call(b, b + 4, 16, wcclFloat32, wcclSum), wcclInvalidArgument);  // overlap in part
  int local = 0;
  EXPECT_EQ(call(&local, b, 1, wcclFloat32, wcclSum), wcclInvalidArgument);
  EXPECT_EQ(call(a, b, 16, wcclFloat8e4m3, wcclSum), wcclInvalidArgument);
  EXPECT_EQ(call(a, b, SIZE_MAX, wcclFloat32, wcclSum), wcclInvalidArgument);
  EXPECT_EQ(wcclAllReduce(a, b, 16, wcclFloat32, wcclSum, nullptr, nullptr), wcclInvalidArgument);
}

#ifdef WEFT_WITH_OFI
// Through host memory and libfabric over tcp: the same schedules, run by the host's progress thread.
class Staged : public testing::TestWithParam<std::uint32_t> {
  const test::Environment path_{"WCCL_PATH", "staged"}, over_{"WCCL_STAGED_OVER", "tcp"};
};

TEST_P(Staged, EveryTypeAndOperation) { every_type_and_operation(GetParam()); }

TEST_P(Staged, Sizes) {
  Cluster c({.devices = GetParam(), .hbm = 128 << 20});
  for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{65536}, std::size_t{3000001}}) {
    EXPECT_EQ(all_reduce(c, count, wcclFloat32, wcclSum, false), 0u) << count;
  }
  // All of it went through host memory, twice on either side; tokens and credits carry nothing.
  std::uint64_t sent = 0, dram = 0;
  for (wcclComm_t comm : c.comms) {
    wcclStats_t stats{};
    stats.size = sizeof stats;
    ASSERT_EQ(wcclCommStats(comm, &stats), wcclSuccess);
    EXPECT_STREQ(stats.transport, "tcp");
    EXPECT_EQ(stats.bytes[wcclPathOnchip] + stats.bytes[wcclPathPeer], 0u);
    EXPECT_EQ(stats.flushes + stats.mrRegistrations, 0u);
    sent += stats.bytes[wcclPathStaged];
    dram += stats.hostDramBytes;
  }
  EXPECT_EQ(sent > 0, GetParam() > 1);
  EXPECT_EQ(dram, 4 * sent);
}

INSTANTIATE_TEST_SUITE_P(Sim, Staged, testing::Values(1u, 2u, 3u, 5u));
#endif

}  // namespace
}  // namespace weft::ccl
