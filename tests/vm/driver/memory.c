/* SPDX-License-Identifier: MIT */
/* Information, HBM objects, host memory. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"

/* BAR2 as the kernel's PCI code sized it. */
static uint64_t bar2_bytes(const char* bdf) {
  char path[128];
  unsigned long long start = 0, end = 0;
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", bdf);
  FILE* f = fopen(path, "r");
  if (f == NULL) return 0;
  for (int i = 0; i <= 2; ++i) {
    if (fscanf(f, "%llx %llx %*x", &start, &end) != 2) end = start - 1;
  }
  fclose(f);
  return end - start + 1;
}

static uint64_t counter_of(const struct drm_weft_counter* counter, uint32_t bytes, const char* name) {
  for (size_t i = 0; i < bytes / sizeof(*counter); ++i)
    if (strcmp((const char*)counter[i].name, name) == 0) return counter[i].value;
  return UINT64_MAX;
}

void test_info(void) {
  struct device device = device_open();
  struct drm_weft_device it;
  uint32_t bytes = sizeof(it);
  CHECK_EQ(info(device.fd, WEFT_INFO_DEVICE, 0, &it, &bytes), 0);
  CHECK_EQ(bytes, sizeof(it));
  CHECK_EQ(it.hw_version >> 16, WEFT_HW_MAJOR);
  CHECK(it.fw_version != 0);
  CHECK_EQ(it.hbm_bytes, bar2_bytes((const char*)it.bdf));
  CHECK_EQ(it.syncs, WEFT_SYNCS_PER_CONTEXT);
  CHECK_EQ(it.queues, WEFT_QUEUES_PER_CONTEXT);
  CHECK(it.ports >= 1 && it.ports <= WEFT_PORTS_MAX);
  CHECK(it.serial[0] != 0);
  CHECK_EQ(it.serial[sizeof(it.serial) - 1], 0);
  CHECK(strchr((char*)it.bdf, ':') != NULL);

  CHECK_EQ(it.state, WEFT_STATE_READY);
  CHECK(it.contexts >= 1 && it.contexts_used >= 1 && it.contexts_used <= it.contexts);

  static struct drm_weft_counter counter[256];
  bytes = sizeof(counter);
  CHECK_EQ(info(device.fd, WEFT_INFO_COUNTERS, 0, counter, &bytes), 0);
  CHECK_EQ(bytes, WEFT_CTR_COUNT * sizeof(counter[0]));
  CHECK(counter_of(counter, bytes, "mbox_requests") > 0);
  CHECK_EQ(counter_of(counter, bytes, "mmio_unknown"), 0);
  CHECK_EQ(counter_of(counter, bytes, "no_such_counter"), UINT64_MAX);

  bytes = sizeof(counter);
  CHECK_EQ(info(device.fd, WEFT_INFO_PORT_COUNTERS, it.ports - 1, counter, &bytes), 0);
  CHECK_EQ(bytes, WEFT_PCTR_COUNT * sizeof(counter[0]));
  CHECK(counter_of(counter, bytes, "rx_frames") != UINT64_MAX);
  bytes = sizeof(counter);
  CHECK_EQ(info(device.fd, WEFT_INFO_PORT_COUNTERS, it.ports, counter, &bytes), -EINVAL);

  struct drm_weft_sensors sensors;
  bytes = sizeof(sensors);
  const uint64_t before = (uint64_t)now_ns();
  CHECK_EQ(info(device.fd, WEFT_INFO_SENSORS, 0, &sensors, &bytes), 0);
  CHECK(sensors.temperature_mc > 1000 && sensors.temperature_mc < 150000);
  CHECK(sensors.time_ns >= before && sensors.time_ns <= (uint64_t)now_ns());

  struct drm_weft_hbm hbm;
  bytes = sizeof(hbm);
  CHECK_EQ(info(device.fd, WEFT_INFO_HBM, 0, &hbm, &bytes), 0);
  CHECK_EQ(hbm.total, it.hbm_bytes);
  CHECK(hbm.largest_free <= hbm.total - hbm.used);

  /* Room for a part gets a part and the whole size; nothing is written beyond. */
  uint64_t part[2] = {0, 0x5a5a5a5a5a5a5a5aull};
  bytes = sizeof(part[0]);
  CHECK_EQ(info(device.fd, WEFT_INFO_HBM, 0, part, &bytes), 0);
  CHECK_EQ(bytes, sizeof(hbm));
  CHECK_EQ(part[0], hbm.total);
  CHECK_EQ(part[1], 0x5a5a5a5a5a5a5a5aull);

  bytes = sizeof(hbm);
  CHECK_EQ(info(device.fd, 99, 0, &hbm, &bytes), -EINVAL);
  CHECK_EQ(info(device.fd, WEFT_INFO_HBM, 1, &hbm, &bytes), -EINVAL);
  CHECK_EQ(info(device.fd, WEFT_INFO_HBM, 0, (void*)8, &bytes), -EFAULT);

  struct drm_weft_port p = {.size = sizeof(p)};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), 0);
  CHECK(p.state == WEFT_PORT_ACTIVE || p.state == WEFT_PORT_DOWN);
  CHECK_EQ(p.mac[0] & 1, 0);
  CHECK(p.mtu >= 256 && p.speed_mbps > 0);
  /* An empty table but for the two entries that each port starts with. */
  CHECK_EQ(p.gid_count, 2);
  struct drm_weft_gid gid[4] = {[1] = {.index = 77}};
  p.gid_count = 1;
  p.gids = (uintptr_t)gid;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), 0);
  CHECK_EQ(p.gid_count, 2);
  CHECK_EQ(gid[1].index, 77); /* nothing is written beyond the room */
  p.gid_count = COUNT(gid);
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), 0);
  CHECK_EQ(p.gid_count, 2);
  CHECK(gid[0].index == 0 && gid[0].type == WEFT_GID_ROCE_V2_IPV4 && gid[0].vlan == WEFT_VLAN_NONE);
  CHECK_EQ(memcmp(gid[0].gid + 12, p.ipv4, sizeof(p.ipv4)), 0);
  CHECK(gid[1].index == 1 && gid[1].type == WEFT_GID_ROCE_V2_IPV6);
  CHECK_EQ(memcmp(gid[1].gid, p.ipv6, sizeof(p.ipv6)), 0);
  p.gids = 8;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), -EFAULT);
  p.gids = 0;
  p.reserved1 = 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), -EINVAL);
  p.reserved1 = 0;
  p.port = it.ports;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), -EINVAL);

  struct drm_weft_log_record record[64];
  struct drm_weft_log log = {.size = sizeof(log), .count = COUNT(record), .records = (uintptr_t)record};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_LOG, &log), 0);
  CHECK(log.count >= 1 && log.count <= COUNT(record));
  CHECK(record[0].text[0] != 0 && record[0].text[sizeof(record[0].text) - 1] == 0);
  for (uint32_t i = 0; i < log.count; ++i) CHECK_EQ(record[i].number, log.first + i);
  log.count = 0;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_LOG, &log), 0);
  CHECK_EQ(log.count, 0);
  device_close(&device);
}

