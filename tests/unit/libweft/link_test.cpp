// SPDX-License-Identifier: MIT
// A link in virtual time: rate, latency, order, credits, cut.
#include "sim/link.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <vector>

namespace {

using namespace weft::sim;
using ::testing::ElementsAre;
using weft::fabric::Segment;
using weft::fabric::SendResult;

class Owner final : public weft::fabric::LinkOwner {
 public:
  explicit Owner(Scheduler& scheduler) : scheduler_(scheduler) {}
  void on_frame(unsigned cls, std::span<const std::byte> frame) override {
    times.push_back(scheduler_.now());
    classes.push_back(cls);
    frames.emplace_back(frame.begin(), frame.end());
  }
  void on_ready(unsigned) override { ++readies; }
  void on_pause(unsigned, bool stop) override { pauses.push_back(stop); }
  void on_state(bool up) override { states.push_back(up); }
  void on_station(const weft::fabric::Mac& mac, bool up) override { stations.push_back({mac[5], up, frames.size()}); }

  std::vector<std::uint64_t> times;
  std::vector<unsigned> classes;
  std::vector<std::vector<std::byte>> frames;
  std::vector<bool> pauses, states;
  std::vector<std::array<std::size_t, 3>> stations;  // address, up, frames before it
  int readies = 0;

 private:
  Scheduler& scheduler_;
};

class Link : public ::testing::Test {
 protected:
  Link() {
    LinkEnd::join(a, b);
    a.set_owner(at_a);
    b.set_owner(at_b);
  }
  SendResult send(LinkEnd& end, std::size_t bytes, unsigned cls = 0) {
    const std::vector<std::byte> frame(bytes, std::byte{0x5a});
    const Segment parts[] = {Segment(frame).first(bytes / 2), Segment(frame).subspan(bytes / 2)};
    return end.send(cls, parts);
  }
  void run() {
    while (!scheduler.empty()) scheduler.run_one();
  }

  Scheduler scheduler;
  FramePool pool;
  Owner at_a{scheduler}, at_b{scheduler};
  LinkEnd a{scheduler, pool, 0, LinkTiming{80, 250}};
  LinkEnd b{scheduler, pool, 1, LinkTiming{80, 250}};
};

// 100 Gb/s are 80 ps a byte; a frame of n bytes takes n + 24 on the wire (preamble, FCS, gap).
TEST_F(Link, TimeIsRateAndLatency) {
  ASSERT_EQ(send(a, 1226), SendResult::kSent);
  ASSERT_EQ(send(a, 2476), SendResult::kSent);
  ASSERT_EQ(send(a, 20), SendResult::kSent);  // padded to 60
  run();
  EXPECT_THAT(at_b.times, ElementsAre(100 + 250, 300 + 250, 307 + 250));
  EXPECT_EQ(at_b.frames[0].size(), 1226u);
  EXPECT_EQ(at_b.frames[2].size(), 20u);
}

TEST_F(Link, StationsGoBehindTheFramesBeforeThem) {
  ASSERT_EQ(send(a, 9000), SendResult::kSent);
  a.station({2, 0, 0, 0, 0, 7}, false);
  ASSERT_EQ(send(a, 100), SendResult::kSent);
  a.station({2, 0, 0, 0, 0, 7}, true);
  run();
  EXPECT_THAT(at_b.stations, ElementsAre(std::array<std::size_t, 3>{7, 0, 1}, std::array<std::size_t, 3>{7, 1, 2}));
  a.station({2, 0, 0, 0, 0, 8}, false);
  b.set_state(false);  // lost with all that is under way
  a.station({2, 0, 0, 0, 0, 8}, false);
  b.set_state(true);
  run();
  EXPECT_EQ(at_b.stations.size(), 2u);
}

TEST_F(Link, CreditsBoundWhatIsUnderWay) {
  for (unsigned i = 0; i < kCredits; ++i) ASSERT_EQ(send(a, 100), SendResult::kSent);
  EXPECT_EQ(send(a, 100), SendResult::kNoCredit);
  EXPECT_EQ(send(a, 100, 3), SendResult::kSent) << "classes have credits of their own";
  run();
  EXPECT_EQ(send(a, 100), SendResult::kNoCredit) << "delivered is not given back";
  b.release(0, 2);
  run();
  EXPECT_EQ(at_a.readies, 1);
  EXPECT_EQ(send(a, 100), SendResult::kSent);
  EXPECT_EQ(send(a, 100), SendResult::kSent);
  EXPECT_EQ(send(a, 100), SendResult::kNoCredit);
  b.release(0, 10000);  // nonsense is cut
  EXPECT_EQ(a.credits(0), kCredits);
}

TEST_F(Link, CutLosesWhatIsUnderWayAndMendsWhole) {
  ASSERT_EQ(send(a, 100), SendResult::kSent);
  a.set_state(false);
  EXPECT_EQ(send(a, 100), SendResult::kDown);
  EXPECT_EQ(send(b, 100), SendResult::kDown);
  run();
  EXPECT_TRUE(at_b.frames.empty());
  b.set_state(true);
  EXPECT_EQ(a.credits(0), kCredits);
  ASSERT_EQ(send(a, 100), SendResult::kSent);
  run();
  EXPECT_EQ(at_b.frames.size(), 1u);
  EXPECT_THAT(at_a.states, ElementsAre(false, true));
  EXPECT_THAT(at_b.states, ElementsAre(false, true));
}

TEST_F(Link, GiantsEndAtTheTransmitter) {
  EXPECT_EQ(send(a, weft::fabric::kFrameMax + 1), SendResult::kSent);
  EXPECT_EQ(send(a, weft::fabric::kFrameMax), SendResult::kSent);
  run();
  EXPECT_EQ(at_b.frames.size(), 1u);
}

TEST_F(Link, PauseReachesThePeer) {
  b.pause(2, true);
  EXPECT_THAT(at_a.pauses, ElementsAre(true));
}

TEST(Scheduler, OrderIsTimeThenDeviceThenSequence) {
  struct Note final : Task {
    explicit Note(std::vector<std::uint64_t>& order) : order(order) {}
    void run(std::uint64_t argument) override { order.push_back(argument); }
    std::vector<std::uint64_t>& order;
  };
  std::vector<std::uint64_t> order;
  Note note(order);
  Scheduler scheduler;
  scheduler.at(5, 1, note, 1);
  scheduler.at(5, 0, note, 2);
  scheduler.at(4, 9, note, 3);
  scheduler.at(5, 1, note, 4);
  scheduler.at(6, 0, note, 5, true);
  while (!scheduler.quiet()) scheduler.run_one();
  EXPECT_THAT(order, ElementsAre(3, 2, 1, 4));
  EXPECT_EQ(scheduler.next(), 6u);
}

}  // namespace
