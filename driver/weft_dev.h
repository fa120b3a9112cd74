/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the driver share. The hardware is described in weft/hw, the ioctls in weft_accel.h.
 *
 * Locks, outermost first:
 *   weft_ctx.lock        tables of one open file
 *   weft_device.reset_sem  read: uses the device; write: resets it. Never held across copies from or to users, so
 *                        that page faults, which only try it, cannot deadlock
 *   weft_mbox.lock       one request at a time
 *   weft_eq.lock         one reader of the event queue
 *   weft_device.obj_lock  contexts, queues and channels as the event reader and waiters find them; spinning
 */
#ifndef WEFT_DEV_H
#define WEFT_DEV_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <drm/drm_device.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_mm.h>
#include <drm/drm_print.h>
#include <drm/drm_vma_manager.h>

#include "weft/hw/counters.h"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"
#include "weft_accel.h"

#define WEFT_NAME "weft"
#define WEFT_FIRMWARE "weft/weft-fw.bin"

/**
 * enum weft_life - where the device stands
 * @WEFT_READY: firmware answers
 * @WEFT_RESETTING: a reset is under way
 * @WEFT_FAILED: the device, its firmware or the mailbox failed; recovery is scheduled or was given up
 * @WEFT_GONE: being removed, or removed
 */
enum weft_life {
	WEFT_READY,
	WEFT_RESETTING,
	WEFT_FAILED,
	WEFT_GONE,
};

/**
 * struct weft_mbox - the mailbox: one request at a time
 * @lock: held for a whole request
 * @done: completed by the interrupt of a response, and by whoever closes the mailbox
 * @seq: of the last request
 * @open: firmware serves it; when it is closed a request under way ends at once
 */
struct weft_mbox {
	struct mutex lock;
	struct completion done;
	u32 seq;
	bool open;
};

/**
 * struct weft_eq - the event queue in host memory
 * @lock: one reader at a time
 * @ring: events as the device writes them
 * @dma: its address for the device
 * @head: next event to read, free-running
 */
struct weft_eq {
	struct mutex lock;
	struct weft_event *ring;
	dma_addr_t dma;
	u32 head;
};

/**
 * struct weft_vector - one MSI-X vector and who waits for it
 * @wq: waiters of all contexts that the vector serves
 * @seq: interrupts (and other reasons to look again) so far
 * @name: in /proc/interrupts
 */
struct weft_vector {
	wait_queue_head_t wq;
	atomic_t seq;
	char name[32];
};

/**
 * struct weft_hbm - the range allocator of HBM
 * @lock: protects all of it
 * @mm: ranges, in bytes from the start of BAR2
 * @used: bytes handed out
 * @objects: ranges handed out
 */
struct weft_hbm {
	struct mutex lock;
	struct drm_mm mm;
	u64 used;
	u64 objects;
};

/**
 * struct weft_keys - entries of the device's region table
 * @lock: protects all of it
 * @used: bitmap of entries
 * @generation: of the next key that each entry gives
 * @next: where to look first, so that an entry rests as long as can be before it is used again
 * @count: entries of the table
 */
struct weft_keys {
	spinlock_t lock;
	unsigned long *used;
	u8 *generation;
	u32 next;
	u32 count;
};

