// SPDX-License-Identifier: MIT
// Communicators over the TCP meeting point, one thread a rank.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "cluster.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;
using test::ClusterOptions;

struct RankResult {
  wcclResult_t result = wcclSuccess;
  std::string text;
};

// Runs `body(rank, comm)` on a communicator of all ranks in `present`, a thread each.
std::vector<RankResult> run(Cluster& c, int ranks, const std::vector<int>& present, int timeout_ms,
                            const std::function<wcclResult_t(int, wcclComm_t)>& body) {
  wcclUniqueId id;
  EXPECT_EQ(wcclGetUniqueId(&id), wcclSuccess) << wcclGetLastError(nullptr);
  std::vector<RankResult> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (const int rank : present) {
    threads.emplace_back([&, rank] {
      RankResult& mine = results[static_cast<std::size_t>(rank)];
      wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
      config.device = c.devices[static_cast<std::size_t>(rank)];
      config.timeoutMs = timeout_ms;
      wcclComm_t comm = nullptr;
      mine.result = wcclCommInitRankConfig(&comm, ranks, id, rank, &config);
      if (mine.result == wcclSuccess) {
        mine.result = body(rank, comm);
        mine.text = wcclGetLastError(comm);
        if (mine.result == wcclSuccess) {
          mine.result = wcclCommDestroy(comm);
          mine.text = wcclGetLastError(nullptr);
        } else {
          wcclCommAbort(comm);
        }
      } else {
        mine.text = wcclGetLastError(nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

TEST(Socket, AllReduceSendReceiveBarrier) {
  Cluster c({.devices = 4, .connect = false});
  const std::size_t count = 30000;
  std::vector<void*> a, b;
  for (std::size_t r = 0; r < 4; ++r) {
    a.push_back(c.allocate(r, count * 4));
    b.push_back(c.allocate(r, count * 4));
    c.write(r, a[r], std::vector<std::int32_t>(count, static_cast<std::int32_t>(r + 1)));
  }
  for (int round = 0; round < 3; ++round) {
    const auto results = run(c, 4, {0, 1, 2, 3}, 20000, [&](int rank, wcclComm_t comm) {
      const auto r = static_cast<std::size_t>(rank);
      wcclResult_t result = wcclAllReduce(a[r], b[r], count, wcclInt32, wcclSum, comm, nullptr);
      if (result == wcclSuccess) result = wcclBarrier(comm, nullptr);
      if (result != wcclSuccess) return result;
      wcclGroupStart();  // with a rank that the ring does not know
      wcclSend(a[r], count, wcclInt32, (rank + 2) % 4, comm, nullptr);
      wcclRecv(b[r], count, wcclInt32, (rank + 2) % 4, comm, nullptr);
      result = wcclGroupEnd();
      return result == wcclSuccess ? wcclCommWait(comm) : result;
    });
    for (const RankResult& r : results) EXPECT_EQ(r.result, wcclSuccess) << r.text;
  }
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(c.read<std::int32_t>(r, b[r], count),
              std::vector<std::int32_t>(count, static_cast<std::int32_t>((r + 2) % 4 + 1)));
  }
}

TEST(Socket, MissingRankIsNamed) {
  Cluster c({.devices = 3, .connect = false});
  const auto results = run(c, 3, {0, 2}, 1000, [](int, wcclComm_t) { return wcclSuccess; });
  for (const int rank : {0, 2}) {
    EXPECT_NE(results[static_cast<std::size_t>(rank)].result, wcclSuccess);
    EXPECT_NE(results[static_cast<std::size_t>(rank)].text.find("rank 1 did not come"), std::string::npos)
        << results[static_cast<std::size_t>(rank)].text;
  }
}

// A rank that aborts in the middle is named to all others, and not only after their own limit, which is longer than
// this test may take.
TEST(Socket, AbortIsToldToAll) {
  Cluster c({.devices = 3, .connect = false});
  std::vector<void*> a;
  for (std::size_t r = 0; r < 3; ++r) a.push_back(c.allocate(r, 4096));
  const auto results = run(c, 3, {0, 1, 2}, 3'600'000, [&](int rank, wcclComm_t comm) {
    if (rank == 1) return wcclSystemError;  // run() aborts
    const wcclResult_t result = wcclAllReduce(a[static_cast<std::size_t>(rank)], a[static_cast<std::size_t>(rank)],
                                              1024, wcclFloat32, wcclSum, comm, nullptr);
    return result == wcclSuccess ? wcclCommWait(comm) : result;
  });
  for (const std::size_t rank : {0u, 2u}) {
    EXPECT_EQ(results[rank].result, wcclRemoteError);
    EXPECT_NE(results[rank].text.find("rank 1"), std::string::npos) << results[rank].text;
  }
}

TEST(Socket, ForeignIdAndWrongNumbersAreRefused) {
  Cluster c({.devices = 2, .connect = false});
  wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
  config.device = c.devices[0];
  config.timeoutMs = 1000;
  wcclComm_t comm = nullptr;
  wcclUniqueId id{};
  EXPECT_EQ(wcclCommInitRankConfig(&comm, 2, id, 0, &config), wcclInvalidArgument);
  ASSERT_EQ(wcclGetUniqueId(&id), wcclSuccess);
  EXPECT_EQ(wcclCommInitRankConfig(&comm, 2, id, 2, &config), wcclInvalidArgument);
  EXPECT_EQ(wcclCommInitRankConfig(&comm, 0, id, 0, &config), wcclInvalidArgument);
  wcclConfig_t bad = config;
  bad.magic = 0;
  EXPECT_EQ(wcclCommInitRankConfig(&comm, 1, id, 0, &bad), wcclInvalidArgument);
  // Another communicator's nonce.
  id.internal[30] = static_cast<char>(id.internal[30] ^ 1);
  id.internal[40] = static_cast<char>(id.internal[40] ^ 1);
  EXPECT_NE(wcclCommInitRankConfig(&comm, 1, id, 0, &config), wcclSuccess);
}

// WCCL_COMM_ID: rank 0 listens at the agreed address, others may come first; and the address serves one communicator
// after the other.
TEST(Socket, AgreedAddress) {
  setenv("WCCL_COMM_ID", "127.0.0.1:29713", 1);
  {
    Cluster c({.devices = 2, .connect = false});
    for (int round = 0; round < 3; ++round) {
      const auto results = run(c, 2, {1, 0}, 20000, [](int, wcclComm_t comm) {
        const wcclResult_t result = wcclBarrier(comm, nullptr);
        return result == wcclSuccess ? wcclCommWait(comm) : result;
      });
      for (const RankResult& r : results) EXPECT_EQ(r.result, wcclSuccess) << r.text;
    }
    setenv("WCCL_COMM_ID", "no-port", 1);
    wcclUniqueId id;
    EXPECT_EQ(wcclGetUniqueId(&id), wcclInvalidArgument);
  }
  unsetenv("WCCL_COMM_ID");
}

}  // namespace
}  // namespace weft::ccl
