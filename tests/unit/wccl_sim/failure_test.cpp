// SPDX-License-Identifier: MIT
// Dead peers, cut links, aborts: errors that name who it was, and the next communicator works.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster.hpp"
#include "verdict.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;
using test::Environment;

void exchange(Cluster& c, std::vector<wcclResult_t>& results) {
  const std::size_t count = 100000;
  std::vector<void*> buffer;
  for (std::size_t r = 0; r < c.comms.size(); ++r) {
    buffer.push_back(c.allocate(r, count * 4));
    c.write(r, buffer[r], std::vector<std::int32_t>(count, 1));
  }
  for (std::size_t r = 0; r < c.comms.size(); ++r) {
    ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], count, wcclInt32, wcclSum, c.comms[r], nullptr), wcclSuccess)
        << wcclGetLastError(nullptr);
  }
  for (std::size_t r = 0; r < c.comms.size(); ++r) results.push_back(wcclCommWait(c.comms[r]));
  for (std::size_t r = 0; r < c.comms.size(); ++r) {
    if (results[r] == wcclSuccess) {
      EXPECT_EQ(c.read<std::int32_t>(r, buffer[r], count),
                std::vector<std::int32_t>(count, static_cast<std::int32_t>(c.comms.size())));
    }
  }
}

TEST(Failure, CutLinkNamesTheRankAndTheNextCommunicatorWorks) {
  Cluster c({.devices = 4, .timeout_ms = 5000});
  std::vector<wcclResult_t> results;
  exchange(c, results);
  EXPECT_EQ(results, std::vector<wcclResult_t>(4, wcclSuccess));

  ASSERT_EQ(weft_sim_link(2, 0, 0), 0);
  const std::uint64_t before = weft_sim_time();
  results.clear();
  exchange(c, results);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_NE(results[r], wcclSuccess) << r;
    wcclResult_t state = wcclSuccess;
    EXPECT_EQ(wcclCommGetAsyncError(c.comms[r], &state), wcclSuccess);
    EXPECT_EQ(state, results[r]);
    EXPECT_NE(std::string(wcclGetLastError(c.comms[r])).find("rank 2"), std::string::npos)
        << wcclGetLastError(c.comms[r]);
    // A failed communicator takes no more work.
    EXPECT_EQ(wcclBarrier(c.comms[r], nullptr), results[r]);
  }
  EXPECT_LT(weft_sim_time() - before, 60'000'000'000u);
  for (wcclComm_t comm : c.comms) EXPECT_EQ(wcclCommAbort(comm), wcclSuccess);
  c.comms.clear();

  // Still cut: the next one does not come about on this path, and says who it is.
  const Environment path("WCCL_PATH", "onchip");
  EXPECT_NE(c.connect(), wcclSuccess);
  EXPECT_NE(std::string(wcclGetLastError(nullptr)).find("rank"), std::string::npos);
  ASSERT_EQ(weft_sim_link(2, 0, 1), 0);
  ASSERT_EQ(c.connect(), wcclSuccess) << wcclGetLastError(nullptr);
  results.clear();
  exchange(c, results);
  EXPECT_EQ(results, std::vector<wcclResult_t>(4, wcclSuccess));
}

TEST(Failure, SilentRankIsNamedAfterTheLimit) {
  Cluster c({.devices = 3, .timeout_ms = 2000});
  void* buffer[3];
  for (std::size_t r = 0; r < 3; ++r) buffer[r] = c.allocate(r, 4096);
  // Rank 1 never calls.
  for (const std::size_t r : {0u, 2u}) {
    ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], 1024, wcclFloat32, wcclSum, c.comms[r], nullptr), wcclSuccess);
  }
  EXPECT_EQ(wcclCommWait(c.comms[2]), wcclTimeout);
  EXPECT_NE(std::string(wcclGetLastError(c.comms[2])).find("rank 1 is silent: all-reduce 1, step 1 of 4"),
            std::string::npos)
      << wcclGetLastError(c.comms[2]);
  // Rank 0 learns it from rank 2 without waiting itself.
  const std::uint64_t before = weft_sim_time();
  EXPECT_EQ(wcclCommWait(c.comms[0]), wcclRemoteError);
  EXPECT_EQ(weft_sim_time(), before);
  EXPECT_NE(std::string(wcclGetLastError(c.comms[0])).find("rank 1"), std::string::npos);
}