/**
 * struct weft_device - one accelerator
 * @drm: the DRM side; its reference count is this structure's
 * @pdev: the PCI function
 * @regs: BAR0
 * @hbm_start: bus address of BAR2 as the CPU sees it
 * @hbm_bytes: size of the HBM
 * @hw_version: register WEFT_REG_HW_VERSION
 * @caps: WEFT_CAP_*
 * @ports: RoCE ports
 * @contexts: contexts, the driver's own included
 * @window: commands that a queue can have in flight
 * @vectors: MSI-X vectors granted
 * @vector: their state
 * @identity: what the firmware said of itself when it started
 * @fw_name: name in the header of the firmware image
 * @reset_sem: see the lock order above
 * @end_lock: held while an epoch ends; a mutex below all others
 * @life: enum weft_life; leaves WEFT_READY with @end_lock held
 * @epoch: counts the times at which all contexts were lost; what was made in another epoch is dead
 * @resets: resets since the driver was loaded
 * @generation: source of numbers that are never used twice
 * @recover_work: resets a failed device
 * @recover_jiffies: time of the last automatic recovery
 * @recover_count: automatic recoveries in a row
 * @mbox: the mailbox
 * @eq: the event queue
 * @hbm: the allocator
 * @keys: the region table
 * @ctxs: contexts by number
 * @obj_lock: see the lock order above
 * @maps: mmap offsets of everything that is not a GEM object
 * @mapped: importers' mappings of HBM; they may outlive the removal
 * @instance: in the list of all devices whose memory somebody may still reach
 */
struct weft_device {
	struct drm_device drm;
	struct pci_dev *pdev;
	void __iomem *regs;
	phys_addr_t hbm_start;
	u64 hbm_bytes;

	u32 hw_version;
	u32 caps;
	u32 ports;
	u32 contexts;
	u32 window;
	unsigned int vectors;
	struct weft_vector vector[WEFT_VECTORS];
	struct weft_mbox_identity identity;
	char fw_name[32];

	struct rw_semaphore reset_sem;
	struct mutex end_lock;
	enum weft_life life;
	atomic64_t epoch;
	atomic_t resets;
	atomic64_t generation;
	struct work_struct recover_work;
	unsigned long recover_jiffies;
	unsigned int recover_count;

	struct weft_mbox mbox;
	struct weft_eq eq;
	struct weft_hbm hbm;
	struct weft_keys keys;
	struct xarray ctxs;
	spinlock_t obj_lock;
	struct drm_vma_offset_manager maps;
	atomic_t mapped;
	struct list_head instance;
};

/**
 * struct weft_pagelist - host pages as a region names them (struct weft_region_entry)
 * @levels: of the list
 * @base: DMA address of the range or of the list
 * @pages: pages in the list, 0 with @levels 0
 * @top: first level in memory
 * @top_dma: its address for the device
 * @top_bytes: its size
 * @leaves: second level's tables
 * @leaf: the tables
 * @leaf_dma: their addresses
 */
struct weft_pagelist {
	u32 levels;
	u64 base;
	u64 pages;
	__le64 *top;
	dma_addr_t top_dma;
	size_t top_bytes;
	u32 leaves;
	__le64 **leaf;
	dma_addr_t *leaf_dma;
};

/**
 * struct weft_pages - kernel pages that device and user both see
 * @count: pages
 * @run: 1, or @count when they are one contiguous run
 * @page: the pages
 * @dma: their addresses for the device
 */
struct weft_pages {
	u32 count;
	u32 run;
	struct page **page;
	dma_addr_t *dma;
};

/**
 * enum weft_map_kind - what a mmap offset below DRM_FILE_PAGE_OFFSET_START leads to
 * @WEFT_MAP_DOORBELL: the context's doorbell page in BAR0
 * @WEFT_MAP_PAGES: host pages
 * @WEFT_MAP_HBM: a range of HBM
 */
enum weft_map_kind {
	WEFT_MAP_DOORBELL,
	WEFT_MAP_PAGES,
	WEFT_MAP_HBM,
};

/**
 * struct weft_map - something to mmap that is not a GEM object
 * @ref: the owner's, and one a mapping
 * @node: the mmap offset
 * @ctx: owner; outlives every mapping, since a mapping holds the file
 * @kind: enum weft_map_kind
 * @read_only: user may not write
 * @lock: page faults against weft_map_kill()
 * @dead: what was behind it is gone
 * @pages: of WEFT_MAP_PAGES
 * @pfn: first page of the other kinds
 */
