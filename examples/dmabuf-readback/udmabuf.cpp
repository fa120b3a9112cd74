// SPDX-License-Identifier: MIT
// /dev/udmabuf: pages of a memfd as DMA-BUFs, by the kernel's own exporter (CONFIG_UDMABUF). A template for yours.
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "exporter.hpp"

namespace readback {
namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::generic_category(), what); }

class Memfd : public Allocation {
 public:
  Memfd(int device, std::uint64_t bytes)
      : device_(device), bytes_(bytes), fd_(memfd_create("readback", MFD_ALLOW_SEALING)) {
    // The exporter takes only memory that cannot shrink under it.
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes)) != 0 || fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK) != 0)
      fail("memfd_create");
  }
  ~Memfd() override { close(fd_); }
  std::uint64_t bytes() const override { return bytes_; }
  void write(std::uint64_t offset, std::span<const std::byte> from) override {
    if (pwrite(fd_, from.data(), from.size(), static_cast<off_t>(offset)) != static_cast<ssize_t>(from.size()))
      fail("pwrite");
  }
  void read(std::uint64_t offset, std::span<std::byte> to) override {
    if (pread(fd_, to.data(), to.size(), static_cast<off_t>(offset)) != static_cast<ssize_t>(to.size())) fail("pread");
  }
  Export share(std::uint64_t offset, std::uint64_t bytes) override {
    udmabuf_create create{};
    create.memfd = static_cast<std::uint32_t>(fd_);
    create.flags = UDMABUF_FLAGS_CLOEXEC;
    create.offset = offset;
    create.size = bytes;
    const int fd = ioctl(device_, UDMABUF_CREATE, &create);
    if (fd < 0) fail("UDMABUF_CREATE (size_limit_mb of the module udmabuf is 64 by default)");
    return {fd, 0};
  }

 private:
  int device_;
  std::uint64_t bytes_;
  int fd_;
};

class Udmabuf : public Exporter {
 public:
  Udmabuf() : device_(open("/dev/udmabuf", O_RDWR | O_CLOEXEC)) {
    if (device_ < 0) fail("/dev/udmabuf");
  }
  ~Udmabuf() override { close(device_); }
  std::uint64_t largest() const override { return std::uint64_t{64} << 20; }
  std::unique_ptr<Allocation> allocate(std::uint64_t bytes) override { return std::make_unique<Memfd>(device_, bytes); }

 private:
  int device_;
};

const Registration registration("udmabuf", [](const std::string&) -> std::unique_ptr<Exporter> {
  return std::make_unique<Udmabuf>();
});

}  // namespace
}  // namespace readback
