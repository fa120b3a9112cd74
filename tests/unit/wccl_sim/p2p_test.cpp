// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <numeric>

#include "cluster.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;

std::vector<std::int32_t> ramp(std::size_t count, std::int32_t first) {
  std::vector<std::int32_t> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

TEST(PointToPoint, SendAndReceive) {
  Cluster c({.devices = 2});
  const std::size_t count = 400000;  // several slots
  void* from = c.allocate(0, count * 4);
  void* to = c.allocate(1, count * 4);
  c.write(0, from, ramp(count, 7));
  ASSERT_EQ(wcclSend(from, count, wcclInt32, 1, c.comms[0], nullptr), wcclSuccess);
  ASSERT_EQ(wcclRecv(to, count, wcclInt32, 0, c.comms[1], nullptr), wcclSuccess);
  ASSERT_EQ(wcclCommWait(c.comms[0]), wcclSuccess);
  ASSERT_EQ(wcclStreamSynchronize(nullptr), wcclSuccess);
  EXPECT_EQ(c.read<std::int32_t>(1, to, count), ramp(count, 7));
}

// All to all by a group, with itself too, larger than the slots: needs all directions at once.
TEST(PointToPoint, GroupAllToAll) {
  const std::uint32_t n = 5;
  Cluster c({.devices = n});
  const std::size_t count = 150000;
  std::vector<std::vector<void*>> from(n), to(n);
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t p = 0; p < n; ++p) {
      from[r].push_back(c.allocate(r, count * 4));
      to[r].push_back(c.allocate(r, count * 4));
      c.write(r, from[r][p], ramp(count, static_cast<std::int32_t>(1000 * r + p)));
    }
  }
  wcclStream_t stream = nullptr;
  ASSERT_EQ(wcclStreamCreate(&stream), wcclSuccess);
  ASSERT_EQ(wcclGroupStart(), wcclSuccess);
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t p = 0; p < n; ++p) {
      ASSERT_EQ(wcclSend(from[r][p], count, wcclInt32, static_cast<int>(p), c.comms[r], stream), wcclSuccess);
      ASSERT_EQ(wcclRecv(to[r][p], count, wcclInt32, static_cast<int>(p), c.comms[r], stream), wcclSuccess);
    }
  }
  ASSERT_EQ(wcclGroupEnd(), wcclSuccess) << wcclGetLastError(nullptr);
  ASSERT_EQ(wcclStreamSynchronize(stream), wcclSuccess) << wcclGetLastError(nullptr);
  for (std::uint32_t r = 0; r < n; ++r) {
    for (std::uint32_t p = 0; p < n; ++p) {
      EXPECT_EQ(c.read<std::int32_t>(r, to[r][p], count), ramp(count, static_cast<std::int32_t>(1000 * p + r)));
    }
  }
  wcclStreamDestroy(stream);
}

TEST(PointToPoint, MessagesOfAPairKeepTheirOrder) {
  Cluster c({.devices = 2});
  const std::size_t count = 1000;
  std::vector<void*> from, to;
  wcclGroupStart();
  for (int i = 0; i < 20; ++i) {
    from.push_back(c.allocate(0, count * 4));
    to.push_back(c.allocate(1, count * 4));
    c.write(0, from.back(), ramp(count, i * 1000));
    ASSERT_EQ(wcclSend(from.back(), count, wcclInt32, 1, c.comms[0], nullptr), wcclSuccess);
    ASSERT_EQ(wcclRecv(to.back(), count, wcclInt32, 0, c.comms[1], nullptr), wcclSuccess);
  }
  ASSERT_EQ(wcclGroupEnd(), wcclSuccess);
  ASSERT_EQ(wcclStreamSynchronize(nullptr), wcclSuccess);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(c.read<std::int32_t>(1, to[static_cast<std::size_t>(i)], count), ramp(count, i * 1000));
}

TEST(PointToPoint, RefusesBadArguments) {
  Cluster c({.devices = 2});
  void* a = c.allocate(0, 64);
  EXPECT_EQ(wcclSend(a, 16, wcclInt32, 2, c.comms[0], nullptr), wcclInvalidArgument);
  EXPECT_EQ(wcclSend(a, 16, wcclInt32, -1, c.comms[0], nullptr), wcclInvalidArgument);
  EXPECT_EQ(wcclSend(a, 16, wcclInt32, 0, c.comms[0], nullptr), wcclInvalidUsage);  // to itself, without a receive
  EXPECT_EQ(wcclGroupEnd(), wcclInvalidUsage);
  EXPECT_EQ(wcclSend(a, 0, wcclInt32, 1, c.comms[0], nullptr), wcclSuccess);  // nothing to do
}

// Nobody is through a barrier before the last one came to it.
TEST(Barrier, HoldsUntilAllCame) {
  for (const std::uint32_t n : {1u, 2u, 3u, 5u, 8u}) {
    Cluster c({.devices = n});
    for (std::uint32_t late = 0; late < n; ++late) {
      for (std::uint32_t r = 0; r < n; ++r) {
        if (r == late) continue;
        ASSERT_EQ(wcclBarrier(c.comms[r], nullptr), wcclSuccess) << wcclGetLastError(nullptr);
      }
      weft_sim_run(5'000'000);
      for (std::uint32_t r = 0; r < n; ++r) {
        wcclResult_t state = wcclSuccess;
        ASSERT_EQ(wcclCommGetAsyncError(c.comms[r], &state), wcclSuccess);
        EXPECT_EQ(state, r == late ? wcclSuccess : wcclInProgress);
      }
      ASSERT_EQ(wcclBarrier(c.comms[late], nullptr), wcclSuccess);
      for (std::uint32_t r = 0; r < n; ++r) ASSERT_EQ(wcclCommWait(c.comms[r]), wcclSuccess);
    }
  }
}

TEST(Api, NumbersAreNccls) {
  static_assert(wcclRemoteError == 6 && wcclInProgress == 7 && wcclTimeout == 8);
  static_assert(wcclFloat16 == 6 && wcclFloat32 == 7 && wcclFloat64 == 8 && wcclBfloat16 == 9 && wcclFloat8e5m2 == 11);
  static_assert(wcclSum == 0 && wcclProd == 1 && wcclMax == 2 && wcclMin == 3 && wcclAvg == 4);
  static_assert(sizeof(wcclUniqueId) == 128);
  int version = 0;
  EXPECT_EQ(wcclGetVersion(&version), wcclSuccess);
  EXPECT_EQ(version, WCCL_VERSION_CODE);
  Cluster c({.devices = 3});
  for (int r = 0; r < 3; ++r) {
    int count = 0, rank = -1;
    wcclPath_t path = wcclPathAuto;
    EXPECT_EQ(wcclCommCount(c.comms[static_cast<std::size_t>(r)], &count), wcclSuccess);
    EXPECT_EQ(wcclCommUserRank(c.comms[static_cast<std::size_t>(r)], &rank), wcclSuccess);
    EXPECT_EQ(count, 3);
    EXPECT_EQ(rank, r);
    EXPECT_EQ(wcclCommPath(c.comms[static_cast<std::size_t>(r)], (r + 1) % 3, &path, nullptr, 0), wcclSuccess);
    EXPECT_EQ(path, wcclPathOnchip);
  }
}

}  // namespace
}  // namespace weft::ccl
