/* SPDX-License-Identifier: MIT */
/* Command queues through a raw ring. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device.h"

static struct weft_cmd cmd_plain(uint8_t op, uint32_t signal) {
  struct weft_cmd cmd = {
      .op = op, .version = WEFT_CMD_VERSION, .wait_id = WEFT_SYNC_NONE, .signal_id = signal, .signal_add = 1};
  return cmd;
}

static void ops(uint32_t flags) {
  enum { kElements = 1000 };
  struct device device = device_open();
  struct queue queue;
  struct bo a, b;
  CHECK_EQ(queue_create(&device, 32, flags, &queue), 0);
  CHECK_EQ(bo_create(&device, KIB(64), 0, &a), 0);
  CHECK_EQ(bo_create(&device, KIB(64), 0, &b), 0);
  const uint32_t sync = sync_create(&device, 1);
  uint64_t expected = device.shadow[sync];

  /* FILL, then COPY of an odd piece after it. */
  struct weft_cmd cmd = cmd_fill(a.va, a.key, 0x1122334455667788ull, KIB(4), sync);
  queue_put(&queue, &cmd);
  cmd = cmd_copy(b.va + 5, b.key, a.va + 1, a.key, 999, sync);
  cmd.flags = WEFT_CMD_FENCED;
  queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(sync_wait(&device, sync, expected += 2, 10, NULL), 0);
  CHECK_EQ(((uint64_t*)a.map)[KIB(4) / 8 - 1], 0x1122334455667788ull);
  CHECK_EQ(((uint64_t*)a.map)[KIB(4) / 8], 0);
  CHECK_EQ(memcmp((char*)b.map + 5, (char*)a.map + 1, 999), 0);
  CHECK_EQ(((uint8_t*)b.map)[4], 0);
  CHECK_EQ(((uint8_t*)b.map)[5 + 999], 0);

  /* REDUCE: sums of small integers are exact in every type. */
  float* x = (float*)((char*)a.map + KIB(8));
  float* y = (float*)((char*)b.map + KIB(8));
  for (int i = 0; i < kElements; ++i) {
    x[i] = (float)i;
    y[i] = (float)(3 * i - 700);
  }
  cmd = cmd_plain(WEFT_OP_REDUCE, sync);
  cmd.arg0 = WEFT_F32;
  cmd.arg1 = WEFT_SUM;
  cmd.addr[0] = a.va + KIB(8);
  cmd.addr[1] = a.va + KIB(8);
  cmd.addr[2] = b.va + KIB(8);
  cmd.key[0] = cmd.key[1] = a.key;
  cmd.key[2] = b.key;
  cmd.length = kElements;
  queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(sync_wait(&device, sync, ++expected, 10, NULL), 0);
  int wrong = 0;
  for (int i = 0; i < kElements; ++i) wrong += x[i] != (float)(4 * i - 700);
  CHECK_EQ(wrong, 0);
  CHECK_EQ(x[kElements], 0);

  /* TIMESTAMP goes up; SIGNAL adds what it is told; NOP waits for it. */
  cmd = cmd_plain(WEFT_OP_TIMESTAMP, sync);
  cmd.addr[0] = a.va + KIB(32);
  cmd.key[0] = a.key;
  queue_put(&queue, &cmd);
  cmd.addr[0] += 8;
  cmd.flags = WEFT_CMD_FENCED;
  queue_put(&queue, &cmd);
  cmd = cmd_plain(WEFT_OP_SIGNAL, sync);
  cmd.signal_add = 0;
  cmd.addr[0] = 10;
  queue_put(&queue, &cmd);
  cmd = cmd_plain(WEFT_OP_NOP, sync);
  cmd.wait_id = sync;
  cmd.wait_value = expected + 12;
  queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(sync_wait(&device, sync, expected += 13, 10, NULL), 0);
  const uint64_t* stamp = (uint64_t*)((char*)a.map + KIB(32));
  CHECK(stamp[0] != 0 && stamp[1] >= stamp[0]);

  CHECK_EQ(queue.head->state, WEFT_QUEUE_RUNNING);
  CHECK_EQ(queue.head->completed, queue.producer);
  CHECK_EQ(queue.head->fetched, queue.producer);
  CHECK_EQ(queue_destroy(&queue), 0);
  bo_close(&device, &a);
  bo_close(&device, &b);
  device_close(&device);
}

