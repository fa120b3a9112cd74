// SPDX-License-Identifier: MIT
#include "host_nic.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "bootstrap.hpp"
#include "device_objects.hpp"
#include "error.hpp"
#include "weft/ofi_load.h"

namespace weft::ccl {
namespace {

constexpr std::size_t kDomains = 16;  // NICs that are looked at

// Where a PCI function hangs: "/sys/devices/pci0000:00/0000:00:02.0/...". Empty: unknown.
std::string pci_place(const char* bdf) {
  const std::string link = std::string("/sys/bus/pci/devices/") + bdf;
  char* real = *bdf ? realpath(link.c_str(), nullptr) : nullptr;
  const std::string place = real ? real : "";
  std::free(real);
  return place;
}

// Bridges that two functions share, counted from the root.
std::size_t shared_bridges(const std::string& a, const std::string& b) {
  const std::size_t same = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
  return static_cast<std::size_t>(std::count(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(same), '/'));
}

}  // namespace

HostNic::HostNic(weft_device* device, const Options& options) : device_(device), hbm_(options.hbm) {
  std::array<char, 512> message{};
  api_ = weft_ofi_load(nullptr, message.data(), message.size());
  if (!api_) throw Failure(wcclSystemError, message.data());

  std::array<weft_ofi_info, kDomains> found{};
  for (weft_ofi_info& info : found) info.size = sizeof info;
  const int count = api_->list(options.transport.c_str(), found.data(), found.size());
  if (count <= 0) throw Failure(wcclSystemError, api_->error());
  std::vector<weft_ofi_info> domains(found.begin(), found.begin() + std::min<int>(count, kDomains));
  struct weft_device_info own{};
  own.size = sizeof own;
  if (weft_device_info(device, &own) == 0) {
    const std::string place = pci_place(own.bdf);
    std::stable_sort(domains.begin(), domains.end(), [&](const weft_ofi_info& a, const weft_ofi_info& b) {
      return shared_bridges(place, pci_place(a.bdf)) > shared_bridges(place, pci_place(b.bdf));
    });
  }
  std::string why;
  for (const weft_ofi_info& domain : domains) {
    if (!try_domain(domain, options, &why)) continue;
    if (hbm_) {
      cache_.emplace(static_cast<mr::Registrar&>(*this), options.cache);
      weft_mem_on_free(device_, freed, this);
    }
    return;
  }
  throw Failure(wcclSystemError, why);
}

bool HostNic::try_domain(const weft_ofi_info& domain, const Options& options, std::string* why) {
  const bool tcp = options.transport == "tcp";
  const std::string address = tcp ? local_address().to_string() : "";
  weft_ofi_open_args args{};
  args.size = sizeof args;
  args.provider = options.transport.c_str();
  args.domain = tcp ? nullptr : domain.domain;
  args.address = tcp ? address.c_str() : nullptr;
  args.tx_depth = 512;
  args.rx_depth = 1;
  args.arrivals = options.arrivals;
  args.timeout_ms = options.timeout_ms;
  const auto refuse = [&](const std::string& text) {
    *why += (why->empty() ? "" : "; ") + text;
    if (endpoint_) api_->close(endpoint_);
    endpoint_ = nullptr;
    return false;
  };
  if (api_->open(&args, &endpoint_) != 0) return refuse(api_->error());
  info_.size = sizeof info_;
  if (api_->info(endpoint_, &info_) != 0) return refuse(api_->error());
  if (!hbm_) return true;
  // A page by way of trial: only the exporter knows whether the NIC can reach it.
  try {
    const MemPtr page = allocate(device_, 4096, 0, "a trial registration");
    weft_ofi_mr* region = nullptr;
    int fd = -1;
    const int exported = weft_mem_export(page.get(), 0, 4096, &fd);
    const int error = register_export(exported, fd, weft_mem_va(page.get()), {0, 4096}, WEFT_OFI_LOCAL, &region);
    if (error != 0) {
      return refuse(std::string(domain.domain) +
                    " cannot register HBM: " + (exported != 0 ? weft_last_error() : api_->error()));
    }
    api_->deregister(region);
  } catch (const Failure& failure) {
    return refuse(failure.what());
  }
  return true;
}

HostNic::~HostNic() { close(); }

void HostNic::freed(void* self, weft_mem* mem) {
  static_cast<HostNic*>(self)->cache_->invalidate(weft_mem_va(mem), weft_mem_generation(mem));
}

void HostNic::close() {
  if (closed_.exchange(true)) return;
  if (cache_) weft_mem_off_free(device_, freed, this);
  if (endpoint_) api_->close(endpoint_);
  endpoint_ = nullptr;
}

Bytes HostNic::address() const {
  Bytes out(256);
  std::size_t bytes = out.size();
  if (api_->address(endpoint_, out.data(), &bytes) != 0) throw Failure(wcclSystemError, api_->error());
  out.resize(bytes);
  return out;
}

// The driver exports whole objects; the NIC registers the range of it, at the device's own address.
int HostNic::register_export(int exported, int fd, weft_va va, mr::Range range, unsigned flags, weft_ofi_mr** out) {
  if (exported != 0) return exported;
  const int error = api_->register_dmabuf(endpoint_, fd, range.offset, range.bytes, va + range.offset, flags, out);
  ::close(fd);
  return error;
}

int HostNic::add(const mr::Object& object, mr::Range range, void** region) {
  // Buffers of the user: peers write to staging slots and read from them, never from here.
  int fd = -1;
  weft_ofi_mr* made = nullptr;
  const int exported = weft_mem_export_found(device_, object.id, object.generation, &fd);
  const int error = register_export(exported, fd, object.id, range, WEFT_OFI_LOCAL, &made);
  *region = made;
  return error;
}

// A region that a transfer past its time-out still uses is tried again with the next one; until then the DMA-BUF keeps
// the memory.
void HostNic::remove(void* region) {
  if (closed_) return;
  const std::lock_guard guard(leaving_mutex_);
  leaving_.push_back(static_cast<weft_ofi_mr*>(region));
  std::erase_if(leaving_, [this](weft_ofi_mr* one) { return api_->deregister(one) != -EBUSY; });
}

weft_ofi_mr* HostNic::register_hbm(weft_mem* mem) {
  weft_ofi_mr* region = nullptr;
  int fd = -1;
  const int exported = weft_mem_export(mem, 0, weft_mem_bytes(mem), &fd);
  if (register_export(exported, fd, weft_mem_va(mem), {0, weft_mem_bytes(mem)}, 0, &region) != 0) {
    throw Failure(wcclSystemError, std::string("staging cannot be registered with the host NIC: ") + api_->error());
  }
  return region;
}

weft_ofi_mr* HostNic::register_host(void* base, std::size_t bytes) {
  weft_ofi_mr* region = nullptr;
  if (api_->register_host(endpoint_, base, bytes, 0, &region) != 0) throw Failure(wcclSystemError, api_->error());
  return region;
}

Registered HostNic::lease(weft_va va, std::uint64_t bytes) {
  weft_mem_info mem{};
  mem.size = sizeof mem;
  if (weft_mem_find(device_, va, bytes, &mem) != 0) throw Failure(wcclInvalidArgument, "a buffer was freed");
  Registered out;
  const mr::Object object{mem.va, mem.generation, mem.bytes};
  const int error = cache_->acquire(object, {va - object.id, bytes}, &out.lease);
  if (error != 0) {
    throw Failure(wcclSystemError, std::string("a buffer cannot be registered with the host NIC: ") +
                                       (error == -ESTALE ? "it is being freed" : api_->error()));
  }
  out.begin = object.id + out.lease.range().offset;
  out.bytes = out.lease.range().bytes;
  return out;
}

}  // namespace weft::ccl