TEST(Failure, AbortInMidFlight) {
  Cluster c({.devices = 3});
  for (int round = 0; round < 5; ++round) {
    std::vector<void*> buffer;
    for (std::size_t r = 0; r < 3; ++r) {
      buffer.push_back(c.allocate(r, 4 << 20));
      ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], 1 << 20, wcclFloat32, wcclSum, c.comms[r], nullptr), wcclSuccess);
    }
    weft_sim_run(static_cast<std::uint64_t>(round) * 100'000);
    ASSERT_EQ(wcclCommAbort(c.comms[1]), wcclSuccess);
    for (const std::size_t r : {0u, 2u}) {
      const wcclResult_t result = wcclCommWait(c.comms[r]);
      if (result != wcclSuccess) {
        EXPECT_NE(std::string(wcclGetLastError(c.comms[r])).find("rank 1"), std::string::npos)
            << wcclGetLastError(c.comms[r]);
      }
      ASSERT_EQ(wcclCommAbort(c.comms[r]), wcclSuccess);
    }
    c.comms.clear();
    ASSERT_EQ(c.connect(), wcclSuccess) << wcclGetLastError(nullptr);
    std::vector<wcclResult_t> results;
    exchange(c, results);
    EXPECT_EQ(results, std::vector<wcclResult_t>(3, wcclSuccess));
    for (weft_mem* mem : c.memory) weft_mem_free(mem);
    c.memory.clear();
  }
}

// Who is to blame, from what ranks say.
TEST(Failure, Verdict) {
  const auto waits = [](std::uint32_t from, std::uint32_t peer, std::uint64_t order) {
    return Suspicion{from, peer, 0, order, "waits"};
  };
  const auto broken = [](std::uint32_t from, std::uint32_t peer) { return Suspicion{from, peer, 1, 0, "broken"}; };
  EXPECT_FALSE(decide({}));
  // 0 waits for 2, which waits for 1, which says nothing.
  EXPECT_EQ(decide({waits(0, 2, 1), waits(2, 1, 5)})->culprit, 1u);
  // A circle: the earliest step.
  EXPECT_EQ(decide({waits(0, 2, 7), waits(2, 1, 3), waits(1, 0, 4)})->culprit, 1u);
  // Both neighbours of 2 find it broken, 2 finds one of them broken.
  EXPECT_EQ(decide({broken(2, 3), broken(1, 2), broken(3, 2), waits(0, 3, 0)})->culprit, 2u);
  // A rank that knows that its own port is down.
  EXPECT_EQ(decide({broken(1, 2), broken(0, 3), broken(3, 3)})->culprit, 3u);
}

// Everything that a communicator takes from the device comes back.
TEST(Failure, NothingLeaks) {
  Cluster c({.devices = 2, .connect = false});
  struct weft_device_info info{};
  info.size = sizeof info;
  ASSERT_EQ(weft_device_info(c.devices[0], &info), 0);
  const std::uint64_t used = info.hbm_used;
  for (int i = 0; i < 150; ++i) {  // more than the sync objects of a context would last
    ASSERT_EQ(c.connect(), wcclSuccess) << wcclGetLastError(nullptr) << " in round " << i;
    for (wcclComm_t comm : c.comms) ASSERT_EQ(i % 2 ? wcclCommAbort(comm) : wcclCommDestroy(comm), wcclSuccess);
    c.comms.clear();
  }
  info.size = sizeof info;
  ASSERT_EQ(weft_device_info(c.devices[0], &info), 0);
  EXPECT_EQ(info.hbm_used, used);
}

}  // namespace
}  // namespace weft::ccl