/* The rules at the head of weft_accel.h, on one ioctl for all. */
void test_sizes(void) {
  struct {
    struct drm_weft_port known;
    uint64_t more;
  } longer = {.known = {.size = sizeof(longer)}};
  const unsigned long port_longer = DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_PORT, longer);
  const unsigned long port_shorter = DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_PORT, uint64_t[2]);
  const unsigned long port_tiny = DRM_IOWR(DRM_COMMAND_BASE + DRM_WEFT_PORT, uint32_t);
  struct device device = device_open();

  CHECK_EQ(call(device.fd, port_longer, &longer), 0);
  CHECK(longer.known.mtu >= 256);
  longer.more = 1;
  CHECK_EQ(call(device.fd, port_longer, &longer), -E2BIG);

  struct drm_weft_port p = {.size = 16, .speed_mbps = 77};
  CHECK_EQ(call(device.fd, port_shorter, &p), 0);
  CHECK(p.state == WEFT_PORT_ACTIVE || p.state == WEFT_PORT_DOWN); /* inside of the 16 bytes */
  CHECK_EQ(p.speed_mbps, 77);
  CHECK_EQ(call(device.fd, port_tiny, &p), -EINVAL);
  p.size = sizeof(p) - 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), -EINVAL);
  p.size = 0;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), -EINVAL);
  p.size = sizeof(p);
  p.flags = 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &p), -EINVAL);
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, NULL), -EFAULT);
  CHECK_EQ(call(device.fd, DRM_IOWR(DRM_COMMAND_BASE + 0x11, struct drm_weft_port), &p), -EINVAL);
  CHECK_EQ(call(device.fd, DRM_IOWR(DRM_COMMAND_BASE + 0x5f, struct drm_weft_port), &p), -EINVAL);
  device_close(&device);
}

