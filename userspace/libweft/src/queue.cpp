// SPDX-License-Identifier: MIT
#include "queue.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>

#include "error.hpp"

using weft::front::fail;
using weft::front::guarded;

namespace {

constexpr std::size_t kSlot = sizeof(weft_cmd);

// A backend that runs inside calls gets on a little: who only tries again must not try for ever.
void get_on(const weft_queue& queue) {
  queue.device->backend->sync_wait(queue.device->handle, nullptr, 0, 0, nullptr, nullptr, nullptr);
}

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
  return guarded("weft_queue_create", [&] {
    auto made = std::make_unique<weft_queue>();
    made->device = device;
    const int error = device->backend->queue_create(device->handle, entries, flags, &made->backend);
    if (error == -ENOSPC) return fail(ENOSPC, "weft_queue_create: the context has no further queue");
    if (error != 0) return fail(-error, "weft_queue_create: %s", std::strerror(-error));
    std::unique_ptr<weft_queue, decltype(&weft_queue_destroy)> queue(made.release(), weft_queue_destroy);
    std::lock_guard guard(device->objects_lock);
    device->queues.insert(queue.get());
    *out = queue.release();
    return 0;
  });
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
  get_on(*queue);
  return space(*queue);
}

int weft_queue_submit(weft_queue* queue, const void* slot, uint32_t slots) {
  if (slots == 0) return fail(EINVAL, "weft_queue_submit: no slots");
  return guarded("weft_queue_submit",
                 [&] { return weft::front::submit(*queue, {{static_cast<const weft_cmd*>(slot), slots}}); });
}

namespace weft::front {

int halted(const weft_queue& queue) {
  const weft_ring_head* head = queue.backend.head;
  if (__atomic_load_n(&head->state, __ATOMIC_ACQUIRE) != WEFT_QUEUE_HALTED) return 0;
  return fail(EIO, "queue %u is halted: %s at slot %llu", queue.backend.number, weft_error_text(head->error),
              static_cast<unsigned long long>(head->error_index));
}

std::uint64_t completed(const weft_queue& queue) {
  get_on(queue);
  return __atomic_load_n(&queue.backend.head->completed, __ATOMIC_ACQUIRE);
}

int submit(weft_queue& queue, std::initializer_list<std::span<const weft_cmd>> parts, std::uint32_t spare) {
  const weft_backend_queue& ring = queue.backend;
  std::size_t slots = 0;
  for (const auto& part : parts) slots += part.size();
  if (slots + spare > ring.entries)
    return fail(EINVAL, "queue %u has %u slots; %zu are submitted", ring.number, ring.entries, slots);
  if (const int error = halted(queue); error != 0) return error;
  if (space(queue) < slots + spare) {
    get_on(queue);
    if (space(queue) < slots + spare) return fail(EAGAIN, "queue %u has no room for %zu slots", ring.number, slots);
  }
  auto* base = static_cast<std::byte*>(ring.slots);
  for (const auto& part : parts) {
    const std::size_t first = queue.producer & (ring.entries - 1);
    const std::size_t head = std::min<std::size_t>(part.size(), ring.entries - first);
    // Not from a null pointer, also when there is nothing to copy.
    if (head != 0) std::memcpy(base + first * kSlot, part.data(), head * kSlot);
    if (head != part.size()) std::memcpy(base, part.data() + head, (part.size() - head) * kSlot);
    queue.producer += part.size();
  }
  // The slots must be visible before the doorbell makes the device look.
  std::atomic_thread_fence(std::memory_order_release);
  queue.device->backend->queue_ring(queue.device->handle, &queue.backend, queue.producer);
  return 0;
}

}  // namespace weft::front
