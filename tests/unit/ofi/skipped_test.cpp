// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "weft/ofi_load.h"

TEST(Ofi, Skipped) { GTEST_SKIP() << "no libfabric 2.0 or later here (libfabric-dev): libweft_ofi is not built"; }

// What wccl meets on such a machine.
TEST(OfiLoad, SaysWhatIsMissing) {
  char message[256] = "";
  EXPECT_EQ(weft_ofi_load("libweft_ofi-not-there.so", message, sizeof(message)), nullptr);
  EXPECT_NE(std::string(message).find("libweft_ofi-not-there.so"), std::string::npos) << message;
}
