// SPDX-License-Identifier: MIT
// Memory of an exporter as a NIC sees it: what was put there is read back by RDMA and compared.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "exporter.hpp"
#include "nic.hpp"
#include "pattern.hpp"

namespace readback {
namespace {

constexpr std::uint64_t kPage = 4096, kMiB = 1 << 20, kGiB = 1 << 30;

std::string exporter_name = "udmabuf", exporter_argument, nic_name;

class Readback : public ::testing::Test {
 protected:
  void SetUp() override {
    exporter = exporters().at(exporter_name)(exporter_argument);
    nic = std::make_unique<Nic>(nic_name);
  }

  std::unique_ptr<Allocation> seed(unsigned tag, std::uint64_t bytes) {
    auto out = exporter->allocate(bytes);
    fill(*out, tag, 0, bytes);
    return out;
  }
  static void fill(Allocation& memory, unsigned tag, std::uint64_t from, std::uint64_t bytes) {
    for (std::uint64_t at = from; at < from + bytes; at += kMiB) {
      const auto piece = seeded(tag, at, static_cast<std::size_t>(std::min(kMiB, from + bytes - at)));
      memory.write(at, piece);
    }
  }
  /** As an importer has it: the file descriptor is closed, the registration alone keeps the DMA-BUF. */
  Region import(Allocation& memory, std::uint64_t offset, std::uint64_t bytes) {
    const Export given = memory.share(offset, bytes);
    struct Close {
      int fd;
      ~Close() { close(fd); }
    } const closes{given.fd};
    return nic->add(given.fd, given.offset, bytes);
  }
  /** What the NIC sees in [from, from + bytes) of `region`, whose first byte is byte `base` of allocation `tag`. */
  ::testing::AssertionResult sees(const Region& region, unsigned tag, std::uint64_t base, std::uint64_t from,
                                  std::uint64_t bytes, Difference* difference = nullptr) {
    std::vector<std::byte> got(bytes);
    const ibv_wc_status status = nic->read(region, from, got);
    if (status != IBV_WC_SUCCESS)
      return ::testing::AssertionFailure() << "the NIC cannot read it: " << ibv_wc_status_str(status);
    const Difference d = compare(got, tag, base + from);
    if (difference != nullptr) *difference = d;
    if (d.found) return ::testing::AssertionFailure() << d.text();
    return ::testing::AssertionSuccess();
  }

