/* SPDX-License-Identifier: MIT */
/* Other ends than the good one: killed, reset, removed, in the middle of work. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device.h"

enum { LOST = 64 }; /* files of mode_innocent */

/* A context with everything in it, and work for a long time. */
struct load {
  struct device device;
  struct bo from, to;
  struct queue busy, waiting;
  struct drm_weft_host_register host;
  uint32_t sync;
  uint64_t base;
};

static void load_start(struct load* load) {
  struct device* device = &load->device;
  *device = device_open();
  NEED(bo_create(device, MIB(16), 0, &load->from) == 0);
  NEED(bo_create(device, MIB(16), WEFT_BO_REMOTE_WRITE, &load->to) == 0);
  NEED(queue_create(device, 4096, 0, &load->busy) == 0);
  NEED(queue_create(device, 64, WEFT_QUEUE_IN_HBM, &load->waiting) == 0);
  void* memory = mmap(NULL, MIB(4), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  NEED(memory != MAP_FAILED);
  load->host = (struct drm_weft_host_register){.size = sizeof(load->host), .flags = WEFT_HOST_WRITE};
  load->host.address = (uintptr_t)memory;
  load->host.bytes = MIB(4);
  NEED(call(device->fd, DRM_IOCTL_WEFT_HOST_REGISTER, &load->host) == 0);
  load->sync = sync_create(device, 2);
  load->base = device->shadow[load->sync];

  struct drm_weft_channel_create a = {.size = sizeof(a)},
                                 b = {.size = sizeof(b), .sync_base = load->sync + 1, .sync_count = 1};
  NEED(call(device->fd, DRM_IOCTL_WEFT_CHANNEL_CREATE, &a) == 0);
  NEED(call(device->fd, DRM_IOCTL_WEFT_CHANNEL_CREATE, &b) == 0);
  struct drm_weft_channel_connect connect = {.size = sizeof(connect), .channel = a.channel, .remote = b.local};
  NEED(call(device->fd, DRM_IOCTL_WEFT_CHANNEL_CONNECT, &connect) == 0);
  connect.channel = b.channel;
  connect.remote = a.local;
  NEED(call(device->fd, DRM_IOCTL_WEFT_CHANNEL_CONNECT, &connect) == 0);

  /* Through HBM, through host memory, over the port. */
  struct weft_cmd cmd[3];
  cmd[0] = cmd_copy(load->to.va, load->to.key, load->from.va, load->from.key, (uint32_t)MIB(16), load->sync);
  cmd[1] = cmd_copy(load->host.va, load->host.key, load->from.va, load->from.key, (uint32_t)MIB(4), load->sync);
  cmd[2] = cmd_copy(load->from.va, load->from.key, load->to.va, load->to.key, (uint32_t)MIB(8), load->sync);
  cmd[2].op = WEFT_OP_RDMA;
  cmd[2].arg0 = WEFT_RDMA_WRITE_IMM;
  cmd[2].key[2] = a.channel;
  for (int i = 0; i < 3000; ++i) queue_put(&load->busy, &cmd[i % 3]);
  struct weft_cmd never = cmd[0];
  never.wait_id = load->sync;
  never.wait_value = UINT64_MAX;
  for (int i = 0; i < 50; ++i) queue_put(&load->waiting, &never);
  queue_ring(&load->busy);
  queue_ring(&load->waiting);
  NEED(sync_wait(device, load->sync, load->base + 3, 60, NULL) == 0); /* it runs */
}

static void say(const char* word) {
  puts(word);
  fflush(stdout);
}

/* One copy, seen by the CPU: the device is well. */
int mode_smoke(void) {
  struct device device = device_open();
  struct queue queue;
  struct bo bo;
  CHECK_EQ(queue_create(&device, 16, 0, &queue), 0);
  CHECK_EQ(bo_create(&device, MIB(2), 0, &bo), 0);
  CHECK_EQ(((uint64_t*)bo.map)[MIB(1) / 8], 0);
  memset(bo.map, 0x3c, MIB(1));
  const uint32_t sync = sync_create(&device, 1);
  const struct weft_cmd cmd = cmd_copy(bo.va + MIB(1), bo.key, bo.va, bo.key, (uint32_t)MIB(1), sync);
  const uint64_t before = device.shadow[sync];
  queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(sync_wait(&device, sync, before + 1, 20, NULL), 0);
  CHECK_EQ(memcmp(bo.map, (char*)bo.map + MIB(1), MIB(1)), 0);
  return failures ? 1 : 0;
}

/* Busy until killed. Says "busy" when it is. */
int mode_busy(void) {
  struct load load;
  load_start(&load);
  say("busy");
  for (;;) sync_wait(&load.device, load.sync, UINT64_MAX, 3600, NULL);
}

static sigjmp_buf on_bus_error;
static void bus_error(int number) { siglongjmp(on_bus_error, number); }

/* Reads HBM: the value, or -1 when the mapping was revoked. */
static int peek(const volatile uint8_t* at) { return sigsetjmp(on_bus_error, 1) ? -1 : *at; }

static size_t shadow_values(const struct device* device) {
  size_t count = 0;
  for (uint32_t i = 0; i < WEFT_SYNCS_PER_CONTEXT; ++i) count += device->shadow[i] != 0;
  return count;
}

/* Once the device is gone its maps show nothing that could be taken for progress, whatever is written where. */
static void no_progress(struct load* load) {
  const int64_t end = now_ns() + 30 * SECOND; /* the maps go one after the other, a moment after users are told */
  while ((load->busy.head->state != WEFT_QUEUE_HALTED || shadow_values(&load->device) != 0) && now_ns() < end)
    usleep(1000);
  struct queue* queue[] = {&load->busy, &load->waiting};
  for (uint32_t i = 0; i < WEFT_DOORBELL_PAGE / 8; ++i) load->device.doorbell[i] = UINT64_MAX;
  for (uint32_t i = 0; i < load->busy.entries; ++i) memset(&load->busy.slot[i], 0xff, sizeof(struct weft_cmd));
  for (uint32_t i = 0; i < load->waiting.entries; ++i) memset(&load->waiting.slot[i], 0xff, sizeof(struct weft_cmd));
  for (size_t i = 0; i < COUNT(queue); ++i) {
    CHECK_EQ(queue[i]->head->state, WEFT_QUEUE_HALTED);
    CHECK_EQ(queue[i]->head->fetched, 0);
    CHECK_EQ(queue[i]->head->completed, 0);
  }
  CHECK_EQ(shadow_values(&load->device), 0);
}

/*
 * Busy; says "busy", then waits for somebody to reset or remove the device. Every call must fail clearly and soon, no
 * mapping may show what it should not. It sleeps until it is told, or looks again and again.
 */
static int lost(int expected, bool sleeps) {
  struct load load;
  struct drm_weft_wait wait;
  struct bo bo;
  const struct sigaction action = {.sa_handler = bus_error, .sa_flags = SA_NODEFER};
  sigaction(SIGBUS, &action, NULL);
  load_start(&load);
  *(volatile uint8_t*)load.to.map = 1;
  say("busy");

  int ret;
  do {
    ret = sync_wait(&load.device, load.sync, UINT64_MAX, sleeps ? 120 : 0, &wait);
  } while (ret == -ETIME && !sleeps);
  CHECK_EQ(peek(load.to.map), -1); /* from the moment on that the loss is told */
  CHECK_EQ(ret, expected);
  CHECK(wait.error_type == WEFT_EVENT_FATAL || expected == -ENODEV);
  struct drm_weft_context context = {.size = sizeof(context)};
  if (expected == -EIO) {
    CHECK_EQ(call(load.device.fd, DRM_IOCTL_WEFT_CONTEXT, &context), 0);
    CHECK_EQ(context.state, EIO);
  }
  CHECK_EQ(bo_create(&load.device, 4096, 0, &bo), expected);
  struct drm_weft_sync_create sync = {.size = sizeof(sync), .count = 1};
  CHECK_EQ(call(load.device.fd, DRM_IOCTL_WEFT_SYNC_CREATE, &sync), expected);
  struct drm_weft_handle handle = {.size = sizeof(handle), .handle = load.busy.number};
  CHECK_EQ(call(load.device.fd, DRM_IOCTL_WEFT_QUEUE_DESTROY, &handle), expected);
  handle.handle = load.host.handle;
  CHECK_EQ(call(load.device.fd, DRM_IOCTL_WEFT_HOST_UNREGISTER, &handle), expected);
  struct drm_weft_host_register host = {.size = sizeof(host), .address = load.host.address, .bytes = 4096};
  CHECK_EQ(call(load.device.fd, DRM_IOCTL_WEFT_HOST_REGISTER, &host), expected);
  struct drm_weft_channel_create channel = {.size = sizeof(channel)};
  CHECK_EQ(call(load.device.fd, DRM_IOCTL_WEFT_CHANNEL_CREATE, &channel), expected);
  CHECK_EQ(sync_wait(&load.device, load.sync, load.base, 0, NULL), expected);

  /* All HBM is revoked; doorbells, rings and shadow do not kill who has not looked yet. */
  CHECK_EQ(peek((const volatile uint8_t*)load.from.map + MIB(8)), -1);
  sync_signal(&load.device, load.sync, 1);
  queue_ring(&load.busy);
  queue_ring(&load.waiting);
  load.busy.slot[0] = load.busy.slot[1];
  load.waiting.slot[0] = load.waiting.slot[1];
  CHECK_EQ(load.waiting.head->state, WEFT_QUEUE_HALTED); /* a ring in HBM is gone */
  if (expected == -ENODEV) {
    no_progress(&load);
  } else {
    CHECK(load.device.shadow[load.sync] >= load.base);
  }
  say(failures ? "wrong" : "lost");
  return failures ? 1 : 0;
}

int mode_reset(void) { return lost(-EIO, true); }
int mode_look(void) { return lost(-EIO, false); }
int mode_hold(void) { return lost(-ENODEV, true); }

/* A device that failed, and was asked before: it opens, and tells what was known last. */
int mode_failed(void) {
  struct drm_weft_device it = {0};
  struct drm_weft_sensors sensors = {0};
  struct drm_weft_hbm hbm = {0};
  static struct drm_weft_counter counter[256];
  static struct drm_weft_log_record record[64];
  struct drm_weft_log log = {.size = sizeof(log), .count = COUNT(record), .records = (uintptr_t)record};
  struct drm_weft_context context = {.size = sizeof(context)};
  struct drm_weft_port port = {.size = sizeof(port)};
  const int fd = open(device_path, O_RDWR | O_CLOEXEC);
  NEED(fd != -1);
  uint32_t bytes = sizeof(it);
  CHECK_EQ(info(fd, WEFT_INFO_DEVICE, 0, &it, &bytes), 0);
  CHECK(it.state == WEFT_STATE_FAILED);
  CHECK(it.serial[0] != 0 && it.hbm_bytes > 0 && it.fw_version != 0);
  bytes = sizeof(hbm);
  CHECK_EQ(info(fd, WEFT_INFO_HBM, 0, &hbm, &bytes), 0);
  CHECK_EQ(hbm.total, it.hbm_bytes);
  bytes = sizeof(sensors);
  CHECK_EQ(info(fd, WEFT_INFO_SENSORS, 0, &sensors, &bytes), 0);
  CHECK(sensors.time_ns != 0 && sensors.temperature_mc > 1000);
  CHECK_EQ(call(fd, DRM_IOCTL_WEFT_LOG, &log), 0);
  CHECK(log.count >= 1 && record[0].number == log.first && record[0].text[0] != 0);
  bytes = sizeof(counter);
  CHECK_EQ(info(fd, WEFT_INFO_COUNTERS, 0, counter, &bytes), -EIO); /* it does not answer on the bus */
  CHECK_EQ(call(fd, DRM_IOCTL_WEFT_PORT, &port), -EIO);
  CHECK_EQ(call(fd, DRM_IOCTL_WEFT_CONTEXT, &context), -EIO);
  close(fd);
  return failures ? 1 : 0;
}

/* Opens over and over until /tmp/stop is there, while drivers come and go: no node, no device or a context, nothing else. */
int mode_opens(void) {
  unsigned opened = 0, gone = 0;
  while (access("/tmp/stop", F_OK) != 0) {
    struct drm_weft_context context = {.size = sizeof(context)};
    const int fd = open(device_path, O_RDWR | O_CLOEXEC);
    const int ret = fd == -1 ? -errno : call(fd, DRM_IOCTL_WEFT_CONTEXT, &context);
    if (fd != -1) close(fd);
    if (ret == 0) {
      ++opened;
    } else {
      CHECK(ret == -ENODEV || (fd == -1 && ret == -ENOENT));
      if (failures > 10) break;
      ++gone;
    }
  }
  CHECK(opened > 0 && gone > 0);
  return failures ? 1 : 0;
}

static void* close_all(void* data) {
  struct device* device = data;
  for (int i = 0; i < LOST; ++i) device_close(&device[i]);
  return NULL;
}

static void* zero_on(void* data) {
  const volatile bool* stop = data;
  struct device device = device_open();
  while (!*stop) {
    struct drm_weft_bo_create create = {.size = sizeof(create), .bytes = MIB(128)};
    CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_CREATE, &create), 0);
    CHECK_EQ(gem_close(device.fd, create.handle), 0);
  }
  device_close(&device);
  return NULL;
}

