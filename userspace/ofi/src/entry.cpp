// SPDX-License-Identifier: MIT
// The table. Nothing is thrown across it.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "endpoint.hpp"
#include "error.hpp"
#include "provider.hpp"
#include "weft/ofi.h"

using weft::ofi::fail;
using weft::ofi::Request;

namespace {

template <typename Call>
int guarded(Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "no memory");
  } catch (const std::exception& error) {
    return fail(EIO, "%s", error.what());
  }
}

// The caller's struct may be older than ours: what it does not know stays unwritten.
template <typename Struct>
int copy_out(Struct ours, Struct* theirs) {
  const std::uint32_t size = theirs->size;
  if (size < 2 * sizeof(std::uint32_t)) return fail(EINVAL, "size %u: set it to sizeof", size);
  ours.size = std::min<std::uint32_t>(size, sizeof(Struct));
  std::memcpy(theirs, &ours, ours.size);
  theirs->size = size;
  return 0;
}

int list(const char* provider_name, weft_ofi_info* info, size_t room) {
  return guarded([&] {
    const weft::ofi::Provider* provider = weft::ofi::find_provider(provider_name);
    if (provider == nullptr) return -EINVAL;
    weft::ofi::Info found;
    if (int error = weft::ofi::find_domains(*provider, nullptr, nullptr, 0, &found)) return error;
    int count = 0;
    for (const fi_info* one = found.get(); one != nullptr; one = one->next, ++count) {
      if (static_cast<size_t>(count) >= room) continue;
      weft_ofi_info described{};
      weft::ofi::describe(*provider, *one, &described);
      if (int error = copy_out(described, &info[count])) return error;
    }
    return count;
  });
}

int open(const weft_ofi_open_args* args, weft_ofi** out) {
  return guarded([&] {
    *out = nullptr;
    if (args->size < sizeof(*args)) return fail(EINVAL, "size %u: set it to sizeof", args->size);
    std::unique_ptr<weft_ofi> opened;
    const int error = weft_ofi::open(*args, &opened);
    *out = opened.release();
    return error;
  });
}

void close(weft_ofi* ofi) { delete ofi; }

int info(weft_ofi* ofi, weft_ofi_info* out) {
  weft_ofi_info described{};
  ofi->info(&described);
  return copy_out(described, out);
}

int counters(weft_ofi* ofi, weft_ofi_counters* out) {
  weft_ofi_counters counted{};
  ofi->counters(&counted);
  return copy_out(counted, out);
}

int address(weft_ofi* ofi, void* blob, size_t* bytes) { return ofi->address(blob, bytes); }

int insert(weft_ofi* ofi, const void* blob, size_t bytes, uint32_t* peer) {
  return guarded([&] { return ofi->insert(blob, bytes, peer); });
}

int remove(weft_ofi* ofi, uint32_t peer) {
  return guarded([&] { return ofi->remove(peer); });
}

int register_host(weft_ofi* ofi, void* base, size_t bytes, unsigned flags, weft_ofi_mr** out) {
  return guarded([&] { return ofi->register_host(base, bytes, flags, out); });
}

int register_dmabuf(weft_ofi* ofi, int fd, uint64_t offset, size_t bytes, uint64_t va, unsigned flags,
                    weft_ofi_mr** out) {
  return guarded([&] { return ofi->register_dmabuf(fd, offset, bytes, va, flags, out); });
}

int deregister(weft_ofi_mr* mr) { return mr == nullptr ? 0 : mr->owner->deregister(mr); }

int remote(weft_ofi_mr* mr, uint64_t* remote_address, uint64_t* key) {
  if (!mr->remote) return fail(EINVAL, "the region is not open to peers");
  *remote_address = mr->remote_base();
  *key = fi_mr_key(mr->region.get());
  return 0;
}

int transfer(weft_ofi* ofi, Request request) {
  return guarded([&] { return ofi->post(request); });
}

int write(weft_ofi* ofi, uint32_t peer, weft_ofi_mr* mr, uint64_t offset, size_t bytes, uint64_t remote_address,
          uint64_t key, void* context) {
  return transfer(ofi, {WEFT_OFI_WRITE, peer, mr, offset, bytes, remote_address, key, false, 0, context});
}

int write_immediate(weft_ofi* ofi, uint32_t peer, weft_ofi_mr* mr, uint64_t offset, size_t bytes,
                    uint64_t remote_address, uint64_t key, uint32_t immediate, void* context) {
  return transfer(ofi, {WEFT_OFI_WRITE, peer, mr, offset, bytes, remote_address, key, true, immediate, context});
}

int read(weft_ofi* ofi, uint32_t peer, weft_ofi_mr* mr, uint64_t offset, size_t bytes, uint64_t remote_address,
         uint64_t key, void* context) {
  return transfer(ofi, {WEFT_OFI_READ, peer, mr, offset, bytes, remote_address, key, false, 0, context});
}

int send(weft_ofi* ofi, uint32_t peer, weft_ofi_mr* mr, uint64_t offset, size_t bytes, void* context) {
  return transfer(ofi, {WEFT_OFI_SEND, peer, mr, offset, bytes, 0, 0, false, 0, context});
}

int recv(weft_ofi* ofi, uint32_t peer, weft_ofi_mr* mr, uint64_t offset, size_t bytes, void* context) {
  return transfer(ofi, {WEFT_OFI_RECV, peer, mr, offset, bytes, 0, 0, false, 0, context});
}

int flush(weft_ofi* ofi, weft_ofi_mr* mr, uint64_t offset, void* context) {
  return guarded([&] { return ofi->flush(mr, offset, context); });
}

int credits(weft_ofi* ofi) { return ofi->credits(); }

int poll(weft_ofi* ofi, weft_ofi_completion* out, size_t room) {
  return guarded([&] { return ofi->poll({out, room}); });
}

int wait(weft_ofi* ofi, weft_ofi_completion* out, size_t room, uint32_t timeout_ms) {
  return guarded([&] { return ofi->wait({out, room}, timeout_ms); });
}

constexpr weft_ofi_api kApi{
    sizeof(weft_ofi_api),
    WEFT_OFI_VERSION,
    weft::ofi::last_error,
    list,
    open,
    close,
    info,
    counters,
    address,
    insert,
    remove,
    register_host,
    register_dmabuf,
    deregister,
    remote,
    write,
    write_immediate,
    read,
    send,
    recv,
    flush,
    credits,
    poll,
    wait,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const weft_ofi_api* weft_ofi_entry(uint32_t version) {
  return version == WEFT_OFI_VERSION ? &kApi : nullptr;
}