  std::unique_ptr<Exporter> exporter;
  std::unique_ptr<Nic> nic;
};

TEST_F(Readback, WholeAllocations) {
  unsigned tag = 1;
  for (const std::uint64_t bytes : {kPage, 3 * kPage, kMiB, 8 * kMiB + kPage}) {
    const auto memory = seed(tag, bytes);
    const Region region = import(*memory, 0, bytes);
    EXPECT_TRUE(sees(region, tag, 0, 0, bytes)) << bytes << " bytes";
    ++tag;
  }
}

TEST_F(Readback, WhatTheNicWritesIsThere) {
  const std::uint64_t bytes = 2 * kMiB + kPage;
  const auto memory = seed(1, bytes);
  const Region region = import(*memory, 0, bytes);
  ASSERT_EQ(nic->write(region, 0, seeded(2, 0, bytes)), IBV_WC_SUCCESS);
  // Writes between devices may be on their way; a read from the same NIC comes behind them.
  EXPECT_TRUE(sees(region, 2, 0, 0, bytes));
  std::vector<std::byte> got(bytes);
  memory->read(0, got);
  const Difference d = compare(got, 2, 0);
  EXPECT_FALSE(d.found) << "the exporter itself: " << d.text();
}

// Neighbours in the device's memory: the first allocation alone would not tell.
TEST_F(Readback, EachAllocationIsItself) {
  constexpr unsigned kCount = 4;
  std::vector<std::unique_ptr<Allocation>> memory;
  for (unsigned tag = 1; tag <= kCount; ++tag) memory.push_back(seed(tag, (tag % 2 == 0 ? 3 : 1) * kMiB + kPage));
  for (unsigned tag = 1; tag <= kCount; ++tag) {
    Allocation& one = *memory[tag - 1];
    const std::uint64_t bytes = (tag % 2 == 0 ? 3 : 1) * kMiB + kPage;
    EXPECT_TRUE(sees(import(one, 0, bytes), tag, 0, 0, bytes))
        << "fault: wrong offset of the allocation within the device's memory (allocation " << tag << " of " << kCount
        << ")";
  }
}

TEST_F(Readback, PartsOfAnAllocation) {
  const std::uint64_t bytes = 4 * kMiB;
  const auto memory = seed(1, bytes);
  for (const std::uint64_t offset : {kPage, kMiB + 3 * kPage, 3 * kMiB}) {
    EXPECT_TRUE(sees(import(*memory, offset, kMiB - kPage), 1, offset, 0, kMiB - kPage))
        << "fault: wrong offset of a part within its allocation (part at " << offset << ")";
  }
}

// The importer keeps what it was given, or loses it; what it never gets is somebody else's memory.
TEST_F(Readback, AFreedRangeIsNotHandedOutUnderAnExport) {
  constexpr unsigned kFreed = 1, kByNic = 99;
  const std::uint64_t bytes = 2 * kMiB;
  auto freed = seed(kFreed, bytes);
  const Region region = import(*freed, 0, bytes);
  freed.reset();
  std::vector<std::unique_ptr<Allocation>> later;
  for (unsigned tag = 2; tag < 18; ++tag) later.push_back(seed(tag, bytes));

  std::vector<std::byte> got(bytes);
  if (nic->read(region, 0, got) == IBV_WC_SUCCESS) {
    const Difference d = compare(got, kFreed, 0);
    EXPECT_FALSE(d.found) << "fault: free with a live export, the range was handed out again: " << d.text();
  }
  // A write of the importer's must not reach them either.
  nic->write(region, 0, seeded(kByNic, 0, bytes));
  nic->read(region, bytes - 8, std::span(got).first(8));
  for (unsigned tag = 2; tag < 18; ++tag) {
    later[tag - 2]->read(0, got);
    const Difference d = compare(got, tag, 0);
    EXPECT_FALSE(d.found) << "fault: free with a live export, the importer wrote into allocation " << tag << ": "
                          << d.text();
  }
}

// The device goes while the NIC has its memory registered, and comes back.
TEST_F(Readback, RemovalRevokes) {
  if (!exporter->removable()) GTEST_SKIP() << exporter_name << " cannot be removed (by this user)";
  const std::uint64_t bytes = kMiB;
  auto memory = seed(1, bytes);
  const Export given = memory->share(0, bytes);
  std::optional<Region> region = nic->add(given.fd, given.offset, bytes);
  ASSERT_TRUE(sees(*region, 1, 0, 0, bytes));

  exporter->remove();
  std::vector<std::byte> got(bytes);
  EXPECT_NE(nic->read(*region, 0, got), IBV_WC_SUCCESS)
      << "fault: missing revoke, the NIC reads on after the device was removed (is its memory decoding off?)";
  try {
    const Region late = nic->add(given.fd, given.offset, bytes);
    ADD_FAILURE() << "fault: missing revoke, memory of a removed device can still be registered";
  } catch (const std::system_error&) {  // as it should be
  }

  // Back with the importer still holding on: refuse, or never give that range to anybody.
  memory.reset();
  bool back = false;
  try {
    exporter->bring_back();
    back = true;
  } catch (const std::exception&) {  // comes below
  }
  if (back) {
    std::vector<std::unique_ptr<Allocation>> later;
    for (unsigned tag = 2; tag < 18; ++tag) later.push_back(seed(tag, bytes));
    if (nic->read(*region, 0, got) == IBV_WC_SUCCESS) {
      const Difference d = compare(got, 1, 0);
      EXPECT_FALSE(d.found && d.is_seeded())
          << "fault: missing revoke, after its return the device lent the importer's range to others: " << d.text();
    }
  }
  region.reset();
  close(given.fd);
  if (!back) exporter->bring_back();
  const auto again = seed(3, bytes);
  EXPECT_TRUE(sees(import(*again, 0, bytes), 3, 0, 0, bytes)) << "after the device's return";
}

TEST_F(Readback, FourGiBAndMore) {
  const std::uint64_t bytes = 4 * kGiB + 64 * kMiB, probe = 64 << 10;
  if (exporter->largest() < bytes)
    GTEST_SKIP() << exporter_name << " has at most " << exporter->largest() << " bytes at once, this needs " << bytes;
  const auto memory = exporter->allocate(bytes);
  const std::uint64_t places[] = {0,        64 * kMiB - probe, 64 * kMiB,        kGiB,     2 * kGiB - probe, 2 * kGiB,
                                  3 * kGiB, 4 * kGiB - probe,  4 * kGiB - kPage, 4 * kGiB, bytes - probe};
  for (const std::uint64_t at : places) fill(*memory, 1, at, probe);
  const Region region = import(*memory, 0, bytes);
  for (const std::uint64_t at : places) {
    Difference d;
    EXPECT_TRUE(sees(region, 1, 0, at, probe, &d)) << "fault: a segment of 4 GiB or more? A scatterlist entry counts "
                                                      "bytes in 32 bits; make several. Wrong at byte "
                                                   << at << " of " << bytes;
  }
}

constexpr const char* kHelp =
    "\nWhat a NIC sees of an exporter's memory: dmabuf-readback [--exporter=NAME[:ARGUMENT]] [--nic=NAME] [gtest "
    "options]\n"
    "  --exporter=  one of:%s; udmabuf if not given\n"
    "  --nic=       RDMA device; the first EFA if not given\n";

}  // namespace
}  // namespace readback

int main(int argc, char** argv) {
  using namespace readback;
  ::testing::InitGoogleTest(&argc, argv);
  std::string names;
  for (const auto& [name, make] : exporters()) names += " " + name;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--exporter=")) {
      const std::string value = argument.substr(11);
      const std::size_t colon = value.find(':');
      exporter_name = value.substr(0, colon);
      if (colon != std::string::npos) exporter_argument = value.substr(colon + 1);
    } else if (argument.starts_with("--nic=")) {
      nic_name = argument.substr(6);
    } else {
      const bool asked = argument == "--help" || argument == "-h";
      std::fprintf(asked ? stdout : stderr, kHelp, names.c_str());
      return asked ? 0 : 2;
    }
  }
  if (!exporters().contains(exporter_name)) {
    std::fprintf(stderr, "no exporter \"%s\"; there are:%s\n", exporter_name.c_str(), names.c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}
