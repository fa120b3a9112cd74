// SPDX-License-Identifier: MIT
#include "sched/file.hpp"

#include <gtest/gtest.h>

#include <boost/crc.hpp>
#include <cstring>
#include <random>

#include "sched/algorithms.hpp"
#include "sched/check.hpp"

namespace weft::ccl {
namespace {

std::vector<std::byte> ring_file(std::uint32_t ranks) {
  return write_schedule(*find_algorithm(WCCL_COLL_ALLREDUCE)->make({ranks, 2, 0}));
}

void seal(std::vector<std::byte>& bytes) {
  std::memset(bytes.data() + offsetof(wccl_sched_header, crc32), 0, 4);
  boost::crc_32_type crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const std::uint32_t value = crc.checksum();
  std::memcpy(bytes.data() + offsetof(wccl_sched_header, crc32), &value, 4);
}

TEST(File, RoundTripIsExact) {
  for (const Algorithm& algorithm : algorithms()) {
    const auto source = algorithm.make({5, 2, 1});
    const auto bytes = write_schedule(*source);
    std::string error;
    const auto read = read_schedule(bytes, error);
    ASSERT_TRUE(read) << error;
    EXPECT_EQ(write_schedule(*read), bytes);
    EXPECT_EQ(read->shape().name, source->shape().name);
    EXPECT_TRUE(check(*read).ok());
  }
}

// zlib's CRC-32: check value of the polynomial, and the file's own field computed over the bytes with the field zero.
TEST(File, CrcIsZlibs) {
  boost::crc_32_type crc;
  crc.process_bytes("123456789", 9);
  EXPECT_EQ(crc.checksum(), 0xcbf43926u);
  auto bytes = ring_file(3);
  auto sealed = bytes;
  seal(sealed);
  EXPECT_EQ(sealed, bytes);
}

TEST(File, NamesWhatIsWrong) {
  std::string error;
  auto bytes = ring_file(4);
  EXPECT_FALSE(read_schedule(std::span(bytes).first(100), error));
  EXPECT_EQ(error, "shorter than a header");
  EXPECT_FALSE(read_schedule(std::span(bytes).first(bytes.size() - 8), error));
  EXPECT_NE(error.find("its header says"), std::string::npos);
  auto broken = bytes;
  broken[bytes.size() - 20] ^= std::byte{1};
  EXPECT_FALSE(read_schedule(broken, error));
  EXPECT_EQ(error, "CRC-32 differs");
  broken = bytes;
  broken[4] = std::byte{1};
  EXPECT_FALSE(read_schedule(broken, error));
  EXPECT_EQ(error, "version 1 is not known");

  // Two ranks that share one table entry: a small file must not expand.
  broken = bytes;
  wccl_sched_rank entry;
  std::memcpy(&entry, broken.data() + sizeof(wccl_sched_header), sizeof entry);
  std::memcpy(broken.data() + sizeof(wccl_sched_header) + sizeof entry, &entry, sizeof entry);
  entry.ops *= 4;
  std::memcpy(broken.data() + sizeof(wccl_sched_header), &entry, sizeof entry);
  seal(broken);
  EXPECT_FALSE(read_schedule(broken, error));
  EXPECT_NE(error.find("used twice"), std::string::npos) << error;
}

TEST(File, MissingPathIsNamed) {
  std::string error;
  EXPECT_FALSE(load_schedule("/nonexistent/x.sched", error));
  EXPECT_NE(error.find("/nonexistent/x.sched"), std::string::npos);
}

// Garbage with a right CRC: the reader must refuse or give a schedule that the checker can walk. Run under ASan in CI.
TEST(File, SurvivesGarbage) {
  std::mt19937_64 random(42);
  const auto good = ring_file(4);
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    auto bytes = good;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int f = 0; f < flips; ++f) {
      const std::size_t at = random() % bytes.size();
      bytes[at] = static_cast<std::byte>(random() % 4 ? 0xff >> random() % 8 : random());
    }
    seal(bytes);
    std::string error;
    if (const auto schedule = read_schedule(bytes, error)) {
      ++read;
      (void)check(*schedule, 1);
    } else {
      EXPECT_FALSE(error.empty());
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 20000);
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes(random() % 600);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    std::string error;
    EXPECT_FALSE(read_schedule(bytes, error));
  }
}

}  // namespace
}  // namespace weft::ccl