void test_queue_ops(void) { ops(0); }
void test_queue_hbm(void) { ops(WEFT_QUEUE_IN_HBM); }

/* The smallest and the largest ring, round and round. */
void test_queue_wrap(void) {
  static const uint32_t entries[] = {16, 65536};
  struct device device = device_open();
  const uint32_t sync = sync_create(&device, 1);
  uint64_t expected = device.shadow[sync];
  for (size_t e = 0; e < COUNT(entries); ++e) {
    const uint32_t commands = entries[e] == 16 ? 1000 : 70000;
    struct queue queue;
    CHECK_EQ(queue_create(&device, entries[e], 0, &queue), 0);
    const struct weft_cmd cmd = cmd_plain(WEFT_OP_NOP, sync);
    for (uint32_t i = 0; i < commands; ++i) queue_put(&queue, &cmd);
    queue_ring(&queue);
    CHECK_EQ(sync_wait(&device, sync, expected += commands, 60, NULL), 0);
    CHECK_EQ(queue.head->completed, commands);
    CHECK_EQ(queue_destroy(&queue), 0);
  }
  device_close(&device);
}

static volatile bool spinning;

/* Keeps a CPU from everybody else, interrupt threads included. */
static void* spin(void* data) {
  const struct sched_param param = {.sched_priority = 99};
  cpu_set_t cpu;
  CPU_ZERO(&cpu);
  CPU_SET((size_t)data, &cpu);
  NEED(pthread_setaffinity_np(pthread_self(), sizeof(cpu), &cpu) == 0);
  NEED(pthread_setschedparam(pthread_self(), SCHED_FIFO, &param) == 0);
  while (spinning) continue;
  return NULL;
}

