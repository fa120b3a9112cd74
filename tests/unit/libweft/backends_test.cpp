// SPDX-License-Identifier: MIT
// Which backend a specification names, and what is said when there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "weft/weft.h"

namespace {

using ::testing::HasSubstr;

TEST(Backends, NullIsAlwaysThere) {
  EXPECT_EQ(weft_device_count("null"), 1);
  weft_device* device = nullptr;
  EXPECT_EQ(weft_device_open("null:7", &device), -EINVAL);
  EXPECT_THAT(weft_last_error(), HasSubstr("null takes no argument"));
  EXPECT_EQ(device, nullptr);
}

TEST(Backends, UnknownNamesAreRefusedWithWhatThereIs) {
  weft_device* device = nullptr;
  EXPECT_EQ(weft_device_open("nul", &device), -EINVAL);
  EXPECT_THAT(weft_last_error(), HasSubstr("kernel[:N], sim[:N], null"));
  EXPECT_EQ(weft_device_count("nul"), -EINVAL);
}

TEST(Backends, TheEnvironmentNamesTheDevice) {
  ASSERT_EQ(setenv("WEFT_DEVICE", "null", 1), 0);
  weft_device* device = nullptr;
  ASSERT_EQ(weft_device_open(nullptr, &device), 0) << weft_last_error();
  struct weft_device_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_STREQ(info.backend, "null");
  weft_device_close(device);
  unsetenv("WEFT_DEVICE");
}

TEST(Backends, KernelSaysWhyThereIsNone) {
  weft_device* device = nullptr;
  if (weft_device_open("kernel", &device) == 0) {
    weft_device_close(device);
    GTEST_SKIP() << "this machine has a Weft device";
  }
  EXPECT_THAT(weft_last_error(),
              ::testing::AnyOf(HasSubstr("modprobe weft"), HasSubstr("libdrm"), HasSubstr("no permission")));
}

TEST(Backends, AnOwnOneIsLoadedWithItsArgument) {
  weft_device* device = nullptr;
  ASSERT_EQ(weft_device_open(WEFT_TEST_BACKEND ":with:colons", &device), 0) << weft_last_error();
  struct weft_device_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_STREQ(info.serial, "with:colons");
  weft_device_close(device);
  EXPECT_EQ(weft_device_count(WEFT_TEST_BACKEND), 3);
  EXPECT_EQ(weft_device_open(WEFT_TEST_BACKEND ":fail", &device), -EIO);
  EXPECT_THAT(weft_last_error(), HasSubstr("asked to fail"));
}

TEST(Backends, OthersAreRefusedWithTheReason) {
  weft_device* device = nullptr;
  EXPECT_EQ(weft_device_open("./not-there.so", &device), -ENOENT);
  EXPECT_THAT(weft_last_error(), HasSubstr("not-there.so"));
  EXPECT_EQ(weft_device_open("libm.so.6", &device), -EINVAL);
  EXPECT_EQ(weft_device_open("/lib/x86_64-linux-gnu/libm.so.6", &device), -EINVAL);
  EXPECT_THAT(weft_last_error(), HasSubstr("weft_backend_entry"));
  EXPECT_EQ(weft_device_open(WEFT_OLD_BACKEND, &device), -EPROTO);
  EXPECT_THAT(weft_last_error(), HasSubstr("version"));
}

}  // namespace
