/* SPDX-License-Identifier: MIT */
/**
 * libweft: an accelerator, its memory, queues, sync objects and channels.
 *
 * Device addresses are weft_va: flat per open device, valid on the device only. Calls return 0 or a negative errno value;
 * weft_last_error() has the text of the calling thread's last failure. Calls on one device may come from several threads,
 * except that a queue has one submitter at a time. Nothing here blocks but weft_sync_wait, weft_copy and weft_fill.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include <stddef.h>
#include <stdint.h>

#include "weft/hw/cmd.h"
#include "weft/hw/counters.h"
#include "weft/hw/error.h"
#include "weft/hw/mbox.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef uint64_t weft_va;
struct weft_device;
struct weft_mem;
struct weft_queue;
struct weft_channel;

const char *weft_last_error(void);
const char *weft_error_text(uint32_t error); /* enum weft_error */

/* ---- devices ---------------------------------------------------------------------------------------------------- */

/**
 * Open a device: "kernel" or "kernel:N" (/dev/accel/accelN), "sim:N" (device N of the simulator of this process, see weft/sim.h),
 * "null", or "path.so[:argument]" for a backend of your own. NULL: $WEFT_DEVICE, else "kernel". -ENODEV: none.
 */
int weft_device_open(const char *spec, struct weft_device **out);
void weft_device_close(struct weft_device *device);
/** How many devices a backend has ("kernel", "sim", "null"). */
int weft_device_count(const char *backend);

struct weft_device_info {
	uint32_t size; /* sizeof, set by the caller */
	uint32_t ports;
	uint32_t hw_version, fw_version, caps;
	uint32_t queue_window, syncs, queues, resets;
	uint32_t state; /* 0: ready, 1: being reset, 2: failed; it can be asked all the same */
	uint64_t hbm_bytes, hbm_used, hbm_largest_free;
	char backend[16], serial[32], bdf[16], fw_name[32];
};
int weft_device_info(struct weft_device *device, struct weft_device_info *info);
/** Counters in the order of weft/hw/counters.h; `port` -1: the device's. Returns how many were written. */
int weft_counters(struct weft_device *device, int port, uint64_t *value, size_t room);
int weft_sensors(struct weft_device *device, struct weft_mbox_sensors *out);
int weft_port(struct weft_device *device, uint32_t port, struct weft_mbox_port *out);
/** Firmware log records from number `first` on; returns how many. */
int weft_log(struct weft_device *device, uint32_t first, struct weft_log_record *record, size_t room);

/* ---- memory ----------------------------------------------------------------------------------------------------- */

#define WEFT_MEM_REMOTE_READ (1u << 0) /* peers may read it through its key */
#define WEFT_MEM_REMOTE_WRITE (1u << 1)
#define WEFT_MEM_READ_ONLY (1u << 2) /* host registration: the device only reads it */

/** HBM, zeroed; `bytes` is rounded up to 4 KiB. -ENOMEM: no range of that size is free. */
int weft_mem_alloc(struct weft_device *device, size_t bytes, unsigned flags, struct weft_mem **out);
/** Make host memory reachable for the device's DMA. It must stay mapped until weft_mem_free. */
int weft_mem_register(struct weft_device *device, void *base, size_t bytes, unsigned flags, struct weft_mem **out);
/** Free or unregister; -EBUSY never: what is in flight ends first or fails. */
void weft_mem_free(struct weft_mem *mem);
weft_va weft_mem_va(const struct weft_mem *mem);
uint32_t weft_mem_key(const struct weft_mem *mem);
size_t weft_mem_bytes(const struct weft_mem *mem);
uint64_t weft_mem_generation(const struct weft_mem *mem); /* never used twice */
/** CPU mapping of HBM; NULL: not possible. Stays until weft_mem_unmap or weft_mem_free. */
void *weft_mem_map(struct weft_mem *mem);
void weft_mem_unmap(struct weft_mem *mem);
/** DMA-BUF of [offset, offset + bytes), page-aligned; the caller closes *fd. -EOPNOTSUPP: this backend has none. */
int weft_mem_export(struct weft_mem *mem, size_t offset, size_t bytes, int *fd);
/**
 * Call fn(arg, mem) for each object of the device that is freed or unregistered, before it is, in the thread that does it; weft_mem_find
 * does not find it any more. For those who keep what refers to memory, such as registrations with another device. `fn` must not
 * free memory of this device.
 */
