// SPDX-License-Identifier: MIT
// Packets against a capture of Linux rdma_rxe (kernel 6.1): RC, UC and UD traffic of other people's programs.
#include "nic/packet.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "dissect.hpp"

namespace weft::model::nic {
namespace {

using Frame = std::vector<std::byte>;

// Classic pcap, little-endian, Ethernet.
std::vector<Frame> capture() {
  std::ifstream file(WEFT_TEST_DATA "/rxe-6.1.pcap", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<Frame> frames;
  for (std::size_t at = 24; at + 16 <= bytes.size();) {
    std::uint32_t length;
    std::memcpy(&length, &bytes[at + 8], 4);
    at += 16;
    const auto* p = reinterpret_cast<const std::byte*>(&bytes[at]);
    frames.emplace_back(p, p + length);
    at += length;
  }
  return frames;
}

bool is_roce(const Frame& frame) {
  return dissect::be(frame, 12, 2) == 0x0800 && dissect::be(frame, 23, 1) == 17 && dissect::be(frame, 36, 2) == 4791;
}

TEST(Packet, GoldenCaptureParsesAndItsIcrcHolds) {
  unsigned roce = 0;
  unsigned other = 0;
  for (const Frame& frame : capture()) {
    Packet packet;
    const Parsed parsed = parse(frame, packet);
    if (!is_roce(frame)) {
      EXPECT_EQ(parsed, Parsed::kNotRoce);
      ++other;
      continue;
    }
    ++roce;
    ASSERT_EQ(parsed, Parsed::kOk);
    EXPECT_TRUE(packet.info.known);
    EXPECT_TRUE(icrc_right(frame, packet));
    // The same by the straightforward CRC of the test.
    const std::size_t length = dissect::be(frame, 16, 2);
    std::uint32_t stored;
    std::memcpy(&stored, &frame[14 + length - 4], 4);
    EXPECT_EQ(dissect::icrc(std::span(frame).subspan(14, length - 4)), stored);
  }
  EXPECT_EQ(roce, 47u);
  EXPECT_EQ(other, 3u);
}

// What rxe sent comes out again, byte for byte, from the parsed fields alone.
TEST(Packet, GoldenCaptureIsRebuiltByteForByte) {
  for (const Frame& frame : capture()) {
    if (!is_roce(frame)) continue;
    Packet packet;
    ASSERT_EQ(parse(frame, packet), Parsed::kOk);
    PathInfo info;
    info.dmac = packet.dmac;
    info.smac = packet.smac;
    info.sgid = packet.source;
    info.dgid = packet.destination;
    info.traffic_class = packet.traffic_class;
    info.sport = packet.sport;
    const Head head = Path(info).head(packet.bth, packet.ext, packet.payload.size(),
                                      static_cast<std::uint16_t>(dissect::be(frame, 18, 2)));
    const std::span<const std::byte> payload = packet.payload;
    const Tail tail = make_tail(head, payload);
    Frame built(head.span().begin(), head.span().end());
    built.insert(built.end(), payload.begin(), payload.end());
    built.insert(built.end(), tail.span().begin(), tail.span().end());
    EXPECT_EQ(built, frame) << "opcode " << unsigned{packet.bth.opcode};
  }
}

TEST(Packet, EveryBitOfAGoldenFrameIsGuarded) {
  for (const Frame& golden : capture()) {
    if (!is_roce(golden) || golden.size() > 100) continue;
    const std::size_t end = 14 + dissect::be(golden, 16, 2);
    for (std::size_t bit = 14 * 8; bit < end * 8; ++bit) {
      Frame frame = golden;
      frame[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      Packet packet;
      const bool taken = parse(frame, packet) == Parsed::kOk && icrc_right(frame, packet);
      // Fields that a router may change: the ICRC leaves them out, IPv4's own checksum guards its header.
      const std::size_t byte = bit / 8;
      const bool variant = byte == 40 || byte == 41 || byte == 46;
      EXPECT_EQ(taken, variant) << "byte " << byte;
    }
  }
}

TEST(Packet, NoPrefixOfAFrameIsTaken) {
  for (const Frame& golden : capture()) {
    if (!is_roce(golden)) continue;
    const std::size_t end = 14 + dissect::be(golden, 16, 2);
    for (std::size_t size = 0; size < end; ++size) {
      const Frame frame(golden.begin(), golden.begin() + static_cast<std::ptrdiff_t>(size));
      Packet packet;
      EXPECT_NE(parse(frame, packet), Parsed::kOk);
    }
  }
}

// Ports that rxe chose in the capture: RC and UC pairs whose QPNs are the same on both sides.
TEST(Packet, UdpSourcePort) {
  EXPECT_EQ(udp_source_port(0, 17, 17), 0xc121);
  EXPECT_EQ(udp_source_port(0, 18, 18), 0xc144);
  EXPECT_EQ(udp_source_port(0, 20, 20), 0xc190);
  EXPECT_EQ(udp_source_port(0, 21, 21), 0xc1b9);
  EXPECT_EQ(udp_source_port(0, 22, 22), 0xc1e4);
  // By hand: 0x4001 * 0x8003 = 0x20014003; ^ itself >> 20 = 0x20014203; flow label 0x14203 folds to 0x0203 ^ 5.
  EXPECT_EQ(udp_source_port(0, 0x4001, 0x8003), 0xc000 | (0x0203 ^ 5));
  EXPECT_EQ(udp_source_port(0xfffff, 1, 2), 0xc000 | (0x3fff ^ 0x3f));
}

TEST(Packet, Ipv6FrameAgainstTheSecondReading) {
  PathInfo info;
  info.dmac = {2, 1, 2, 3, 4, 5};
  info.smac = {2, 6, 7, 8, 9, 10};
  info.vlan = 42;
  info.sgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  info.dgid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
  info.traffic_class = 0x62;
  info.hop_limit = 7;
  info.flow_label = 0xabcde;
  info.sport = 0xd123;
  Bth bth;
  bth.opcode = kWriteOnlyImm;
  bth.dest_qpn = 0x112233;
  bth.psn = 0xfffffe;
  bth.ack_request = true;
  Extensions ext;
  ext.address = 0x1122334455667788;
  ext.key = 0xcafe0001;
  ext.length = 5;
  ext.immediate = 0x01020304;
  const Frame data{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  const Head head = Path(info).head(bth, ext, data.size(), 0);
  const Tail tail = make_tail(head, data);
  Frame frame(head.span().begin(), head.span().end());
  frame.insert(frame.end(), data.begin(), data.end());
  frame.insert(frame.end(), tail.span().begin(), tail.span().end());

  std::string why;
  const auto read = dissect::frame(frame, why);
  ASSERT_TRUE(read) << why;
  EXPECT_FALSE(read->ipv4);
  EXPECT_EQ(read->vlan, 42u);
  EXPECT_EQ(read->tos, 0x62u);
  EXPECT_EQ(read->ttl, 7u);
  EXPECT_EQ(dissect::be(frame, 18, 4), 0x662abcdeu);
  EXPECT_EQ(read->sport, 0xd123u);
  EXPECT_EQ(read->udp_checksum, 0u);
  EXPECT_EQ(read->qpn, 0x112233u);
  EXPECT_EQ(read->psn, 0xfffffeu);
  EXPECT_EQ(read->reth_va, 0x1122334455667788u);
  EXPECT_EQ(read->reth_key, 0xcafe0001u);
  EXPECT_EQ(read->reth_length, 5u);
  EXPECT_EQ(read->immediate, 0x01020304u);
  EXPECT_EQ(read->payload, data);
  Packet packet;
  ASSERT_EQ(parse(frame, packet), Parsed::kOk);
  EXPECT_TRUE(icrc_right(frame, packet));
  EXPECT_EQ(packet.vlan, 42u);
  EXPECT_EQ(packet.traffic_class, 0x62);
}

}  // namespace
}  // namespace weft::model::nic