void test_context(void) {
  struct device a = device_open(), b = device_open();
  struct drm_weft_context ca = {.size = sizeof(ca)}, cb = {.size = sizeof(cb)};
  CHECK_EQ(call(a.fd, DRM_IOCTL_WEFT_CONTEXT, &ca), 0);
  CHECK_EQ(call(b.fd, DRM_IOCTL_WEFT_CONTEXT, &cb), 0);
  CHECK(ca.ctx != cb.ctx && ca.ctx > 0 && cb.ctx > 0);
  CHECK(ca.generation != cb.generation);
  CHECK_EQ(ca.state, 0);
  CHECK_EQ(ca.shadow_bytes, WEFT_SYNCS_PER_CONTEXT * sizeof(uint64_t));

  /* One's offsets do not open the other's pages, and nothing can be mapped that is not whole and shared. */
  CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, a.fd, (off_t)cb.doorbell_offset) == MAP_FAILED && errno == EACCES);
  CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_PRIVATE, a.fd, (off_t)ca.doorbell_offset) == MAP_FAILED && errno == EINVAL);
  CHECK(mmap(NULL, 8192, PROT_WRITE, MAP_SHARED, a.fd, (off_t)ca.doorbell_offset) == MAP_FAILED && errno == EINVAL);
  CHECK(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, a.fd, 0) == MAP_FAILED && errno == EINVAL);
  CHECK(mmap(NULL, ca.shadow_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, (off_t)ca.shadow_offset) == MAP_FAILED &&
        errno == EACCES);
  CHECK_EQ(mprotect((void*)a.shadow, ca.shadow_bytes, PROT_READ | PROT_WRITE), -1);
  ca.flags = 1;
  CHECK_EQ(call(a.fd, DRM_IOCTL_WEFT_CONTEXT, &ca), -EINVAL);
  device_close(&a);
  device_close(&b);
}

static int bo_wrong(struct device* device, uint64_t bytes, uint64_t align, uint32_t flags) {
  struct drm_weft_bo_create create = {.size = sizeof(create), .flags = flags, .bytes = bytes, .align = align};
  const int ret = call(device->fd, DRM_IOCTL_WEFT_BO_CREATE, &create);
  if (ret == 0) gem_close(device->fd, create.handle);
  return ret;
}

void test_bo(void) {
  struct device device = device_open();
  struct bo bo;
  CHECK_EQ(bo_create(&device, 1, 0, &bo), 0);
  CHECK_EQ(bo.bytes, 4096);
  struct drm_weft_bo_info it = {.size = sizeof(it), .handle = bo.handle};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_INFO, &it), 0);
  CHECK_EQ(it.bytes, bo.bytes);
  CHECK_EQ(it.key, bo.key);
  CHECK_EQ(it.va, bo.va);
  CHECK_EQ(it.generation, bo.generation);
  CHECK_EQ(it.va, WEFT_VA_HBM + it.hbm_offset);
  CHECK_EQ(it.exports, 0);
  CHECK_EQ(it.pins, 0);
  it.flags = 1;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_INFO, &it), -EINVAL);
  it = (struct drm_weft_bo_info){.size = sizeof(it), .handle = 12345};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_INFO, &it), -ENOENT);
  const uint64_t generation = bo.generation;
  bo_close(&device, &bo);

  struct drm_weft_bo_create aligned = {.size = sizeof(aligned), .bytes = 4096, .align = MIB(16)};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_CREATE, &aligned), 0);
  CHECK_EQ(aligned.va % MIB(16), 0);
  CHECK(aligned.generation != generation);
  CHECK_EQ(gem_close(device.fd, aligned.handle), 0);
  CHECK_EQ(gem_close(device.fd, aligned.handle), -EINVAL);

  CHECK_EQ(bo_wrong(&device, 0, 0, 0), -EINVAL);
  CHECK_EQ(bo_wrong(&device, 4096, 3, 0), -EINVAL);
  CHECK_EQ(bo_wrong(&device, 4096, 1ull << 63, 0), -ENOSPC);
  CHECK_EQ(bo_wrong(&device, UINT64_MAX, 0, 0), -ENOSPC);
  CHECK_EQ(bo_wrong(&device, 1ull << 62, 0, 0), -ENOSPC);
  CHECK_EQ(bo_wrong(&device, 4096, 0, 1u << 31), -EINVAL);
  CHECK_EQ(bo_wrong(&device, 4096, 0, WEFT_BO_REMOTE_READ | WEFT_BO_REMOTE_WRITE), 0);
  device_close(&device);
}

