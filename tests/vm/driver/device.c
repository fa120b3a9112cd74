/* SPDX-License-Identifier: MIT */
#include "device.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int failures;
const char* device_path = "/dev/accel/accel0";

int call(int fd, unsigned long request, void* args) { return ioctl(fd, request, args) == -1 ? -errno : 0; }

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

struct device device_open(void) {
  struct drm_weft_context context = {.size = sizeof(context)};
  struct device device = {.fd = open(device_path, O_RDWR | O_CLOEXEC)};
  if (device.fd == -1) perror(device_path);
  NEED(device.fd != -1);
  NEED(call(device.fd, DRM_IOCTL_WEFT_CONTEXT, &context) == 0);
  device.ctx = context.ctx;
  void* page = mmap(NULL, WEFT_DOORBELL_PAGE, PROT_WRITE, MAP_SHARED, device.fd, (off_t)context.doorbell_offset);
  NEED(page != MAP_FAILED);
  device.doorbell = page;
  page = mmap(NULL, context.shadow_bytes, PROT_READ, MAP_SHARED, device.fd, (off_t)context.shadow_offset);
  NEED(page != MAP_FAILED);
  device.shadow = page;
  return device;
}

void device_close(struct device* device) {
  munmap((void*)device->doorbell, WEFT_DOORBELL_PAGE);
  munmap((void*)device->shadow, WEFT_SYNCS_PER_CONTEXT * sizeof(uint64_t));
  close(device->fd);
}

int bo_create(struct device* device, uint64_t bytes, uint32_t flags, struct bo* bo) {
  struct drm_weft_bo_create create = {.size = sizeof(create), .flags = flags, .bytes = bytes};
  memset(bo, 0, sizeof(*bo));
  const int ret = call(device->fd, DRM_IOCTL_WEFT_BO_CREATE, &create);
  if (ret) return ret;
  bo->handle = create.handle;
  bo->key = create.key;
  bo->bytes = create.bytes;
  bo->va = create.va;
  bo->generation = create.generation;
  bo->map = mmap(NULL, bo->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device->fd, (off_t)create.mmap_offset);
  if (bo->map == MAP_FAILED) {
    bo->map = NULL;
    gem_close(device->fd, bo->handle);
    return -errno;
  }
  return 0;
}

int gem_close(int fd, uint32_t handle) {
  struct drm_gem_close args = {.handle = handle};
  return call(fd, DRM_IOCTL_GEM_CLOSE, &args);
}

void bo_close(struct device* device, struct bo* bo) {
  if (bo->map) munmap(bo->map, bo->bytes);
  CHECK_EQ(gem_close(device->fd, bo->handle), 0);
}

int info(int fd, uint32_t topic, uint32_t index, void* data, uint32_t* bytes) {
  struct drm_weft_info args = {
      .size = sizeof(args), .topic = topic, .index = index, .data = (uintptr_t)data, .bytes = *bytes};
  const int ret = call(fd, DRM_IOCTL_WEFT_INFO, &args);
  *bytes = args.bytes;
  return ret;
}

uint32_t sync_create(struct device* device, uint32_t count) {
  struct drm_weft_sync_create create = {.size = sizeof(create), .count = count};
  NEED(call(device->fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create) == 0);
  return create.first;
}

void sync_signal(struct device* device, uint32_t sync, uint32_t amount) {
  device->doorbell[WEFT_DB_SIGNAL / 8] = WEFT_DB_PAIR(sync, amount);
}

static int wait_for(struct device* device, uint32_t sync, uint64_t value, double seconds, struct drm_weft_wait* wait) {
  struct drm_weft_wait_item item = {.sync = sync, .value = value};
  wait->size = sizeof(*wait);
  wait->items = (uintptr_t)&item;
  wait->count = 1;
  wait->deadline_ns = seconds == 0 ? 0 : now_ns() + (int64_t)(seconds * 1e9);
  return call(device->fd, DRM_IOCTL_WEFT_WAIT, wait);
}

int sync_wait(struct device* device, uint32_t sync, uint64_t value, double seconds, struct drm_weft_wait* out) {
  struct drm_weft_wait wait = {0};
  const int ret = wait_for(device, sync, value, seconds, &wait);
  if (out) *out = wait;
  return ret;
}

int sync_wait_listed(struct device* device, uint32_t sync, uint64_t value, double seconds, struct listed listed,
                     struct drm_weft_wait* out) {
  struct drm_weft_wait wait = {.flags = WEFT_WAIT_LISTED,
                               .queues = (uintptr_t)listed.queue,
                               .queue_count = listed.queues,
                               .channels = (uintptr_t)listed.channel,
                               .channel_count = listed.channels};
  const int ret = wait_for(device, sync, value, seconds, &wait);
  if (out) *out = wait;
  return ret;
}

int queue_create(struct device* device, uint32_t entries, uint32_t flags, struct queue* queue) {
  struct drm_weft_queue_create create = {.size = sizeof(create), .flags = flags, .entries = entries};
  memset(queue, 0, sizeof(*queue));
  const int ret = call(device->fd, DRM_IOCTL_WEFT_QUEUE_CREATE, &create);
  if (ret) return ret;
  queue->device = device;
  queue->number = create.queue;
  queue->entries = entries;
  queue->bytes = create.ring_bytes;
  char* ring = mmap(NULL, create.ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device->fd, (off_t)create.ring_offset);
  NEED(ring != MAP_FAILED);
  queue->head = (struct weft_ring_head*)ring;
  queue->slot = (struct weft_cmd*)(ring + sizeof(struct weft_ring_head));
  return 0;
}

int queue_destroy(struct queue* queue) {
  struct drm_weft_handle args = {.size = sizeof(args), .handle = queue->number};
  const int ret = call(queue->device->fd, DRM_IOCTL_WEFT_QUEUE_DESTROY, &args);
  munmap((void*)queue->head, queue->bytes);
  return ret;
}

/* Waits for room in the ring. */
void queue_put(struct queue* queue, const struct weft_cmd* cmd) {
  const int64_t end = now_ns() + 20 * SECOND;
  while (queue->producer - queue->head->fetched >= queue->entries) {
    queue_ring(queue);
    if (queue->head->state == WEFT_QUEUE_HALTED || now_ns() > end) return;
    usleep(200);
  }
  queue->slot[queue->producer++ & (queue->entries - 1)] = *cmd;
}

void queue_ring(struct queue* queue) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  queue->device->doorbell[WEFT_DB_QUEUE(queue->number) / 8] = queue->producer;
}

struct weft_cmd cmd_copy(uint64_t to, uint32_t to_key, uint64_t from, uint32_t from_key, uint32_t bytes,
                         uint32_t signal) {
  struct weft_cmd cmd = {
      .op = WEFT_OP_COPY,
      .version = WEFT_CMD_VERSION,
      .wait_id = WEFT_SYNC_NONE,
      .signal_id = signal,
      .signal_add = signal != WEFT_SYNC_NONE,
      .addr = {to, from},
      .key = {to_key, from_key},
      .length = bytes,
  };
  return cmd;
}

struct weft_cmd cmd_fill(uint64_t to, uint32_t key, uint64_t pattern, uint32_t bytes, uint32_t signal) {
  struct weft_cmd cmd = cmd_copy(to, key, pattern, 0, bytes, signal);
  cmd.op = WEFT_OP_FILL;
  return cmd;
}
