// SPDX-License-Identifier: MIT
// The exporter of this folder for examples/dmabuf-readback.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "exporter.hpp"
#include "module/weft_exporter.h"

namespace readback {
namespace {

constexpr const char* kDriver = "/sys/bus/pci/drivers/weft_exporter/";

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

int open_device() {
  const int fd = open("/dev/weft_exporter", O_RDWR | O_CLOEXEC);
  if (fd < 0) fail("/dev/weft_exporter");
  return fd;
}

class Range : public Allocation {
 public:
  explicit Range(std::uint64_t bytes) : bytes_(bytes), fd_(open_device()) {
    __u64 wanted = bytes;
    if (ioctl(fd_, WEFT_EXPORTER_ALLOC, &wanted) != 0) fail("WEFT_EXPORTER_ALLOC");
  }
  ~Range() override { close(fd_); }
  std::uint64_t bytes() const override { return bytes_; }
  void write(std::uint64_t offset, std::span<const std::byte> from) override {
    for (std::size_t at = 0; at < from.size();) {
      const ssize_t n = pwrite(fd_, &from[at], from.size() - at, static_cast<off_t>(offset + at));
      if (n <= 0) fail("pwrite");
      at += static_cast<std::size_t>(n);
    }
  }
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    for (std::size_t at = 0; at < to.size();) {
      const ssize_t n = pread(fd_, &to[at], to.size() - at, static_cast<off_t>(offset + at));
      if (n <= 0) fail("pread");
      at += static_cast<std::size_t>(n);
    }
  }
  Export share(std::uint64_t offset, std::uint64_t bytes) override {
    weft_exporter_share args{offset, bytes};
    const int fd = ioctl(fd_, WEFT_EXPORTER_SHARE, &args);
    if (fd < 0) fail("WEFT_EXPORTER_SHARE");
    return {fd, 0};
  }

 private:
  std::uint64_t bytes_;
  int fd_;
};

class Module : public Exporter {
 public:
  Module() {
    for (const auto& entry : std::filesystem::directory_iterator(kDriver))
      if (entry.path().filename().string().starts_with("0000:")) function_ = entry.path().filename();
    if (function_.empty()) throw std::runtime_error("weft_exporter has no function");
  }
  std::uint64_t largest() const override {
    const int fd = open_device();
    __u64 bytes = 0;
    const int error = ioctl(fd, WEFT_EXPORTER_LARGEST, &bytes);
    close(fd);
    if (error != 0) fail("WEFT_EXPORTER_LARGEST");
    return bytes;
  }
  std::unique_ptr<Allocation> allocate(std::uint64_t bytes) override { return std::make_unique<Range>(bytes); }
  bool removable() const override { return true; }
  void remove() override { tell("unbind"); }
  void bring_back() override { tell("bind"); }

 private:
  void tell(const char* what) const {
    std::ofstream file(std::string(kDriver) + what);
    file << function_ << std::flush;
    if (!file) fail(what + (" of " + function_));
  }
  std::string function_;
};

const Registration registration("module", [](const std::string&) -> std::unique_ptr<Exporter> {
  return std::make_unique<Module>();
});

}  // namespace
}  // namespace readback
