/* SPDX-License-Identifier: MIT */
/**
 * libweft: an accelerator, its memory, queues, sync objects, streams and channels.
 *
 * Device addresses are weft_va: flat per open device, valid on the device only. Calls return 0 or a negative errno
 * value; weft_last_error() has the text of the calling thread's last failure. Calls on one device may come from
 * several threads, except that a queue and a stream have one submitter at a time.
 *
 * What waits for commands: weft_sync_wait, weft_stream_synchronize, weft_copy, weft_fill, weft_write, weft_read. What
 * asks the device's firmware, and so may wait for other requests to it and for HBM to be zeroed: open, close, and
 * whatever makes or ends memory, sync objects, queues, streams or channels, or tells their state. All else (submit,
 * record, wait on a stream, query, signal, value, find) returns at once.
 *
 * A struct that begins with `size` may grow at its end: set `size` to sizeof. The library takes a shorter one as one
 * whose missing fields are 0, and a longer one when what it does not know is 0 (-E2BIG otherwise); it writes no more
 * than `size` bytes.
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
struct weft_stream;
struct weft_channel;

const char *weft_last_error(void);
const char *weft_error_text(uint32_t error); /* enum weft_error */

/* ---- devices ---------------------------------------------------------------------------------------------------- */

/**
 * Open a device: "kernel" or "kernel:N" (/dev/accel/accelN), "sim:N" (device N of the simulator of this process, see
 * weft/sim.h), "null", or "path.so[:argument]" for a backend of your own. NULL: $WEFT_DEVICE, else "kernel". -ENODEV:
 * none.
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
 * Call fn(arg, mem) for each object of the device that is freed or unregistered, before it is, in the thread that
 * does it; weft_mem_find does not find it any more. For those who keep what refers to memory, such as registrations
 * with another device. `fn` must not free memory of this device.
 */
typedef void weft_mem_free_fn(void *arg, struct weft_mem *mem);
int weft_mem_on_free(struct weft_device *device, weft_mem_free_fn *fn, void *arg);
/** End that. On return `fn` does not run and is not called again. */
void weft_mem_off_free(struct weft_device *device, weft_mem_free_fn *fn, void *arg);
/**
 * What weft_mem_find tells of a memory object: a copy, which a free in another thread cannot spoil. A freed object's
 * key is refused.
 */
struct weft_mem_info {
	uint32_t size; /* sizeof, set by the caller */
	uint32_t key;
	weft_va va;
	uint64_t bytes;
	uint64_t generation;
};
/** The memory object that holds [va, va + bytes): 0 or -ENOENT. Fast: called for each buffer of each collective. */
int weft_mem_find(struct weft_device *device, weft_va va, size_t bytes, struct weft_mem_info *out);
/**
 * weft_mem_export of the whole object at `va`, which weft_mem_find has told of: -ENOENT when it is not there any more
 * or another one is. It is not freed meanwhile.
 */
int weft_mem_export_found(struct weft_device *device, weft_va va, uint64_t generation, int *fd);

/* ---- sync objects ----------------------------------------------------------------------------------------------- */

/** `count` sync objects in a row; `flags` 0. Values are never reset: count on from weft_sync_value. */
int weft_sync_alloc(struct weft_device *device, uint32_t count, unsigned flags, uint32_t *first);
void weft_sync_free(struct weft_device *device, uint32_t first, uint32_t count);
uint64_t weft_sync_value(struct weft_device *device, uint32_t sync);
/** Add to a sync object from the host. */
int weft_sync_signal(struct weft_device *device, uint32_t sync, uint32_t add);

/**
 * An event: a sync object and a value. It is reached when the object has this value or more, and stays so. Plain
 * data: copy it, hand it to another thread. `sync` WEFT_SYNC_NONE: reached from the start. An event means nothing
 * after its sync object or stream is gone, and nothing on another open device.
 */
struct weft_sync_event {
	uint32_t sync;
	uint32_t reserved; /* 0 */
	uint64_t value;
};
/** 0: reached; -EAGAIN: not yet. */
int weft_event_query(struct weft_device *device, const struct weft_sync_event *event);

/**
 * Whose failures end a wait: these queues' and channels', by their numbers. A failure of the whole device always
 * does.
 */
