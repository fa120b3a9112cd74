// SPDX-License-Identifier: MIT
// The bytes of a capture against the pcapng draft (draft-ietf-opsawg-pcapng-03), read field by field.
#include "weft/fabric/capture.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

namespace weft::fabric {
namespace {

std::uint32_t word(const std::vector<char>& data, std::size_t at) {
  std::uint32_t value;
  std::memcpy(&value, data.data() + at, sizeof value);
  return value;
}

TEST(Capture, WritesSectionInterfacesAndPackets) {
  const std::string path = testing::TempDir() + "/weft-capture-" + std::to_string(getpid()) + ".pcapng";
  const std::vector<std::byte> a(61, std::byte{0x11}), b(4, std::byte{0x22});
  {
    Capture capture(path);
    EXPECT_EQ(capture.interface("n0d0p0"), 0u);
    EXPECT_EQ(capture.interface("net"), 1u);
    const Segment segments[] = {a, b};
    capture.frame(1, 0x1234567890abcdef, segments, "lost by plan");
  }
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> data((std::istreambuf_iterator<char>(file)), {});
  ::unlink(path.c_str());

  EXPECT_EQ(word(data, 0), 0x0A0D0D0Au);
  EXPECT_EQ(word(data, 8), 0x1A2B3C4Du);
  EXPECT_EQ(word(data, 12), 1u);  // version 1.0
  std::size_t at = word(data, 4);
  EXPECT_EQ(word(data, at), 1u);
  EXPECT_EQ(word(data, at + 8), 1u) << "link type Ethernet";
  EXPECT_EQ(std::string(data.data() + at + 20, 6), "n0d0p0");
  at += word(data, at + 4);
  EXPECT_EQ(word(data, at), 1u);
  at += word(data, at + 4);
  EXPECT_EQ(word(data, at), 6u);
  const std::uint32_t length = word(data, at + 4);
  EXPECT_EQ(word(data, at + 8), 1u);
  EXPECT_EQ(word(data, at + 12), 0x12345678u);
  EXPECT_EQ(word(data, at + 16), 0x90abcdefu);
  EXPECT_EQ(word(data, at + 20), 65u);
  EXPECT_EQ(word(data, at + 24), 65u);
  EXPECT_EQ(data[at + 28], 0x11);
  EXPECT_EQ(data[at + 28 + 64], 0x22);
  EXPECT_EQ(length % 4, 0u);
  EXPECT_EQ(word(data, at + length - 4), length);
  EXPECT_EQ(at + length, data.size());
}

TEST(Capture, SaysWhyItCannotWrite) { EXPECT_THROW(Capture("/nonexistent/x.pcapng"), std::system_error); }

}  // namespace
}  // namespace weft::fabric