/* What one user left is not the next one's to read. */
void test_bo_zeroed(void) {
  struct device device = device_open();
  struct bo bo;
  uint64_t place = 0;
  for (int round = 0; round < 3; ++round) {
    CHECK_EQ(bo_create(&device, MIB(4), 0, &bo), 0);
    if (round > 0) CHECK_EQ(bo.va, place); /* the same range, or this proves nothing */
    place = bo.va;
    const uint64_t* word = bo.map;
    size_t wrong = 0;
    for (size_t i = 0; i < bo.bytes / 8; ++i) wrong += word[i] != 0;
    CHECK_EQ(wrong, 0);
    memset(bo.map, 0xa5, bo.bytes);
    bo_close(&device, &bo);
  }
  device_close(&device);
}

void test_bo_exhaust(void) {
  struct device device = device_open();
  struct drm_weft_hbm before, after;
  uint32_t bytes = sizeof(before);
  static uint32_t handle[4096];
  uint32_t count = 0;
  int ret = 0;
  CHECK_EQ(info(device.fd, WEFT_INFO_HBM, 0, &before, &bytes), 0);
  const uint64_t piece = before.total / 64;
  while (count < COUNT(handle)) {
    struct drm_weft_bo_create create = {.size = sizeof(create), .bytes = piece};
    ret = call(device.fd, DRM_IOCTL_WEFT_BO_CREATE, &create);
    if (ret) break;
    handle[count++] = create.handle;
  }
  CHECK_EQ(ret, -ENOSPC);
  CHECK_EQ(count, (before.total - before.used) / piece);
  /* Every other one: half is free, but not in one piece. */
  for (uint32_t i = 0; i < count; i += 2) CHECK_EQ(gem_close(device.fd, handle[i]), 0);
  CHECK_EQ(bo_wrong(&device, piece * 3, 0, 0), -ENOSPC);
  CHECK_EQ(bo_wrong(&device, piece, 0, 0), 0);
  for (uint32_t i = 1; i < count; i += 2) CHECK_EQ(gem_close(device.fd, handle[i]), 0);
  bytes = sizeof(after);
  CHECK_EQ(info(device.fd, WEFT_INFO_HBM, 0, &after, &bytes), 0);
  CHECK_EQ(after.used, before.used);
  CHECK_EQ(after.objects, before.objects);
  CHECK_EQ(after.largest_free, before.largest_free);
  device_close(&device);
}

static void* allocate_half(void* data) {
  struct drm_weft_bo_create create = {.size = sizeof(create)};
  struct drm_weft_hbm hbm;
  uint32_t bytes = sizeof(hbm);
  bool* done = data;
  const int fd = open(device_path, O_RDWR | O_CLOEXEC);
  CHECK_EQ(info(fd, WEFT_INFO_HBM, 0, &hbm, &bytes), 0);
  create.bytes = hbm.total / 2;
  CHECK_EQ(call(fd, DRM_IOCTL_WEFT_BO_CREATE, &create), 0);
  __atomic_store_n(done, true, __ATOMIC_RELEASE);
  close(fd);
  return NULL;
}

