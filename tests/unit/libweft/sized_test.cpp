// SPDX-License-Identifier: MIT
// Structures that grow: older (shorter) and newer (longer) callers and backends.
#include "weft/sized.hpp"

#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "weft/backend.h"
#include "weft/sim.h"
#include "weft/weft.h"

namespace {

using ::testing::HasSubstr;

struct Now {
  std::uint32_t size;
  std::uint32_t a;
  std::uint64_t b;
};
struct Newer {
  Now now;
  std::uint64_t c;
};

TEST(Sized, ReadTakesWhatIsThere) {
  Now ours{};
  Now old{8, 1, 0x5555};
  ASSERT_EQ(weft::read_sized(&old, &ours), 0);
  EXPECT_EQ(ours.a, 1u);
  EXPECT_EQ(ours.b, 0u) << "an older caller has no b";
  Newer newer{{sizeof(Newer), 1, 2}, 0};
  ASSERT_EQ(weft::read_sized(&newer.now, &ours), 0) << "c is 0: as before there was c";
  EXPECT_EQ(ours.b, 2u);
  EXPECT_EQ(ours.size, sizeof(Now));
  newer.c = 1ull << 63;
  EXPECT_EQ(weft::read_sized(&newer.now, &ours), -E2BIG);
  old.size = 3;
  EXPECT_EQ(weft::read_sized(&old, &ours), -EINVAL);
  EXPECT_EQ(weft::read_sized<Now>(nullptr, &ours), -EINVAL);
}

TEST(Sized, WriteStaysWithinTheCallers) {
  const Now ours{sizeof(Now), 1, 2};
  Now old{8, 0, 0x5555};
  ASSERT_EQ(weft::write_sized(ours, &old), 0);
  EXPECT_EQ(old.size, 8u);
  EXPECT_EQ(old.a, 1u);
  EXPECT_EQ(old.b, 0x5555u);
  Newer newer{{sizeof(Newer), 0, 0}, 0x5555};
  ASSERT_EQ(weft::write_sized(ours, &newer.now), 0);
  EXPECT_EQ(newer.now.size, sizeof(Newer));
  EXPECT_EQ(newer.now.b, 2u);
  EXPECT_EQ(newer.c, 0u);
  newer.now.size = 0;
  EXPECT_EQ(weft::write_sized(ours, &newer.now), -EINVAL);
}

TEST(Sized, SimulatorsOfOlderAndNewerCallers) {
  struct {
    weft_sim_config now;
    std::uint64_t more;
  } config{};
  config.now.devices = 1;
  config.now.ports = 1;
  config.now.size = sizeof(config);
  config.more = 1;
  EXPECT_EQ(weft_sim_start(&config.now), -E2BIG);
  EXPECT_THAT(weft_last_error(), HasSubstr("does not know"));
  config.more = 0;
  ASSERT_EQ(weft_sim_start(&config.now), 0) << weft_last_error();
  ASSERT_EQ(weft_sim_stop(), 0);
  config.now.size = offsetof(weft_sim_config, log);
  config.now.log = reinterpret_cast<const char*>(1);  // not part of the older structure
  ASSERT_EQ(weft_sim_start(&config.now), 0) << weft_last_error();
  ASSERT_EQ(weft_sim_stop(), 0);
  config.now.size = 0;
  EXPECT_EQ(weft_sim_start(&config.now), -EINVAL);
}

int open(const std::string& path) {
  weft_device* device = nullptr;
  const int error = weft_device_open(path.c_str(), &device);
  weft_channel* channel = nullptr;
  if (error == 0) {
    EXPECT_EQ(weft_channel_create(device, 0, 0, 1, &channel, nullptr), -EOPNOTSUPP);
    int fd = -1;
    weft_mem* mem = nullptr;
    EXPECT_EQ(weft_mem_alloc(device, 4096, 0, &mem), -EOPNOTSUPP) << fd;
    weft_device_close(device);
  }
  return error;
}

TEST(Sized, BackendsOfOtherAges) {
  EXPECT_EQ(open(WEFT_SIZED_BACKENDS "/libweft_backend_short.so"), 0)
      << "its last calls are missing: " << weft_last_error();
  EXPECT_EQ(open(WEFT_SIZED_BACKENDS "/libweft_backend_long.so"), 0)
      << "its further call is NULL: " << weft_last_error();
  EXPECT_EQ(open(WEFT_SIZED_BACKENDS "/libweft_backend_newer.so"), -E2BIG);
  EXPECT_THAT(weft_last_error(), HasSubstr("does not know"));
  EXPECT_EQ(open(WEFT_SIZED_BACKENDS "/libweft_backend_hollow.so"), -EPROTO);
  EXPECT_THAT(weft_last_error(), HasSubstr("queue_ring()"));
}

}  // namespace
