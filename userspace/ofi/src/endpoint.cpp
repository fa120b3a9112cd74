// SPDX-License-Identifier: MIT
#include "endpoint.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>
#include <rdma/fi_rma.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "error.hpp"

using weft::ofi::describe_operation;
using weft::ofi::errno_of;
using weft::ofi::fail;
using weft::ofi::name_of;
using weft::ofi::Provider;
using weft::ofi::Request;

namespace {

constexpr std::uint32_t kDepth = 128, kArrivals = 1024, kTimeoutMs = 10'000;
constexpr std::uint32_t kMostDepth = 65536;
constexpr std::size_t kFlushBytes = 4;
constexpr std::uint64_t kPage = 4096;

// Good to a few ms, and never a trap to the hypervisor.
std::uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

const char* weft::ofi::name_of(std::uint32_t op) {
  switch (op) {
    case WEFT_OFI_WRITE:
      return "write";
    case WEFT_OFI_READ:
      return "read";
    case WEFT_OFI_SEND:
      return "send";
    case WEFT_OFI_RECV:
      return "recv";
    case WEFT_OFI_FLUSH:
      return "flush";
    default:
      return "transfer";
  }
}

std::string weft::ofi::describe_operation(const Request& request) {
  std::string text = std::string(name_of(request.op)) + " of " + std::to_string(request.bytes) + " bytes";
  if (request.peer != WEFT_OFI_ANY)
    text += (request.op == WEFT_OFI_RECV ? " from peer " : " to peer ") + std::to_string(request.peer);
  return text;
}

std::uint64_t weft_ofi_mr::remote_base() const { return owner->virtual_addresses() ? base : 0; }

// ---- opening -------------------------------------------------------------------------------------------------------

int weft_ofi::open(const weft_ofi_open_args& args, std::unique_ptr<weft_ofi>* out) {
  const Provider* provider = weft::ofi::find_provider(args.provider);
  if (provider == nullptr) return -EINVAL;
  if ((args.flags & ~WEFT_OFI_DELIVERY) != 0) return fail(EINVAL, "flags 0x%x are not known", args.flags);
  if (args.tx_depth > kMostDepth || args.rx_depth > kMostDepth || args.arrivals > kMostDepth)
    return fail(EINVAL, "a depth above %u", kMostDepth);
  if (args.address != nullptr && provider->is_efa)
    return fail(EINVAL, "an address is for tcp; %s takes a domain", provider->name);
  std::unique_ptr<weft_ofi> ofi(new weft_ofi(*provider, args));
  const int error = ofi->set_up();
  if (error == 0) *out = std::move(ofi);
  return error;
}

int weft_ofi::set_up() {
  if (int error = weft::ofi::find_domains(provider_, args_.domain, args_.address, args_.flags, &info_)) return error;
  args_.domain = args_.address = args_.provider = nullptr;  // the caller's memory
  auto granted = [](std::uint32_t asked, std::uint32_t fallback, std::size_t most) {
    return static_cast<std::uint32_t>(
        std::min<std::size_t>(asked != 0 ? asked : fallback, std::max<std::size_t>(most, 1)));
  };
  args_.tx_depth = granted(args_.tx_depth, kDepth, info_->tx_attr->size);
  args_.rx_depth = granted(args_.rx_depth, kDepth, info_->rx_attr->size);
  if (args_.arrivals == 0) args_.arrivals = kArrivals;
  if (args_.timeout_ms == 0) args_.timeout_ms = kTimeoutMs;

  // `doing` names the step that failed.
  auto failed = [&](const char* doing, int error) {
    return fail(-error, "%s (%s, %s): %s", doing, provider_.name, info_->domain_attr->name, fi_strerror(-error));
  };
  fid_fabric* fabric;
  if (int e = fi_fabric(info_->fabric_attr, &fabric, nullptr)) return failed("cannot open the fabric", e);
  fabric_.reset(fabric);
  fid_domain* domain;
  if (int e = fi_domain(fabric, info_.get(), &domain, nullptr)) return failed("cannot open the domain", e);
  domain_.reset(domain);
  fi_cq_attr queue_attributes{};
  queue_attributes.size = std::size_t{args_.tx_depth} + args_.rx_depth + args_.arrivals;
  queue_attributes.format = FI_CQ_FORMAT_DATA;
  queue_attributes.wait_obj = FI_WAIT_NONE;
  fid_cq* queue;
  if (int e = fi_cq_open(domain, &queue_attributes, &queue, nullptr))
    return failed("cannot open a completion queue", e);
  queue_.reset(queue);
  fi_av_attr address_attributes{};
  address_attributes.type = FI_AV_TABLE;
  fid_av* addresses;
  if (int e = fi_av_open(domain, &address_attributes, &addresses, nullptr))
    return failed("cannot open an address vector", e);
  addresses_.reset(addresses);
  fid_ep* endpoint;
  if (int e = fi_endpoint(domain, info_.get(), &endpoint, nullptr)) return failed("cannot open an endpoint", e);
  endpoint_.reset(endpoint);
  if (int e = fi_ep_bind(endpoint, &queue->fid, FI_SEND | FI_RECV))
    return failed("cannot bind the completion queue", e);
  if (int e = fi_ep_bind(endpoint, &addresses->fid, 0)) return failed("cannot bind the address vector", e);
  if (int e = set_options()) return e;
  if (int e = fi_enable(endpoint)) return failed("cannot enable the endpoint", e);

  // efa-direct says the RMA limit of both; its messages are packets.
  max_send_ = option_size(FI_OPT_MAX_MSG_SIZE, info_->ep_attr->max_msg_size);
  max_rma_ = option_size(FI_OPT_MAX_RMA_SIZE, info_->ep_attr->max_msg_size);
  own_address_.resize(256);
  std::size_t bytes = own_address_.size();
  if (int e = fi_getname(&endpoint->fid, own_address_.data(), &bytes)) return failed("has no address", e);
  own_address_.resize(bytes);

  free_.resize(args_.tx_depth);
  free_receives_.resize(args_.rx_depth);
  for (Operations* all : {&free_, &free_receives_})
    for (auto i = all->begin(); i != all->end(); ++i) by_context_.emplace(&i->provider_context, i);

  // For flush(): ourselves as a peer, and somewhere to read to.
  if (int e = insert_locked(own_address_.data(), own_address_.size(), &self_)) return e;
  return register_host(scratch_.data(), scratch_.size(), WEFT_OFI_LOCAL, &scratch_region_);
}

std::size_t weft_ofi::option_size(int option, std::size_t otherwise) const {
  std::size_t value = 0, room = sizeof(value);
  return fi_getopt(&endpoint_->fid, FI_OPT_ENDPOINT, option, &value, &room) == 0 && value != 0 ? value : otherwise;
}

// The efa fabric would use shared memory and emulate writes in software where it may; both copy with the CPU.
int weft_ofi::set_options() {
  if (!provider_.is_efa || !provider_.is_protocol) return 0;
  const bool no = false, yes = true;
  fi_setopt(&endpoint_->fid, FI_OPT_ENDPOINT, FI_OPT_SHARED_MEMORY_PERMITTED, &no, sizeof(no));
  emulated_rma_ = fi_setopt(&endpoint_->fid, FI_OPT_ENDPOINT, FI_OPT_EFA_USE_DEVICE_RDMA, &yes, sizeof(yes)) != 0;
  return 0;
}

weft_ofi::~weft_ofi() {
  // The endpoint first: then nothing is in flight any more.
  endpoint_.reset();
  regions_.clear();
}

void weft_ofi::info(weft_ofi_info* out) const {
  weft::ofi::describe(provider_, *info_, out);
  out->tx_depth = args_.tx_depth;
  out->rx_depth = args_.rx_depth;
  out->arrivals = args_.arrivals;
  out->cq_depth = args_.tx_depth + args_.rx_depth + args_.arrivals;
  out->address_bytes = static_cast<std::uint32_t>(own_address_.size());
  out->max_send = max_send_;
  out->max_rma = max_rma_;
  if (emulated_rma_) out->flags &= ~WEFT_OFI_DMABUF;
}

void weft_ofi::counters(weft_ofi_counters* out) {
  std::lock_guard guard(lock_);
  *out = counters_;
  out->in_flight = static_cast<std::uint32_t>(flying_.size() + deferred_.size());
}

// ---- peers ---------------------------------------------------------------------------------------------------------

int weft_ofi::address(void* blob, std::size_t* bytes) {
  const std::size_t room = *bytes;
  *bytes = own_address_.size();
  if (room < own_address_.size()) return fail(ENOBUFS, "an address has %zu bytes", own_address_.size());
  std::memcpy(blob, own_address_.data(), own_address_.size());
  return 0;
}

int weft_ofi::insert(const void* blob, std::size_t bytes, std::uint32_t* peer) {
  std::lock_guard guard(lock_);
  return insert_locked(blob, bytes, peer);
}

int weft_ofi::insert_locked(const void* blob, std::size_t bytes, std::uint32_t* peer) {
  if (bytes != own_address_.size())
    return fail(EINVAL, "an address of %s has %zu bytes, not %zu", provider_.name, own_address_.size(), bytes);
  fi_addr_t address = FI_ADDR_UNSPEC;
  if (fi_av_insert(addresses_.get(), blob, 1, &address, 0, nullptr) != 1 || address == FI_ADDR_NOTAVAIL)
    return fail(EINVAL, "%s does not take the peer's address", provider_.name);
  if (free_peers_.empty()) {
    free_peers_.push_back(static_cast<std::uint32_t>(peers_.size()));
    peers_.emplace_back();
  }
  *peer = free_peers_.back();
  free_peers_.pop_back();
  peers_[*peer] = Peer{};
  peers_[*peer].address = address;
  return 0;
}

int weft_ofi::remove(std::uint32_t peer) {
  std::lock_guard guard(lock_);
  if (peer >= peers_.size() || peers_[peer].address == FI_ADDR_UNSPEC || peer == self_)
    return fail(EINVAL, "no peer %u", peer);
  if (peers_[peer].in_flight != 0)
    return fail(EBUSY, "%u operations with peer %u are in flight", peers_[peer].in_flight, peer);
  fi_av_remove(addresses_.get(), &peers_[peer].address, 1, 0);
  peers_[peer] = Peer{};
  free_peers_.push_back(peer);
  return 0;
}

// ---- memory --------------------------------------------------------------------------------------------------------

std::uint64_t weft_ofi::access(unsigned flags) const {
  const std::uint64_t local = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
  return (flags & WEFT_OFI_LOCAL) != 0 ? local : local | FI_REMOTE_READ | FI_REMOTE_WRITE;
}

int weft_ofi::add_region(std::unique_ptr<weft_ofi_mr> mr, fid_mr* region, weft_ofi_mr** out) {
  mr->owner = this;
  mr->region.reset(region);
  *out = mr.get();
  regions_.emplace(mr.get(), std::move(mr));
  return 0;
}

int weft_ofi::register_host(void* base, std::size_t bytes, unsigned flags, weft_ofi_mr** out) {
  *out = nullptr;
  if (base == nullptr || bytes == 0 || bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(base))
    return fail(EINVAL, "no memory to register");
  if ((flags & ~WEFT_OFI_LOCAL) != 0) return fail(EINVAL, "flags 0x%x are not known", flags);
  auto mr = std::make_unique<weft_ofi_mr>();
  mr->base = reinterpret_cast<std::uintptr_t>(base);
  mr->bytes = bytes;
  mr->remote = (flags & WEFT_OFI_LOCAL) == 0;
  std::lock_guard guard(lock_);
  fid_mr* region;
  const int error = fi_mr_reg(domain_.get(), base, bytes, access(flags), 0, next_key_++, 0, &region, nullptr);
  if (error != 0)
    return fail(-error, "%s cannot register %zu bytes of host memory: %s%s", provider_.name, bytes, fi_strerror(-error),
                error == -FI_ENOMEM ? " (see ulimit -l)" : "");
  return add_region(std::move(mr), region, out);
}

int weft_ofi::register_dmabuf(int fd, std::uint64_t offset, std::size_t bytes, std::uint64_t va, unsigned flags,
                              weft_ofi_mr** out) {
  *out = nullptr;
  if (!provider_.is_efa)
    return fail(EOPNOTSUPP, "%s moves data with the CPU: it has no use for a DMA-BUF", provider_.name);
  if (emulated_rma_)
    return fail(EOPNOTSUPP, "the device has no RDMA: %s would move a DMA-BUF's data with the CPU", provider_.name);
  if ((flags & ~WEFT_OFI_LOCAL) != 0) return fail(EINVAL, "flags 0x%x are not known", flags);
  if (bytes == 0 || bytes > UINT64_MAX - offset || bytes > UINT64_MAX - va)
    return fail(EINVAL, "an empty or endless range");
  // With 0 libfabric takes an address for "none" and receives nothing, without an error.
  if (va == 0 || va < offset)
    return fail(EINVAL, "device address 0x%llx: it must name memory and lie above the offset",
                static_cast<unsigned long long>(va));
  if ((va - offset) % kPage != 0)
    return fail(EINVAL, "device address 0x%llx and offset 0x%llx differ modulo the page size",
                static_cast<unsigned long long>(va), static_cast<unsigned long long>(offset));
  auto mr = std::make_unique<weft_ofi_mr>();
  mr->base = va;
  mr->bytes = bytes;
  mr->dmabuf = true;
  mr->remote = (flags & WEFT_OFI_LOCAL) == 0;
  fi_mr_dmabuf buffer{};
  buffer.fd = fd;
  buffer.offset = offset;
  buffer.len = bytes;
  buffer.base_addr = reinterpret_cast<void*>(va - offset);  // the provider adds the offset
  fi_mr_attr attributes{};
  attributes.dmabuf = &buffer;
  attributes.iov_count = 1;
  attributes.access = access(flags);
  attributes.iface = FI_HMEM_SYSTEM;  // no interface of libfabric's knows us; none is needed when no CPU copies
  std::lock_guard guard(lock_);
  attributes.requested_key = next_key_++;
  fid_mr* region;
  const int error = fi_mr_regattr(domain_.get(), &attributes, FI_MR_DMABUF, &region);
  if (error == -FI_EPERM)
    return fail(EPERM,
                "the DMA-BUF's exporter refuses %s: no peer-to-peer between the two (not below one PCIe switch, or "
                "switched off)",
                info_->domain_attr->name);
  if (error != 0)
    return fail(-error, "%s cannot register a DMA-BUF of %zu bytes: %s", info_->domain_attr->name, bytes,
                fi_strerror(-error));
  return add_region(std::move(mr), region, out);
}

int weft_ofi::deregister(weft_ofi_mr* mr) {
  std::lock_guard guard(lock_);
  if (mr->in_flight != 0) return fail(EBUSY, "%u operations use the region", mr->in_flight);
  regions_.erase(mr);
  return 0;
}

// ---- operations ----------------------------------------------------------------------------------------------------

int weft_ofi::check(const Request& r) {
  const bool message = r.op == WEFT_OFI_SEND || r.op == WEFT_OFI_RECV;
  if (!(r.op == WEFT_OFI_RECV && r.peer == WEFT_OFI_ANY) &&
      (r.peer >= peers_.size() || peers_[r.peer].address == FI_ADDR_UNSPEC))
    return fail(EINVAL, "no peer %u", r.peer);
  if (r.mr == nullptr || r.offset > r.mr->bytes || r.bytes > r.mr->bytes - r.offset)
    return fail(EINVAL, "%s of [%llu, +%zu): not within the region's %llu bytes", name_of(r.op),
                static_cast<unsigned long long>(r.offset), r.bytes,
                static_cast<unsigned long long>(r.mr != nullptr ? r.mr->bytes : 0));
  // efa copies messages as its protocol likes, efa-direct short ones into their descriptor.
  if (message && r.mr->dmabuf)
    return fail(EOPNOTSUPP, "%s may copy messages with the CPU, which a DMA-BUF does not allow: write or read",
                provider_.name);
  if (r.op != WEFT_OFI_RECV && r.bytes > (message ? max_send_ : max_rma_))
    return fail(EMSGSIZE, "%s of %zu bytes: %s takes %llu", name_of(r.op), r.bytes, provider_.name,
                static_cast<unsigned long long>(message ? max_send_ : max_rma_));
  return 0;
}

int weft_ofi::post(const Request& request) {
  std::lock_guard guard(lock_);
  return post_locked(request);
}

int weft_ofi::flush(weft_ofi_mr* mr, std::uint64_t offset, void* context) {
  std::lock_guard guard(lock_);
  if (mr == nullptr || offset >= mr->bytes) return fail(EINVAL, "flush: not within the region");
  if (!mr->remote) return fail(EINVAL, "flush: the region is not open to peers, and we are one");
  Request request{WEFT_OFI_FLUSH, self_, scratch_region_, 0,
                  static_cast<std::size_t>(std::min<std::uint64_t>(kFlushBytes, mr->bytes - offset))};
  request.remote_address = mr->remote_base() + offset;
  request.key = fi_mr_key(mr->region.get());
  request.context = context;
  return post_locked(request);
}

int weft_ofi::post_locked(const Request& request) {
  if (int error = check(request)) return error;
  Operations& free = request.op == WEFT_OFI_RECV ? free_receives_ : free_;
  if (free.empty()) return -EAGAIN;
  const auto operation = free.begin();
  operation->request = request;
  operation->timed_out = false;
  operation->deadline_ns = now_ns() + std::uint64_t{args_.timeout_ms} * 1'000'000u;
  Peer* peer = request.peer == WEFT_OFI_ANY ? nullptr : &peers_[request.peer];
  const bool wait = request.op != WEFT_OFI_RECV && peer->deferred != 0;
  const ssize_t error = wait ? -FI_EAGAIN : hand_over(*operation);
  if (error != 0 && error != -FI_EAGAIN)
    return fail(static_cast<int>(-error), "%s: %s", describe_operation(request).c_str(),
                fi_strerror(static_cast<int>(-error)));
  if (error == -FI_EAGAIN && request.op == WEFT_OFI_RECV) return -EAGAIN;
  ++counters_.posted;
  ++request.mr->in_flight;
  if (peer != nullptr) ++peer->in_flight;
  if (error == 0) {
    fly(operation, free);
  } else {
    ++counters_.deferred;
    ++peer->deferred;
    deferred_.splice(deferred_.end(), free, operation);
  }
  return 0;
}

ssize_t weft_ofi::hand_over(Operation& operation) {
  const Request& r = operation.request;
  void* buffer = reinterpret_cast<void*>(r.mr->base + r.offset);
  void* descriptor = fi_mr_desc(r.mr->region.get());
  const fi_addr_t peer = r.peer == WEFT_OFI_ANY ? FI_ADDR_UNSPEC : peers_[r.peer].address;
  void* context = &operation.provider_context;
  fid_ep* endpoint = endpoint_.get();
  switch (r.op) {
    case WEFT_OFI_WRITE:
      return r.has_immediate ? fi_writedata(endpoint, buffer, r.bytes, descriptor, r.immediate, peer, r.remote_address,
                                            r.key, context)
                             : fi_write(endpoint, buffer, r.bytes, descriptor, peer, r.remote_address, r.key, context);
    case WEFT_OFI_READ:
    case WEFT_OFI_FLUSH:
      return fi_read(endpoint, buffer, r.bytes, descriptor, peer, r.remote_address, r.key, context);
    case WEFT_OFI_SEND:
      return fi_send(endpoint, buffer, r.bytes, descriptor, peer, context);
    case WEFT_OFI_RECV:
      return fi_recv(endpoint, buffer, r.bytes, descriptor, peer, context);
    default:
      return -FI_EINVAL;
  }
}

void weft_ofi::fly(Operations::iterator operation, Operations& from) {
  if (operation->request.op == WEFT_OFI_RECV) {
    receiving_.splice(receiving_.end(), from, operation);
    return;
  }
  auto place = flying_.end();
  while (place != flying_.begin() && std::prev(place)->deadline_ns > operation->deadline_ns) --place;
  flying_.splice(place, from, operation);
}

// In order for each peer; one that is not ready holds up no other.
void weft_ofi::retry() {
  ++round_;
  for (auto next = deferred_.begin(); next != deferred_.end();) {
    const auto operation = next++;
    Peer& peer = peers_[operation->request.peer];
    if (peer.refused == round_) continue;
    const ssize_t error = hand_over(*operation);
    if (error == -FI_EAGAIN) {
      peer.refused = round_;
      continue;
    }
    --peer.deferred;
    if (error == 0) {
      fly(operation, deferred_);
    } else {
      report_later(operation, static_cast<int>(error), fi_strerror(static_cast<int>(-error)), false);
      retire(operation, deferred_);
    }
  }
}

void weft_ofi::expire() {
  if (flying_.empty() && deferred_.empty()) return;
  const std::uint64_t now = now_ns();
  for (auto next = deferred_.begin(); next != deferred_.end() && next->deadline_ns <= now;) {
    const auto operation = next++;
    --peers_[operation->request.peer].deferred;
    report_later(operation, -FI_ETIMEDOUT, "the peer could not be reached in time", false);
    ++counters_.timeouts;
    retire(operation, deferred_);
  }
  for (auto& operation : flying_) {
    if (operation.deadline_ns > now) break;
    if (operation.timed_out) continue;
    ++counters_.timeouts;
    report_later(by_context_.at(&operation.provider_context), -FI_ETIMEDOUT, "no completion in time", true);
  }
}

int weft_ofi::credits() {
  std::lock_guard guard(lock_);
  return static_cast<int>(free_.size());
}
