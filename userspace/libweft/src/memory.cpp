// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstring>
#include <memory>

#include "device.hpp"
#include "error.hpp"
#include "weft/sized.hpp"

using weft::front::fail;
using weft::front::guarded;

namespace {

constexpr unsigned kFlags = WEFT_MEM_REMOTE_READ | WEFT_MEM_REMOTE_WRITE | WEFT_MEM_READ_ONLY;

// Makes the object that `call`, mem_alloc or mem_register of the backend, fills in, and lets weft_mem_find find it.
// `refused` keeps the text of a call that failed.
template <typename Call, typename Refused>
int make(const char* name, weft_device* device, weft_mem** out, Call call, Refused refused) {
  return guarded(name, [&] {
    auto mem = std::make_unique<weft_mem>();
    mem->device = device;
    if (const int error = call(&mem->backend); error != 0) return refused(error);
    bool fits = false;
    try {
      std::unique_lock guard(device->memory_lock);
      fits = device->memory.insert(mem->backend.va, mem->backend.bytes, mem.get());
    } catch (...) {
      device->backend->mem_free(device->handle, &mem->backend);
      throw;
    }
    if (!fits) {
      device->backend->mem_free(device->handle, &mem->backend);
      return fail(EPROTO, "backend %s gave an address that is in use", device->backend->name);
    }
    *out = mem.release();
    return 0;
  });
}

}  // namespace

int weft_mem_alloc(weft_device* device, size_t bytes, unsigned flags, weft_mem** out) {
  *out = nullptr;
  if (bytes == 0) return fail(EINVAL, "weft_mem_alloc: 0 bytes");
  if ((flags & ~kFlags) != 0 || (flags & WEFT_MEM_READ_ONLY) != 0)
    return fail(EINVAL, "weft_mem_alloc: flags 0x%x not known", flags);
  return make(
      "weft_mem_alloc", device, out,
      [&](weft_backend_mem* made) { return device->backend->mem_alloc(device->handle, bytes, flags, made); },
      [&](int error) {
        return error == -ENOMEM ? fail(ENOMEM, "weft_mem_alloc: no free range of %zu bytes in HBM", bytes)
                                : fail(-error, "weft_mem_alloc: %zu bytes: %s", bytes, std::strerror(-error));
      });
}

int weft_mem_register(weft_device* device, void* base, size_t bytes, unsigned flags, weft_mem** out) {
  *out = nullptr;
  if (base == nullptr || bytes == 0) return fail(EINVAL, "weft_mem_register: no memory given");
  if (bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(base))
    return fail(EINVAL, "weft_mem_register: %zu bytes run over the end of the address space", bytes);
  if ((flags & ~kFlags) != 0) return fail(EINVAL, "weft_mem_register: flags 0x%x not known", flags);
  return make(
      "weft_mem_register", device, out,
      [&](weft_backend_mem* made) { return device->backend->mem_register(device->handle, base, bytes, flags, made); },
      [&](int error) {
        return error == -ENOMEM
                   ? fail(ENOMEM, "weft_mem_register: %zu bytes cannot be pinned (see ulimit -l) or no region is free",
                          bytes)
                   : fail(-error, "weft_mem_register: %zu bytes: %s", bytes, std::strerror(-error));
      });
}

void weft_mem_free(weft_mem* mem) {
  if (mem == nullptr) return;
  std::unique_ptr<weft_mem> owner(mem);
  weft_device* device = mem->device;
  {
    std::unique_lock guard(device->memory_lock);
    device->memory.erase(mem->backend.va);
  }
  {
    std::shared_lock guard(device->on_free_lock);
    for (const auto& [fn, arg] : device->on_free) fn(arg, mem);
  }
  if (mem->base != nullptr) device->backend->mem_unmap(device->handle, &mem->backend, mem->base);
  device->backend->mem_free(device->handle, &mem->backend);
}

int weft_mem_on_free(weft_device* device, weft_mem_free_fn* fn, void* arg) {
  if (fn == nullptr) return fail(EINVAL, "weft_mem_on_free: no function given");
  return guarded("weft_mem_on_free", [&] {
    std::unique_lock guard(device->on_free_lock);
    device->on_free.emplace_back(fn, arg);
    return 0;
  });
}

void weft_mem_off_free(weft_device* device, weft_mem_free_fn* fn, void* arg) {
  std::unique_lock guard(device->on_free_lock);
  std::erase(device->on_free, std::pair(fn, arg));
}

weft_va weft_mem_va(const weft_mem* mem) { return mem->backend.va; }
uint32_t weft_mem_key(const weft_mem* mem) { return mem->backend.key; }
size_t weft_mem_bytes(const weft_mem* mem) { return mem->backend.bytes; }
uint64_t weft_mem_generation(const weft_mem* mem) { return mem->backend.generation; }

void* weft_mem_map(weft_mem* mem) {
  std::lock_guard guard(mem->map_lock);
  if (mem->base == nullptr) mem->base = mem->device->backend->mem_map(mem->device->handle, &mem->backend);
  if (mem->base == nullptr) {
    fail(ENOTSUP, "weft_mem_map: backend %s cannot map this memory", mem->device->backend->name);
    return nullptr;
  }
  ++mem->maps;
  return mem->base;
}

void weft_mem_unmap(weft_mem* mem) {
  std::lock_guard guard(mem->map_lock);
  if (mem->maps == 0 || --mem->maps != 0) return;
  mem->device->backend->mem_unmap(mem->device->handle, &mem->backend, mem->base);
  mem->base = nullptr;
}

int weft_mem_export(weft_mem* mem, size_t offset, size_t bytes, int* fd) {
  *fd = -1;
  const weft_backend* backend = mem->device->backend;
  if (backend->mem_export == nullptr) return fail(EOPNOTSUPP, "backend %s has no DMA-BUF", backend->name);
  if (offset > mem->backend.bytes || bytes > mem->backend.bytes - offset || bytes == 0 || offset % 4096 != 0)
    return fail(EINVAL, "weft_mem_export: [%zu, +%zu) is not a page-aligned part of the object's %llu bytes", offset,
                bytes, static_cast<unsigned long long>(mem->backend.bytes));
  return guarded("weft_mem_export", [&] {
    const int error = backend->mem_export(mem->device->handle, &mem->backend, offset, bytes, fd);
    return error != 0 ? fail(-error, "weft_mem_export: %s", std::strerror(-error)) : 0;
  });
}

int weft_mem_find(weft_device* device, weft_va va, size_t bytes, weft_mem_info* out) {
  weft_mem_info found{};
  {
    std::shared_lock guard(device->memory_lock);
    const weft_mem* mem = device->memory.find(va, bytes);
    if (mem == nullptr)
      return fail(ENOENT, "[0x%llx, +%zu) lies in no memory object of this device", static_cast<unsigned long long>(va),
                  bytes);
    found = {sizeof(found), mem->backend.key, mem->backend.va, mem->backend.bytes, mem->backend.generation};
  }
  return weft::write_sized(found, out) == 0 ? 0 : fail(EINVAL, "weft_mem_find: size is not set");
}

int weft_mem_export_found(weft_device* device, weft_va va, uint64_t generation, int* fd) {
  *fd = -1;
  std::shared_lock guard(device->memory_lock);  // weft_mem_free waits for it
  weft_mem* mem = device->memory.find(va, 0);
  if (mem == nullptr || mem->backend.generation != generation)
    return fail(ENOENT, "the memory object at 0x%llx was freed", static_cast<unsigned long long>(va));
  return weft_mem_export(mem, 0, mem->backend.bytes, fd);
}
