// SPDX-License-Identifier: MIT
#include "weft/fabric/switch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
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
  void station(const Mac& mac, bool up) override { stations.emplace_back(mac[5], up); }
  bool up() const override { return up_; }

  void grant(unsigned frames) { credits_ += frames; }
  void set_up(bool up) { up_ = up; }

  std::vector<Bytes> sent;
  std::vector<std::pair<unsigned, bool>> stations;  // last byte of the address
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

// ---- Stations

using Told = std::vector<std::pair<unsigned, bool>>;

TEST(SwitchStations, ARemovedPortsAreGoneAndBackWithTheirFirstFrame) {
  Bench b;
  b.ports[0]->on_frame(0, frame(0xff, 1, 0));
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  b.ports[1]->on_frame(0, frame(0xff, 3, 0));
  b.sw.remove_port(*b.ports[1]);
  Told told = b.links[0]->stations;
  std::sort(told.begin(), told.end());
  EXPECT_EQ(told, (Told{{2, false}, {3, false}}));
  EXPECT_EQ(b.links[2]->stations.size(), 2u);
  EXPECT_TRUE(b.links[1]->stations.empty());
  b.ports[0]->on_frame(0, frame(3, 1, 0));
  EXPECT_EQ(b.links[2]->sent.size(), 4u) << "somebody new may have it: flooded";
  b.ports[2]->on_frame(0, frame(1, 3, 0));
  EXPECT_EQ(b.links[0]->stations.back(), (std::pair{3u, true}));
  EXPECT_EQ(b.links[2]->stations.size(), 2u) << "its own port knows";
  b.ports[2]->on_frame(0, frame(1, 3, 0));
  EXPECT_EQ(b.links[0]->stations.size(), 3u) << "said once";
}

TEST(SwitchStations, ADownLinksAreGoneUntilItIsUp) {
  Bench b;
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  b.links[1]->set_up(false);
  b.ports[1]->on_state(false);
  b.ports[1]->on_state(false);
  EXPECT_EQ(b.links[0]->stations, (Told{{2, false}}));
  b.ports[0]->on_frame(0, frame(2, 1, 0));
  EXPECT_EQ(b.links[2]->sent.size(), 1u) << "not flooded: it is known where it was";
  b.links[1]->set_up(true);
  b.ports[1]->on_state(true);
  EXPECT_EQ(b.links[0]->stations, (Told{{2, false}, {2, true}}));
  b.ports[0]->on_frame(0, frame(2, 1, 7));
  EXPECT_EQ(b.links[1]->sent.back(), frame(2, 1, 7));
  b.sw.remove_port(*b.ports[1]);
  EXPECT_EQ(b.links[0]->stations.back(), (std::pair{2u, false}));
}

TEST(SwitchStations, NobodySpeaksForAnothersStation) {
  Bench b;
  b.ports[1]->on_frame(0, frame(0xff, 2, 0));
  b.ports[2]->on_frame(0, frame(0xff, 2, 0xbb));  // a lie
  EXPECT_EQ(b.ports[2]->counters().dropped_source, 1u);
  EXPECT_EQ(b.links[2]->released, 1u);
  EXPECT_EQ(b.links[0]->sent.size(), 1u);
  b.sw.remove_port(*b.ports[2]);
  EXPECT_TRUE(b.links[0]->stations.empty());
  b.ports[0]->on_frame(0, frame(2, 1, 7));
  EXPECT_EQ(b.links[1]->sent.back(), frame(2, 1, 7));
}

TEST(SwitchStations, APortHasABoundedNumber) {
  Bench b({.plan = {}, .capture = nullptr, .now_ns = {}, .addresses = 100, .port_addresses = 2});
  for (std::uint8_t i = 1; i <= 5; i++) b.ports[0]->on_frame(0, frame(0xff, i, 0));
  b.ports[1]->on_frame(0, frame(0xff, 9, 0));
  b.sw.remove_port(*b.ports[0]);
  EXPECT_EQ(b.links[1]->stations.size(), 2u);
  b.ports[1]->on_frame(0, frame(0xff, 1, 0));
  b.ports[1]->on_frame(0, frame(0xff, 10, 0));  // its third
  b.sw.remove_port(*b.ports[1]);
  EXPECT_EQ(b.links[2]->stations.size(), 2u + 1 + 2);
}

