/* SPDX-License-Identifier: MIT */
/* Sync objects and the wait. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

void test_sync(void) {
  struct device device = device_open();
  const uint32_t sync = sync_create(&device, 3);
  const uint64_t base = device.shadow[sync];
  CHECK_EQ(sync_wait(&device, sync, base, 0, NULL), 0); /* reached already */
  CHECK_EQ(sync_wait(&device, sync, base + 1, 0, NULL), -ETIME);
  int64_t start = now_ns();
  CHECK_EQ(sync_wait(&device, sync, base + 1, 0.05, NULL), -ETIME);
  CHECK(now_ns() - start >= SECOND / 20);
  sync_signal(&device, sync, 5);
  CHECK_EQ(sync_wait(&device, sync, base + 5, 10, NULL), 0);
  CHECK_EQ(device.shadow[sync], base + 5);
  CHECK_EQ(sync_wait(&device, sync, base + 6, 0, NULL), -ETIME);

  /* All of three, then one of three. */
  struct drm_weft_wait_item item[3];
  for (uint32_t i = 0; i < 3; ++i) {
    item[i] = (struct drm_weft_wait_item){.sync = sync + i, .value = device.shadow[sync + i] + 1};
  }
  struct drm_weft_wait wait = {.size = sizeof(wait), .items = (uintptr_t)item, .count = 3};
  sync_signal(&device, sync, 1);
  sync_signal(&device, sync + 2, 1);
  wait.deadline_ns = now_ns() + SECOND / 10;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -ETIME);
  wait.flags = WEFT_WAIT_ANY;
  item[0].value += 1;
  wait.deadline_ns = now_ns() + 10 * SECOND;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), 0);
  CHECK_EQ(wait.index, 2);
  wait.flags = 0;
  sync_signal(&device, sync, 1);
  sync_signal(&device, sync + 1, 1);
  wait.deadline_ns = now_ns() + 10 * SECOND;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), 0);

  /* A run is given back, and goes on from where it was. */
  const uint64_t last = device.shadow[sync + 1];
  struct drm_weft_sync_destroy destroy = {.size = sizeof(destroy), .first = sync, .count = 3};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), 0);
  CHECK_EQ(sync_wait(&device, sync, 0, 0, NULL), -EINVAL);
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), -ENOENT);
  CHECK_EQ(sync_create(&device, 3), sync);
  CHECK_EQ(device.shadow[sync + 1], last);
  device_close(&device);
}

struct waiter {
  struct device* device;
  uint32_t sync;
  uint64_t value;
  int result;
};

static void* wait_in_thread(void* data) {
  struct waiter* waiter = data;
  waiter->result = sync_wait(waiter->device, waiter->sync, waiter->value, 20, NULL);
  if (waiter->result == 0 && waiter->device->shadow[waiter->sync] < waiter->value) waiter->result = -ERANGE;
  return NULL;
}

/* Many threads wait for different values of one sync object: nobody sleeps through, nobody wakes too early. */
void test_sync_threads(void) {
  enum { kThreads = 16, kRounds = 20 };
  struct device device = device_open();
  const uint32_t sync = sync_create(&device, 1);
  for (int round = 0; round < kRounds; ++round) {
    struct waiter waiter[kThreads];
    pthread_t thread[kThreads];
    const uint64_t base = device.shadow[sync];
    for (int i = 0; i < kThreads; ++i) {
      waiter[i] = (struct waiter){&device, sync, base + 1 + (uint64_t)(i * 5 % kThreads), 1};
      NEED(pthread_create(&thread[i], NULL, wait_in_thread, &waiter[i]) == 0);
    }
    for (int i = 0; i < kThreads; ++i) sync_signal(&device, sync, 1);
    for (int i = 0; i < kThreads; ++i) {
      pthread_join(thread[i], NULL);
      CHECK_EQ(waiter[i].result, 0);
    }
  }
  device_close(&device);
}

static void nothing(int number) { (void)number; }

void test_sync_wrong(void) {
  /* A file that has made nothing yet has nothing to wait for. */
  struct device fresh = {.fd = open(device_path, O_RDWR | O_CLOEXEC)};
  CHECK_EQ(sync_wait(&fresh, 0, 0, 0, NULL), -EINVAL);
  close(fresh.fd);
  struct device device = device_open();
  struct drm_weft_sync_create create = {.size = sizeof(create)};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create), -EINVAL);
  create.count = WEFT_SYNCS_PER_CONTEXT + 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create), -ENOSPC);
  create.count = UINT32_MAX;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create), -ENOSPC);
  create.count = 1;
  create.flags = 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create), -EINVAL);
  create = (struct drm_weft_sync_create){.size = sizeof(create), .count = WEFT_SYNCS_PER_CONTEXT};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create), 0);
  CHECK_EQ(create.first, 0);
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &create), -ENOSPC);
  struct drm_weft_sync_destroy destroy = {.size = sizeof(destroy), .first = UINT32_MAX, .count = 2};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), -ENOENT);
  destroy.first = 0;
  destroy.count = UINT32_MAX;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), -ENOENT);
  destroy.count = 0;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), -EINVAL);
  destroy.count = WEFT_SYNCS_PER_CONTEXT;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_SYNC_DESTROY, &destroy), 0);

  const uint32_t sync = sync_create(&device, 1);
  struct drm_weft_wait_item item = {.sync = sync};
  struct drm_weft_wait wait = {.size = sizeof(wait), .items = (uintptr_t)&item, .count = 0};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.count = 65;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.count = 1;
  wait.flags = 4;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.flags = 0;
  wait.queue_count = 1; /* not asked for */
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.flags = WEFT_WAIT_LISTED;
  wait.queues = 8;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EFAULT);
  wait.queue_count = UINT32_MAX;
  wait.channel_count = 2;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.queue_count = 4095;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.queues = wait.queue_count = wait.channel_count = 0;
  wait.reserved = 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  wait.reserved = 0;
  wait.flags = 0;
  wait.items = 8;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EFAULT);
  wait.items = (uintptr_t)&item;
  item.sync = WEFT_SYNCS_PER_CONTEXT;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);
  item.sync = sync;
  item.reserved = 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_WAIT, &wait), -EINVAL);

  /* A signal ends the wait (the handler does not restart calls). */
  struct sigaction action = {.sa_handler = nothing}, before;
  sigaction(SIGALRM, &action, &before);
  ualarm(100000, 0);
  CHECK_EQ(sync_wait(&device, sync, device.shadow[sync] + 1, 20, NULL), -EINTR);
  sigaction(SIGALRM, &before, NULL);
  device_close(&device);
}
