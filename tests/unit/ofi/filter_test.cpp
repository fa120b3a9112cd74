// SPDX-License-Identifier: MIT
// What is kept of a list of verbs devices, by their drivers in a sysfs of our own.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "device_filter.hpp"

namespace weft::ofi {
namespace {

namespace fs = std::filesystem;

class DeviceFilter : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/weft-ofi-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
  }
  void TearDown() override { fs::remove_all(root_); }

  // driver "": a device without one, as Soft-RoCE's.
  void device(const std::string& name, const std::string& driver) {
    fs::create_directories(root_ / name / "device");
    if (!driver.empty()) fs::create_symlink("../../../../bus/pci/drivers/" + driver, root_ / name / "device/driver");
    names_.push_back(name);
  }
  std::vector<std::string> kept() {
    std::vector<void*> list;
    for (std::string& name : names_) list.push_back(&name);
    list.push_back(nullptr);
    auto name_of = [](void* device) { return static_cast<std::string*>(device)->c_str(); };
    const int count = keep_efa(list.data(), static_cast<int>(names_.size()), name_of, root_);
    EXPECT_EQ(list[static_cast<std::size_t>(count)], nullptr) << "the list ends where the count says";
    std::vector<std::string> result;
    for (int i = 0; i < count; ++i) result.push_back(name_of(list[static_cast<std::size_t>(i)]));
    return result;
  }

  fs::path root_;
  std::vector<std::string> names_;
};

using Names = std::vector<std::string>;

TEST_F(DeviceFilter, KeepsEfaInOrder) {
  device("rxe0", "");
  device("efa_0", "efa");
  device("mlx5_0", "mlx5_core");
  device("efa_1", "efa");
  device("weft0", "weft");
  EXPECT_EQ(kept(), (Names{"efa_0", "efa_1"}));
  EXPECT_EQ(verbs_devices(root_).efa, (Names{"efa_0", "efa_1"}));
  EXPECT_EQ(verbs_devices(root_).foreign, (Names{"mlx5_0", "rxe0", "weft0"}));
}

TEST_F(DeviceFilter, AllOrNone) {
  EXPECT_EQ(kept(), Names{});
  device("efa_0", "efa");
  EXPECT_EQ(kept(), Names{"efa_0"});
  names_.clear();
  device("rxe0", "");
  device("efa-like", "efa_other");
  EXPECT_EQ(kept(), Names{});
}

TEST_F(DeviceFilter, NoSysfs) {
  fs::remove_all(root_);
  EXPECT_TRUE(verbs_devices(root_).efa.empty());
  names_ = {"efa_0"};
  EXPECT_EQ(kept(), Names{});
}

TEST(LibfabricInitialisation, AsksUsForTheDevices) {
  // This program defines ibv_get_device_list itself, and so comes first, like a preloaded library.
  initialise_libfabric();
  EXPECT_TRUE(libfabric_sees_filter());
}

}  // namespace
}  // namespace weft::ofi
