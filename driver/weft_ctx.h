/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The accelerator's files: an open file, its context in the device, and what the context is made of.
 *
 * Locks, above those of weft_core.h:
 *   weft_ctx.lock        tables of one open file
 *   weft_bo.lock         regions of one object
 */
#ifndef WEFT_CTX_H
#define WEFT_CTX_H

#include <linux/kref.h>

#include <drm/drm_file.h>
#include <drm/drm_gem.h>

#include "weft_core.h"

/**
 * enum weft_map_kind - what a mmap offset below DRM_FILE_PAGE_OFFSET_START leads to
 * @WEFT_MAP_DOORBELL: the context's doorbell page in BAR0
 * @WEFT_MAP_SHADOW: its shadow array, which users only read
 * @WEFT_MAP_RING: a queue's ring, in host memory or in HBM
 */
enum weft_map_kind {
	WEFT_MAP_DOORBELL,
	WEFT_MAP_SHADOW,
	WEFT_MAP_RING,
};

/**
 * struct weft_map - something to mmap that is not a GEM object
 * @ref: the owner's, and one a mapping
 * @node: the mmap offset
 * @start: the same in pages, also once @node is removed
 * @ctx: owner; outlives every mapping, since a mapping holds the file
 * @kind: enum weft_map_kind
 * @lock: page faults against weft_map_kill()
 * @dead: what was behind it is gone
 * @pages: host pages, or NULL:
 * @pfn: first page of what lies in a BAR
 * @spare: what users find in place of the first and of each further page when the device is lost, so that who has not
 *         yet seen the error is not killed before it does
 */
struct weft_map {
	struct kref ref;
	struct drm_vma_offset_node node;
	unsigned long start;
	struct weft_ctx *ctx;
	enum weft_map_kind kind;
	struct mutex lock;
	bool dead;
	const struct weft_pages *pages;
	unsigned long pfn;
	struct page *spare[2];
};

/**
 * struct weft_failure - the first error of a queue or channel
 * @seq: order among the failures of a context; 0: none
 * @error: enum weft_error
 * @value: slot index of the failed command
 */
struct weft_failure {
	u32 seq;
	u32 error;
	u64 value;
};

/**
 * struct weft_queue - a command queue
 * @number: in its context
 * @map: the ring for the user
 * @pages: the ring in host memory, or
 * @hbm: the ring in HBM
 * @list: page list of @pages
 * @key: region of the ring
 * @failure: what the event queue told
 */
struct weft_queue {
	u32 number;
	struct weft_map *map;
	struct weft_pages pages;
	struct drm_mm_node hbm;
	struct weft_pagelist list;
	u32 key;
	struct weft_failure failure;
};

/**
 * struct weft_channel - a queue pair that the device owns
 * @node: in &weft_ctx.channels
 * @qp: its queue pair
 * @port: where it sends
 * @mtu: largest path MTU of the port, enum weft_mtu
 * @psn: of the first packet that it sends
 * @sync_base: first sync object that immediates raise
 * @sync_count: how many
 * @connected: CHANNEL_CONNECT succeeded
 * @failure: what the event queue told
 */
struct weft_channel {
	struct list_head node;
	struct weft_qp qp;
	u32 port;
	u8 mtu;
	u32 psn;
	u32 sync_base;
	u32 sync_count;
	bool connected;
	struct weft_failure failure;
};

/**
 * struct weft_ctx - an open file and its context
 * @ref: the file's, and the removal's while it ends the context
 * @wdev: the device
 * @file: the open file
 * @hw: its context in the device, made when it is first needed, with @lock held
 * @generation: differs for each open
 * @lock: protects the tables below
 * @doorbell: its page
 * @shadow_map: the shadow array for the user
 * @shadow: the array
 * @shadow_pages: the array's pages, one contiguous run
 * @sync_used: sync objects handed out
 * @queues: by number; changed under @lock and obj_lock
 * @channels: changed likewise
 * @hosts: registered host memory by handle
 * @failures: failures so far, see &weft_failure.seq
 * @wait_lock: protects @waiters
 * @waiters: threads in WAIT
 */
struct weft_ctx {
	struct kref ref;
	struct weft_device *wdev;
	struct drm_file *file;
	struct weft_hwctx hw;
	u64 generation;

	struct mutex lock;
	struct weft_map *doorbell;
	struct weft_map *shadow_map;
	__le64 *shadow;
	struct weft_pages shadow_pages;