/* More queues fail at once than the event queue has room for, while nobody can read it: each waiter is told. */
void test_queue_events_lost(void) {
  enum { kContexts = 20, kCpus = 16 };
  static struct device device[kContexts];
  static struct queue queue[kContexts][WEFT_QUEUES_PER_CONTEXT];
  static struct drm_weft_counter counter[256];
  const struct sched_param high = {.sched_priority = 98}, plain = {0};
  const struct weft_cmd wrong = {.op = 0xff, .version = WEFT_CMD_VERSION, .wait_id = WEFT_SYNC_NONE};
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  pthread_t spinner[kCpus];
  uint64_t lost[2] = {0};
  NEED(cpus >= 1 && cpus <= kCpus);
  for (size_t c = 0; c < kContexts; ++c) {
    device[c] = device_open();
    for (size_t q = 0; q < WEFT_QUEUES_PER_CONTEXT; ++q) {
      /* One ring in HBM, and those in host memory. */
      NEED(queue_create(&device[c], 16, q == 0 ? WEFT_QUEUE_IN_HBM : 0, &queue[c][q]) == 0);
      queue_put(&queue[c][q], &wrong);
      NEED(queue[c][q].head->state == WEFT_QUEUE_RUNNING); /* mapped, before nobody else may run */
    }
  }
  for (int round = 0; round < 2; ++round) {
    uint32_t bytes = sizeof(counter);
    CHECK_EQ(info(device[0].fd, WEFT_INFO_COUNTERS, 0, counter, &bytes), 0);
    lost[round] = counter[WEFT_CTR_events_lost].value;
    if (round == 1) break;
    spinning = true;
    for (long i = 0; i < cpus - 1; ++i) NEED(pthread_create(&spinner[i], NULL, spin, (void*)(i + 1)) == 0);
    cpu_set_t first, all;
    NEED(pthread_getaffinity_np(pthread_self(), sizeof(all), &all) == 0);
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    NEED(pthread_setaffinity_np(pthread_self(), sizeof(first), &first) == 0);
    NEED(pthread_setschedparam(pthread_self(), SCHED_FIFO, &high) == 0);
    usleep(10000); /* the others spin */
    for (size_t c = 0; c < kContexts; ++c)
      for (size_t q = 0; q < WEFT_QUEUES_PER_CONTEXT; ++q) queue_ring(&queue[c][q]);
    for (size_t c = 0; c < kContexts; ++c)
      for (size_t q = 0; q < WEFT_QUEUES_PER_CONTEXT; ++q)
        while (queue[c][q].head->state != WEFT_QUEUE_HALTED) continue;
    spinning = false;
    NEED(pthread_setschedparam(pthread_self(), SCHED_OTHER, &plain) == 0);
    NEED(pthread_setaffinity_np(pthread_self(), sizeof(all), &all) == 0);
    for (long i = 0; i < cpus - 1; ++i) pthread_join(spinner[i], NULL);
  }
  CHECK(lost[1] > lost[0]); /* or this proves nothing */
  for (size_t c = 0; c < kContexts; ++c) {
    const uint32_t sync = sync_create(&device[c], 1);
    for (uint32_t q = 0; q < WEFT_QUEUES_PER_CONTEXT; ++q) {
      struct drm_weft_wait wait;
      const struct listed it = {&queue[c][q].number, 1, NULL, 0};
      CHECK_EQ(sync_wait_listed(&device[c], sync, UINT64_MAX, 20, it, &wait), -EIO);
      CHECK_EQ(wait.error, WEFT_ERR_BAD_OP);
      CHECK_EQ(wait.object, q);
    }
    device_close(&device[c]);
  }
}

