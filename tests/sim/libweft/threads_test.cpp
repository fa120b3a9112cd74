// SPDX-License-Identifier: MIT
// Several threads wait in one simulator, a thread a rank, as communicators do.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "sim_fixture.hpp"

namespace {

using namespace weft::test;

TEST(SimThreads, ARingOfRanksEachInItsThread) {
  constexpr unsigned kRanks = 4, kRounds = 20;
  constexpr std::uint32_t kBytes = 64u << 10;
  Sim sim({.devices = kRanks, .seed = 3, .loss = 0.002});
  std::vector<std::unique_ptr<Accel>> accels;
  std::vector<weft_mem*> buffers;
  std::vector<End> out(kRanks), in(kRanks);
  for (unsigned rank = 0; rank < kRanks; ++rank) {
    accels.push_back(std::make_unique<Accel>(rank));
    buffers.push_back(accels[rank]->alloc(kBytes, WEFT_MEM_REMOTE_WRITE));
  }
  for (unsigned rank = 0; rank < kRanks; ++rank)
    connect(*accels[rank], out[rank], *accels[(rank + 1) % kRanks], in[(rank + 1) % kRanks], 10);
  std::atomic<unsigned> good{0};
  std::mutex lock;
  const auto check = [&](unsigned rank, unsigned round, int result) {
    std::lock_guard guard(lock);  // GoogleTest's output
    EXPECT_EQ(result, 0) << "rank " << rank << " round " << round << ": " << weft_last_error();
    return result == 0;
  };
  std::vector<std::thread> threads;
  for (unsigned rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Accel& accel = *accels[rank];
      weft_queue* queue = accel.queue();
      const unsigned next = (rank + 1) % kRanks;
      for (unsigned round = 0; round < kRounds; ++round) {
        // Wait for the left neighbour's round, then pass on; rank 0 starts each round.
        if (rank != 0 && !check(rank, round, accel.wait(in[rank].arrivals, round + 1))) return;
        const weft_cmd cmd =
            write_imm(out[rank], buffers[rank], 0, kBytes, weft_mem_va(buffers[next]), weft_mem_key(buffers[next]));
        if (!check(rank, round, weft_queue_submit(queue, &cmd, 1))) return;
        if (rank == 0 && !check(rank, round, accel.wait(in[0].arrivals, round + 1))) return;
      }
      ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, kRanks);
}

TEST(SimThreads, AThreadThatComesLateIsWaitedFor) {
  Sim sim({.devices = 1});
  Accel waiting(0), late(0);
  const std::uint32_t id = waiting.sync();
  const std::uint32_t mine = late.sync();
  std::promise<void> about;
  std::thread other([&] {
    // This thread uses a device, so it is known to be about; it brings work after a while on the real clock.
    weft_sync_value(late.get(), mine);
    about.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    weft_sync_signal(waiting.get(), id, 1);
  });
  about.get_future().wait();
  EXPECT_EQ(waiting.wait(id, 1, 20'000'000'000), 0) << "20 s of virtual time did not pass meanwhile";
  other.join();
}

TEST(SimThreads, WhenAllWaitInVainAllAreTold) {
  Sim sim({.devices = 2});
  Accel one(0), two(1);
  const std::uint32_t a = one.sync(), b = two.sync();
  int results[2] = {1, 1};
  std::thread first([&] { results[0] = one.wait(a, 1, -1); });
  std::thread second([&] { results[1] = two.wait(b, 1, -1); });
  first.join();
  second.join();
  EXPECT_EQ(results[0], -ETIME);
  EXPECT_EQ(results[1], -ETIME);
}

}  // namespace
