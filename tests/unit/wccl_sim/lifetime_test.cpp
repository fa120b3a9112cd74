// SPDX-License-Identifier: MIT
// The end of communicators: in turn, in any order, by abort in the middle of whatever is under way; and calls that must
// not block, or start nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "cluster.hpp"

namespace weft::ccl {
namespace {

using test::Cluster;
using test::Environment;

constexpr int kShort = 20'000;  // ms: one that fails the call that comes up against it
constexpr int kLong = 600'000;  // ms: a limit that nobody who waits for it would live to see

// A communicator over the meeting point; ranks join in a thread each. Apart: as if each rank were in a process of its
// own, which reaches the others by the meeting point alone.
std::vector<wcclComm_t> join(Cluster& c, int timeout_ms, bool apart = false) {
  wcclUniqueId id;
  EXPECT_EQ(wcclGetUniqueId(&id), wcclSuccess) << wcclGetLastError(nullptr);
  std::vector<wcclComm_t> comms(c.devices.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      wcclUniqueId mine = id;
      if (apart) mine.internal[WCCL_UNIQUE_ID_BYTES - 1] = static_cast<char>(r + 1);
      wcclConfig_t config = WCCL_CONFIG_INITIALIZER;
      config.device = c.devices[r];
      config.timeoutMs = timeout_ms;
      EXPECT_EQ(wcclCommInitRankConfig(&comms[r], static_cast<int>(comms.size()), mine, static_cast<int>(r), &config),
                wcclSuccess)
          << wcclGetLastError(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return comms;
}

void reduce(const std::vector<wcclComm_t>& comms, const std::vector<void*>& buffer) {
  for (std::size_t r = 0; r < comms.size(); ++r) {
    ASSERT_EQ(wcclAllReduce(buffer[r], buffer[r], 100, wcclFloat, wcclSum, comms[r], nullptr), wcclSuccess)
        << wcclGetLastError(nullptr);
  }
  for (std::size_t r = 0; r < comms.size(); ++r) {
    ASSERT_EQ(wcclCommWait(comms[r]), wcclSuccess) << wcclGetLastError(nullptr);
  }
}

// One thread ends all ranks of its process one after the other: nobody waits for a rank whose turn comes later.
TEST(Lifetime, DestroyAndFinalizeInAnyOrder) {
  Cluster c({.devices = 3, .connect = false});
  std::vector<void*> buffer;
  for (std::size_t r = 0; r < 3; ++r) buffer.push_back(c.allocate(r, 4096));
  std::vector<std::size_t> order{0, 1, 2};
  std::mt19937 random(7);
  for (int round = 0; round < 6; ++round) {
    const bool sockets = round % 2 != 0;
    if (!sockets) {
      ASSERT_EQ(c.connect(), wcclSuccess);
    }
    const auto comms = sockets ? join(c, kShort) : c.comms;
    c.comms.clear();
    reduce(comms, buffer);
    std::shuffle(order.begin(), order.end(), random);
    if (round >= 2) {
      for (const std::size_t r : order) EXPECT_EQ(wcclCommFinalize(comms[r]), wcclSuccess) << wcclGetLastError(nullptr);
      std::shuffle(order.begin(), order.end(), random);
    }
    for (const std::size_t r : order) EXPECT_EQ(wcclCommDestroy(comms[r]), wcclSuccess) << wcclGetLastError(nullptr);
  }
}

TEST(Lifetime, TwoCommunicatorsCrossed) {
  Cluster c({.devices = 2, .connect = false});
  const auto a = join(c, kShort), b = join(c, kShort);
  std::thread other([&] {
    EXPECT_EQ(wcclCommDestroy(b[1]), wcclSuccess) << wcclGetLastError(nullptr);
    EXPECT_EQ(wcclCommDestroy(a[1]), wcclSuccess) << wcclGetLastError(nullptr);
  });
  EXPECT_EQ(wcclCommDestroy(a[0]), wcclSuccess) << wcclGetLastError(nullptr);
  EXPECT_EQ(wcclCommDestroy(b[0]), wcclSuccess) << wcclGetLastError(nullptr);
  other.join();
}

// Abort from another thread ends whatever rank 0 is in, long before its limit; nothing is freed twice; the next
// communicator works.
TEST(Lifetime, AbortEndsAnyCall) {
  Cluster c({.devices = 5, .connect = false});
  std::vector<void*> buffer;
  for (std::size_t r = 0; r < 5; ++r) buffer.push_back(c.allocate(r, 4096));
  using Call = std::function<wcclResult_t(wcclComm_t)>;
  const Call wait = [&](wcclComm_t comm) {
    const wcclResult_t result = wcclAllReduce(buffer[0], buffer[0], 100, wcclFloat, wcclSum, comm, nullptr);
    return result == wcclSuccess ? wcclCommWait(comm) : result;
  };
  const Call finalize = [](wcclComm_t comm) { return wcclCommFinalize(comm); };
  const Call destroy = [](wcclComm_t comm) { return wcclCommDestroy(comm); };
  const Call send = [&](wcclComm_t comm) { return wcclSend(buffer[0], 10, wcclInt8, 2, comm, nullptr); };
  for (const Call& call : {wait, finalize, destroy, send}) {
    const auto comms = join(c, kLong, true);
    std::atomic<bool> inside{false};
    wcclResult_t result = wcclSuccess;
    std::thread caller([&] {
      inside = true;
      result = call(comms[0]);
    });
    while (!inside) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    // Never blocks, whatever the other thread is in.
    wcclResult_t state = wcclInternalError;
    EXPECT_EQ(wcclCommGetAsyncError(comms[0], &state), wcclSuccess);
    EXPECT_TRUE(state == wcclInProgress || state == wcclSuccess) << state;
    EXPECT_EQ(wcclCommAbort(comms[0]), wcclSuccess);
    caller.join();
    EXPECT_NE(result, wcclSuccess);
    EXPECT_EQ(wcclCommAbort(comms[0]), wcclInvalidArgument);  // it is gone
    for (std::size_t r = 1; r < 5; ++r) {
      // The others learn who it was.
      wcclResult_t other = wcclAllReduce(buffer[r], buffer[r], 100, wcclFloat, wcclSum, comms[r], nullptr);
      if (other == wcclSuccess) other = wcclCommWait(comms[r]);
      EXPECT_NE(other, wcclSuccess);
      EXPECT_NE(std::string(wcclGetLastError(comms[r])).find("rank 0 aborted"), std::string::npos)
          << wcclGetLastError(comms[r]);
      EXPECT_EQ(wcclCommAbort(comms[r]), wcclSuccess);
    }
  }
  ASSERT_EQ(c.connect(), wcclSuccess) << wcclGetLastError(nullptr);
  reduce(c.comms, buffer);
}

// Ranks whose first messages go in a circle, each in a process of its own: a rank serves those who want to connect to
// it while it waits for its own peer.
TEST(Lifetime, CyclicFirstContact) {
  Cluster c({.devices = 5, .connect = false});
  const auto comms = join(c, kShort, true);
  std::vector<void*> from, to;
  for (std::size_t r = 0; r < 5; ++r) {
    from.push_back(c.allocate(r, 4096));
    to.push_back(c.allocate(r, 4096));
    c.write(r, from[r], std::vector<std::int32_t>(1024, static_cast<std::int32_t>(r)));
  }
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 5; ++r) {
    threads.emplace_back([&, r] {
      EXPECT_EQ(wcclSend(from[r], 1024, wcclInt32, static_cast<int>((r + 2) % 5), comms[r], nullptr), wcclSuccess);
      EXPECT_EQ(wcclRecv(to[r], 1024, wcclInt32, static_cast<int>((r + 3) % 5), comms[r], nullptr), wcclSuccess);
      EXPECT_EQ(wcclCommWait(comms[r]), wcclSuccess) << wcclGetLastError(comms[r]);
      EXPECT_EQ(wcclCommDestroy(comms[r]), wcclSuccess) << wcclGetLastError(nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(c.read<std::int32_t>(r, to[r], 1024),
              std::vector<std::int32_t>(1024, static_cast<std::int32_t>((r + 3) % 5)));
  }
}

// A process that made ids and no communicator of them ends at once; a second for each would be too long by far.
TEST(Lifetime, IdsHoldNobodyUp) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 200; ++i) {
          wcclUniqueId id;
          if (wcclGetUniqueId(&id) != wcclSuccess) std::_Exit(3);
        }
        alarm(100);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
}

class Calls : public testing::Test {
 protected:
  void SetUp() override {
    for (std::size_t r = 0; r < 2; ++r) {
      a.push_back(static_cast<char*>(c.allocate(r, 65536)));
      c.write(r, a[r], std::vector<std::int32_t>(64, static_cast<std::int32_t>(r + 1)));
      c.write(r, a[r] + 4096, std::vector<std::int32_t>(64, -7));
    }
  }
  wcclResult_t reduce(std::size_t r, const void* send, void* receive, wcclDataType_t type = wcclInt32) {
    return wcclAllReduce(send, receive, 64, type, wcclSum, c.comms[r], nullptr);
  }
  // Nothing has been written at +4096, and the communicator works.
  void untouched_and_usable() {
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(wcclCommWait(c.comms[r]), wcclSuccess) << wcclGetLastError(c.comms[r]);
      EXPECT_EQ(c.read<std::int32_t>(r, a[r] + 4096, 64), std::vector<std::int32_t>(64, -7));
    }
    for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(reduce(r, a[r], a[r] + 8192), wcclSuccess);
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(wcclCommWait(c.comms[r]), wcclSuccess) << wcclGetLastError(c.comms[r]);
      EXPECT_EQ(c.read<std::int32_t>(r, a[r] + 8192, 64), std::vector<std::int32_t>(64, 3));
    }
  }
  Cluster c{{.devices = 2}};
  std::vector<char*> a;
};

TEST_F(Calls, MisalignedAndNullBuffersAreRefused) {
  for (std::size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(reduce(r, a[r] + 2, a[r] + 4096, wcclFloat32), wcclInvalidArgument);
    EXPECT_EQ(reduce(r, a[r], a[r] + 4097, wcclBfloat16), wcclInvalidArgument);
    EXPECT_EQ(reduce(r, a[r] + 4, a[r] + 4096, wcclInt64), wcclInvalidArgument);
    EXPECT_EQ(reduce(r, nullptr, a[r] + 4096), wcclInvalidArgument);
    EXPECT_EQ(reduce(r, a[r], nullptr), wcclInvalidArgument);
    const int peer = static_cast<int>(1 - r);
    EXPECT_EQ(wcclSend(a[r] + 2, 4, wcclFloat32, peer, c.comms[r], nullptr), wcclInvalidArgument);
    EXPECT_EQ(wcclRecv(a[r] + 4097, 4, wcclFloat16, peer, c.comms[r], nullptr), wcclInvalidArgument);
    EXPECT_EQ(wcclSend(nullptr, 4, wcclInt8, peer, c.comms[r], nullptr), wcclInvalidArgument);
  }
  untouched_and_usable();
}

// One call of a group that cannot be: none of it starts, the end says why, in both orders of noticing it.
TEST_F(Calls, BadCallInAGroupStartsNothing) {
  const std::vector<std::function<void()>> bad = {
      [&] { EXPECT_EQ(reduce(1, nullptr, a[1] + 4096), wcclSuccess); },  // found at the end
      [&] { EXPECT_EQ(wcclSend(a[0], 4, wcclInt8, 5, c.comms[0], nullptr), wcclSuccess); },
      [&] {
        EXPECT_EQ(wcclSend(a[0], 4, static_cast<wcclDataType_t>(77), 1, c.comms[0], nullptr), wcclInvalidArgument);
      },
      [&] { EXPECT_EQ(wcclRecv(a[0], 4, wcclInt8, -1, c.comms[0], nullptr), wcclInvalidArgument); },
  };
  for (const auto& call : bad) {
    EXPECT_EQ(wcclGroupStart(), wcclSuccess);
    for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(reduce(r, a[r], a[r] + 4096), wcclSuccess);
    EXPECT_EQ(wcclSend(a[0], 64, wcclInt32, 1, c.comms[0], nullptr), wcclSuccess);
    call();
    EXPECT_EQ(wcclRecv(a[1] + 4096, 64, wcclInt32, 0, c.comms[1], nullptr), wcclSuccess);
    EXPECT_EQ(wcclGroupEnd(), wcclInvalidArgument);
    EXPECT_STRNE(wcclGetLastError(nullptr), "");
    untouched_and_usable();
  }
}

// Settings that cannot be are named, with what cures them; numbers that are merely odd work.
TEST(Settings, OddOnes) {
  const Environment buffer("WCCL_BUFFSIZE", "1000000"), slots("WCCL_SLOTS", "3"), lanes("WCCL_LANES", "3");
  for (const char* entries : {"100", "1000"}) {
    const Environment queue("WCCL_QUEUE_ENTRIES", entries);
    Cluster c({.devices = 2, .ports = 3});
    std::vector<void*> buffer_of;
    for (std::size_t r = 0; r < 2; ++r) buffer_of.push_back(c.allocate(r, 4096));
    wcclResult_t result = wcclSuccess;
    for (std::size_t r = 0; r < 2 && result == wcclSuccess; ++r) {
      result = wcclAllReduce(buffer_of[r], buffer_of[r], 1, wcclFloat, wcclSum, c.comms[r], nullptr);
    }
    if (result == wcclSuccess) {
      for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(wcclCommWait(c.comms[r]), wcclSuccess);
    } else {
      EXPECT_STREQ(entries, "100");
      EXPECT_NE(std::string(wcclGetLastError(nullptr)).find("raise WCCL_QUEUE_ENTRIES"), std::string::npos)
          << wcclGetLastError(nullptr);
    }
  }
}

// More communicators than a context has queues: the message says how many, and what to do.
TEST(Settings, TooManyCommunicators) {
  const Environment path("WCCL_PATH", "onchip"), buffer("WCCL_BUFFSIZE", "4096");
  Cluster c({.devices = 2, .connect = false});
  std::vector<std::vector<wcclComm_t>> made;
  wcclResult_t result = wcclSuccess;
  while (made.size() < 64 && (result = c.connect()) == wcclSuccess) made.push_back(std::exchange(c.comms, {}));
  EXPECT_NE(result, wcclSuccess);
  EXPECT_GE(made.size(), 14u);
  const std::string text = wcclGetLastError(nullptr);
  EXPECT_NE(text.find("has 16, each on-chip communicator takes one"), std::string::npos) << text;
  for (const auto& comms : made) {
    for (wcclComm_t comm : comms) EXPECT_EQ(wcclCommDestroy(comm), wcclSuccess);
  }
  EXPECT_EQ(c.connect(), wcclSuccess);
}

}  // namespace
}  // namespace weft::ccl