/* A failed command: the waiter learns which, and of which queue; without that queue all is well again. */
void test_queue_error(void) {
  struct device device = device_open();
  struct queue good, bad;
  struct bo bo;
  CHECK_EQ(queue_create(&device, 16, 0, &good), 0);
  CHECK_EQ(queue_create(&device, 16, 0, &bad), 0);
  CHECK_EQ(bo_create(&device, KIB(4), 0, &bo), 0);
  const uint32_t sync = sync_create(&device, 1);
  const uint64_t base = device.shadow[sync];
  struct drm_weft_wait wait;

  struct weft_cmd cmd = cmd_plain(WEFT_OP_NOP, sync);
  queue_put(&bad, &cmd);
  queue_put(&bad, &cmd);
  cmd = cmd_copy(bo.va, bo.key, bo.va, bo.key, KIB(8), sync); /* beyond the object */
  queue_put(&bad, &cmd);
  queue_ring(&bad);
  CHECK_EQ(sync_wait(&device, sync, base + 3, 10, &wait), -EIO);
  CHECK_EQ(wait.error, WEFT_ERR_BAD_RANGE);
  CHECK_EQ(wait.error_type, WEFT_EVENT_QUEUE_ERROR);
  CHECK_EQ(wait.object, bad.number);
  CHECK_EQ(wait.value, 2);
  CHECK_EQ(bad.head->state, WEFT_QUEUE_HALTED);
  CHECK_EQ(bad.head->error, WEFT_ERR_BAD_RANGE);
  CHECK_EQ(bad.head->error_index, 2);
  CHECK_EQ(sync_wait(&device, sync, base + 2, 0, NULL), 0); /* what was reached counts all the same */

  /* Who lists what concerns them is not disturbed by others' failures. */
  const uint32_t both[] = {good.number, bad.number}, nobody = 15;
  CHECK_EQ(sync_wait_listed(&device, sync, base + 3, 0.3, (struct listed){both, 1, NULL, 0}, NULL), -ETIME);
  CHECK_EQ(sync_wait_listed(&device, sync, base + 3, 0.3, (struct listed){&nobody, 1, NULL, 0}, NULL), -ETIME);
  CHECK_EQ(sync_wait_listed(&device, sync, base + 3, 0, (struct listed){0}, NULL), -ETIME);
  CHECK_EQ(sync_wait_listed(&device, sync, base + 3, 10, (struct listed){both, 2, NULL, 0}, &wait), -EIO);
  CHECK_EQ(wait.error, WEFT_ERR_BAD_RANGE);
  CHECK_EQ(wait.object, bad.number);
  CHECK_EQ(sync_wait_listed(&device, sync, base + 3, 0.1, (struct listed){NULL, 0, both, 2}, NULL), -ETIME);

  const uint32_t number = bad.number;
  CHECK_EQ(queue_destroy(&bad), 0);
  CHECK_EQ(sync_wait(&device, sync, base + 3, 0, NULL), -ETIME);
  /* The number is used again, the error is not. */
  CHECK_EQ(queue_create(&device, 16, 0, &bad), 0);
  CHECK_EQ(bad.number, number);
  cmd = cmd_plain(WEFT_OP_NOP, sync);
  queue_put(&bad, &cmd);
  queue_ring(&bad);
  queue_put(&good, &cmd);
  queue_ring(&good);
  CHECK_EQ(sync_wait(&device, sync, base + 4, 10, NULL), 0);

  /* Garbage of every kind halts the queue by name. */
  static const struct {
    uint8_t op, version;
    uint32_t key, error;
  } wrong[] = {
      {0xff, WEFT_CMD_VERSION, 0, WEFT_ERR_BAD_OP},
      {WEFT_OP_GEMM, WEFT_CMD_VERSION, 0, WEFT_ERR_BAD_OP},
      {WEFT_OP_NOP, 0, 0, WEFT_ERR_BAD_VERSION},
      {WEFT_OP_FILL, WEFT_CMD_VERSION, 0, WEFT_ERR_BAD_KEY},
      {WEFT_OP_FILL, WEFT_CMD_VERSION, 0xffffffff, WEFT_ERR_BAD_KEY},
  };
  for (size_t i = 0; i < COUNT(wrong); ++i) {
    struct queue queue;
    CHECK_EQ(queue_create(&device, 16, 0, &queue), 0);
    cmd = cmd_fill(bo.va, wrong[i].key, 0, 8, WEFT_SYNC_NONE);
    cmd.op = wrong[i].op;
    cmd.version = wrong[i].version;
    queue_put(&queue, &cmd);
    queue_ring(&queue);
    CHECK_EQ(sync_wait(&device, sync, UINT64_MAX, 10, &wait), -EIO);
    CHECK_EQ(wait.error, wrong[i].error);
    CHECK_EQ(wait.object, queue.number);
    CHECK_EQ(queue_destroy(&queue), 0);
  }
  CHECK_EQ(queue_destroy(&good), 0);
  CHECK_EQ(queue_destroy(&bad), 0);
  bo_close(&device, &bo);
  device_close(&device);
}

