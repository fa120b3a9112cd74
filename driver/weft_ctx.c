// SPDX-License-Identifier: GPL-2.0
/* Open files and their contexts. */
#include <linux/slab.h>

#include "weft_ctx.h"

#define WEFT_SHADOW_PAGES DIV_ROUND_UP(WEFT_SYNCS_PER_CONTEXT * sizeof(u64), PAGE_SIZE)

/**
 * weft_ctx_lost() - does the context still exist in the device, or can it still be made?
 * @ctx: the context
 *
 * Return: as weft_hwctx_lost().
 */
int weft_ctx_lost(struct weft_ctx *ctx)
{
	return weft_hwctx_lost(&ctx->hw);
}

/* A queue failed, as the event queue says. */
static void weft_ctx_queue_failed(struct weft_hwctx *hw, const struct weft_event *event)
{
	struct weft_ctx *ctx = container_of(hw, struct weft_ctx, hw);
	u32 number = le32_to_cpu(event->object);

	if (number < ARRAY_SIZE(ctx->queues) && ctx->queues[number])
		weft_ctx_failure(ctx, &ctx->queues[number]->failure, le16_to_cpu(event->error),
				 le64_to_cpu(event->value));
}

/* The file that a hardware context belongs to, or NULL when it is somebody else's. */
struct weft_ctx *weft_ctx_of(struct weft_hwctx *hw)
{
	return hw->queue_failed == weft_ctx_queue_failed ? container_of(hw, struct weft_ctx, hw) : NULL;
}

/**
 * weft_ctx_failure() - note the first error of a queue or channel, and wake who waits
 * @ctx: the context, obj_lock held
 * @failure: the object's
 * @error: enum weft_error
 * @value: slot index of the failed command
 */
void weft_ctx_failure(struct weft_ctx *ctx, struct weft_failure *failure, u32 error, u64 value)
{
	lockdep_assert_held(&ctx->wdev->obj_lock);
	if (failure->seq)
		return;
	failure->error = error;
	failure->value = value;
	/* Read without the lock by waiters, who take it to learn more. */
	WRITE_ONCE(ctx->failures, ctx->failures + 1);
	failure->seq = ctx->failures;
	weft_wake(ctx->wdev, ctx->hw.vector);
}

/**
 * weft_ctx_find_failures() - look for what nobody told
 * @ctx: the context; between weft_ctx_enter() and weft_dev_exit()
 *
 * An interrupt may have been lost, and the device drops events while its queue is full: then the objects are asked.
 */
void weft_ctx_find_failures(struct weft_ctx *ctx)
{
	struct weft_channel *channel;
	u64 events_lost;
	u32 i;

	weft_event_drain(ctx->wdev);
	events_lost = weft_events_lost(ctx->wdev);
	if (events_lost == READ_ONCE(ctx->hw.events_lost) || !mutex_trylock(&ctx->lock))
		return;
	for (i = 0; i < ARRAY_SIZE(ctx->queues); i++)
		if (ctx->queues[i])
			weft_queue_find_failure(ctx, ctx->queues[i]);
	list_for_each_entry(channel, &ctx->channels, node)
		weft_channel_find_failure(ctx, channel);
	WRITE_ONCE(ctx->hw.events_lost, events_lost);
	mutex_unlock(&ctx->lock);
}

static void weft_ctx_free(struct kref *ref)
{
	struct weft_ctx *ctx = container_of(ref, struct weft_ctx, ref);

	mutex_destroy(&ctx->lock);
	kfree(ctx);
}

static void weft_ctx_free_memory(struct weft_ctx *ctx)
{
	weft_map_kill(ctx->doorbell);
	weft_map_kill(ctx->shadow_map);
	ctx->doorbell = NULL;
	ctx->shadow_map = NULL;
	ctx->shadow = NULL;
	weft_pages_free(ctx->wdev, &ctx->shadow_pages);
}

/* What the context has in host memory; nothing of it is in the device any more. */
static void weft_ctx_release(struct weft_ctx *ctx)
{
	weft_queue_release_all(ctx);
	weft_channel_release_all(ctx);
	weft_host_release_all(ctx);
	weft_ctx_free_memory(ctx);
}

/* Ends the context in the device, whatever its queues are doing. */
static int weft_ctx_stop(struct weft_ctx *ctx)
{
	int idx, ret;

	ret = weft_hwctx_enter(&ctx->hw, &idx);
	if (ret)
		return ret;
	weft_queue_abort_all(ctx);
	ret = weft_hwctx_destroy(&ctx->hw);
	weft_dev_exit(ctx->wdev, idx);
	return ret;
}

/**
 * weft_ctx_close() - end a context: first in the device, then its memory
 * @ctx: the context; later calls for it do nothing
 */
void weft_ctx_close(struct weft_ctx *ctx)
{
	mutex_lock(&ctx->lock);
	if (ctx->hw.closed)
		goto out_unlock;
	if (ctx->hw.id && weft_ctx_stop(ctx))
		weft_settle(ctx->wdev);
	weft_hwctx_forget(&ctx->hw);
	weft_ctx_release(ctx);
out_unlock:
	mutex_unlock(&ctx->lock);
}

