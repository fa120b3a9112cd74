// SPDX-License-Identifier: MIT
// Mutated frames: nothing crashes, nothing outside the target is written. The seed is fixed; sanitizers are the judge.
#include <gtest/gtest.h>

#include "dissect.hpp"
#include "harness.hpp"

namespace {

using namespace harness;

// Makes checksum and ICRC right again, so that the mutation gets past them. False when the frame is too broken.
bool repair(Frame& f) {
  if (f.size() < 62) return false;
  if ((f[14] >> 4) != std::byte{4}) return false;
  const std::size_t length = dissect::be(f, 16, 2);
  if (length < 44 || 14 + length > f.size()) return false;
  f[24] = f[25] = std::byte{0};
  std::uint32_t sum = 0;
  for (std::size_t i = 14; i < 34; i += 2) sum += static_cast<std::uint32_t>(dissect::be(f, i, 2));
  sum = (sum & 0xffff) + (sum >> 16);
  sum = ~((sum & 0xffff) + (sum >> 16));
  f[24] = static_cast<std::byte>(sum >> 8);
  f[25] = static_cast<std::byte>(sum);
  const std::uint32_t crc = dissect::icrc(std::span(f).subspan(14, length - 4));
  for (unsigned i = 0; i < 4; ++i) f[14 + length - 4 + i] = static_cast<std::byte>(crc >> 8 * i);
  return true;
}

TEST(Fuzz, MutatedFramesDoNoHarm) {
  constexpr unsigned kFrames = 200'000;
  std::mt19937_64 random(20261129);
  unsigned done = 0;
  unsigned accepted = 0;
  for (unsigned round = 0; done < kFrames; ++round) {
    // Real frames of a small exchange, both directions.
    Net net(round);
    std::vector<Frame> corpus[2];
    net.on_frame = [&](unsigned from, Frame& frame) {
      corpus[from].push_back(frame);
      return true;
    };
    Params p;
    p.mtu = WEFT_MTU_256;
    const Pair pair = connect(net, p);
    regions(net.a(), net.b(), 2000);
    for (unsigned i = 0; i < 3; ++i) net.a().nic->post(pair.a, write_imm_request(i, 0, 700, i));
    net.run();
    ASSERT_EQ(net.a().completions.size(), 3u);
    for (unsigned i = 0; i < 4; ++i) net.a().nic->post(pair.a, write_imm_request(10 + i, 0, 900, i));
    net.on_frame = [](unsigned, Frame&) { return false; };
    net.a().nic->step(1 << 20);

    const std::uint64_t payload = net.b().counter(WEFT_PCTR_rx_payload_bytes);
    for (unsigned i = 0; i < 500; ++i, ++done) {
      const unsigned from = random() % 4 == 0;
      Frame f = corpus[from][random() % corpus[from].size()];
      for (unsigned m = random() % 4; m > 0; --m) {
        switch (random() % 5) {
          case 0:
            f[random() % f.size()] ^= static_cast<std::byte>(1u << random() % 8);
            break;
          case 1:
            f[random() % f.size()] = static_cast<std::byte>(random());
            break;
          case 2:  // headers are hit more often
            f[14 + random() % 48] = static_cast<std::byte>(random());
            break;
          case 3:
            f.resize(1 + random() % (f.size() + 20));
            break;
          default:  // a plausible PSN or opcode
            if (f.size() > 60) {
              f[53] = static_cast<std::byte>(dissect::be(f, 53, 1) + random() % 5);
              if (random() % 2 == 0) f[42] = static_cast<std::byte>(random() % 0x20);
            }
        }
      }
      if (random() % 8 != 0) repair(f);
      // An exact allocation, so that a read beyond the frame is seen.
      const Frame exact(f.begin(), f.end());
      Node& to = from == 0 ? net.b() : net.a();
      to.nic->link_receive(0, static_cast<std::uint32_t>(random() % 8), exact);
      if (random() % 16 == 0) to.nic->step(4096);
    }
    accepted += net.b().counter(WEFT_PCTR_rx_payload_bytes) > payload;
    ASSERT_EQ(net.b().mem.region(kTarget).bytes.size(), 2000u);
    ASSERT_EQ(net.a().mem.region(kSource).bytes, noise(2000, 77));  // not granted to anybody
    for (auto& node : net.nodes) node->nic->reset();
    ASSERT_TRUE(net.run());
  }
  RecordProperty("frames", static_cast<int>(done));
  EXPECT_GT(accepted, 0u);  // the fuzzer reaches the responder
}

TEST(Fuzz, NoiseIsDropped) {
  Net net;
  std::mt19937_64 random(7);
  for (unsigned i = 0; i < 20'000; ++i) {
    const Frame frame = noise(random() % 200, random());
    net.a().nic->link_receive(0, 0, frame);
  }
  EXPECT_EQ(net.a().counter(WEFT_PCTR_rx_frames), 20'000u);
  EXPECT_EQ(net.a().counter(WEFT_PCTR_tx_frames), 0u);
}

}  // namespace