typedef void weft_mem_free_fn(void *arg, struct weft_mem *mem);
int weft_mem_on_free(struct weft_device *device, weft_mem_free_fn *fn, void *arg);
/** End that. On return `fn` does not run and is not called again. */
void weft_mem_off_free(struct weft_device *device, weft_mem_free_fn *fn, void *arg);
/** The memory object that holds [va, va + bytes), or NULL. Fast: called for each buffer of each collective. */
struct weft_mem *weft_mem_find(struct weft_device *device, weft_va va, size_t bytes);

/* ---- sync objects ----------------------------------------------------------------------------------------------- */

#define WEFT_SYNC_WAITABLE (1u << 0) /* the host can read it and wait for it; others are the device's own */

/** `count` sync objects in a row. Values are never reset: read them (waitable), or count on from what weft_sync_base gives. */
int weft_sync_alloc(struct weft_device *device, uint32_t count, unsigned flags, uint32_t *first);
void weft_sync_free(struct weft_device *device, uint32_t first, uint32_t count);
/** Value of a waitable object. */
uint64_t weft_sync_value(struct weft_device *device, uint32_t sync);
/** Add to a sync object from the host. */
int weft_sync_signal(struct weft_device *device, uint32_t sync, uint32_t add);

struct weft_wait_item {
	uint32_t sync;
	uint32_t reserved;
	uint64_t value;
};
/** What failed in the context, when a wait returns -EIO. */
struct weft_failure {
	uint32_t error; /* enum weft_error */
	uint32_t type; /* enum weft_event_type */
	uint32_t object; /* queue number or channel QPN */
	uint32_t reserved;
	uint64_t value; /* slot index of the failed command */
};
/**
 * Wait until all items are reached (value >=), or until one is (`any` not NULL: gets its index). timeout_ns < 0: without
 * limit; 0: just look. 0, -ETIME, -EIO (a queue or channel failed, see `failure`, may be NULL), -ENODEV, -EINTR.
 */
int weft_sync_wait(struct weft_device *device, const struct weft_wait_item *item, uint32_t items, int64_t timeout_ns,
		   uint32_t *any, struct weft_failure *failure);

/* ---- queues ----------------------------------------------------------------------------------------------------- */

#define WEFT_QUEUE_HBM (1u << 0) /* the ring lies in HBM */

int weft_queue_create(struct weft_device *device, uint32_t entries, unsigned flags, struct weft_queue **out);
void weft_queue_destroy(struct weft_queue *queue);
uint32_t weft_queue_number(const struct weft_queue *queue);
/** Slots that can be written now. */
uint32_t weft_queue_space(const struct weft_queue *queue);
/**
 * Write `slots` 64-byte slots (struct weft_cmd, each WEFT_CMD_EXT one followed by its struct weft_cmd_ext) and ring the doorbell
 * once. -EAGAIN: no room for all (nothing written); -EIO: the queue is halted.
 */
int weft_queue_submit(struct weft_queue *queue, const void *slot, uint32_t slots);

/* ---- channels --------------------------------------------------------------------------------------------------- */

/** Where a channel's end is: exchanged between the two hosts by any means. */
struct weft_endpoint {
	uint32_t qpn;
	uint32_t psn;
	uint8_t mac[6];
	uint8_t mtu; /* enum weft_mtu */
	uint8_t reserved;
	uint8_t gid[16];
};
/** A channel on `port`; the peer's immediate i raises sync object sync_base + i, i < sync_count. */
int weft_channel_create(struct weft_device *device, uint32_t port, uint32_t sync_base, uint32_t sync_count,
			struct weft_channel **out, struct weft_endpoint *local);
/**
 * timeout: 4.096 us << timeout, 0: the device's. retry_cnt 1..7 as IBTA; 0: a peer that is silent is waited for until the
 * port goes down or the network says that the peer is gone.
 */
int weft_channel_connect(struct weft_channel *channel, const struct weft_endpoint *remote, uint8_t timeout,
			 uint8_t retry_cnt);
uint32_t weft_channel_number(const struct weft_channel *channel); /* for key[2] of RDMA commands */
int weft_channel_state(struct weft_channel *channel, uint32_t *state, uint32_t *error);
void weft_channel_destroy(struct weft_channel *channel);

/* ---- convenience: blocking, on a queue of the device's own --------------------------------------------------------- */

/** Copy between device addresses (HBM or registered host memory) by the copy engine. */
int weft_copy(struct weft_device *device, weft_va to, weft_va from, size_t bytes);
/** Copy from or to any host memory, through a registered buffer of the library: host -> device, device -> host. */
int weft_write(struct weft_device *device, weft_va to, const void *from, size_t bytes);
int weft_read(struct weft_device *device, void *to, weft_va from, size_t bytes);
int weft_fill(struct weft_device *device, weft_va to, uint64_t pattern, size_t bytes);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
