// SPDX-License-Identifier: MIT
// One rank's endpoint at a host NIC, through the OFI wrapper, and what of the accelerator's HBM is registered with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous.hpp"
#include "weft/mrcache.hpp"
#include "weft/ofi.h"
#include "weft/weft.h"

namespace weft::ccl {

// Device addresses [begin, begin + bytes) that the NIC has registered, as long as the lease lasts.
struct Registered {
  weft_va begin = 0;
  std::uint64_t bytes = 0;
  mr::Cache::Lease lease;
  bool holds(weft_va va, std::uint64_t length) const { return va >= begin && va - begin + length <= bytes; }
  weft_ofi_mr* region() const { return static_cast<weft_ofi_mr*>(lease.region()); }
};

class HostNic final : private mr::Registrar {
 public:
  struct Options {
    std::string transport;         // "efa-direct" or "tcp"
    bool hbm = false;              // must be able to register the device's HBM
    std::uint32_t arrivals = 0;    // immediates of peers that may wait
    std::uint32_t timeout_ms = 0;  // of a transfer
    mr::Limits cache;
  };
  // Of several NICs the nearest on PCIe that can. Throws Failure that says what is missing.
  HostNic(weft_device* device, const Options& options);
  ~HostNic();
  HostNic(const HostNic&) = delete;
  HostNic& operator=(const HostNic&) = delete;

  const weft_ofi_api& api() const { return *api_; }
  weft_ofi* endpoint() const { return endpoint_; }
  const weft_ofi_info& info() const { return info_; }
  // An arrival may be on its way into HBM still.
  bool needs_flush() const { return hbm_ && !(info_.flags & WEFT_OFI_VISIBLE); }
  Bytes address() const;  // throws Failure

  // A region over all of `mem`, for peers too. Throws Failure.
  weft_ofi_mr* register_hbm(weft_mem* mem);
  weft_ofi_mr* register_host(void* base, std::size_t bytes);
  // A region with this part of HBM in it, from the cache. Throws Failure.
  Registered lease(weft_va va, std::uint64_t bytes);
  mr::Counters counters() const { return cache_ ? cache_->counters() : mr::Counters{}; }

  // Ends all transfers and registrations: after it no NIC touches the memory. Leases may end later.
  void close();

 private:
  int add(const mr::Object& object, mr::Range range, void** region) override;
  void remove(void* region) override;
  static void freed(void* self, weft_mem* mem);
  // Takes what weft_mem_export gave, its result and the file.
  int register_export(int exported, int fd, weft_va va, mr::Range range, unsigned flags, weft_ofi_mr** out);
  bool try_domain(const weft_ofi_info& domain, const Options& options, std::string* why);

  weft_device* device_;
  const bool hbm_;
  const weft_ofi_api* api_ = nullptr;
  weft_ofi* endpoint_ = nullptr;
  weft_ofi_info info_{};
  std::atomic<bool> closed_{false};
  std::mutex leaving_mutex_;
  std::vector<weft_ofi_mr*> leaving_;  // not registered any more, as far as we are concerned
  std::optional<mr::Cache> cache_;
};

}  // namespace weft::ccl
