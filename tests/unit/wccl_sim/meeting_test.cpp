// SPDX-License-Identifier: MIT
// The meeting point: who belongs together, who is gone, who is refused. Ranks are processes.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap.hpp"
#include "cluster.hpp"
#include "error.hpp"
#include "hub_wire.hpp"

namespace weft::ccl {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::Environment;

enum Outcome : int { kTogether, kRefused, kMixed, kTold, kOther };

// A process of one rank of a job: joins, tells its job, and reads what the others say.
struct Process {
  int job = 0, rank = 0;
  pid_t pid = 0;
  int output = -1;
  Outcome outcome = kOther;
  std::string text;
};

std::optional<std::vector<Bytes>> table_of(Rendezvous& meet, std::optional<Note>& note, seconds limit) {
  const auto deadline = Clock::now() + limit;
  while (Clock::now() < deadline) {
    note = meet.poll();
    if (auto table = meet.gathered()) return table;
    if (note) return std::nullopt;
    rest(meet.awaited(), milliseconds(20));
  }
  return std::nullopt;
}

// How many processes have been accepted or refused, and how many know how they fared: nobody goes on before all have,
// and the one that serves the others does not end (by _exit, so nothing waits for them) before all know.
struct Arrivals {
  std::atomic<int> count{0}, ended{0};
  void wait_for(int all) { wait(count, all); }
  void end(int all) {
    ++ended;
    wait(ended, all);
  }
  static void wait(const std::atomic<int>& what, int all) {
    const auto deadline = Clock::now() + seconds(100);
    while (what < all && Clock::now() < deadline) usleep(10'000);
  }
};

Outcome meet_as(const Process& me, const std::string& address, int delay_us, Arrivals& arrivals, int all,
                std::string& text) {
  usleep(static_cast<useconds_t>(delay_us));
  setenv("WCCL_COMM_ID", address.c_str(), 1);
  std::unique_ptr<Rendezvous> meet;
  try {
    meet = join_meeting(make_meeting(seconds(60)), static_cast<std::uint32_t>(me.rank), 2, seconds(60));
    ++arrivals.count;
    const std::byte job{static_cast<unsigned char>(me.job)};
    meet->gather(std::span(&job, 1));
    std::optional<Note> note;
    auto table = table_of(*meet, note, seconds(120));
    bool together = table.has_value();
    if (table) {
      for (const Bytes& other : *table) together &= other.size() == 1 && other[0] == job;
      arrivals.wait_for(all);
      meet->gather(std::span(&job, 1));
      table = table_of(*meet, note, seconds(120));
    }
    if (!table) {
      arrivals.wait_for(all);
      text = note ? note->text : "no answer";
      return note && text.find("two jobs meet") != std::string::npos ? kTold : kOther;
    }
    meet->leave();
    return together ? kTogether : kMixed;
  } catch (const Failure& failure) {
    text = failure.what();
    ++arrivals.count;
    arrivals.wait_for(all);
    return failure.result() == wcclInvalidUsage ? kRefused : kOther;
  }
}

// Runs processes at once, each with its variables; fills in how they fared.
void run(std::vector<Process>& processes, const std::string& address, std::mt19937& random,
         const std::function<void(const Process&)>& environment) {
  std::shuffle(processes.begin(), processes.end(), random);
  void* shared = mmap(nullptr, sizeof(Arrivals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* arrivals = new (shared) Arrivals;
  for (Process& process : processes) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const int delay = static_cast<int>(random() % 200'000);
    process.pid = fork();
    ASSERT_GE(process.pid, 0);
    if (process.pid == 0) {
      close(ends[0]);
      environment(process);
      std::string text;
      const int all = static_cast<int>(processes.size());
      const Outcome outcome = meet_as(process, address, delay, *arrivals, all, text);
      arrivals->end(all);
      if (write(ends[1], text.data(), text.size()) < 0) _exit(99);
      _exit(outcome);
    }
    close(ends[1]);
    process.output = ends[0];
  }
  for (Process& process : processes) {
    char text[2000];
    ssize_t n = 0;
    while ((n = read(process.output, text, sizeof text)) > 0) process.text.append(text, static_cast<std::size_t>(n));
    close(process.output);
    int status = 0;
    ASSERT_EQ(waitpid(process.pid, &status, 0), process.pid);
    ASSERT_TRUE(WIFEXITED(status));
    process.outcome = static_cast<Outcome>(WEXITSTATUS(status));
  }
  munmap(shared, sizeof(Arrivals));
}

std::vector<Process> two_jobs() {
  std::vector<Process> out(4);
  for (int i = 0; i < 4; ++i) {
    out[static_cast<std::size_t>(i)].job = 1 + i / 2;
    out[static_cast<std::size_t>(i)].rank = i % 2;
  }
  return out;
}

// A port of this machine that nobody listens at.
std::string free_address() {
  using boost::asio::ip::tcp;
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0));
  return "127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
}

// Two jobs that say which they are, by what their launchers set, at one address: one of them runs, the other one is
// refused by name or comes after it; never does a rank of one meet a rank of the other.
TEST(Meeting, JobsWithANameNeverMix) {
  std::mt19937 random(11);
  for (int round = 0; round < 6; ++round) {
    auto processes = two_jobs();
    run(processes, free_address(), random,
        [](const Process& p) { setenv("MASTER_PORT", p.job == 1 ? "29500" : "29501", 1); });
    std::map<int, int> together;
    for (const Process& p : processes) {
      EXPECT_NE(p.outcome, kMixed);
      together[p.job] += p.outcome == kTogether;
      if (p.outcome == kRefused) {
        EXPECT_NE(p.text.find("serves another job"), std::string::npos) << p.text;
      }
    }
    EXPECT_TRUE(together[1] == 2 || together[2] == 2) << round;
    for (const Process& p : processes) EXPECT_NE(p.outcome, kOther) << p.text;
    EXPECT_NE(together[1], 1);
    EXPECT_NE(together[2], 1);
  }
}

// Two jobs with nothing to tell them apart: those that met hear of it, and nobody goes on with a stranger.
TEST(Meeting, JobsWithoutANameAreRefused) {
  std::mt19937 random(12);
  for (int round = 0; round < 6; ++round) {
    auto processes = two_jobs();
    run(processes, free_address(), random, [](const Process&) {});
    int told = 0;
    for (const Process& p : processes) {
      EXPECT_NE(p.outcome, kMixed) << p.text;
      told += p.text.find("give each job a WCCL_COMM_ID (or MASTER_PORT) of its own") != std::string::npos;
    }
    EXPECT_GE(told, 2) << round;
  }
}

// Who holds the meeting point is named when it goes, and it is not always rank 0.
TEST(Meeting, LostHubIsNamed) {
  int to_child[2], from_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(from_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    const wcclUniqueId id = encode(make_meeting(seconds(60)));
    if (write(from_child[1], &id, sizeof id) != sizeof id) _exit(1);
    const auto meet = join_meeting(decode(id), 1, 2, seconds(60));
    meet->gather({});
    std::optional<Note> note;
    if (!table_of(*meet, note, seconds(60))) _exit(2);
    char go = 0;
    if (read(to_child[0], &go, 1) != 1) _exit(3);
    _exit(0);
  }
  wcclUniqueId id;
  ASSERT_EQ(read(from_child[0], &id, sizeof id), static_cast<ssize_t>(sizeof id));
  const auto meet = join_meeting(decode(id), 0, 2, seconds(60));
  meet->gather({});
  std::optional<Note> note;
  ASSERT_TRUE(table_of(*meet, note, seconds(60)));
  ASSERT_EQ(write(to_child[1], "x", 1), 1);
  meet->gather({});
  EXPECT_FALSE(table_of(*meet, note, seconds(60)));
  ASSERT_TRUE(note);
  EXPECT_EQ(note->culprit, 1u) << note->text;
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft::ccl