/*
 * Files that lost their contexts to a reset are closed, beside somebody who keeps the device busy by allocations: this
 * is nobody else's business. New mappings can be read, and errors of queues are told.
 */
int mode_innocent(void) {
  static struct device lost[LOST];
  bool stop = false;
  pthread_t closer, zeroer;
  struct drm_weft_device it;
  char path[64];
  const struct sigaction action = {.sa_handler = bus_error, .sa_flags = SA_NODEFER};
  sigaction(SIGBUS, &action, NULL);
  for (int i = 0; i < LOST; ++i) lost[i] = device_open();
  uint32_t bytes = sizeof(it);
  NEED(info(lost[0].fd, WEFT_INFO_DEVICE, 0, &it, &bytes) == 0);
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/reset", (const char*)it.bdf);
  const int reset = open(path, O_WRONLY);
  NEED(reset != -1 && write(reset, "1", 1) == 1);

  struct device device = device_open();
  struct drm_weft_bo_create create = {.size = sizeof(create), .bytes = MIB(4)};
  NEED(call(device.fd, DRM_IOCTL_WEFT_BO_CREATE, &create) == 0);
  NEED(pthread_create(&zeroer, NULL, zero_on, &stop) == 0);
  NEED(pthread_create(&closer, NULL, close_all, lost) == 0);
  uint64_t faults = 0, killed = 0, untold = 0;
  while (pthread_tryjoin_np(closer, NULL) == EBUSY) {
    for (int i = 0; i < 200; ++i, ++faults) {
      void* map = mmap(NULL, MIB(4), PROT_READ, MAP_SHARED, device.fd, (off_t)create.mmap_offset);
      NEED(map != MAP_FAILED);
      killed += peek(map) != 0;
      munmap(map, MIB(4));
    }
    struct queue queue;
    const struct weft_cmd wrong = {.op = 0xff, .version = WEFT_CMD_VERSION, .wait_id = WEFT_SYNC_NONE};
    NEED(queue_create(&device, 16, 0, &queue) == 0);
    queue_put(&queue, &wrong);
    queue_ring(&queue);
    untold += sync_wait(&device, sync_create(&device, 1), UINT64_MAX, 20, NULL) != -EIO;
    CHECK_EQ(queue_destroy(&queue), 0);
  }
  stop = true;
  pthread_join(zeroer, NULL);
  CHECK(faults > 0);
  CHECK_EQ(killed, 0);
  CHECK_EQ(untold, 0);
  return failures ? 1 : 0;
}