/* Zeroing for one user lets the others' requests pass: many of them, in one large allocation. */
void test_bo_zero_shares(void) {
  struct device device = device_open();
  struct drm_weft_port port = {.size = sizeof(port)};
  bool done = false;
  pthread_t thread;
  unsigned answered = 0;
  NEED(pthread_create(&thread, NULL, allocate_half, &done) == 0);
  for (; !__atomic_load_n(&done, __ATOMIC_ACQUIRE); ++answered)
    CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_PORT, &port), 0);
  pthread_join(thread, NULL);
  CHECK(answered >= 32); /* in steps of 64 MiB there would be 8 or so */
  device_close(&device);
}

/* All contexts are in use: the device can still be asked, and says so. */
void test_full(void) {
  enum { kMost = 300 };
  static int fd[kMost];
  struct drm_weft_context context = {.size = sizeof(context)};
  struct drm_weft_device it;
  uint32_t bytes = sizeof(it);
  int count = 0, ret = 0;
  while (count < kMost) {
    fd[count] = open(device_path, O_RDWR | O_CLOEXEC);
    NEED(fd[count] != -1);
    ret = call(fd[count++], DRM_IOCTL_WEFT_CONTEXT, &context);
    if (ret) break;
  }
  CHECK_EQ(ret, -EBUSY);
  const int late = fd[count - 1];
  CHECK_EQ(info(late, WEFT_INFO_DEVICE, 0, &it, &bytes), 0);
  CHECK_EQ(it.contexts_used, it.contexts);
  CHECK_EQ(count - 1, it.contexts);
  struct drm_weft_sensors sensors;
  bytes = sizeof(sensors);
  CHECK_EQ(info(late, WEFT_INFO_SENSORS, 0, &sensors, &bytes), 0);
  struct drm_weft_port port = {.size = sizeof(port)};
  CHECK_EQ(call(late, DRM_IOCTL_WEFT_PORT, &port), 0);
  struct drm_weft_log_record record[4];
  struct drm_weft_log log = {.size = sizeof(log), .count = COUNT(record), .records = (uintptr_t)record};
  CHECK_EQ(call(late, DRM_IOCTL_WEFT_LOG, &log), 0);
  CHECK(log.count >= 1);
  struct drm_weft_bo_create create = {.size = sizeof(create), .bytes = 4096};
  CHECK_EQ(call(late, DRM_IOCTL_WEFT_BO_CREATE, &create), -EBUSY);
  struct drm_weft_sync_create sync = {.size = sizeof(sync), .count = 1};
  CHECK_EQ(call(late, DRM_IOCTL_WEFT_SYNC_CREATE, &sync), -EBUSY);
  /* One goes, and what was refused works. */
  close(fd[0]);
  CHECK_EQ(call(late, DRM_IOCTL_WEFT_SYNC_CREATE, &sync), 0);
  for (int i = 1; i < count; ++i) close(fd[i]);
}

void test_bo_mmap(void) {
  struct device device = device_open(), other = device_open();
  struct bo bo;
  CHECK_EQ(bo_create(&device, MIB(6), 0, &bo), 0);
  struct drm_weft_bo_info it = {.size = sizeof(it), .handle = bo.handle};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_INFO, &it), 0);

  /* Two maps of one object, and one of a part of it, are the same memory. */
  uint64_t* one = bo.map;
  uint64_t* two = mmap(NULL, bo.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device.fd, (off_t)it.mmap_offset);
  CHECK(two != MAP_FAILED);
  for (size_t i = 0; i < bo.bytes / 8; i += 511) one[i] = i * 3 + 1;
  size_t wrong = 0;
  for (size_t i = 0; i < bo.bytes / 8; i += 511) wrong += two[i] != i * 3 + 1;
  CHECK_EQ(wrong, 0);
  /* A hole in the middle; what is left goes on. */
  CHECK_EQ(munmap((char*)two + MIB(1), MIB(2)), 0);
  CHECK_EQ(two[0], 1);
  CHECK_EQ(two[MIB(5) / 8 / 511 * 511], MIB(5) / 8 / 511 * 511 * 3 + 1);
  munmap(two, bo.bytes);

  CHECK(mmap(NULL, bo.bytes, PROT_READ, MAP_SHARED, other.fd, (off_t)it.mmap_offset) == MAP_FAILED && errno == EACCES);
  CHECK(mmap(NULL, bo.bytes + 4096, PROT_READ, MAP_SHARED, device.fd, (off_t)it.mmap_offset) == MAP_FAILED);
  CHECK(mmap(NULL, bo.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, device.fd, (off_t)it.mmap_offset) == MAP_FAILED &&
        errno == EINVAL);

  /* The map holds the memory when the handle is gone. */
  CHECK_EQ(gem_close(device.fd, bo.handle), 0);
  one[7] = 42;
  CHECK_EQ(one[7], 42);
  munmap(bo.map, bo.bytes);
  device_close(&device);
  device_close(&other);
}

