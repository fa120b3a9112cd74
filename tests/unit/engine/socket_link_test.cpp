// SPDX-License-Identifier: MIT
// SocketLink over a socketpair: greeting, credits, pause, state, and what a broken or hostile peer may send.
#include "weft/fabric/socket_link.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

namespace {

using namespace weft::fabric;

struct Owner : LinkOwner {
  std::deque<std::vector<std::byte>> frames;
  std::vector<bool> states;
  unsigned ready = 0;
  std::vector<bool> pauses;
  std::vector<std::pair<unsigned, bool>> stations;
  SocketLink* link = nullptr;
  bool release = true;

  void on_frame(unsigned cls, std::span<const std::byte> frame) override {
    frames.emplace_back(frame.begin(), frame.end());
    if (release) link->release(cls, 1);
  }
  void on_ready(unsigned) override { ++ready; }
  void on_pause(unsigned, bool stop) override { pauses.push_back(stop); }
  void on_state(bool up) override { states.push_back(up); }
  void on_station(const Mac& mac, bool up) override { stations.emplace_back(mac[5], up); }
};

std::vector<std::byte> frame_of(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> frame(bytes);
  for (std::size_t i = 0; i < bytes; ++i) frame[i] = static_cast<std::byte>(seed + i * 7);
  return frame;
}

SendResult send(SocketLink& link, unsigned cls, std::span<const std::byte> frame) {
  // In two pieces, as a model sends header and payload.
  const Segment segments[] = {frame.first(10), frame.subspan(10)};
  return link.send(cls, segments);
}

struct Pair {
  std::pair<Fd, Fd> fds = socket_pair();
  Owner left_owner, right_owner;
  SocketLink left, right;
  explicit Pair(unsigned credits = kCreditFrames)
      : left(std::move(fds.first), left_owner, {.name = "left", .credits = credits}),
        right(std::move(fds.second), right_owner, {.name = "ri ght", .credits = credits}) {
    left_owner.link = &left;
    right_owner.link = &right;
  }
  void pump() {
    for (int i = 0; i < 4; ++i) {
      left.flush();
      right.readable();
      right.flush();
      left.readable();
    }
  }
};

TEST(SocketLink, GreetsAndNamesThePeer) {
  Pair p;
  EXPECT_FALSE(p.left.up());
  EXPECT_EQ(send(p.left, 0, frame_of(64, 1)), SendResult::kDown);
  p.pump();
  EXPECT_TRUE(p.left.up());
  EXPECT_TRUE(p.right.up());
  EXPECT_EQ(p.right.peer_name(), "left");
  EXPECT_EQ(p.left.peer_name(), "ri_ght");
  EXPECT_EQ(p.left_owner.states, std::vector<bool>{true});
  EXPECT_EQ(p.left.credits(3), kCreditFrames);
}

TEST(SocketLink, CarriesEveryFrameInOrderThroughAFullSocket) {
  Pair p;
  p.pump();
  unsigned sent = 0;
  const unsigned total = 5000;  // 45 MB, far above socket and ring
  unsigned received = 0;
  while (received < total) {
    while (sent < total && send(p.left, sent % kClasses, frame_of(9000 + sent % 200, sent)) == SendResult::kSent)
      ++sent;
    p.left.flush();
    p.right.readable();
    p.left.readable();
    for (; !p.right_owner.frames.empty(); p.right_owner.frames.pop_front(), ++received) {
      ASSERT_EQ(p.right_owner.frames.front(), frame_of(9000 + received % 200, received));
    }
  }
  EXPECT_GT(p.left_owner.ready, 0u);
  EXPECT_EQ(p.right.counters().rx_frames, total);
  // Batched: many frames a system call.
  EXPECT_LT(p.right.counters().reads, total / 5);
}

TEST(SocketLink, ASwitchSaysWhatStationsAreGoneAndNobodyElseDoes) {
  auto [near, far] = socket_pair();
  Owner port_owner, switch_owner;
  SocketLink port(std::move(near), port_owner, {.name = "port", .stations = true});
  SocketLink sw(std::move(far), switch_owner, {.name = "switch"});
  port_owner.link = &port;
  switch_owner.link = &sw;
  sw.station({2, 0, 0, 0, 0, 9}, false);  // before it is up: forgotten
  const auto pump = [&] {
    for (int i = 0; i < 3; ++i) {
      port.flush();
      sw.readable();
      port.readable();
    }
  };
  pump();
  EXPECT_TRUE(port_owner.stations.empty());
  EXPECT_EQ(send(sw, 0, frame_of(64, 1)), SendResult::kSent);
  for (unsigned i = 0; i < 2000; ++i) sw.station({2, 0, 0, 0, 0, static_cast<std::uint8_t>(i)}, i % 2 == 0);
  pump();
  EXPECT_EQ(port_owner.frames.size(), 1u);
  ASSERT_EQ(port_owner.stations.size(), 1024u) << "those that wait are bounded";
  EXPECT_EQ(sw.counters().stations_dropped, 976u);
  for (unsigned i = 0; i < 1024; ++i) {
    ASSERT_EQ(port_owner.stations[i], (std::pair{i % 256, i % 2 == 0}));
  }
  port.station({2, 0, 0, 0, 0, 1}, false);  // a port that lies
  pump();
  EXPECT_TRUE(switch_owner.stations.empty());
  EXPECT_EQ(sw.error(), LinkError::kBadMessage);
}

TEST(SocketLink, CreditsBoundWhatIsUnderWay) {
  Pair p(4);
  p.right_owner.release = false;
  p.pump();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(send(p.left, 2, frame_of(64, i)), SendResult::kSent);
  EXPECT_EQ(send(p.left, 2, frame_of(64, 4)), SendResult::kNoCredit);
  EXPECT_EQ(send(p.left, 3, frame_of(64, 4)), SendResult::kSent);  // another class has its own
  p.pump();
  EXPECT_EQ(p.right_owner.frames.size(), 5u);
  EXPECT_EQ(p.left_owner.ready, 0u);
  p.right.release(2, 1);
  p.pump();
  EXPECT_EQ(p.left_owner.ready, 1u);
  EXPECT_EQ(p.left.credits(2), 1u);
  p.right.release(2, 1000);  // more than it holds: only what it holds
  p.pump();
  EXPECT_EQ(p.left.credits(2), 4u);
  EXPECT_TRUE(p.left.open());
}

TEST(SocketLink, PauseStopsAClassAndLiftingItTells) {
  Pair p;
  p.pump();
  p.right.pause(1, true);
  p.pump();
  EXPECT_EQ(p.left_owner.pauses, std::vector<bool>{true});
  EXPECT_EQ(send(p.left, 1, frame_of(64, 0)), SendResult::kNoCredit);
  EXPECT_EQ(send(p.left, 0, frame_of(64, 0)), SendResult::kSent);
  p.right.pause(1, false);
  p.pump();
  EXPECT_EQ(p.left_owner.ready, 1u);
  EXPECT_EQ(send(p.left, 1, frame_of(64, 0)), SendResult::kSent);
}

TEST(SocketLink, StateTakesTheLinkDownAndUpAtBothEnds) {
  Pair p;
  p.pump();
  p.right.set_state(false);
  ASSERT_EQ(send(p.left, 0, frame_of(64, 0)), SendResult::kSent);  // left does not know yet: it is lost
  p.pump();
  EXPECT_EQ(p.left_owner.states, (std::vector<bool>{true, false}));
  EXPECT_EQ(p.right_owner.states, (std::vector<bool>{true, false}));
  EXPECT_EQ(send(p.left, 0, frame_of(64, 0)), SendResult::kDown);
  EXPECT_EQ(send(p.right, 0, frame_of(64, 0)), SendResult::kDown);
  EXPECT_EQ(p.right.counters().rx_while_down, 1u);
  p.right.set_state(true);
  p.pump();
  EXPECT_TRUE(p.left.up());
  EXPECT_EQ(send(p.left, 0, frame_of(64, 0)), SendResult::kSent);
}

TEST(SocketLink, PeerThatGoesIsADownLink) {
  Owner owner;
  auto [a, b] = socket_pair();
  SocketLink link(std::move(a), owner, {.name = "x"});
  {
    Fd gone = std::move(b);
  }
  link.flush();
  link.readable();
  EXPECT_FALSE(link.open());
  EXPECT_EQ(link.error(), LinkError::kClosed);
  EXPECT_TRUE(owner.states.empty());  // never was up
}

// ---- a peer that speaks by hand

struct Raw {
  Owner owner;
  Fd far;
  std::unique_ptr<SocketLink> link;
  explicit Raw(unsigned credits = 2) {
    auto [a, b] = socket_pair();
    far = std::move(b);
    link = std::make_unique<SocketLink>(std::move(a), owner, SocketLink::Options{.name = "raw", .credits = credits});
    owner.link = link.get();
    owner.release = false;
  }
  void write(std::span<const std::byte> bytes) {
    ASSERT_EQ(::write(far.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    link->readable();
  }
  void head(MessageType type, unsigned cls, std::uint16_t count, std::uint32_t length) {
    write(encode_head(type, cls, count, length));
  }
  void hello(unsigned credits = 8) {
    const HelloPayload h = make_hello("far", credits);
    head(MessageType::kHello, 0, 0, sizeof(h));
    write(std::as_bytes(std::span(&h, 1)));
  }
};

TEST(SocketLink, HelloOnTheWireIsAsTheHeaderSays) {
  Raw r(0x1234);
  r.link->flush();
  std::array<unsigned char, 56> got{};
  ASSERT_EQ(::read(r.far.get(), got.data(), got.size()), 56);
  const unsigned char want[] = {48, 0, 0,    0,    1, 0, 0, 0, 'W', 'L', 'N', 'K', 2,   0,
                                0,  0, 0x34, 0x12, 0, 0, 0, 0, 0,   0,   'r', 'a', 'w', 0};
  EXPECT_TRUE(std::equal(std::begin(want), std::end(want), got.begin()));
}

TEST(SocketLink, MessageInPieces) {
  Raw r;
  r.hello();
  ASSERT_TRUE(r.link->up());
  r.head(MessageType::kFrame, 0, 0, 20);
  const auto frame = frame_of(20, 3);
  for (const std::byte& b : frame) r.write(std::span(&b, 1));
  ASSERT_EQ(r.owner.frames.size(), 1u);
  EXPECT_EQ(r.owner.frames[0], frame);
}

TEST(SocketLink, RefusesWhatIsNotTheProtocol) {
  struct Case {
    MessageType type;
    unsigned cls;
    std::uint32_t length;
  };
  for (const Case c :
       {Case{MessageType{0}, 0, 0}, Case{MessageType{7}, 0, 0}, Case{MessageType::kStation, 0, 7},
        Case{MessageType::kFrame, 8, 64}, Case{MessageType::kFrame, 0, kFrameMax + 1}, Case{MessageType::kFrame, 0, 13},
        Case{MessageType::kCredit, 0, 1}, Case{MessageType::kHello, 0, 48}, Case{MessageType::kFrame, 0, ~0u}}) {
    Raw r;
    r.hello();
    r.head(c.type, c.cls, 0, c.length);
    if (c.type == MessageType::kHello) {
      const HelloPayload again = make_hello("again", 1);
      r.write(std::as_bytes(std::span(&again, 1)));
    }
    EXPECT_EQ(r.link->error(), LinkError::kBadMessage) << static_cast<int>(c.type) << " " << c.length;
    EXPECT_EQ(r.owner.states, (std::vector<bool>{true, false}));
  }
}

TEST(SocketLink, RefusesBadHelloAndFrameBeforeIt) {
  {
    Raw r;
    r.head(MessageType::kState, 0, 1, 0);
    EXPECT_EQ(r.link->error(), LinkError::kBadMessage);
  }
  {
    Raw r;
    r.hello(0);
    EXPECT_EQ(r.link->error(), LinkError::kBadHello);
  }
  {
    Raw r;
    r.hello(65536);
    EXPECT_EQ(r.link->error(), LinkError::kBadHello);
  }
  {
    Raw r;
    HelloPayload h = make_hello("x", 1);
    h.version = kHelloVersion + 1;
    r.head(MessageType::kHello, 0, 0, sizeof(h));
    r.write(std::as_bytes(std::span(&h, 1)));
    EXPECT_EQ(r.link->error(), LinkError::kBadHello);
  }
}

TEST(SocketLink, PeerThatIgnoresCreditsIsCutOff) {
  Raw r(2);
  r.hello();
  const auto frame = frame_of(64, 0);
  for (int i = 0; i < 3; ++i) {
    r.head(MessageType::kFrame, 5, 0, 64);
    r.write(frame);
  }
  EXPECT_EQ(r.owner.frames.size(), 2u);
  EXPECT_EQ(r.link->error(), LinkError::kCreditOverrun);
}

TEST(SocketLink, PeerThatGivesBackTooManyCreditsIsCutOff) {
  Raw r;
  r.hello(8);
  ASSERT_EQ(send(*r.link, 0, frame_of(64, 0)), SendResult::kSent);
  r.head(MessageType::kCredit, 0, 2, 0);
  EXPECT_EQ(r.link->error(), LinkError::kCreditExcess);
}

TEST(SocketLink, ConnectSaysWhyNot) {
  int error = 0;
  EXPECT_FALSE(connect_unix("/nonexistent/socket", error));
  EXPECT_EQ(error, ENOENT);
  EXPECT_FALSE(connect_unix(std::string(200, 'x'), error));
  EXPECT_EQ(error, ENAMETOOLONG);
}

}  // namespace
