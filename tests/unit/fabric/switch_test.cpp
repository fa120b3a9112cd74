// SPDX-License-Identifier: MIT
#include "weft/fabric/switch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace weft::fabric {
namespace {

using Bytes = std::vector<std::byte>;

// A link whose far end is the test: `credits` frames may go out, what went out is kept.
class TestLink final : public Link {
 public:
  explicit TestLink(unsigned credits = 1000) : credits_(credits) {}

  SendResult send(unsigned, std::span<const Segment> segments) override {
    if (!up_) return SendResult::kDown;
    if (credits_ == 0) return SendResult::kNoCredit;
    credits_--;
    Bytes& frame = sent.emplace_back();
    for (const Segment& s : segments) frame.insert(frame.end(), s.begin(), s.end());
    return SendResult::kSent;
  }
  void release(unsigned, unsigned frames) override { released += frames; }
  void pause(unsigned, bool) override {}
  unsigned credits(unsigned) const override { return credits_; }
  bool up() const override { return up_; }

  void grant(unsigned frames) { credits_ += frames; }
  void set_up(bool up) { up_ = up; }

  std::vector<Bytes> sent;
  unsigned released = 0;

 private:
  unsigned credits_;
  bool up_ = true;
};

Bytes frame(std::uint8_t to, std::uint8_t from, std::uint8_t fill, std::size_t payload = 50) {
  Bytes bytes(14 + payload, std::byte{fill});
  const std::byte unicast{0x02};
  std::fill_n(bytes.begin(), 12, std::byte{});
  bytes[0] = to == 0xff ? std::byte{0xff} : unicast;
  bytes[5] = std::byte{to};
  bytes[6] = unicast;
  bytes[11] = std::byte{from};
  return bytes;
}

struct Bench {
  explicit Bench(SwitchConfig config = {}, std::vector<unsigned> credits = {1000, 1000, 1000},
                 std::size_t queue = SIZE_MAX)
      : sw(std::move(config)) {
    for (std::size_t i = 0; i < credits.size(); i++) {
      links.push_back(std::make_unique<TestLink>(credits[i]));
      ports.push_back(&sw.add_port({"p" + std::to_string(i), true, queue}));
      ports.back()->attach(*links.back());
    }
  }
  std::vector<std::unique_ptr<TestLink>> links;
  Switch sw;
  std::vector<Switch::Port*> ports;
};

TEST(Switch, FloodsWhatItDoesNotKnowAndLearns) {
  Bench b;
  b.ports[0]->on_frame(0, frame(2, 1, 7));  // 2 is not known: to all but the sender
  EXPECT_EQ(b.links[1]->sent.size(), 1u);
  EXPECT_EQ(b.links[2]->sent.size(), 1u);
  EXPECT_EQ(b.links[0]->sent.size(), 0u);
  b.ports[1]->on_frame(0, frame(1, 2, 8));  // 1 was learned on p0
  EXPECT_EQ(b.links[0]->sent.size(), 1u);
  EXPECT_EQ(b.links[2]->sent.size(), 1u);
  b.ports[0]->on_frame(0, frame(2, 1, 9));  // and now 2 on p1
  EXPECT_EQ(b.links[1]->sent.size(), 2u);
  EXPECT_EQ(b.links[2]->sent.size(), 1u);
  EXPECT_EQ(b.links[1]->sent[1], frame(2, 1, 9));
}

TEST(Switch, BroadcastGoesToAllOthers) {
  Bench b;
  b.ports[1]->on_frame(0, frame(0xff, 2, 1));
  EXPECT_EQ(b.links[0]->sent.size(), 1u);
  EXPECT_EQ(b.links[1]->sent.size(), 0u);
  EXPECT_EQ(b.links[2]->sent.size(), 1u);
}

TEST(Switch, NeverSendsBackWhereItCameFrom) {
  Bench b;
  b.ports[0]->on_frame(0, frame(9, 1, 1));
  b.ports[0]->on_frame(0, frame(1, 3, 1));  // 1 is known on the same port
  EXPECT_EQ(b.links[0]->sent.size(), 0u);
  EXPECT_EQ(b.links[0]->released, 2u);
}

TEST(Switch, WaitsForCreditInOrderAndGivesTheSendersBack) {
  Bench b({}, {1000, 2, 1000});
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));  // learn 2
  for (std::uint8_t i = 0; i < 5; i++) b.ports[0]->on_frame(0, frame(2, 1, i));
  EXPECT_EQ(b.links[1]->sent.size(), 2u);
  EXPECT_EQ(b.links[0]->released, 2u) << "credit of waiting frames is held back";
  EXPECT_EQ(b.ports[1]->waiting(), 3u);
  b.links[1]->grant(1);
  b.ports[1]->on_ready(0);
  EXPECT_EQ(b.links[0]->released, 3u);
  b.links[1]->grant(10);
  b.ports[1]->on_ready(0);
  ASSERT_EQ(b.links[1]->sent.size(), 5u);
  for (std::uint8_t i = 0; i < 5; i++) EXPECT_EQ(b.links[1]->sent[i], frame(2, 1, i));
  EXPECT_EQ(b.links[0]->released, 5u);
  EXPECT_EQ(b.ports[1]->counters().waited, 3u);
}