struct weft_map {
	struct kref ref;
	struct drm_vma_offset_node node;
	struct weft_ctx *ctx;
	enum weft_map_kind kind;
	bool read_only;
	struct mutex lock;
	bool dead;
	const struct weft_pages *pages;
	unsigned long pfn;
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
 * @qpn: its number
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
	u32 qpn;
	u32 port;
	u8 mtu;
	u32 psn;
	u32 sync_base;
	u32 sync_count;
	bool connected;
	struct weft_failure failure;
};

/**
 * struct weft_ctx - an open file: one context of the device
 * @ref: the file's, and the removal's while it ends the context
 * @wdev: the device
 * @file: the open file
 * @id: number in the device
 * @generation: differs for each open
 * @epoch: device's epoch at open; another one: lost
 * @vector: MSI-X vector of its sync objects
 * @lock: protects the tables below
 * @closed: nothing of it is in the device or will be
 * @doorbell: its page
 * @shadow_map: the shadow array for the user
 * @shadow: the array
 * @shadow_pages: the array's pages, one contiguous run
 * @dummy: page that takes the place of revoked rings and doorbells, so that a user who has not yet seen the error
 *         is not killed before it does
 * @sync_used: sync objects handed out
 * @sync_mirror: of those, with WEFT_SYNC_MIRROR
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
	u32 id;
	u64 generation;
	s64 epoch;
	u32 vector;

	struct mutex lock;
	bool closed;
	struct weft_map *doorbell;
	struct weft_map *shadow_map;
	__le64 *shadow;
	struct weft_pages shadow_pages;
	struct page *dummy;

	DECLARE_BITMAP(sync_used, WEFT_SYNCS_PER_CONTEXT);
	DECLARE_BITMAP(sync_mirror, WEFT_SYNCS_PER_CONTEXT);
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

static inline struct weft_device *to_weft(struct drm_device *drm)
{
	return container_of(drm, struct weft_device, drm);
}

static inline struct weft_bo *to_weft_bo(struct drm_gem_object *obj)
{
	return container_of(obj, struct weft_bo, base);
}

/* weft_mbox.c */
int weft_mbox_init(struct weft_device *wdev);
void weft_mbox_close(struct weft_device *wdev);
int weft_mbox_call(struct weft_device *wdev, enum weft_mbox_op op, const void *in, size_t in_bytes, void *out,
		   size_t out_bytes, unsigned int timeout_ms);

/* weft_cmd.c: all with reset_sem held */
int weft_cmd_identify(struct weft_device *wdev, struct weft_mbox_identity *identity);
int weft_cmd_port_get(struct weft_device *wdev, u32 port, struct weft_mbox_port *out);
int weft_cmd_sensors(struct weft_device *wdev, struct weft_mbox_sensors *out);
int weft_cmd_log_read(struct weft_device *wdev, u32 first, struct weft_mbox_log *out);
int weft_cmd_event_queue(struct weft_device *wdev, dma_addr_t addr, u32 entries);
int weft_cmd_hbm_zero(struct weft_device *wdev, u64 offset, u64 bytes);
int weft_cmd_ctx_create(struct weft_device *wdev, u32 ctx, u32 vector, dma_addr_t shadow);
int weft_cmd_ctx_destroy(struct weft_device *wdev, u32 ctx);
int weft_cmd_region_create(struct weft_device *wdev, const struct weft_region_entry *entry);
int weft_cmd_region_destroy(struct weft_device *wdev, u32 key);
int weft_cmd_queue_create(struct weft_device *wdev, const struct weft_queue_entry *entry);
int weft_cmd_queue_destroy(struct weft_device *wdev, u32 ctx, u32 queue);
int weft_cmd_queue_abort(struct weft_device *wdev, u32 ctx, u32 queue);
int weft_cmd_sync_config(struct weft_device *wdev, u32 ctx, u32 first, u32 count, u32 flags);
int weft_cmd_qp_create(struct weft_device *wdev, struct weft_qp_entry *qp);
int weft_cmd_qp_modify(struct weft_device *wdev, u32 mask, const struct weft_qp_entry *qp);
int weft_cmd_qp_query(struct weft_device *wdev, u32 ctx, u32 qpn, struct weft_qp_entry *qp);
int weft_cmd_qp_destroy(struct weft_device *wdev, u32 ctx, u32 qpn);