/* Export, and import into another context of the same device: the same object under another key. */
void test_bo_share(void) {
  struct device device = device_open(), other = device_open();
  struct bo bo;
  CHECK_EQ(bo_create(&device, MIB(1), 0, &bo), 0);
  ((uint64_t*)bo.map)[3] = 4711;
  struct drm_prime_handle prime = {.handle = bo.handle, .flags = DRM_CLOEXEC | DRM_RDWR, .fd = -1};
  CHECK_EQ(call(device.fd, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime), 0);
  CHECK_EQ(lseek(prime.fd, 0, SEEK_END), (off_t)bo.bytes);
  struct drm_weft_bo_info it = {.size = sizeof(it), .handle = bo.handle};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_BO_INFO, &it), 0);
  CHECK_EQ(it.exports, 1);

  struct drm_prime_handle import = {.fd = prime.fd};
  CHECK_EQ(call(other.fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &import), 0);
  struct drm_weft_bo_info theirs = {.size = sizeof(theirs), .handle = import.handle};
  CHECK_EQ(call(other.fd, DRM_IOCTL_WEFT_BO_INFO, &theirs), 0);
  CHECK_EQ(theirs.generation, bo.generation);
  CHECK_EQ(theirs.va, bo.va);
  CHECK(theirs.key != bo.key);
  close(prime.fd);
  bo_close(&device, &bo);
  device_close(&device);

  uint64_t* map = mmap(NULL, theirs.bytes, PROT_READ, MAP_SHARED, other.fd, (off_t)theirs.mmap_offset);
  CHECK(map != MAP_FAILED);
  CHECK_EQ(map[3], 4711);
  munmap(map, theirs.bytes);
  CHECK_EQ(gem_close(other.fd, import.handle), 0);

  /* What is not ours is not imported. */
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  import = (struct drm_prime_handle){.fd = null};
  CHECK(call(other.fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &import) < 0);
  close(null);
  device_close(&other);
}

static int host_register(struct device* device, void* address, uint64_t bytes, uint32_t flags,
                         struct drm_weft_host_register* out) {
  *out = (struct drm_weft_host_register){
      .size = sizeof(*out), .flags = flags, .address = (uintptr_t)address, .bytes = bytes};
  return call(device->fd, DRM_IOCTL_WEFT_HOST_REGISTER, out);
}

static int host_unregister(struct device* device, uint32_t handle) {
  struct drm_weft_handle args = {.size = sizeof(args), .handle = handle};
  return call(device->fd, DRM_IOCTL_WEFT_HOST_UNREGISTER, &args);
}