struct weft_wait_scope {
	uint32_t queues, channels;
	const uint32_t *queue;
	const uint32_t *channel;
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
 * Wait in the host until all events are reached, or until one is (`any` not NULL: gets its index). timeout_ns < 0:
 * without limit; 0: just look. 0, -ETIME, -EIO (what `scope` names failed, or anything of the context with NULL; see
 * `failure`, may be NULL),
 * -ENODEV, -EINTR.
 */
int weft_sync_wait(struct weft_device *device, const struct weft_sync_event *event, uint32_t events, int64_t timeout_ns,
		   const struct weft_wait_scope *scope, uint32_t *any, struct weft_failure *failure);

/* ---- queues ----------------------------------------------------------------------------------------------------- */

#define WEFT_QUEUE_HBM (1u << 0) /* the ring lies in HBM */

int weft_queue_create(struct weft_device *device, uint32_t entries, unsigned flags, struct weft_queue **out);
void weft_queue_destroy(struct weft_queue *queue);
uint32_t weft_queue_number(const struct weft_queue *queue);
/** Slots that can be written now. */
uint32_t weft_queue_space(const struct weft_queue *queue);
/**
 * Write `slots` 64-byte slots (struct weft_cmd, each WEFT_CMD_EXT one followed by its struct weft_cmd_ext) and ring
 * the doorbell once. -EAGAIN: no room for all (nothing written); -EIO: the queue is halted.
 */
int weft_queue_submit(struct weft_queue *queue, const void *slot, uint32_t slots);

/* ---- streams ---------------------------------------------------------------------------------------------------- */

/*
 * A stream is a queue and its last event: what is put into it runs in that order, and the device alone sees to it. A
 * collective is ordered after a copy and before a kernel like this, without a wait in the host:
 *
 *	weft_stream_copy(copies, to, from, bytes);
 *	weft_stream_record(copies, &copied);
 *	weft_stream_wait(collective, &copied, 1);
 *	... commands of the collective on its own queues wait for weft_stream_record(collective, ...), and what they signal ...
 *	weft_stream_wait(collective, done, lanes);
 *	weft_stream_submit(collective, kernel, slots, NULL);
 *
 * What a host thread does (a transfer by a host NIC) takes part in the same way: the thread waits for an event, and
 * weft_sync_signal raises the sync object of another. All but destroy and synchronize return at once; -EAGAIN: the
 * ring has no room now, nothing was put into it; -EIO: a command failed, the stream takes nothing more.
 */
/** `entries` and `flags` as weft_queue_create. */
int weft_stream_create(struct weft_device *device, uint32_t entries, unsigned flags, struct weft_stream **out);
/** What has not run is aborted; its events are never reached then. */
void weft_stream_destroy(struct weft_stream *stream);
/** Its queue's number, for struct weft_wait_scope. */
uint32_t weft_stream_number(const struct weft_stream *stream);
/**
 * Commands as in weft_queue_submit. All start after everything that was in the stream before; among themselves they
 * have no order but what their own waits and fences say. `event`, unless NULL, is recorded behind them with the same
 * doorbell.
 */
int weft_stream_submit(struct weft_stream *stream, const void *slot, uint32_t slots, struct weft_sync_event *event);
/** What comes later in the stream starts after these events. */
int weft_stream_wait(struct weft_stream *stream, const struct weft_sync_event *event, uint32_t events);
/** The event that is reached when all that is in the stream now is done. */
int weft_stream_record(struct weft_stream *stream, struct weft_sync_event *event);
/** 0: all done; -EAGAIN: not yet; -EIO. */
int weft_stream_query(struct weft_stream *stream);
/** Wait in the host until all is done: as weft_sync_wait, for failures of this stream and the device alone. */
int weft_stream_synchronize(struct weft_stream *stream, int64_t timeout_ns, struct weft_failure *failure);
/** As weft_copy and weft_fill, in the stream's order. */
int weft_stream_copy(struct weft_stream *stream, weft_va to, weft_va from, size_t bytes);
int weft_stream_fill(struct weft_stream *stream, weft_va to, uint64_t pattern, size_t bytes);

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

/* ---- convenience: blocking, on a stream of the device's own -------------------------------------------------------- */

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
