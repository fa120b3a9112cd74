// SPDX-License-Identifier: MIT
// How far packets are from copying: printed, not asserted. Emulator speed, not hardware.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "harness.hpp"

namespace {

using namespace harness;

// A host whose link hands each frame to the other NIC through one buffer, as a shared-memory ring would.
struct Direct final : NicHost {
  Direct() {
    NicConfig config;
    config.serial = "direct";
    nic = make_nic(*this, config);
    nic->link_state(0, true);
  }
  Memory& memory() override { return mem; }
  std::uint64_t now_ns() override { return 1; }
  int link_send(std::uint32_t, std::uint32_t, std::span<const std::span<const std::byte>> segments) override {
    std::byte* to = ring.data() + frames * kSlot;
    std::size_t n = 0;
    for (const auto s : segments) {
      if (!s.empty()) std::memcpy(to + n, s.data(), s.size());
      n += s.size();
    }
    length[frames++] = n;
    return 0;
  }
  void link_credit(std::uint32_t, std::uint32_t, std::uint32_t) override {}
  void completed(std::uint64_t, Error) override { ++done; }
  void qp_failed(std::uint32_t, std::uint32_t, Error) override {}
  void port_changed(std::uint32_t, weft_port_state) override {}

  static constexpr std::size_t kSlot = 9280;
  TestMemory mem;
  std::unique_ptr<Nic> nic;
  std::vector<std::byte> ring = std::vector<std::byte>(1024 * kSlot);
  std::array<std::size_t, 1024> length{};
  std::size_t frames = 0;
  unsigned done = 0;
};

// Processor time of this thread, which other programs on the host do not lengthen much.
double seconds(auto&& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(Throughput, RatioToMemcpy) {
  for (const weft_mtu mtu : {WEFT_MTU_1024, WEFT_MTU_4096, WEFT_MTU_8192}) {
    Direct a;
    Direct b;
    weft_mbox_port_set port{};
    port.set = WEFT_PORT_SET_MAC;
    port.mac[0] = 2;
    b.nic->port_set(port);
    ASSERT_EQ(set_gid(*b.nic, 0, WEFT_GID_ROCE_V2_IPV4, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1}),
              WEFT_ERR_OK);
    Params p;
    p.mtu = mtu;
    p.timeout = 0;
    std::uint32_t qa = 0;
    std::uint32_t qb = 0;
    create(*a.nic, qa, p);
    create(*b.nic, qb, p);
    ASSERT_EQ(connect_one(*a.nic, qa, *b.nic, qb, p), WEFT_ERR_OK);
    ASSERT_EQ(connect_one(*b.nic, qb, *a.nic, qa, p), WEFT_ERR_OK);
    constexpr std::size_t kSize = 32 << 20;
    a.mem.add(kSource, {5, WEFT_RIGHT_READ, kSourceVa, noise(kSize, 1)});
    b.mem.add(kTarget, {5, WEFT_RIGHT_REMOTE_WRITE, kTargetVa, std::vector<std::byte>(kSize)});
    const auto transfer = [&] {
      a.done = 0;
      ASSERT_EQ(a.nic->post(qa, write_request(1, 0, kSize)), WEFT_ERR_OK);
      while (a.done == 0) {
        a.nic->step(128 << 10);
        for (std::size_t i = 0; i < a.frames; ++i) {
          b.nic->link_receive(0, 0, std::span(a.ring).subspan(i * Direct::kSlot, a.length[i]));
        }
        a.frames = 0;
        b.nic->step(0);
        for (std::size_t i = 0; i < b.frames; ++i) {
          a.nic->link_receive(0, 0, std::span(b.ring).subspan(i * Direct::kSlot, b.length[i]));
        }
        b.frames = 0;
      }
    };
    transfer();
    ASSERT_EQ(a.mem.region(kSource).bytes, b.mem.region(kTarget).bytes);
    double copy = 1e9;
    double wire = 1e9;
    for (unsigned round = 0; round < 5; ++round) {
      copy = std::min(copy, seconds([&] {
                        std::memcpy(b.mem.region(kTarget).bytes.data(), a.mem.region(kSource).bytes.data(), kSize);
                      }));
      wire = std::min(wire, seconds(transfer));
    }
    std::printf("mtu %u: %.2f GB/s on one thread for both ends, memcpy %.2f GB/s, ratio %.2f, %.0f ns a packet\n",
                128u << mtu, static_cast<double>(kSize) / wire / 1e9, static_cast<double>(kSize) / copy / 1e9,
                copy / wire, wire * 1e9 / static_cast<double>(kSize / (128u << mtu)));
  }
}

}  // namespace
