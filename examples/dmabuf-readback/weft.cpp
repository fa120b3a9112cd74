// SPDX-License-Identifier: MIT
// Weft's accelerator by libweft: HBM, which no CPU mapping ever sees here; contents go by the copy engine.
#include <unistd.h>
#include <weft/weft.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "exporter.hpp"

namespace readback {
namespace {

void check(int error) {
  if (error != 0) throw std::system_error(-error, std::generic_category(), weft_last_error());
}

using Device = std::shared_ptr<weft_device>;  // memory of a device that is gone still has to be freed

Device open_device(const std::string& spec) {
  weft_device* device = nullptr;
  check(weft_device_open(spec.c_str(), &device));
  return {device, weft_device_close};
}

class Hbm : public Allocation {
 public:
  Hbm(Device device, std::uint64_t bytes) : device_(std::move(device)) {
    check(weft_mem_alloc(device_.get(), bytes, 0, &mem_));
  }
  ~Hbm() override { weft_mem_free(mem_); }
  std::uint64_t bytes() const override { return weft_mem_bytes(mem_); }
  void write(std::uint64_t offset, std::span<const std::byte> from) override {
    check(weft_write(device_.get(), weft_mem_va(mem_) + offset, from.data(), from.size()));
  }
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    check(weft_read(device_.get(), to.data(), weft_mem_va(mem_) + offset, to.size()));
  }
  Export share(std::uint64_t offset, std::uint64_t) override {
    Export out{-1, offset};  // the driver exports whole objects
    check(weft_mem_export(mem_, 0, weft_mem_bytes(mem_), &out.fd));
    return out;
  }

 private:
  Device device_;
  weft_mem* mem_ = nullptr;
};

class Accelerator : public Exporter {
 public:
  explicit Accelerator(const std::string& spec) : device_(open_device(spec)) {
    info_.size = sizeof(info_);
    check(weft_device_info(device_.get(), &info_));
  }
  std::uint64_t largest() const override { return info_.hbm_largest_free; }
  std::unique_ptr<Allocation> allocate(std::uint64_t bytes) override { return std::make_unique<Hbm>(device_, bytes); }

  bool removable() const override { return geteuid() == 0; }
  void remove() override {
    device_.reset();
    tell("unbind");
  }
  void bring_back() override {
    tell("bind");
    // The device has another number when somebody holds the former one.
    const std::filesystem::path folder = std::string("/sys/bus/pci/devices/") + info_.bdf + "/accel";
    for (int turn = 0; turn < 100; ++turn) {
      std::error_code none;
      for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
        const std::string node = entry.path().filename();  // accelN
        if (!std::filesystem::exists("/dev/accel/" + node)) continue;
        device_ = open_device("kernel:" + node.substr(5));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw std::runtime_error("no accelerator below " + folder.string());
  }

 private:
  void tell(const char* what) const {
    std::ofstream file(std::string("/sys/bus/pci/drivers/weft/") + what);
    file << info_.bdf << std::flush;
    if (!file) throw std::system_error(errno, std::generic_category(), std::string(what) + " of " + info_.bdf);
  }
  struct weft_device_info info_{};
  Device device_;
};

const Registration registration("weft", [](const std::string& argument) -> std::unique_ptr<Exporter> {
  return std::make_unique<Accelerator>(argument.empty() ? "kernel" : "kernel:" + argument);
});

}  // namespace
}  // namespace readback