/* Host -> HBM -> host over every kind of page list: one page, one level, two levels; odd starts and lengths. */
void test_host(void) {
  static const struct {
    size_t start, bytes;
  } shape[] = {{0, 4096}, {13, 100}, {4093, 7}, {1, 65536}, {77, MIB(3) + 5}, {4095, MIB(2)}};
  struct device device = device_open();
  struct queue queue;
  struct bo bo;
  CHECK_EQ(queue_create(&device, 64, 0, &queue), 0);
  CHECK_EQ(bo_create(&device, MIB(4), 0, &bo), 0);
  const uint32_t sync = sync_create(&device, 1);
  uint64_t expected = device.shadow[sync];

  for (size_t s = 0; s < COUNT(shape); ++s) {
    const size_t room = shape[s].start + shape[s].bytes + 4096;
    uint8_t* from = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    uint8_t* to = aligned_alloc(4096, (room + 4095) / 4096 * 4096);
    NEED(from && to);
    for (size_t i = 0; i < room; ++i) from[i] = (uint8_t)(i * 7 + i / 251 + s);
    memset(to, 0xee, room);
    struct drm_weft_host_register in, out;
    CHECK_EQ(host_register(&device, from + shape[s].start, shape[s].bytes, 0, &in), 0);
    CHECK_EQ(host_register(&device, to + shape[s].start, shape[s].bytes, WEFT_HOST_WRITE, &out), 0);
    CHECK_EQ(in.va % 4096, (uintptr_t)(from + shape[s].start) % 4096);

    struct weft_cmd cmd = cmd_copy(bo.va + 3, bo.key, in.va, in.key, (uint32_t)shape[s].bytes, sync);
    queue_put(&queue, &cmd);
    cmd = cmd_copy(out.va, out.key, bo.va + 3, bo.key, (uint32_t)shape[s].bytes, sync);
    cmd.wait_id = sync;
    cmd.wait_value = expected + 1;
    queue_put(&queue, &cmd);
    queue_ring(&queue);
    expected += 2;
    CHECK_EQ(sync_wait(&device, sync, expected, 20, NULL), 0);
    CHECK_EQ(memcmp(from + shape[s].start, to + shape[s].start, shape[s].bytes), 0);
    /* Not a byte beyond. */
    if (shape[s].start) CHECK_EQ(to[shape[s].start - 1], 0xee);
    CHECK_EQ(to[shape[s].start + shape[s].bytes], 0xee);
    CHECK_EQ(host_unregister(&device, in.handle), 0);
    CHECK_EQ(host_unregister(&device, in.handle), -ENOENT);
    CHECK_EQ(host_unregister(&device, out.handle), 0);
    free(from);
    free(to);
  }

  struct drm_weft_host_register wrong;
  CHECK_EQ(host_register(&device, (void*)4096, 4096, 0, &wrong), -EFAULT);
  CHECK_EQ(host_register(&device, (void*)-4096, 8192, 0, &wrong), -EFAULT);
  CHECK_EQ(host_register(&device, bo.map, 4096, 0, &wrong), -EFAULT); /* a BAR is no host memory */
  CHECK_EQ(host_register(&device, &wrong, 0, 0, &wrong), -EINVAL);
  CHECK_EQ(host_register(&device, &wrong, UINT64_MAX, 0, &wrong), -EINVAL);
  CHECK_EQ(host_register(&device, &wrong, 8, 4, &wrong), -EINVAL);
  CHECK_EQ(queue_destroy(&queue), 0);
  bo_close(&device, &bo);
  device_close(&device);
}

/* As a user without CAP_IPC_LOCK and little RLIMIT_MEMLOCK. */
void test_host_limit(void) {
  struct device device = device_open();
  const pid_t child = fork();
  if (child == 0) {
    const struct rlimit limit = {KIB(64), KIB(64)};
    struct drm_weft_host_register r;
    void* memory = mmap(NULL, MIB(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    failures = 0;
    NEED(memory != MAP_FAILED);
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    CHECK_EQ(setuid(65534), 0);
    CHECK_EQ(host_register(&device, memory, MIB(1), WEFT_HOST_WRITE, &r), -ENOMEM);
    /* However much it is, nothing is allocated for it. */
    CHECK_EQ(host_register(&device, (void*)4096, 1ull << 37, WEFT_HOST_WRITE, &r), -ENOMEM);
    CHECK_EQ(host_register(&device, (void*)4096, 1ull << 40, WEFT_HOST_WRITE, &r), -EINVAL);
    /* Nothing of the refused one is counted; what is given back is there again. */
    for (int i = 0; i < 8; ++i) {
      CHECK_EQ(host_register(&device, memory, KIB(48), WEFT_HOST_WRITE, &r), 0);
      struct drm_weft_host_register second;
      CHECK_EQ(host_register(&device, (char*)memory + KIB(64), KIB(48), WEFT_HOST_WRITE, &second), -ENOMEM);
      CHECK_EQ(host_unregister(&device, r.handle), 0);
    }
    _exit(failures ? 1 : 0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  device_close(&device);
}
