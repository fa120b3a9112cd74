// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstring>
#include <memory>

#include "device.hpp"
#include "error.hpp"

using weft::front::fail;

namespace {

constexpr unsigned kFlags = WEFT_MEM_REMOTE_READ | WEFT_MEM_REMOTE_WRITE | WEFT_MEM_READ_ONLY;

int publish(std::unique_ptr<weft_mem> mem, weft_mem** out) {
  weft_device* device = mem->device;
  bool fits = false;
  {
    std::unique_lock guard(device->memory_lock);
    fits = device->memory.insert(mem->backend.va, mem->backend.bytes, mem.get());
  }
  if (!fits) {
    device->backend->mem_free(device->handle, &mem->backend);
    return fail(EPROTO, "backend %s gave an address that is in use", device->backend->name);
  }
  *out = mem.release();
  return 0;
}

}  // namespace

int weft_mem_alloc(weft_device* device, size_t bytes, unsigned flags, weft_mem** out) {
  *out = nullptr;
  if (bytes == 0) return fail(EINVAL, "weft_mem_alloc: 0 bytes");
  if ((flags & ~kFlags) != 0 || (flags & WEFT_MEM_READ_ONLY) != 0)
    return fail(EINVAL, "weft_mem_alloc: flags 0x%x not known", flags);
  auto mem = std::make_unique<weft_mem>();
  mem->device = device;
  const int error = device->backend->mem_alloc(device->handle, bytes, flags, &mem->backend);
  if (error == -ENOMEM) return fail(ENOMEM, "weft_mem_alloc: no free range of %zu bytes in HBM", bytes);
  if (error != 0) return fail(-error, "weft_mem_alloc: %zu bytes: %s", bytes, std::strerror(-error));
  return publish(std::move(mem), out);
}

int weft_mem_register(weft_device* device, void* base, size_t bytes, unsigned flags, weft_mem** out) {
  *out = nullptr;
  if (base == nullptr || bytes == 0) return fail(EINVAL, "weft_mem_register: no memory given");
  if (bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(base))
    return fail(EINVAL, "weft_mem_register: %zu bytes run over the end of the address space", bytes);
  if ((flags & ~kFlags) != 0) return fail(EINVAL, "weft_mem_register: flags 0x%x not known", flags);
  auto mem = std::make_unique<weft_mem>();
  mem->device = device;
  const int error = device->backend->mem_register(device->handle, base, bytes, flags, &mem->backend);
  if (error == -ENOMEM)
    return fail(ENOMEM, "weft_mem_register: %zu bytes cannot be pinned (see ulimit -l) or no region is free", bytes);
  if (error != 0) return fail(-error, "weft_mem_register: %zu bytes: %s", bytes, std::strerror(-error));
  return publish(std::move(mem), out);
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
  std::unique_lock guard(device->on_free_lock);
  device->on_free.emplace_back(fn, arg);
  return 0;
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
  const int error = backend->mem_export(mem->device->handle, &mem->backend, offset, bytes, fd);
  return error != 0 ? fail(-error, "weft_mem_export: %s", std::strerror(-error)) : 0;
}

weft_mem* weft_mem_find(weft_device* device, weft_va va, size_t bytes) {
  std::shared_lock guard(device->memory_lock);
  return device->memory.find(va, bytes);
}
