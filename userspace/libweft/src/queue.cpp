// SPDX-License-Identifier: MIT
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "device.hpp"
#include "error.hpp"

using weft::front::fail;

namespace {

constexpr std::size_t kSlot = sizeof(weft_cmd);

// The device writes the head by itself; a slot is free once `fetched` says so, and only then may it be written.
std::uint32_t space(const weft_queue& queue) {
  const std::uint64_t fetched = __atomic_load_n(&queue.backend.head->fetched, __ATOMIC_ACQUIRE);
  const std::uint64_t used = queue.producer - fetched;
  return used > queue.backend.entries ? 0 : queue.backend.entries - static_cast<std::uint32_t>(used);
}

}  // namespace

int weft_queue_create(weft_device* device, uint32_t entries, unsigned flags, weft_queue** out) {
  *out = nullptr;
  if (entries < 16 || entries > 65536 || (entries & (entries - 1)) != 0)
    return fail(EINVAL, "weft_queue_create: %u entries; a power of two from 16 to 65536 is possible", entries);
  if ((flags & ~WEFT_QUEUE_HBM) != 0) return fail(EINVAL, "weft_queue_create: flags 0x%x not known", flags);
  auto queue = std::make_unique<weft_queue>();
  queue->device = device;
  const int error = device->backend->queue_create(device->handle, entries, flags, &queue->backend);
  if (error == -ENOSPC) return fail(ENOSPC, "weft_queue_create: the context has no further queue");
  if (error != 0) return fail(-error, "weft_queue_create: %s", std::strerror(-error));
  std::lock_guard guard(device->objects_lock);
  device->queues.insert(queue.get());
  *out = queue.release();
  return 0;
}

void weft_queue_destroy(weft_queue* queue) {
  if (queue == nullptr) return;
  std::unique_ptr<weft_queue> owner(queue);
  {
    std::lock_guard guard(queue->device->objects_lock);
    queue->device->queues.erase(queue);
  }
  queue->device->backend->queue_destroy(queue->device->handle, &queue->backend);
}

uint32_t weft_queue_number(const weft_queue* queue) { return queue->backend.number; }

uint32_t weft_queue_space(const weft_queue* queue) {
  if (const std::uint32_t room = space(*queue); room != 0) return room;
  queue->device->backend->sync_wait(queue->device->handle, nullptr, 0, 0, nullptr, nullptr);
  return space(*queue);
}

int weft_queue_submit(weft_queue* queue, const void* slot, uint32_t slots) {
  const weft_backend_queue& ring = queue->backend;
  if (slots == 0 || slots > ring.entries)
    return fail(EINVAL, "weft_queue_submit: %u slots; the queue has %u", slots, ring.entries);
  if (__atomic_load_n(&ring.head->state, __ATOMIC_ACQUIRE) == WEFT_QUEUE_HALTED)
    return fail(EIO, "queue %u is halted: %s at slot %llu", ring.number, weft_error_text(ring.head->error),
                static_cast<unsigned long long>(ring.head->error_index));
  if (space(*queue) < slots) {
    // A backend that runs inside calls gets its chance to take slots: who only tries again must not try for ever.
    queue->device->backend->sync_wait(queue->device->handle, nullptr, 0, 0, nullptr, nullptr);
    if (space(*queue) < slots) return fail(EAGAIN, "weft_queue_submit: no room for %u slots", slots);
  }
  auto* base = static_cast<std::byte*>(ring.slots);
  auto* from = static_cast<const std::byte*>(slot);
  const std::uint32_t first = static_cast<std::uint32_t>(queue->producer & (ring.entries - 1));
  const std::uint32_t head = std::min(slots, ring.entries - first);
  std::memcpy(base + first * kSlot, from, head * kSlot);
  std::memcpy(base, from + head * kSlot, (slots - head) * kSlot);
  queue->producer += slots;
  // The slots must be visible before the doorbell makes the device look.
  std::atomic_thread_fence(std::memory_order_release);
  queue->device->backend->queue_ring(queue->device->handle, &queue->backend, queue->producer);
  return 0;
}
