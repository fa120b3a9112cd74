// SPDX-License-Identifier: MIT
// The boot ROM: what it refuses, with which code and which detail, and that what it takes runs.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "core/image.hpp"
#include "machine.hpp"
#include "weft/model/firmware_port.hpp"

namespace weft::model::test {
namespace {

using Image = std::vector<std::byte>;

// zlib's CRC-32, bit by bit (reflected 0x04c11db7), so that the ROM's own is checked by a second reading.
std::uint32_t reference_crc(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<std::uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
  }
  return ~crc;
}

weft_fw_header header_of(const Image& image) {
  weft_fw_header header;
  std::memcpy(&header, image.data(), sizeof(header));
  return header;
}

void put_header(Image& image, weft_fw_header header, bool sign = true) {
  if (sign) {
    header.crc32 = 0;
    std::memcpy(image.data(), &header, sizeof(header));
    header.crc32 = reference_crc(image);
  }
  std::memcpy(image.data(), &header, sizeof(header));
}

Image good_image(std::size_t body_bytes = 4096) {
  Image image(sizeof(weft_fw_header) + body_bytes);
  std::mt19937 random(1);
  for (std::size_t i = sizeof(weft_fw_header); i < image.size(); ++i) image[i] = static_cast<std::byte>(random());
  constexpr std::uint32_t kLoop = 0x0000006f;  // j .
  std::memcpy(image.data() + sizeof(weft_fw_header), &kLoop, sizeof(kLoop));
  weft_fw_header header{};
  header.magic = WEFT_FW_MAGIC;
  header.header_version = WEFT_FW_HEADER_VERSION;
  header.header_bytes = sizeof(header);
  header.image_bytes = static_cast<std::uint32_t>(image.size());
  header.hw_version = WEFT_HW_MAJOR << 16 | WEFT_HW_MINOR;
  header.fw_version = 0x00010002;
  header.load = WEFT_FW_RAM;
  header.entry = WEFT_FW_RAM;
  std::memcpy(header.name, "test", 4);
  put_header(image, header);
  return image;
}

void expect_refused(const Image& image, weft_boot_error error, std::uint32_t detail) {
  WordBus bus;
  const BootResult result = boot_image(image, bus);
  EXPECT_EQ(result.error, error);
  EXPECT_EQ(result.detail, detail);
  EXPECT_EQ(result.firmware, nullptr);
  EXPECT_TRUE(bus.writes.empty());
}

TEST(Boot, TakesAGoodImageAndRunsIt) {
  const Image image = good_image();
  WordBus bus;
  const BootResult result = boot_image(image, bus);
  ASSERT_EQ(result.error, WEFT_BOOT_OK);
  EXPECT_EQ(result.image_crc, header_of(image).crc32);
  ASSERT_NE(result.firmware, nullptr);
  const Firmware::Progress progress = result.firmware->step(1000);
  EXPECT_FALSE(progress.idle);
  EXPECT_FALSE(progress.trapped);
}

TEST(Boot, EveryHeaderFieldWrong) {
  struct Case {
    const char* what;
    void (*change)(weft_fw_header&);
    weft_boot_error error;
    std::uint32_t detail;
  };
  constexpr std::uint32_t kEnd = WEFT_FW_RAM + WEFT_FW_RAM_BYTES;
  for (const Case& test :
       {Case{"magic", [](weft_fw_header& h) { h.magic = 0x12345678; }, WEFT_BOOT_MAGIC, 0x12345678},
        Case{"header_version", [](weft_fw_header& h) { h.header_version = 2; }, WEFT_BOOT_HEADER, 2},
        Case{"header_bytes", [](weft_fw_header& h) { h.header_bytes = 60; }, WEFT_BOOT_HEADER, 60u << 16 | 1},
        Case{"image_bytes", [](weft_fw_header& h) { ++h.image_bytes; }, WEFT_BOOT_SIZE, 4096 + 64 + 1},
        Case{"older", [](weft_fw_header& h) { h.hw_version = (WEFT_HW_MAJOR - 1) << 16; }, WEFT_BOOT_ABI,
             (WEFT_HW_MAJOR - 1) << 16},
        Case{"newer", [](weft_fw_header& h) { h.hw_version = (WEFT_HW_MAJOR + 1) << 16; }, WEFT_BOOT_ABI,
             (WEFT_HW_MAJOR + 1) << 16},
        Case{"load below", [](weft_fw_header& h) { h.load = WEFT_FW_RAM - 4; }, WEFT_BOOT_LAYOUT, WEFT_FW_RAM - 4},
        Case{"load at 0", [](weft_fw_header& h) { h.load = 0; }, WEFT_BOOT_LAYOUT, 0},
        Case{"load too high", [](weft_fw_header& h) { h.load = kEnd - 4092; }, WEFT_BOOT_LAYOUT, kEnd - 4092},
        Case{"load at the end", [](weft_fw_header& h) { h.load = kEnd; }, WEFT_BOOT_LAYOUT, kEnd},
        Case{"load wraps", [](weft_fw_header& h) { h.load = 0xfffffffc; }, WEFT_BOOT_LAYOUT, 0xfffffffc},
        Case{"load misaligned", [](weft_fw_header& h) { h.load += 2; }, WEFT_BOOT_LAYOUT, WEFT_FW_RAM + 2},
        Case{"entry before", [](weft_fw_header& h) { h.entry = h.load - 2; }, WEFT_BOOT_LAYOUT, WEFT_FW_RAM - 2},
        Case{"entry behind", [](weft_fw_header& h) { h.entry = h.load + 4096; }, WEFT_BOOT_LAYOUT, WEFT_FW_RAM + 4096},
        Case{"entry odd", [](weft_fw_header& h) { h.entry += 1; }, WEFT_BOOT_LAYOUT, WEFT_FW_RAM + 1}}) {
    SCOPED_TRACE(test.what);
    Image image = good_image();
    weft_fw_header header = header_of(image);
    test.change(header);
    put_header(image, header);  // with a right CRC, so that nothing else is wrong
    expect_refused(image, test.error, test.detail);
  }
}

TEST(Boot, WrongCrcTellsTheRightOne) {
  Image image = good_image();
  weft_fw_header header = header_of(image);
  const std::uint32_t right = header.crc32;
  header.crc32 ^= 1;
  put_header(image, header, false);
  expect_refused(image, WEFT_BOOT_CRC, right);
}

TEST(Boot, ChecksInTheOrderOfTheErrors) {
  Image image = good_image();
  weft_fw_header header = header_of(image);
  header.crc32 ^= 1;
  put_header(image, header, false);
  header.entry = 0;
  put_header(image, header, false);
  expect_refused(image, WEFT_BOOT_LAYOUT, 0);
  header.hw_version = 0x00050000;
  put_header(image, header, false);
  expect_refused(image, WEFT_BOOT_ABI, 0x00050000);
  header.image_bytes = 5;
  put_header(image, header, false);
  expect_refused(image, WEFT_BOOT_SIZE, 5);
  header.header_version = 9;
  put_header(image, header, false);
  expect_refused(image, WEFT_BOOT_HEADER, 9);
  header.magic = 3;
  put_header(image, header, false);
  expect_refused(image, WEFT_BOOT_MAGIC, 3);
  image.resize(10);
  expect_refused(image, WEFT_BOOT_SHORT, 10);
}

TEST(Boot, MinorVersionsMayDiffer) {
  Image image = good_image();
  weft_fw_header header = header_of(image);
  header.hw_version = WEFT_HW_MAJOR << 16 | 77;
  put_header(image, header);
  WordBus bus;
  EXPECT_EQ(boot_image(image, bus).error, WEFT_BOOT_OK);
}

TEST(Boot, EveryTruncatedLength) {
  const Image image = good_image(512);
  for (std::size_t length = 0; length < image.size(); ++length) {
    SCOPED_TRACE(length);
    const Image part(image.begin(), image.begin() + static_cast<std::ptrdiff_t>(length));
    if (length <= sizeof(weft_fw_header)) {  // nothing to run
      expect_refused(part, WEFT_BOOT_SHORT, static_cast<std::uint32_t>(length));
    } else {
      expect_refused(part, WEFT_BOOT_SIZE, static_cast<std::uint32_t>(image.size()));
    }
  }
  Image longer = image;
  longer.push_back(std::byte{0});
  expect_refused(longer, WEFT_BOOT_SIZE, static_cast<std::uint32_t>(image.size()));
}

TEST(Boot, LargestImage) {
  WordBus bus;
  EXPECT_EQ(boot_image(good_image(WEFT_FW_RAM_BYTES), bus).error, WEFT_BOOT_OK);
  expect_refused(good_image(WEFT_FW_RAM_BYTES + 4), WEFT_BOOT_SHORT, WEFT_FW_RAM_BYTES + 4 + 64);
}

TEST(Boot, EveryFlippedHeaderBit) {
  const Image image = good_image(512);
  for (std::size_t bit = 0; bit < 8 * sizeof(weft_fw_header); ++bit) {
    SCOPED_TRACE(bit);
    Image flipped = image;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    WordBus bus;
    const BootResult result = boot_image(flipped, bus);
    EXPECT_EQ(result.firmware, nullptr);
    const std::size_t byte = bit / 8;
    if (byte < 4) {
      EXPECT_EQ(result.error, WEFT_BOOT_MAGIC);
    } else if (byte < 8) {
      EXPECT_EQ(result.error, WEFT_BOOT_HEADER);
    } else if (byte < 12) {
      EXPECT_EQ(result.error, WEFT_BOOT_SIZE);
    } else if (byte < 16) {
      EXPECT_EQ(result.error, WEFT_BOOT_CRC);
    } else if (byte < 20) {  // major or minor of hw_version
      EXPECT_EQ(result.error, byte < 18 ? WEFT_BOOT_CRC : WEFT_BOOT_ABI);
    } else if (byte >= 24 && byte < 32) {  // load and entry: still inside, or not
      EXPECT_TRUE(result.error == WEFT_BOOT_LAYOUT || result.error == WEFT_BOOT_CRC);
    } else {
      EXPECT_EQ(result.error, WEFT_BOOT_CRC);
    }
  }
}

TEST(Boot, ThousandFlippedBodyBits) {
  const Image image = good_image(16384);
  std::mt19937 random(2);
  for (int i = 0; i < 1000; ++i) {
    Image flipped = image;
    const std::size_t bit = 8 * sizeof(weft_fw_header) + random() % (8 * 16384);
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    weft_fw_header header = header_of(flipped);
    header.crc32 = 0;
    Image zeroed = flipped;
    put_header(zeroed, header, false);
    expect_refused(flipped, WEFT_BOOT_CRC, reference_crc(zeroed));
  }
}

TEST(Boot, TrapIsReported) {
  Image image = good_image();
  constexpr std::uint32_t kBad = 0xffffffff;
  std::memcpy(image.data() + sizeof(weft_fw_header) + 8, &kBad, sizeof(kBad));
  weft_fw_header header = header_of(image);
  header.entry = WEFT_FW_RAM + 8;
  put_header(image, header);
  WordBus bus;
  const BootResult result = boot_image(image, bus);
  ASSERT_EQ(result.error, WEFT_BOOT_OK);
  const Firmware::Progress progress = result.firmware->step(10);
  EXPECT_TRUE(progress.trapped);
  EXPECT_EQ(progress.cause, 2u);
  EXPECT_EQ(progress.pc, WEFT_FW_RAM + 8);
}

TEST(Boot, EachErrorHasItsText) {
  for (int error = WEFT_BOOT_OK; error <= WEFT_BOOT_SILENT; ++error) {
    EXPECT_NE(boot_error_text(static_cast<weft_boot_error>(error)), "unknown boot error") << error;
  }
}

}  // namespace
}  // namespace weft::model::test
