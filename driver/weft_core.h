/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver's core: the device, its mailbox, commands, events, vectors, region keys and hardware contexts. It knows no
 * open files: who uses the device through it may be the accelerator's files (weft_ctx.h) or an auxiliary driver.
 *
 * Locks, outermost first:
 *   weft_told.lock       what the firmware told last
 *   weft_device.reset_sem  read: uses the device; write: resets it. Never held across copies from or to users, so
 *                        that page faults, which only try it, cannot deadlock
 *   weft_device.end_lock  held while an epoch ends
 *   weft_mbox.lock       one request at a time
 *   weft_eq.lock         one reader of the event queue
 *   weft_device.obj_lock  hardware contexts and queue pairs as the event reader finds them; spinning
 */
#ifndef WEFT_CORE_H
#define WEFT_CORE_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/dma-mapping.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <drm/drm_device.h>
#include <drm/drm_drv.h>
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
 * enum weft_notice - what &weft_device.notify tells, in a context that may sleep
 * @WEFT_NOTICE_LOST: an epoch ended: what was made in it is gone. With reset_sem held for writing
 * @WEFT_NOTICE_READY: the device can be used again
 * @WEFT_NOTICE_EVENT: an event of no hardware context, such as a port's; data: struct weft_event
 */
enum weft_notice {
	WEFT_NOTICE_LOST,
	WEFT_NOTICE_READY,
	WEFT_NOTICE_EVENT,
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
 * struct weft_listener - who is called at each interrupt of a vector
 * @node: in &weft_vector.listeners
 * @called: in interrupt context
 */
struct weft_listener {
	struct list_head node;
	void (*called)(struct weft_listener *listener);
};

/**
 * struct weft_vector - one MSI-X vector and who waits for it
 * @wq: threads that wait
 * @seq: interrupts (and other reasons to look again) so far
 * @lock: protects @listeners
 * @listeners: called at each interrupt
 * @name: in /proc/interrupts
 */
struct weft_vector {
	wait_queue_head_t wq;
	atomic_t seq;
	spinlock_t lock;
	struct list_head listeners;
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
 * @end_lock: see the lock order above
 * @life: enum weft_life; leaves WEFT_READY with @end_lock held
 * @epoch: counts the times at which all contexts were lost; what was made in another epoch is dead
 * @resets: resets since the driver was loaded
 * @generation: source of numbers that are never used twice
 * @recover_work: resets a failed device
 * @recover_jiffies: time of the last automatic recovery
 * @recover_count: automatic recoveries in a row
 * @notify: who hears of enum weft_notice
 * @mbox: the mailbox
 * @eq: the event queue
 * @hbm: the allocator
 * @keys: the region table
 * @hws: hardware contexts by number
 * @qps: queue pairs whose errors somebody wants to know, by number
 * @obj_lock: see the lock order above
 * @told: what the firmware told last, for the time when it does not answer
 * @maps: mmap offsets of everything that is not a GEM object
 * @exports_lock: protects @exports
 * @exports: dma-bufs of HBM
 * @exports_nb: tells their importers that an epoch ended
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
	struct blocking_notifier_head notify;

	struct weft_mbox mbox;
	struct weft_eq eq;
	struct weft_hbm hbm;
	struct weft_keys keys;
	struct xarray hws;
	struct xarray qps;
	spinlock_t obj_lock;
	struct weft_told *told;

