// SPDX-License-Identifier: MIT
// Calls that differ between ranks: an error that names ranks and both values, never wrong bytes; and what is merely
// different in kind, but right, is none.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;
using test::Environment;

class Agreement : public testing::TestWithParam<const char*> {
 protected:
  Agreement() : path_("WCCL_PATH", *GetParam() == 'o' ? "onchip" : "staged"), over_("WCCL_STAGED_OVER", "tcp") {}
  void SetUp() override {
#ifndef WEFT_WITH_OFI
    if (*GetParam() != 'o') GTEST_SKIP() << "built without libfabric";
#endif
    cluster.emplace(test::ClusterOptions{.devices = 3, .timeout_ms = 20'000});
    for (std::size_t r = 0; r < 3; ++r) {
      a.push_back(static_cast<char*>(cluster->allocate(r, 4 << 20)));
      b.push_back(static_cast<char*>(cluster->allocate(r, 4 << 20)));
    }
  }
  using Call = std::function<wcclResult_t(std::size_t)>;
  wcclResult_t reduce(std::size_t r, std::size_t count, wcclDataType_t type = wcclInt32, wcclRedOp_t op = wcclSum) {
    return wcclAllReduce(a[r], b[r], count, type, op, cluster->comms[r], nullptr);
  }
  // Runs `call` on all ranks, then waits. All of `concerned` fail, at the latest in their next call, with all of
  // `words` in the text of each; then a new communicator works.
  void differ(const Call& call, const std::vector<std::size_t>& concerned, const std::vector<std::string>& words) {
    for (std::size_t r = 0; r < 3; ++r) ASSERT_EQ(call(r), wcclSuccess) << wcclGetLastError(nullptr);
    // Who receives from a rank that agrees may be through before another one looks; the first wait of that one fails.
    int noticed = 0;
    for (int turn = 0; turn < 2; ++turn) {
      for (const std::size_t r : concerned) {
        wcclResult_t result = wcclCommWait(cluster->comms[r]);
        if (turn == 0) {
          noticed += result != wcclSuccess;
          continue;
        }
        if (result == wcclSuccess) result = reduce(r, 1000);
        EXPECT_TRUE(result == wcclInvalidUsage || result == wcclRemoteError) << r << ": " << result;
        const std::string text = wcclGetLastError(cluster->comms[r]);
        for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in " << text;
      }
    }
    EXPECT_GT(noticed, 0);
    for (wcclComm_t comm : cluster->comms) wcclCommAbort(comm);
    cluster->comms.clear();
    ASSERT_EQ(cluster->connect(), wcclSuccess) << wcclGetLastError(nullptr);
    for (std::size_t r = 0; r < 3; ++r) {
      cluster->write(r, a[r], std::vector<std::int32_t>(1000, static_cast<std::int32_t>(r + 1)));
      ASSERT_EQ(reduce(r, 1000), wcclSuccess);
    }
    for (std::size_t r = 0; r < 3; ++r) {
      ASSERT_EQ(wcclCommWait(cluster->comms[r]), wcclSuccess) << wcclGetLastError(cluster->comms[r]);
      EXPECT_EQ(cluster->read<std::int32_t>(r, b[r], 1000), std::vector<std::int32_t>(1000, 6));
    }
  }
  Environment path_, over_;
  std::optional<Cluster> cluster;
  std::vector<char*> a, b;
};

TEST_P(Agreement, Counts) {
  differ([&](std::size_t r) { return reduce(r, r == 1 ? 409598 : 409600); }, {0, 1, 2}, {"rank 1", "409598", "409600"});
  differ([&](std::size_t r) { return reduce(r, r == 2 ? 9 : 8); }, {0, 1, 2}, {"rank 2", "of 9 int32", "of 8 int32"});
  differ([&](std::size_t r) { return reduce(r, r == 0 ? 0 : 256); }, {0, 1, 2},
         {"rank 0", "of 0 int32", "of 256 int32"});
}

TEST_P(Agreement, TypesOperationsAndKinds) {
  differ([&](std::size_t r) { return reduce(r, 1000, r == 1 ? wcclFloat32 : wcclInt32); }, {0, 1, 2},
         {"rank 1", "float32", "int32"});
  differ([&](std::size_t r) { return reduce(r, 1000, wcclInt32, r == 1 ? wcclMax : wcclSum); }, {0, 1, 2},
         {"rank 1", "(max)", "(sum)"});
  differ([&](std::size_t r) { return r == 1 ? wcclBarrier(cluster->comms[r], nullptr) : reduce(r, 1000); }, {0, 1, 2},
         {"rank 1", "barrier", "all-reduce of 1000 int32 (sum)"});
}

TEST_P(Agreement, MessageSizes) {
  const auto pair = [&](std::size_t sent, std::size_t received) {
    return [this, sent, received](std::size_t r) {
      if (r == 0) return wcclSend(a[0], sent, wcclInt8, 1, cluster->comms[0], nullptr);
      return r == 1 ? wcclRecv(b[1], received, wcclInt8, 0, cluster->comms[1], nullptr) : wcclSuccess;
    };
  };
  for (const auto& [sent, received] :
       std::vector<std::pair<std::size_t, std::size_t>>{{16, 64}, {200, 100}, {1024, 0}, {0, 1024}, {2'000'000, 100}}) {
    differ(pair(sent, received), {1},
           {"rank 0", "rank 1", "of " + std::to_string(sent) + " bytes", "of " + std::to_string(received) + " bytes"});
  }
}

// The sender is through so many messages that the record of the first is gone when the receiver looks.
TEST_P(Agreement, ManyMessagesAgainstOne) {
  differ(
      [&](std::size_t r) {
        if (r == 1) return wcclRecv(b[1], 4 << 20, wcclInt8, 0, cluster->comms[1], nullptr);
        wcclResult_t result = wcclSuccess;
        for (int i = 0; i < 12 && r == 0 && result == wcclSuccess; ++i) {
          result = wcclSend(a[0], 8, wcclInt8, 1, cluster->comms[0], nullptr);
        }
        return result;
      },
      {1}, {"rank 0", "rank 1", "of 8 bytes", "of 4194304 bytes"});
}

// A call that differs is found though many that agree came before and come after it unwaited for.
TEST_P(Agreement, OneOfMany) {
  differ(
      [&](std::size_t r) {
        wcclResult_t result = wcclSuccess;
        for (std::size_t i = 0; i < 40 && result == wcclSuccess; ++i) result = reduce(r, r == 2 && i == 20 ? 65 : 64);
        return result;
      },
      {0, 1, 2}, {"rank 2"});
}

TEST_P(Agreement, NothingIsWrongWithEmptyCalls) {
  for (std::size_t r = 0; r < 3; ++r) {
    ASSERT_EQ(wcclAllReduce(nullptr, nullptr, 0, wcclFloat, wcclSum, cluster->comms[r], nullptr), wcclSuccess);
  }
  EXPECT_EQ(wcclSend(nullptr, 0, wcclInt8, 1, cluster->comms[0], nullptr), wcclSuccess);
  EXPECT_EQ(wcclRecv(nullptr, 0, wcclInt8, 0, cluster->comms[1], nullptr), wcclSuccess);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(wcclCommWait(cluster->comms[r]), wcclSuccess);
}

// More messages in a group than the pool of records holds, twice.
TEST_P(Agreement, ManyMessages) {
  for (int round = 0; round < 2; ++round) {
    for (std::size_t r = 0; r < 2; ++r) {
      cluster->write(0, a[0], std::vector<std::uint8_t>(3000, static_cast<std::uint8_t>(round + 1)));
      wcclGroupStart();
      for (std::size_t i = 0; i < 3000; ++i) {
        if (r == 0) wcclSend(a[0] + i, 1, wcclUint8, 1, cluster->comms[0], nullptr);
        if (r == 1) wcclRecv(b[1] + i, 1, wcclUint8, 0, cluster->comms[1], nullptr);
      }
      ASSERT_EQ(wcclGroupEnd(), wcclSuccess) << wcclGetLastError(nullptr);
    }
    for (std::size_t r = 0; r < 2; ++r)
      EXPECT_EQ(wcclCommWait(cluster->comms[r]), wcclSuccess) << wcclGetLastError(nullptr);
    EXPECT_EQ(cluster->read<std::uint8_t>(1, b[1], 3000),
              std::vector<std::uint8_t>(3000, static_cast<std::uint8_t>(round + 1)));
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, Agreement, testing::Values("onchip", "staged"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::ccl
