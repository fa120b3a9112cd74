// SPDX-License-Identifier: MIT
// One endpoint: domain, address vector, completion queue, and the operations in flight.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fid.hpp"
#include "provider.hpp"
#include "weft/ofi.h"

struct weft_ofi_mr {
  weft_ofi* owner = nullptr;
  weft::ofi::Fid<fid_mr> region;
  std::uint64_t base = 0;  // of transfers: CPU or device address of the first byte
  std::uint64_t bytes = 0;
  bool dmabuf = false;
  bool remote = false;
  std::uint32_t in_flight = 0;
  std::uint64_t remote_base() const;  // what peers call its first byte
};

namespace weft::ofi {

// What the caller asks for; all that is needed to post it, now or later.
struct Request {
  weft_ofi_op op;
  std::uint32_t peer;
  weft_ofi_mr* mr;
  std::uint64_t offset;
  std::size_t bytes;
  std::uint64_t remote_address = 0, key = 0;
  bool has_immediate = false;
  std::uint32_t immediate = 0;
  void* context = nullptr;
};

const char* name_of(std::uint32_t op);  // "write" for WEFT_OFI_WRITE, and so on
std::string describe_operation(const Request& request);

}  // namespace weft::ofi

struct weft_ofi {
 public:
  // -errno with fail()'s text, or the endpoint.
  static int open(const weft_ofi_open_args& args, std::unique_ptr<weft_ofi>* out);
  ~weft_ofi();
  weft_ofi(const weft_ofi&) = delete;
  weft_ofi& operator=(const weft_ofi&) = delete;

  void info(weft_ofi_info* out) const;
  void counters(weft_ofi_counters* out);
  int address(void* blob, std::size_t* bytes);
  int insert(const void* blob, std::size_t bytes, std::uint32_t* peer);
  int remove(std::uint32_t peer);
  int register_host(void* base, std::size_t bytes, unsigned flags, weft_ofi_mr** out);
  int register_dmabuf(int fd, std::uint64_t offset, std::size_t bytes, std::uint64_t va, unsigned flags,
                      weft_ofi_mr** out);
  int deregister(weft_ofi_mr* mr);
  int post(const weft::ofi::Request& request);
  int flush(weft_ofi_mr* mr, std::uint64_t offset, void* context);
  int credits();
  int poll(std::span<weft_ofi_completion> out);
  int wait(std::span<weft_ofi_completion> out, std::uint32_t timeout_ms);

  bool virtual_addresses() const { return (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0; }

 private:
  struct Operation {
    fi_context2 provider_context{};  // first: completions name the operation by it
    weft::ofi::Request request{};
    std::uint64_t deadline_ns = 0;
    bool timed_out = false;  // its completion was given to the caller already
  };
  using Operations = std::list<Operation>;
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::uint32_t in_flight = 0;
    std::uint32_t deferred = 0;
    std::uint64_t refused = 0;  // retry round in which the provider said "again"
  };

  weft_ofi(const weft::ofi::Provider& provider, const weft_ofi_open_args& args) : provider_(provider), args_(args) {}
  int set_up();
  int set_options();
  std::size_t option_size(int option, std::size_t otherwise) const;
  int insert_locked(const void* blob, std::size_t bytes, std::uint32_t* peer);
  int add_region(std::unique_ptr<weft_ofi_mr> mr, fid_mr* region, weft_ofi_mr** out);
  std::uint64_t access(unsigned flags) const;
  int check(const weft::ofi::Request& request);
  int post_locked(const weft::ofi::Request& request);
  ssize_t hand_over(Operation& operation);  // to the provider
  void fly(Operations::iterator operation, Operations& from);
  void retry();
  void expire();
  int read_queue(std::span<weft_ofi_completion> out);
  int read_error(weft_ofi_completion* out);  // 1, 0: there was one, but not for the caller, -1: none
  Operations::iterator of_context(void* context);
  bool report(Operations::iterator operation, Operations& from, int status, weft_ofi_completion* out);
  void report_later(Operations::iterator operation, int status, const char* text, bool keep);
  void retire(Operations::iterator operation, Operations& from);

  const weft::ofi::Provider provider_;
  weft_ofi_open_args args_;
  weft::ofi::Info info_;
  std::size_t max_send_ = 0, max_rma_ = 0;
  bool emulated_rma_ = false;
  std::vector<unsigned char> own_address_;

  // In this order: what depends on another is closed before it.
  weft::ofi::Fid<fid_fabric> fabric_;
  weft::ofi::Fid<fid_domain> domain_;
  weft::ofi::Fid<fid_cq> queue_;
  weft::ofi::Fid<fid_av> addresses_;
  std::unordered_map<weft_ofi_mr*, std::unique_ptr<weft_ofi_mr>> regions_;
  weft::ofi::Fid<fid_ep> endpoint_;

  std::mutex lock_;  // of all below, and of libfabric's objects (FI_THREAD_DOMAIN)
  std::vector<Peer> peers_;
  std::vector<std::uint32_t> free_peers_;
  std::uint64_t next_key_ = 1;
  std::uint32_t self_ = WEFT_OFI_ANY;
  alignas(64) std::array<unsigned char, 64> scratch_{};  // what flush reads
  weft_ofi_mr* scratch_region_ = nullptr;

  Operations free_, free_receives_;
  Operations deferred_;   // the provider said "again"
  Operations flying_;     // by deadline
  Operations receiving_;  // posted recv
  std::unordered_map<void*, Operations::iterator> by_context_;
  std::uint64_t round_ = 0;
  std::deque<weft_ofi_completion> later_;  // completions that the provider does not make; at most one an operation
  std::deque<std::string> texts_;          // of the completions of the last poll
  std::deque<std::string> later_texts_;
  weft_ofi_counters counters_{};
};
