// SPDX-License-Identifier: MIT
// Channels between simulated devices: RoCE v2 packets through the switch, loss, a cut link, and that runs repeat.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "sim_fixture.hpp"

namespace {

using namespace weft::test;
using ::testing::HasSubstr;

// Both ways at once, `bytes` in pieces, and both sides compared.
void exchange(std::uint32_t bytes, std::uint32_t pieces, std::uint8_t timeout = 0) {
  Accel one(0), other(1);
  End a, b;
  connect(one, a, other, b, timeout);
  struct Side {
    Accel& accel;
    End& end;
    weft_mem* from;
    weft_mem* to;
    weft_queue* queue;
    std::uint32_t sent;
    std::vector<std::byte> payload;
  };
  const std::size_t all = std::size_t{bytes} * pieces;
  std::array<Side, 2> sides{{{one, a, nullptr, nullptr, nullptr, 0, {}}, {other, b, nullptr, nullptr, nullptr, 0, {}}}};
  for (Side& side : sides) {
    side.from = side.accel.alloc(all);
    side.to = side.accel.alloc(all, WEFT_MEM_REMOTE_WRITE);
    side.queue = side.accel.queue(256);
    side.sent = side.accel.sync();
    side.payload = noise(weft_mem_bytes(side.from), weft_queue_number(side.queue) + (&side == &sides[0] ? 100 : 200));
    side.accel.fill(side.from, side.payload);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    Side& side = sides[i];
    const Side& peer = sides[1 - i];
    std::vector<weft_cmd> cmds;
    for (std::uint32_t piece = 0; piece < pieces; ++piece) {
      const std::uint64_t offset = std::uint64_t{piece} * bytes;
      cmds.push_back(
          write_imm(side.end, side.from, offset, bytes, weft_mem_va(peer.to) + offset, weft_mem_key(peer.to)));
      cmds.back().signal_id = side.sent;
      cmds.back().signal_add = 1;
    }
    ASSERT_EQ(weft_queue_submit(side.queue, cmds.data(), static_cast<std::uint32_t>(cmds.size())), 0)
        << weft_last_error();
  }
  for (Side& side : sides) {
    ASSERT_EQ(side.accel.wait(side.end.arrivals, pieces, 60'000'000'000), 0) << weft_last_error();
    ASSERT_EQ(side.accel.wait(side.sent, pieces, 60'000'000'000), 0) << weft_last_error();
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const auto got = sides[i].accel.bytes(sides[i].to);
    ASSERT_TRUE(std::equal(got.begin(), got.begin() + static_cast<std::ptrdiff_t>(all), sides[1 - i].payload.begin()));
  }
}

TEST(SimChannel, WriteWithImmediateArrivesAndSignals) {
  Sim sim;
  Accel one(0), other(1);
  End a, b;
  connect(one, a, other, b);
  weft_mem* from = one.alloc(1u << 20);
  weft_mem* to = other.alloc(1u << 20, WEFT_MEM_REMOTE_WRITE);
  const auto bytes = noise(1u << 20, 5);
  one.fill(from, bytes);
  weft_queue* queue = one.queue();
  const std::uint32_t sent = one.sync();
  weft_cmd cmd = write_imm(a, from, 0, 1u << 20, weft_mem_va(to), weft_mem_key(to));
  cmd.signal_id = sent;
  cmd.signal_add = 1;
  const auto start = weft_sim_time();
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0) << weft_last_error();
  ASSERT_EQ(other.wait(b.arrivals, 1), 0) << weft_last_error();
  const auto arrived = weft_sim_time();
  ASSERT_EQ(one.wait(sent, 1), 0) << weft_last_error();
  EXPECT_EQ(other.bytes(to), bytes);
  // 1 MiB at 100 Gb/s are 83.9 us; framing and the way add some per cent, not half.
  EXPECT_GT(arrived - start, 83'886u);
  EXPECT_LT(arrived - start, 100'000u);
  EXPECT_GT(weft_sim_time(), arrived) << "the acknowledgement takes its way, too";
  EXPECT_EQ(one.port_counter(WEFT_PCTR_tx_payload_bytes), 1u << 20);
  EXPECT_EQ(other.port_counter(WEFT_PCTR_rx_payload_bytes), 1u << 20);
  EXPECT_EQ(one.port_counter(WEFT_PCTR_retransmits), 0u);
  std::uint32_t state = 0, error = 0;
  ASSERT_EQ(weft_channel_state(a.channel, &state, &error), 0);
  EXPECT_EQ(state, std::uint32_t{WEFT_QPS_RTS});
  EXPECT_EQ(error, std::uint32_t{WEFT_ERR_OK});
}

TEST(SimChannel, ManySizesBothWays) {
  Sim sim;
  for (std::uint32_t bytes : {1u, 255u, 4096u, 4097u, 100000u}) exchange(bytes, 5);
}

TEST(SimChannel, LossIsRepaired) {
  for (double loss : {0.01, 0.05}) {
    Sim sim({.seed = 42, .loss = loss});
    exchange(200000, 10);
    Accel one(0), other(1);
    EXPECT_GT(one.port_counter(WEFT_PCTR_retransmits) + other.port_counter(WEFT_PCTR_retransmits), 0u);
  }
}

// With the default of retries only the network's word ends a connection, and that at once.
TEST(SimChannel, APeerThatLeavesTheNetworkIsToldAtOnce) {
  Sim sim;
  Accel one(0), other(1);
  End a, b;
  connect(one, a, other, b);
  weft_mem* from = one.alloc(1u << 20);
  weft_mem* to = other.alloc(1u << 20, WEFT_MEM_REMOTE_WRITE);
  weft_queue* queue = one.queue();
  const std::uint32_t sent = one.sync();
  weft_cmd cmd = write_imm(a, from, 0, 1u << 20, weft_mem_va(to), weft_mem_key(to));
  cmd.signal_id = sent;
  cmd.signal_add = 1;
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0);
  ASSERT_EQ(one.wait(sent, 1), 0) << weft_last_error();
  ASSERT_EQ(weft_sim_link(1, 0, 0), 0);
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0);
  const auto start = weft_sim_time();
  weft_failure failure{};
  EXPECT_EQ(one.wait(sent, 2, 10'000'000'000, &failure), -EIO);
  EXPECT_LT(weft_sim_time() - start, 1'000'000u);  // ns
  EXPECT_EQ(failure.error, std::uint32_t{WEFT_ERR_PEER_GONE}) << weft_error_text(failure.error);
  std::uint32_t state = 0, error = 0;
  ASSERT_EQ(weft_channel_state(a.channel, &state, &error), 0);
  EXPECT_EQ(error, std::uint32_t{WEFT_ERR_PEER_GONE});
}

TEST(SimChannel, WrongKeyIsRefusedAndHarmsNothing) {
  Sim sim;
  Accel one(0), other(1);
  End a, b;
  connect(one, a, other, b);
  weft_mem* from = one.alloc(4096);
  weft_mem* closed = other.alloc(4096);  // without WEFT_MEM_REMOTE_WRITE
  one.fill(from, noise(4096, 9));
  weft_queue* queue = one.queue();
  weft_cmd cmd = write_imm(a, from, 0, 4096, weft_mem_va(closed), weft_mem_key(closed));
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0);
  weft_failure failure{};
  EXPECT_EQ(one.wait(one.sync(), 1, 10'000'000'000, &failure), -EIO);
  EXPECT_EQ(failure.error, std::uint32_t{WEFT_ERR_REMOTE_ACCESS}) << weft_error_text(failure.error);
  EXPECT_THAT(other.bytes(closed), ::testing::Each(std::byte{0}));
}

TEST(SimChannel, ACutLinkIsAnErrorThatNamesTheChannel) {
  Sim sim;
  Accel one(0), other(1);
  End a, b;
  connect(one, a, other, b, 8, 3);  // 1 ms, three tries
  weft_mem* from = one.alloc(1u << 20);
  weft_mem* to = other.alloc(1u << 20, WEFT_MEM_REMOTE_WRITE);
  ASSERT_EQ(weft_sim_link(1, 0, 0), 0);
  weft_queue* queue = one.queue();
  const std::uint32_t sent = one.sync();
  weft_cmd cmd = write_imm(a, from, 0, 1u << 20, weft_mem_va(to), weft_mem_key(to));
  cmd.signal_id = sent;
  cmd.signal_add = 1;
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0);
  const auto start = weft_sim_time();
  int result = 0;
  weft_failure failure{};
  result = one.wait(sent, 1, 10'000'000'000, &failure);
  EXPECT_EQ(result, -EIO);
  EXPECT_LT(weft_sim_time() - start, 100'000'000u);
  // The queue pair's failure is told, and the queue's that it made.
  EXPECT_EQ(failure.error, std::uint32_t{WEFT_ERR_RETRY_EXCEEDED}) << weft_error_text(failure.error);
  if (failure.type == WEFT_EVENT_QP_ERROR) {
    EXPECT_EQ(failure.object, weft_channel_number(a.channel));
    EXPECT_THAT(weft_last_error(), HasSubstr("channel " + std::to_string(weft_channel_number(a.channel))));
  }
  std::uint32_t state = 0, error = 0;
  ASSERT_EQ(weft_channel_state(a.channel, &state, &error), 0);
  EXPECT_EQ(state, std::uint32_t{WEFT_QPS_ERR});
  EXPECT_EQ(error, std::uint32_t{WEFT_ERR_RETRY_EXCEEDED});

  // After the link is mended new channels work.
  ASSERT_EQ(weft_sim_link(1, 0, 1), 0);
  weft_channel_destroy(a.channel);
  weft_channel_destroy(b.channel);
  weft_queue_destroy(queue);
  End c, d;
  connect(one, c, other, d);
  queue = one.queue();
  cmd = write_imm(c, from, 0, 4096, weft_mem_va(to), weft_mem_key(to));
  ASSERT_EQ(weft_queue_submit(queue, &cmd, 1), 0) << weft_last_error();
  EXPECT_EQ(other.wait(d.arrivals, 1), 0) << weft_last_error();
}

TEST(SimChannel, TwoPortsAreTwoWays) {
  Sim sim({.ports = 2});
  Accel one(0), other(1);
  End a, b, c, d;
  connect(one, a, other, b, 0, 0, 0);
  connect(one, c, other, d, 0, 0, 1);
  weft_mem* from = one.alloc(65536);
  weft_mem* to = other.alloc(65536, WEFT_MEM_REMOTE_WRITE);
  weft_queue* queue = one.queue();
  const weft_cmd cmds[] = {write_imm(a, from, 0, 65536, weft_mem_va(to), weft_mem_key(to)),
                           write_imm(c, from, 0, 65536, weft_mem_va(to), weft_mem_key(to))};
  ASSERT_EQ(weft_queue_submit(queue, cmds, 2), 0);
  EXPECT_EQ(other.wait(b.arrivals, 1), 0) << weft_last_error();
  EXPECT_EQ(other.wait(d.arrivals, 1), 0) << weft_last_error();
  EXPECT_EQ(one.port_counter(WEFT_PCTR_tx_payload_bytes, 0), 65536u);
  EXPECT_EQ(one.port_counter(WEFT_PCTR_tx_payload_bytes, 1), 65536u);
}

std::pair<std::uint64_t, std::uint64_t> run(std::uint64_t seed, double loss, const std::string& log = {}) {
  Sim sim({.seed = seed, .loss = loss, .log = log});
  exchange(300000, 8);
  return {weft_sim_hash(), weft_sim_time()};
}

TEST(SimChannel, EqualSeedsGiveEqualLogs) {
  const std::string path = ::testing::TempDir() + "weft_sim_log";
  const auto first = run(7, 0.02, path);
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(text, HasSubstr(" switch lost "));
  EXPECT_GT(std::count(text.begin(), text.end(), '\n'), 1000);
  std::remove(path.c_str());
  EXPECT_EQ(run(7, 0.02), first);
  EXPECT_NE(run(8, 0.02).first, first.first);
}

TEST(SimChannel, CaptureIsWritten) {
  const std::string path = ::testing::TempDir() + "weft_sim.pcapng";
  {
    Sim sim({.capture = path});
    exchange(10000, 2);
  }
  std::ifstream file(path, std::ios::binary);
  std::uint32_t type = 0;
  file.read(reinterpret_cast<char*>(&type), sizeof(type));
  EXPECT_EQ(type, 0x0a0d0d0au) << "a section header block comes first (pcapng)";
  file.seekg(0, std::ios::end);
  EXPECT_GT(file.tellg(), 40000) << "both payloads are in it";
  std::remove(path.c_str());
}

}  // namespace