/*
 * An object of 3 MiB + 4 KiB, attached by weft_importer for the function `bdf` and then left alone: exit code 0 when it
 * was attached, else the errno. Prints where the object is in HBM.
 */
int mode_export(const char* bdf, bool mapped) {
  struct device device = device_open();
  struct drm_weft_bo_create create = {.size = sizeof(create), .bytes = MIB(3) + KIB(4)};
  NEED(call(device.fd, DRM_IOCTL_WEFT_BO_CREATE, &create) == 0);
  struct drm_prime_handle prime = {.handle = create.handle, .flags = DRM_CLOEXEC | DRM_RDWR};
  NEED(call(device.fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) == 0);
  char text[64];
  const int bytes = snprintf(text, sizeof(text), "%s %s %d", mapped ? "attach" : "watch", bdf, prime.fd);
  const int importer = open("/dev/weft_importer", O_RDWR | O_CLOEXEC);
  NEED(importer != -1);
  if (write(importer, text, (size_t)bytes) != bytes) return errno;
  struct drm_weft_bo_info it = {.size = sizeof(it), .handle = create.handle};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_INFO, &it), 0);
  CHECK_EQ(it.exports, 1);
  CHECK_EQ(it.pins, mapped ? 2 : 0); /* the importer's, and the core's for the mapping */
  printf("%llx\n", (unsigned long long)it.hbm_offset);
  return failures ? 255 : 0;
}