/* For the removal. No new context comes any more. */
void weft_ctx_close_all(struct weft_device *wdev)
{
	struct weft_ctx *ctx;
	struct weft_hwctx *hw;
	unsigned long id;

	do {
		ctx = NULL;
		spin_lock(&wdev->obj_lock);
		xa_for_each(&wdev->hws, id, hw) {
			ctx = weft_ctx_of(hw);
			if (ctx) {
				kref_get(&ctx->ref);
				break;
			}
		}
		spin_unlock(&wdev->obj_lock);
		if (ctx) {
			weft_ctx_close(ctx);
			kref_put(&ctx->ref, weft_ctx_free);
		}
	} while (ctx);
}

static int weft_ctx_alloc_memory(struct weft_ctx *ctx)
{
	struct weft_map *map;
	int ret;

	ret = weft_pages_alloc(ctx->wdev, &ctx->shadow_pages, WEFT_SHADOW_PAGES, true);
	if (ret)
		return ret;
	ctx->shadow = page_address(ctx->shadow_pages.page[0]);

	map = weft_map_create(ctx, WEFT_MAP_SHADOW, WEFT_SHADOW_PAGES);
	if (IS_ERR(map))
		return PTR_ERR(map);
	map->pages = &ctx->shadow_pages;
	ctx->shadow_map = map;

	map = weft_map_create(ctx, WEFT_MAP_DOORBELL, 1);
	if (IS_ERR(map))
		return PTR_ERR(map);
	ctx->doorbell = map;
	return 0;
}

static int weft_ctx_start(struct weft_ctx *ctx)
{
	struct weft_device *wdev = ctx->wdev;
	phys_addr_t page;
	int idx, ret;

	ret = weft_dev_enter(wdev, &idx);
	if (ret)
		return ret;
	ret = weft_hwctx_create(wdev, &ctx->hw, ctx->shadow_pages.dma[0]);
	if (!ret) {
		page = pci_resource_start(wdev->pdev, WEFT_BAR_REGS) + WEFT_DOORBELLS_BASE;
		ctx->doorbell->pfn = PHYS_PFN(page) + ctx->hw.id;
	}
	weft_dev_exit(wdev, idx);
	return ret;
}

/* Makes the context in the device: a file that only asks questions needs none. */
static int weft_ctx_make(struct weft_ctx *ctx)
{
	struct weft_device *wdev = ctx->wdev;
	int idx, ret;

	lockdep_assert_held(&ctx->lock);
	/* Nothing may be mapped for a device that is gone. */
	if (!drm_dev_enter(&wdev->drm, &idx))
		return -ENODEV;
	ret = weft_ctx_alloc_memory(ctx);
	if (!ret)
		ret = weft_ctx_start(ctx);
	/* A context that the device may or may not have made must not keep the shadow array's address. */
	if (ret == -EIO)
		weft_settle(wdev);
	if (ret)
		weft_ctx_free_memory(ctx);
	drm_dev_exit(idx);
	return ret;
}

/**
 * weft_ctx_enter() - begin to use the device in a context, which is made when it was not
 * @ctx: the context, locked unless it was made
 * @idx: for weft_dev_exit()
 *
 * Return: 0 with reset_sem held for reading, -EBUSY when the device has no further context, or as weft_ctx_lost();
 * that at once, also while a reset is under way.
 */
int weft_ctx_enter(struct weft_ctx *ctx, int *idx)
{
	int ret;

	ret = weft_ctx_lost(ctx);
	if (!ret && !READ_ONCE(ctx->hw.id))
		ret = weft_ctx_make(ctx);
	return ret ?: weft_hwctx_enter(&ctx->hw, idx);
}

int weft_open(struct drm_device *drm, struct drm_file *file)
{
	struct weft_device *wdev = to_weft(drm);
	struct weft_ctx *ctx;

	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	if (!ctx)
		return -ENOMEM;
	kref_init(&ctx->ref);
	mutex_init(&ctx->lock);
	spin_lock_init(&ctx->wait_lock);
	INIT_LIST_HEAD(&ctx->waiters);
	INIT_LIST_HEAD(&ctx->channels);
	xa_init_flags(&ctx->hosts, XA_FLAGS_ALLOC1);
	ctx->wdev = wdev;
	ctx->file = file;
	ctx->hw.wdev = wdev;
	ctx->hw.queue_failed = weft_ctx_queue_failed;
	ctx->generation = atomic64_inc_return(&wdev->generation);
	file->driver_priv = ctx;
	return 0;
}

void weft_postclose(struct drm_device *drm, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;

	weft_ctx_close(ctx); /* done by weft_release() already, unless open itself failed later */
	file->driver_priv = NULL;
	kref_put(&ctx->ref, weft_ctx_free);
}

int weft_context_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_context *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	int idx, ret;

	if (args->flags)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	ret = weft_ctx_enter(ctx, &idx);
	if (!ret)
		weft_dev_exit(ctx->wdev, idx);
	/* Of a context that was lost, this tells. */
	if (!ctx->hw.id || ctx->hw.closed)
		goto out_unlock;
	args->ctx = ctx->hw.id;
	args->state = -ret;
	args->doorbell_offset = weft_map_offset(ctx->doorbell);
	args->shadow_offset = weft_map_offset(ctx->shadow_map);
	args->shadow_bytes = WEFT_SHADOW_PAGES * PAGE_SIZE;
	args->generation = ctx->generation;
	ret = 0;
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}