void test_queue_wrong(void) {
  static const uint32_t entries[] = {0, 1, 8, 15, 17, 100, 65535, 65537, 131072, UINT32_MAX, 1u << 31};
  struct device device = device_open();
  struct queue queue[WEFT_QUEUES_PER_CONTEXT], more;
  for (size_t i = 0; i < COUNT(entries); ++i) CHECK_EQ(queue_create(&device, entries[i], 0, &more), -EINVAL);
  CHECK_EQ(queue_create(&device, 16, 2, &more), -EINVAL);
  for (uint32_t i = 0; i < WEFT_QUEUES_PER_CONTEXT; ++i) {
    CHECK_EQ(queue_create(&device, 16, i % 2 ? WEFT_QUEUE_IN_HBM : 0, &queue[i]), 0);
    CHECK_EQ(queue[i].number, i);
  }
  CHECK_EQ(queue_create(&device, 16, 0, &more), -ENOSPC);
  struct drm_weft_handle args = {.size = sizeof(args), .handle = WEFT_QUEUES_PER_CONTEXT};
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_QUEUE_DESTROY, &args), -ENOENT);
  args.handle = UINT32_MAX;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_QUEUE_DESTROY, &args), -ENOENT);
  for (uint32_t i = 0; i < WEFT_QUEUES_PER_CONTEXT; ++i) CHECK_EQ(queue_destroy(&queue[i]), 0);
  args.handle = 0;
  CHECK_EQ(call(device.fd, DRM_IOCTL_WEFT_QUEUE_DESTROY, &args), -ENOENT);

  /* A producer index beyond the ring. */
  CHECK_EQ(queue_create(&device, 16, 0, &more), 0);
  const uint32_t sync = sync_create(&device, 1);
  struct drm_weft_wait wait;
  more.producer = 17;
  queue_ring(&more);
  CHECK_EQ(sync_wait(&device, sync, UINT64_MAX, 10, &wait), -EIO);
  CHECK_EQ(wait.error, WEFT_ERR_OVERRUN);
  CHECK_EQ(queue_destroy(&more), 0);
  device_close(&device);
}

/* Commands that wait for what never comes do not hold anybody up. */
void test_queue_destroy_waiting(void) {
  struct device device = device_open();
  const uint32_t sync = sync_create(&device, 1);
  struct queue queue;
  CHECK_EQ(queue_create(&device, 256, 0, &queue), 0);
  struct weft_cmd cmd = cmd_plain(WEFT_OP_NOP, sync);
  cmd.wait_id = sync;
  cmd.wait_value = UINT64_MAX;
  for (int i = 0; i < 200; ++i) queue_put(&queue, &cmd);
  queue_ring(&queue);
  CHECK_EQ(queue_destroy(&queue), 0);
  CHECK_EQ(sync_wait(&device, sync, device.shadow[sync] + 1, 0, NULL), -ETIME);
  device_close(&device);
}

/* Another context's key is no key here; its sync objects and queues are other ones. */
void test_isolation(void) {
  struct device mine = device_open(), theirs = device_open();
  struct bo secret;
  CHECK_EQ(bo_create(&theirs, KIB(4), WEFT_BO_REMOTE_READ | WEFT_BO_REMOTE_WRITE, &secret), 0);
  memset(secret.map, 0x77, KIB(4));
  struct bo bo;
  CHECK_EQ(bo_create(&mine, KIB(4), 0, &bo), 0);
  const uint32_t sync = sync_create(&mine, 1);
  const uint32_t other = sync_create(&theirs, 1);
  const uint64_t before = theirs.shadow[other];
  for (int write = 0; write < 2; ++write) {
    struct queue queue;
    struct drm_weft_wait wait;
    CHECK_EQ(queue_create(&mine, 16, 0, &queue), 0);
    const struct weft_cmd cmd =
        write ? cmd_fill(secret.va, secret.key, 1, 8, sync) : cmd_copy(bo.va, bo.key, secret.va, secret.key, 64, sync);
    queue_put(&queue, &cmd);
    queue_ring(&queue);
    CHECK_EQ(sync_wait(&mine, sync, UINT64_MAX, 10, &wait), -EIO);
    CHECK_EQ(wait.error, WEFT_ERR_BAD_KEY);
    CHECK_EQ(queue_destroy(&queue), 0);
  }
  CHECK_EQ(((uint8_t*)bo.map)[0], 0);
  CHECK_EQ(((uint8_t*)secret.map)[0], 0x77);
  sync_signal(&mine, other, 1);
  CHECK_EQ(sync_wait(&theirs, other, before + 1, 0.1, NULL), -ETIME);
  device_close(&mine);
  device_close(&theirs);
}