/* weft_fw.c */
bool weft_answers(struct weft_device *wdev);
int weft_fw_reset(struct weft_device *wdev);
int weft_fw_boot(struct weft_device *wdev);

/* weft_irq.c */
int weft_irq_init(struct weft_device *wdev);
void weft_irq_enable(struct weft_device *wdev, bool on);
void weft_wake(struct weft_device *wdev, unsigned int vector);
void weft_wake_all(struct weft_device *wdev);

/* weft_event.c */
int weft_event_init(struct weft_device *wdev);
int weft_event_start(struct weft_device *wdev);
void weft_event_drain(struct weft_device *wdev);

/* weft_reset.c */
extern const struct pci_error_handlers weft_err_handlers;
int weft_reset_init(struct weft_device *wdev);
void weft_end_wait(struct weft_device *wdev);
int weft_start(struct weft_device *wdev);
void weft_fail(struct weft_device *wdev, const char *what);
void weft_settle(struct weft_device *wdev);
void weft_leave(struct weft_device *wdev);

/* weft_ctx.c */
int weft_open(struct drm_device *drm, struct drm_file *file);
void weft_postclose(struct drm_device *drm, struct drm_file *file);
void weft_ctx_close(struct weft_ctx *ctx);
void weft_ctx_close_all(struct weft_device *wdev);
int weft_ctx_lost(struct weft_ctx *ctx);
int weft_ctx_enter(struct weft_ctx *ctx, int *idx);
int weft_dev_enter(struct weft_device *wdev, int *idx);
void weft_dev_exit(struct weft_device *wdev, int idx);
int weft_context_ioctl(struct drm_device *drm, void *data, struct drm_file *file);

/* weft_region.c */
int weft_keys_init(struct weft_device *wdev);
int weft_region_create(struct weft_ctx *ctx, struct weft_region_entry *entry, u32 *key);
void weft_region_destroy(struct weft_ctx *ctx, u32 key);
void weft_key_free(struct weft_device *wdev, u32 key);

/* weft_hbm.c */
int weft_hbm_init(struct weft_device *wdev);
int weft_hbm_alloc(struct weft_device *wdev, struct drm_mm_node *node, u64 bytes, u64 align);
int weft_hbm_zero(struct weft_device *wdev, const struct drm_mm_node *node);
void weft_hbm_free(struct weft_device *wdev, struct drm_mm_node *node);
void weft_hbm_usage(struct weft_device *wdev, struct drm_weft_hbm *out);

/* weft_pages.c */
int weft_pages_alloc(struct weft_device *wdev, struct weft_pages *pages, u32 count, bool contiguous);
void weft_pages_free(struct weft_device *wdev, struct weft_pages *pages);
int weft_pagelist_alloc(struct weft_device *wdev, struct weft_pagelist *list, u64 pages);
void weft_pagelist_set(struct weft_pagelist *list, u64 index, dma_addr_t addr);
void weft_pagelist_free(struct weft_device *wdev, struct weft_pagelist *list);

/* weft_map.c */
int weft_maps_init(struct weft_device *wdev);
struct weft_map *weft_map_create(struct weft_ctx *ctx, enum weft_map_kind kind, unsigned long pages);
void weft_map_kill(struct weft_map *map);
u64 weft_map_offset(struct weft_map *map);
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
bool weft_channel_uses_sync(struct weft_ctx *ctx, u32 first, u32 count);
void weft_port_gid(const struct weft_mbox_port *port, u8 gid[16]);
void weft_channel_release_all(struct weft_ctx *ctx);

/* weft_info.c */
const char *weft_error_text(u32 error);
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