TEST(SwitchStations, ThoseThatAreGoneMakeRoomForNewOnes) {
  Bench b({.plan = {}, .capture = nullptr, .now_ns = {}, .addresses = 2});
  for (std::uint8_t i = 1; i <= 2; i++) b.ports[0]->on_frame(0, frame(0xff, i, 0));
  b.sw.remove_port(*b.ports[0]);
  b.ports[1]->on_frame(0, frame(0xff, 5, 0));
  const std::size_t before = b.links[1]->sent.size();
  b.ports[2]->on_frame(0, frame(5, 6, 0));
  EXPECT_EQ(b.links[1]->sent.size(), before + 1);
}

// A packet of the node 10.0.0.1 to the node 10.0.0.2, which is station `to`.
Bytes packet4(std::uint8_t to, unsigned protocol, std::size_t payload = 40) {
  Bytes f = frame(to, 1, 0x33, 20 + payload);
  const unsigned head[] = {0x08,
                           0,
                           0x45,
                           0,
                           (20 + static_cast<unsigned>(payload)) >> 8,
                           (20 + static_cast<unsigned>(payload)) & 255,
                           0x12,
                           0x34,
                           0x40,
                           0,
                           64,
                           protocol,
                           0xab,
                           0xcd,
                           10,
                           0,
                           0,
                           1,
                           10,
                           0,
                           0,
                           2};
  for (std::size_t i = 0; i < std::size(head); i++) f[12 + i] = static_cast<std::byte>(head[i]);
  return f;
}

