/* SPDX-License-Identifier: MIT */
/* The driver as a program without libweft sees it: ioctls, maps, one ring. */
#ifndef DEVICE_H
#define DEVICE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "weft/hw/cmd.h"
#include "weft/hw/counters.h"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"
#include "weft_accel.h"

#define KIB(n) ((uint64_t)(n) << 10)
#define MIB(n) ((uint64_t)(n) << 20)
#define SECOND 1000000000ll
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Counts and goes on, so that one run tells all. */
extern int failures;
#define CHECK(what)                                                      \
  do {                                                                   \
    if (!(what)) {                                                       \
      fprintf(stderr, "%s:%d: %s: not so\n", __FILE__, __LINE__, #what); \
      ++failures;                                                        \
    }                                                                    \
  } while (0)
#define CHECK_EQ(got, wanted)                                                                       \
  do {                                                                                              \
    const long long got_ = (long long)(got), wanted_ = (long long)(wanted);                         \
    if (got_ != wanted_) {                                                                          \
      fprintf(stderr, "%s:%d: %s is %lld (%#llx), not %s = %lld\n", __FILE__, __LINE__, #got, got_, \
              (unsigned long long)got_, #wanted, wanted_);                                          \
      ++failures;                                                                                   \
    }                                                                                               \
  } while (0)
/* Without it the rest has no sense. */
#define NEED(what)                                                                \
  do {                                                                            \
    if (!(what)) {                                                                \
      fprintf(stderr, "%s:%d: %s failed: given up\n", __FILE__, __LINE__, #what); \
      exit(2);                                                                    \
    }                                                                             \
  } while (0)

/* An open device: a context and its maps. */
struct device {
  int fd;
  uint32_t ctx;
  volatile uint64_t* doorbell;     /* the page */
  const volatile uint64_t* shadow; /* values of the sync objects */
};

struct bo {
  uint32_t handle;
  uint32_t key;
  uint64_t bytes;
  uint64_t va;
  uint64_t generation;
  void* map;
};

struct queue {
  struct device* device;
  uint32_t number;
  uint32_t entries;
  uint64_t producer;
  uint64_t bytes;
  volatile struct weft_ring_head* head;
  struct weft_cmd* slot;
};

extern const char* device_path;

/* 0 or a negative errno; never restarted behind our back. */
int call(int fd, unsigned long request, void* args);
int64_t now_ns(void);

struct device device_open(void);
void device_close(struct device* device);

int bo_create(struct device* device, uint64_t bytes, uint32_t flags, struct bo* bo); /* mapped */
void bo_close(struct device* device, struct bo* bo);
int gem_close(int fd, uint32_t handle);

int info(int fd, uint32_t topic, uint32_t index, void* data, uint32_t* bytes);

uint32_t sync_create(struct device* device, uint32_t count);
void sync_signal(struct device* device, uint32_t sync, uint32_t amount);
/* One item; `seconds` from now. */
int sync_wait(struct device* device, uint32_t sync, uint64_t value, double seconds, struct drm_weft_wait* out);

/* Only failures of these queues and channels count. */
struct listed {
  const uint32_t* queue;
  uint32_t queues;
  const uint32_t* channel;
  uint32_t channels;
};
int sync_wait_listed(struct device* device, uint32_t sync, uint64_t value, double seconds, struct listed listed,
                     struct drm_weft_wait* out);

int queue_create(struct device* device, uint32_t entries, uint32_t flags, struct queue* queue);
int queue_destroy(struct queue* queue);
void queue_put(struct queue* queue, const struct weft_cmd* cmd);
void queue_ring(struct queue* queue);

/* Commands without waits that add 1 to `signal`. */
struct weft_cmd cmd_copy(uint64_t to, uint32_t to_key, uint64_t from, uint32_t from_key, uint32_t bytes,
                         uint32_t signal);
struct weft_cmd cmd_fill(uint64_t to, uint32_t key, uint64_t pattern, uint32_t bytes, uint32_t signal);

/* Cases. */
void test_info(void);
void test_sizes(void);
void test_context(void);
void test_bo(void);
void test_bo_zeroed(void);
void test_bo_exhaust(void);
void test_bo_mmap(void);
void test_bo_share(void);
void test_host(void);
void test_host_limit(void);
void test_bo_zero_shares(void);
void test_full(void);
void test_sync(void);
void test_sync_threads(void);
void test_sync_wrong(void);
void test_queue_ops(void);
void test_queue_hbm(void);
void test_queue_wrap(void);
void test_queue_error(void);
void test_queue_events_lost(void);
void test_queue_wrong(void);
void test_queue_destroy_waiting(void);
void test_isolation(void);
void test_channel(void);
void test_channel_wrong(void);
void test_channel_silent(void);

/* Other things to do: see main.c. */
int mode_smoke(void);
int mode_busy(void);
int mode_reset(void);
int mode_look(void);
int mode_hold(void);
int mode_innocent(void);
int mode_failed(void);
int mode_opens(void);
int mode_export(const char* bdf, bool mapped);

#endif
