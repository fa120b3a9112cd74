// SPDX-License-Identifier: MIT
#include "sim/event_log.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace {

using weft::sim::EventLog;

TEST(EventLog, LinesAndTheirHash) {
  const std::string path = ::testing::TempDir() + "weft_event_log";
  std::uint64_t hash = 0;
  {
    EventLog log(path.c_str());
    EXPECT_EQ(log.hash(), 0xcbf29ce484222325ull) << "FNV-1a of nothing is its offset basis";
    const std::uint64_t values[] = {7, UINT64_MAX};
    log.add(0, 3, "irq", {values, 1});
    log.add(1234567890123, EventLog::kSwitch, "lost", values);
    hash = log.hash();
    EXPECT_EQ(log.lines(), 2u);
  }
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(text, "0 dev3 irq 7\n1234567890123 switch lost 7 18446744073709551615\n");
  std::uint64_t expected = 0xcbf29ce484222325ull;
  for (unsigned char byte : text) expected = (expected ^ byte) * 0x100000001b3ull;
  EXPECT_EQ(hash, expected);
  std::remove(path.c_str());
}

TEST(EventLog, TooLongNamesAndValuesAreCut) {
  EventLog log(nullptr);
  const std::uint64_t values[20] = {};
  log.add(UINT64_MAX, 0xfffffffeu, std::string(500, 'x'), values);
  EXPECT_EQ(log.lines(), 1u);
}

TEST(EventLog, AFileThatCannotBeMadeIsAnError) { EXPECT_THROW(EventLog("/nowhere/at/all"), std::system_error); }

}  // namespace