unsigned sum16(std::span<const std::byte> bytes, unsigned start = 0) {
  unsigned sum = start;
  for (std::size_t i = 0; i < bytes.size(); i++) sum += std::to_integer<unsigned>(bytes[i]) << (i % 2 ? 0 : 8);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

struct NetdevBench {
  std::uint64_t now = 1'000'000'000;
  Switch sw{{.plan = {}, .capture = nullptr, .now_ns = [this] { return now; }}};
  TestLink guest, other, third;
  Switch::Port& port =
      sw.add_port({.name = "net0", .impaired = false, .queue_frames = 10, .answers_unreachable = true});
  Switch::Port& dead = sw.add_port({.name = "net1"});
  Switch::Port& by = sw.add_port({.name = "net2"});
  NetdevBench() {
    port.attach(guest);
    dead.attach(other);
    by.attach(third);
    dead.on_frame(0, frame(0xff, 2, 0));
    sw.remove_port(dead);
    guest.sent.clear();
    third.sent.clear();
  }
};

TEST(SwitchUnreachable, AnswersIpv4TowardsAStationThatIsGone) {
  NetdevBench b;
  const Bytes question = packet4(2, 6, 1000);
  b.port.on_frame(0, question);
  ASSERT_EQ(b.guest.sent.size(), 1u);
  EXPECT_TRUE(b.third.sent.empty());
  const Bytes& f = b.guest.sent[0];
  const std::span<const std::byte> answer(f);
  EXPECT_EQ(f.size(), 14u + 576u);  // RFC 1812: as much as fits in 576 bytes
  EXPECT_EQ(std::memcmp(f.data(), question.data() + 6, 6), 0);
  EXPECT_EQ(f[14], std::byte{0x45});
  EXPECT_EQ(std::to_integer<unsigned>(f[16]) << 8 | std::to_integer<unsigned>(f[17]), 576u);
  EXPECT_EQ(f[23], std::byte{1});                                       // ICMP
  EXPECT_EQ(std::memcmp(f.data() + 26, question.data() + 30, 4), 0);    // from the station's address
  EXPECT_EQ(std::memcmp(f.data() + 30, question.data() + 26, 4), 0);    // to the sender's
  EXPECT_EQ(f[34], std::byte{3});                                       // unreachable:
  EXPECT_EQ(f[35], std::byte{1});                                       // host
  EXPECT_EQ(std::memcmp(f.data() + 42, question.data() + 14, 548), 0);  // the packet
  EXPECT_EQ(sum16(answer.subspan(14, 20)), 0xffffu);
  EXPECT_EQ(sum16(answer.subspan(34)), 0xffffu);
  EXPECT_EQ(b.port.counters().unreachable, 1u);
  b.by.on_frame(0, frame(0xff, 2, 0));  // back, elsewhere
  b.guest.sent.clear();
  b.port.on_frame(0, question);
  EXPECT_TRUE(b.guest.sent.empty());
  EXPECT_EQ(b.third.sent.size(), 1u);
}

TEST(SwitchUnreachable, AnswersIpv6) {
  NetdevBench b;
  Bytes question = frame(2, 1, 0x44, 40 + 33);
  std::fill_n(question.begin() + 14, 40, std::byte{});
  question[12] = std::byte{0x86};
  question[13] = std::byte{0xdd};
  question[14] = std::byte{0x60};
  question[19] = std::byte{33};
  question[20] = std::byte{6};
  question[22] = question[38] = std::byte{0xfe};
  question[23] = question[39] = std::byte{0x80};
  question[37] = std::byte{1};
  question[53] = std::byte{2};
  b.port.on_frame(0, question);
  ASSERT_EQ(b.guest.sent.size(), 1u);
  const Bytes& f = b.guest.sent[0];
  ASSERT_EQ(f.size(), 14u + 40 + 8 + 73);
  EXPECT_EQ(f[20], std::byte{58});
  EXPECT_EQ(f[54], std::byte{1});
  EXPECT_EQ(f[55], std::byte{3});
  EXPECT_EQ(f[37], std::byte{2});
  EXPECT_EQ(f[53], std::byte{1});
  EXPECT_EQ(std::memcmp(f.data() + 62, question.data() + 14, 73), 0);
  EXPECT_EQ(sum16(std::span<const std::byte>(f).subspan(22), 81 + 58), 0xffffu);
  question[20] = std::byte{58};
  question[54] = std::byte{135};  // neighbour solicitation
  b.port.on_frame(0, question);
  EXPECT_EQ(b.guest.sent.size(), 1u);
}

TEST(SwitchUnreachable, StaysSilentWhereNoErrorMayBeSent) {
  NetdevBench b;
  const auto silent = [&](Bytes question, const char* why) {
    b.port.on_frame(0, question);
    EXPECT_TRUE(b.guest.sent.empty()) << why;
    b.guest.sent.clear();
  };
  silent(frame(2, 1, 0), "no IP: ARP, RoCE");
  silent(packet4(7, 6), "a station that nobody knew");
  Bytes f = packet4(2, 1);
  f[34] = std::byte{3};
  silent(f, "an ICMP error");
  f = packet4(2, 17);
  f[21] = std::byte{5};
  silent(f, "a later fragment");
  f = packet4(2, 17);
  f[30] = std::byte{224};
  silent(f, "multicast");
  f = packet4(2, 17);
  f[26] = std::byte{0};
  silent(f, "no sender");
  f = packet4(2, 17);
  f[17] = std::byte{200};
  silent(f, "longer than the frame");
  f = packet4(2, 17);
  f[14] = std::byte{0x4f};
  f.resize(14 + 20);
  silent(f, "options beyond the frame");
  f = packet4(2, 17);
  f.resize(14 + 19);
  silent(f, "cut in the header");
  Switch::Port& device = b.sw.add_port({.name = "n0d0p0"});
  TestLink link;
  device.attach(link);
  f = packet4(2, 17);
  f[11] = std::byte{9};
  device.on_frame(0, f);
  EXPECT_TRUE(link.sent.empty()) << "a device hears it from the link";
}

TEST(SwitchUnreachable, AnswersAreLimitedInRate) {
  NetdevBench b;
  for (int i = 0; i < 1000; i++) b.port.on_frame(0, packet4(2, 17));
  EXPECT_EQ(b.guest.sent.size(), 20u);
  EXPECT_EQ(b.port.counters().unreachable, 1000u);
  b.now += 100'000'000;
  b.port.on_frame(0, packet4(2, 17));
  EXPECT_EQ(b.guest.sent.size(), 21u);
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
  b.sw.release_reordered();  // nothing comes that could pass it
  EXPECT_FALSE(b.sw.holds_reordered());
  EXPECT_EQ(b.links[1]->sent.size(), n + c.duplicated);
  EXPECT_EQ(b.links[0]->released, n);
}

}  // namespace
}  // namespace weft::fabric