	struct drm_vma_offset_manager maps;
	struct mutex exports_lock;
	struct list_head exports;
	struct notifier_block exports_nb;
	atomic_t mapped;
	struct list_head instance;
};

/**
 * struct weft_hwctx - a context of the device: regions, queues, queue pairs and sync objects belong to one
 * @wdev: the device
 * @id: its number; 0: it was not made yet
 * @epoch: device's epoch when it was made; another one: lost
 * @vector: MSI-X vector of its sync objects
 * @events_lost: events that the device had lost when somebody looked last
 * @closed: nothing of it is in the device or will be
 * @queue_failed: one of its queues failed; called with obj_lock held
 */
struct weft_hwctx {
	struct weft_device *wdev;
	u32 id;
	s64 epoch;
	u32 vector;
	u64 events_lost;
	bool closed;
	void (*queue_failed)(struct weft_hwctx *hw, const struct weft_event *event);
};

/**
 * struct weft_qp - a queue pair of the device, as the event reader finds it
 * @hw: its context
 * @qpn: its number
 * @failed: it failed; called with obj_lock held
 */
struct weft_qp {
	struct weft_hwctx *hw;
	u32 qpn;
	void (*failed)(struct weft_qp *qp, const struct weft_event *event);
};

static inline struct weft_device *to_weft(struct drm_device *drm)
{
	return container_of(drm, struct weft_device, drm);
}

/* weft_mbox.c */
int weft_mbox_init(struct weft_device *wdev);
void weft_mbox_close(struct weft_device *wdev);
int weft_mbox_call(struct weft_device *wdev, enum weft_mbox_op op, const void *in, size_t in_bytes, void *out,
		   size_t out_bytes, unsigned int timeout_ms);

/* weft_cmd.c: all with reset_sem held */
const char *weft_error_text(u32 error);
int weft_cmd_identify(struct weft_device *wdev, struct weft_mbox_identity *identity);
int weft_cmd_port_get(struct weft_device *wdev, u32 port, struct weft_mbox_port *out);
int weft_cmd_gid_get(struct weft_device *wdev, u32 port, u32 index, struct weft_mbox_gid *out);
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
void weft_listen(struct weft_device *wdev, unsigned int vector, struct weft_listener *listener);
void weft_unlisten(struct weft_device *wdev, unsigned int vector, struct weft_listener *listener);
void weft_wake(struct weft_device *wdev, unsigned int vector);
void weft_wake_all(struct weft_device *wdev);

/* weft_event.c */
int weft_event_init(struct weft_device *wdev);
int weft_event_start(struct weft_device *wdev);
void weft_event_drain(struct weft_device *wdev);
u64 weft_events_lost(struct weft_device *wdev);

/* weft_reset.c */
extern const struct pci_error_handlers weft_err_handlers;
int weft_reset_init(struct weft_device *wdev);
void weft_end_wait(struct weft_device *wdev);
int weft_start(struct weft_device *wdev);
void weft_fail(struct weft_device *wdev, const char *what);
void weft_settle(struct weft_device *wdev);
void weft_stop_for_good(struct weft_device *wdev);

/* weft_hwctx.c */
int weft_dev_lost(struct weft_device *wdev);
int weft_dev_enter(struct weft_device *wdev, int *idx);
void weft_dev_exit(struct weft_device *wdev, int idx);
int weft_hwctx_create(struct weft_device *wdev, struct weft_hwctx *hw, dma_addr_t shadow);
int weft_hwctx_destroy(struct weft_hwctx *hw);
void weft_hwctx_forget(struct weft_hwctx *hw);
int weft_hwctx_lost(const struct weft_hwctx *hw);
int weft_hwctx_enter(struct weft_hwctx *hw, int *idx);
int weft_qp_watch(struct weft_qp *qp);
void weft_qp_unwatch(struct weft_qp *qp);

/* weft_region.c */
int weft_keys_init(struct weft_device *wdev);
int weft_region_create(struct weft_hwctx *hw, struct weft_region_entry *entry, u32 *key);
void weft_region_destroy(struct weft_hwctx *hw, u32 key);
void weft_key_free(struct weft_device *wdev, u32 key);

/* weft_pages.c */
int weft_pages_alloc(struct weft_device *wdev, struct weft_pages *pages, u32 count, bool contiguous);
void weft_pages_free(struct weft_device *wdev, struct weft_pages *pages);
int weft_pagelist_alloc(struct weft_device *wdev, struct weft_pagelist *list, u64 pages);
void weft_pagelist_set(struct weft_pagelist *list, u64 index, dma_addr_t addr);
void weft_pagelist_free(struct weft_device *wdev, struct weft_pagelist *list);

/* weft_hbm.c */
int weft_hbm_init(struct weft_device *wdev);
int weft_hbm_alloc(struct weft_device *wdev, struct drm_mm_node *node, u64 bytes, u64 align);
int weft_hbm_zero(struct weft_device *wdev, const struct drm_mm_node *node);
void weft_hbm_free(struct weft_device *wdev, struct drm_mm_node *node);
void weft_hbm_usage(struct weft_device *wdev, struct drm_weft_hbm *out);

/* weft_told.c */
int weft_told_init(struct weft_device *wdev);
void weft_told_log_grew(struct weft_device *wdev);
int weft_told_sensors(struct weft_device *wdev, struct drm_weft_sensors *out);
int weft_told_log(struct weft_device *wdev, u32 *first, struct drm_weft_log_record *out, u32 room);

#endif
