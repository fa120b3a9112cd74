// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cluster.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;
using test::ClusterOptions;

TEST(AllReduce, TwoRanksAtOnce) {
  Cluster c({.devices = 2});
  const std::size_t count = 1000;
  std::vector<void*> send, receive;
  std::vector<float> want(count, 0);
  for (std::size_t r = 0; r < 2; ++r) {
    send.push_back(c.allocate(r, count * 4));
    receive.push_back(c.allocate(r, count * 4));
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) want[i] += data[i] = static_cast<float>(r * 1000 + i);
    c.write(r, send[r], data);
  }
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(wcclAllReduce(send[r], receive[r], count, wcclFloat32, wcclSum, c.comms[r], nullptr), wcclSuccess)
        << wcclGetLastError(c.comms[r]);
  }
  for (std::size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(wcclCommWait(c.comms[r]), wcclSuccess) << wcclGetLastError(c.comms[r]);
    EXPECT_EQ(c.read<float>(r, receive[r], count), want);
  }
}

}  // namespace
}  // namespace weft::ccl