TEST(Switch, FloodedFrameOwesOneCreditOnly) {
  Bench b({}, {1000, 0, 0});
  b.ports[0]->on_frame(0, frame(7, 1, 1));
  EXPECT_EQ(b.links[0]->released, 0u);
  b.links[1]->grant(1);
  b.ports[1]->on_ready(0);
  EXPECT_EQ(b.links[0]->released, 0u) << "the other copy still waits";
  b.links[2]->grant(1);
  b.ports[2]->on_ready(0);
  EXPECT_EQ(b.links[0]->released, 1u);
}

TEST(Switch, PausedClassWaits) {
  Bench b;
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  b.ports[1]->on_pause(3, true);
  b.ports[0]->on_frame(3, frame(2, 1, 1));
  b.ports[0]->on_frame(0, frame(2, 1, 2));
  ASSERT_EQ(b.links[1]->sent.size(), 1u) << "class 0 goes on";
  EXPECT_EQ(b.links[1]->sent[0], frame(2, 1, 2));
  b.ports[1]->on_pause(3, false);
  EXPECT_EQ(b.links[1]->sent.size(), 2u);
}

TEST(Switch, BoundedQueueDropsAndCounts) {
  Bench b({}, {1000, 0, 1000}, 4);
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  for (std::uint8_t i = 0; i < 10; i++) b.ports[0]->on_frame(0, frame(2, 1, i));
  EXPECT_EQ(b.ports[1]->waiting(), 4u);
  EXPECT_EQ(b.ports[1]->counters().dropped_queue, 6u);
  EXPECT_EQ(b.links[0]->released, 6u);
}

TEST(Switch, DownLinkDropsAndNothingIsOwed) {
  Bench b({}, {1000, 0, 1000});
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  for (std::uint8_t i = 0; i < 3; i++) b.ports[0]->on_frame(0, frame(2, 1, i));
  b.links[1]->set_up(false);
  b.ports[1]->on_state(false);
  EXPECT_EQ(b.ports[1]->counters().dropped_down, 3u);
  EXPECT_EQ(b.links[0]->released, 3u);
  b.ports[0]->on_frame(0, frame(2, 1, 9));
  EXPECT_EQ(b.ports[1]->counters().dropped_down, 4u);
  EXPECT_EQ(b.links[0]->released, 4u);
}

TEST(Switch, PortGoneWhileItsFramesWait) {
  Bench b({}, {1000, 0, 1000});
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  b.ports[0]->on_frame(0, frame(2, 1, 1));
  b.sw.remove_port(*b.ports[0]);
  b.links[1]->grant(1);
  b.ports[1]->on_ready(0);
  EXPECT_EQ(b.links[1]->sent.size(), 1u);
  EXPECT_EQ(b.links[0]->released, 0u);
}

TEST(Switch, ShortFrameIsCounted) {
  Bench b;
  b.ports[0]->on_frame(0, Bytes(13));
  EXPECT_EQ(b.ports[0]->counters().dropped_short, 1u);
  EXPECT_EQ(b.links[0]->released, 1u);
}

TEST(Switch, AddressTableIsBounded) {
  Bench b({.plan = {}, .capture = nullptr, .now_ns = {}, .addresses = 2});
  for (std::uint8_t i = 1; i <= 5; i++) b.ports[0]->on_frame(0, frame(0xff, i, 0));
  b.ports[1]->on_frame(0, frame(5, 0x20, 0));  // 5 did not fit: flooded
  EXPECT_GT(b.links[2]->sent.size(), 5u);
}

// The binomial bound: 20000 frames at 5 % give 1000 +- 6 sigma (31).
TEST(Switch, LosesTheShareItWasToldAndTheSameOnesForTheSameSeed) {
  const auto run = [](std::uint64_t seed) {
    Bench b({.plan = {.seed = seed, .loss = 0.05}, .capture = nullptr, .now_ns = {}});
    b.ports[1]->on_frame(0, frame(0xff, 2, 0));
    std::vector<Bytes> got;
    for (unsigned i = 0; i < 20000; i++) {
      b.ports[0]->on_frame(0, frame(2, 1, static_cast<std::uint8_t>(i)));
      b.links[1]->grant(1);
    }
    EXPECT_EQ(b.links[0]->released, 20000u);
    EXPECT_EQ(b.ports[0]->counters().lost + b.links[1]->sent.size(), 20000u);
    EXPECT_NEAR(static_cast<double>(b.ports[0]->counters().lost), 1000, 6 * 31);
    return b.links[1]->sent;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Switch, ReordersDuplicatesAndCorrupts) {
  Bench b({.plan = {.seed = 3, .loss = 0, .duplicate = 0.2, .corrupt = 0.2, .reorder = 0.2},
           .capture = nullptr,
           .now_ns = {}},
          {100000, 100000, 100000});
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  const unsigned n = 2000;
  for (unsigned i = 0; i < n; i++) b.ports[0]->on_frame(0, frame(2, 1, static_cast<std::uint8_t>(i)));
  const PortCounters& c = b.ports[0]->counters();
  EXPECT_GT(c.duplicated, 0u);
  EXPECT_GT(c.corrupted, 0u);
  EXPECT_GT(c.reordered, 0u);
  const std::size_t held = n + c.duplicated - b.links[1]->sent.size();
  EXPECT_LE(held, 1u) << "at most the last one is still held";
  const auto changed = std::count_if(b.links[1]->sent.begin(), b.links[1]->sent.end(), [](const Bytes& f) {
    return f != frame(2, 1, std::to_integer<std::uint8_t>(f[14])) || f.size() != 64;
  });
  EXPECT_GT(changed, 0);
  EXPECT_EQ(b.links[0]->released + held, n);
}

}  // namespace
}  // namespace weft::fabric
