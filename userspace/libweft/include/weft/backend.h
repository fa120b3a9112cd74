/* SPDX-License-Identifier: MIT */
/**
 * Backend table, version 2: what libweft needs of a device. Porting the runtime to a real device means writing one of
 * these, as a shared object that exports weft_backend_entry(). userspace/PORTING.md tells how; `null` is the
 * template.
 *
 * Handles are the backend's own pointers. All calls return 0 or a negative errno value. Calls on one device come from
 * several threads.
 */
#ifndef WEFT_BACKEND_H
#define WEFT_BACKEND_H

#include "weft/weft.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define WEFT_BACKEND_VERSION 2u

struct weft_backend_mem {
	void *handle;
	weft_va va;
	uint32_t key;
	uint32_t reserved;
	uint64_t bytes;
	uint64_t generation;
};

struct weft_backend_queue {
	void *handle;
	uint32_t number;
	uint32_t entries;
	struct weft_ring_head *head; /* mapped, volatile: the device writes it */
	void *slots; /* entries * 64 bytes */
};

struct weft_backend_channel {
	void *handle;
	uint32_t number;
	struct weft_endpoint local;
};

struct weft_backend {
	uint32_t size; /* sizeof; a shorter, older table is taken as one whose last calls are NULL */
	uint32_t version; /* WEFT_BACKEND_VERSION */
	const char *name;

	int (*count)(void);
	/** `argument` is what follows ':' in the specification, or "". `message` gets the reason on failure. */
	int (*open)(const char *argument, void **device, char *message, size_t room);
	void (*close)(void *device);
	int (*info)(void *device, struct weft_device_info *info);
	int (*counters)(void *device, int port, uint64_t *value, size_t room);
	int (*sensors)(void *device, struct weft_mbox_sensors *out);
	int (*port)(void *device, uint32_t port, struct weft_mbox_port *out);
	int (*log)(void *device, uint32_t first, struct weft_log_record *record, size_t room);

	int (*mem_alloc)(void *device, uint64_t bytes, unsigned flags, struct weft_backend_mem *out);
	int (*mem_register)(void *device, void *base, uint64_t bytes, unsigned flags, struct weft_backend_mem *out);
	void (*mem_free)(void *device, struct weft_backend_mem *mem);
	void *(*mem_map)(void *device, struct weft_backend_mem *mem);
	void (*mem_unmap)(void *device, struct weft_backend_mem *mem, void *base);
	int (*mem_export)(void *device, struct weft_backend_mem *mem, uint64_t offset, uint64_t bytes, int *fd);

	int (*sync_alloc)(void *device, uint32_t count, unsigned flags, uint32_t *first);
	void (*sync_free)(void *device, uint32_t first, uint32_t count);
	uint64_t (*sync_value)(void *device, uint32_t sync);
	int (*sync_signal)(void *device, uint32_t sync, uint32_t add);
	/**
	 * As weft_sync_wait; `failure` is never NULL. With events 0 it returns at once, `failure` may then be NULL: a
	 * backend that runs inside calls gets on a little (see weft/sim.h).
	 */
	int (*sync_wait)(void *device, const struct weft_sync_event *event, uint32_t events, int64_t timeout_ns,
			 const struct weft_wait_scope *scope, uint32_t *any, struct weft_failure *failure);

	int (*queue_create)(void *device, uint32_t entries, unsigned flags, struct weft_backend_queue *out);
	void (*queue_destroy)(void *device, struct weft_backend_queue *queue);
	/** Ring: slots up to `producer` (free-running) are written. */
	void (*queue_ring)(void *device, struct weft_backend_queue *queue, uint64_t producer);

	int (*channel_create)(void *device, uint32_t port, uint32_t sync_base, uint32_t sync_count,
			      struct weft_backend_channel *out);
	int (*channel_connect)(void *device, struct weft_backend_channel *channel, const struct weft_endpoint *remote,
			       uint8_t timeout, uint8_t retry_cnt);
	int (*channel_state)(void *device, struct weft_backend_channel *channel, uint32_t *state, uint32_t *error);
	void (*channel_destroy)(void *device, struct weft_backend_channel *channel);
};

/** The table, or NULL when this backend does not speak `version`. */
const struct weft_backend *weft_backend_entry(uint32_t version);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