	DECLARE_BITMAP(sync_used, WEFT_SYNCS_PER_CONTEXT);
	struct weft_queue *queues[WEFT_QUEUES_PER_CONTEXT];
	struct list_head channels;
	struct xarray hosts;
	u32 failures;

	spinlock_t wait_lock;
	struct list_head waiters;
};

/**
 * struct weft_bo - a GEM object in HBM
 * @base: the GEM object
 * @range: its place
 * @flags: WEFT_BO_*
 * @generation: never used twice
 * @epoch: device's epoch when it was made; another one: content lost, no access
 * @lock: protects @attaches
 * @attaches: regions, one a context that has a handle
 * @exports: dma-bufs alive
 * @pins: pins of importers
 */
struct weft_bo {
	struct drm_gem_object base;
	struct drm_mm_node range;
	u32 flags;
	u64 generation;
	s64 epoch;
	struct mutex lock;
	struct list_head attaches;
	atomic_t exports;
	atomic_t pins;
};

static inline struct weft_bo *to_weft_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct weft_bo, base);
}

/* weft_ctx.c */
int weft_open(struct drm_device *drm, struct drm_file *file);
void weft_postclose(struct drm_device *drm, struct drm_file *file);
void weft_ctx_close(struct weft_ctx *ctx);
void weft_ctx_close_all(struct weft_device *wdev);
int weft_ctx_lost(struct weft_ctx *ctx);
int weft_ctx_enter(struct weft_ctx *ctx, int *idx);
struct weft_ctx *weft_ctx_of(struct weft_hwctx *hw);
void weft_ctx_failure(struct weft_ctx *ctx, struct weft_failure *failure, u32 error, u64 value);
void weft_ctx_find_failures(struct weft_ctx *ctx);
int weft_context_ioctl(struct drm_device *drm, void *data, struct drm_file *file);

/* weft_map.c */
int weft_maps_init(struct weft_device *wdev);
struct weft_map *weft_map_create(struct weft_ctx *ctx, enum weft_map_kind kind, unsigned long pages);
void weft_map_kill(struct weft_map *map);
u64 weft_map_offset(struct weft_map *map);
vm_fault_t weft_fault_enter(struct weft_device *wdev, int *idx);
int weft_mmap(struct file *filp, struct vm_area_struct *vma);

/* weft_gem.c */
int weft_bo_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_bo_info_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
bool weft_bo_lost(struct weft_bo *bo);

/* weft_prime.c */
int weft_prime_init(struct weft_device *wdev);
struct dma_buf *weft_gem_export(struct drm_gem_object *obj, int flags);
struct drm_gem_object *weft_gem_import(struct drm_device *drm, struct dma_buf *dma_buf);

/* weft_host.c */
int weft_host_register_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_host_unregister_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void weft_host_release_all(struct weft_ctx *ctx);

/* weft_queue.c */
int weft_queue_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_queue_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void weft_queue_find_failure(struct weft_ctx *ctx, struct weft_queue *queue);
void weft_queue_abort_all(struct weft_ctx *ctx);
void weft_queue_release_all(struct weft_ctx *ctx);

/* weft_sync.c */
bool weft_sync_owned(struct weft_ctx *ctx, u32 first, u32 count);
int weft_sync_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_sync_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_wait_ioctl(struct drm_device *drm, void *data, struct drm_file *file);

/* weft_channel.c */
int weft_channel_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_channel_connect_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_channel_query_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_channel_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
struct weft_channel *weft_channel_find(struct weft_ctx *ctx, u32 qpn);
void weft_channel_find_failure(struct weft_ctx *ctx, struct weft_channel *channel);
bool weft_channel_uses_sync(struct weft_ctx *ctx, u32 first, u32 count);
void weft_port_gid(const struct weft_mbox_port *port, u8 gid[16]);
void weft_channel_release_all(struct weft_ctx *ctx);

/* weft_info.c */
int weft_info_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_port_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
int weft_log_ioctl(struct drm_device *drm, void *data, struct drm_file *file);
void weft_show_fdinfo(struct drm_printer *p, struct drm_file *file);

/* weft_debugfs.c */
#ifdef CONFIG_DEBUG_FS
void weft_debugfs_init(struct weft_device *wdev);
#else
static inline void weft_debugfs_init(struct weft_device *wdev)
{
}
#endif

#endif
