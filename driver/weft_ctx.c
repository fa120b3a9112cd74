// SPDX-License-Identifier: GPL-2.0
/* Contexts: one an open file. */
#include <linux/slab.h>

#include "weft_dev.h"

#define WEFT_SHADOW_PAGES DIV_ROUND_UP(WEFT_SYNCS_PER_CONTEXT * sizeof(u64), PAGE_SIZE)

/**
 * weft_ctx_lost() - does the context still exist in the device?
 * @ctx: the context
 *
 * Return: 0, -ENODEV when the device is being removed, -EIO when the context was lost to a reset or failure.
 */
int weft_ctx_lost(struct weft_ctx *ctx)
{
	struct weft_device *wdev = ctx->wdev;
	enum weft_life life = READ_ONCE(wdev->life);

	if (life == WEFT_GONE || drm_dev_is_unplugged(&wdev->drm))
		return -ENODEV;
	if (life != WEFT_READY || atomic64_read(&wdev->epoch) != ctx->epoch || READ_ONCE(ctx->closed))
		return -EIO;
	return 0;
}

/**
 * weft_dev_enter() - begin to use the device
 * @wdev: the device
 * @idx: for weft_dev_exit()
 *
 * Return: 0 with reset_sem held for reading, -ENODEV or -EIO.
 */
int weft_dev_enter(struct weft_device *wdev, int *idx)
{
	if (!drm_dev_enter(&wdev->drm, idx))
		return -ENODEV;
	down_read(&wdev->reset_sem);
	if (READ_ONCE(wdev->life) == WEFT_READY)
		return 0;
	weft_dev_exit(wdev, *idx);
	return READ_ONCE(wdev->life) == WEFT_GONE ? -ENODEV : -EIO;
}

void weft_dev_exit(struct weft_device *wdev, int idx)
{
	up_read(&wdev->reset_sem);
	drm_dev_exit(idx);
}

/**
 * weft_ctx_enter() - begin to use the device in a context
 * @ctx: the context
 * @idx: for weft_dev_exit()
 *
 * Return: 0 with reset_sem held for reading, or as weft_ctx_lost(); that at once, also while a reset is under way.
 */
int weft_ctx_enter(struct weft_ctx *ctx, int *idx)
{
	int ret;

	ret = weft_ctx_lost(ctx);
	if (ret)
		return ret;
	ret = weft_dev_enter(ctx->wdev, idx);
	if (ret)
		return ret;
	ret = weft_ctx_lost(ctx);
	if (ret)
		weft_dev_exit(ctx->wdev, *idx);
	return ret;
}

static void weft_ctx_free(struct kref *ref)
{
	struct weft_ctx *ctx = container_of(ref, struct weft_ctx, ref);

	if (ctx->dummy)
		__free_page(ctx->dummy);
	mutex_destroy(&ctx->lock);
	kfree(ctx);
}

/* What the context has in host memory; nothing of it is in the device any more. */
static void weft_ctx_release(struct weft_ctx *ctx)
{
	weft_queue_release_all(ctx);
	weft_channel_release_all(ctx);
	weft_host_release_all(ctx);
	weft_map_kill(ctx->doorbell);
	weft_map_kill(ctx->shadow_map);
	ctx->doorbell = NULL;
	ctx->shadow_map = NULL;
	ctx->shadow = NULL;
	weft_pages_free(ctx->wdev, &ctx->shadow_pages);
}

/* Ends the context in the device, whatever its queues are doing. */
static int weft_ctx_stop(struct weft_ctx *ctx)
{
	int idx, ret;

	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		return ret;
	weft_queue_abort_all(ctx);
	ret = weft_cmd_ctx_destroy(ctx->wdev, ctx->id);
	if (ret)
		weft_fail(ctx->wdev, "a context cannot be ended");
	else
		weft_event_drain(ctx->wdev);
	weft_dev_exit(ctx->wdev, idx);
	return ret;
}

/**
 * weft_ctx_close() - end a context: first in the device, then its memory
 * @ctx: the context; later calls for it do nothing
 */
void weft_ctx_close(struct weft_ctx *ctx)
{
	struct weft_device *wdev = ctx->wdev;

	mutex_lock(&ctx->lock);
	if (ctx->closed)
		goto out_unlock;
	if (weft_ctx_stop(ctx))
		weft_settle(wdev);
	WRITE_ONCE(ctx->closed, true);

	spin_lock(&wdev->obj_lock);
	xa_erase(&wdev->ctxs, ctx->id);
	spin_unlock(&wdev->obj_lock);
	weft_ctx_release(ctx);
out_unlock:
	mutex_unlock(&ctx->lock);
}

/* For the removal. No new context comes any more. */
void weft_ctx_close_all(struct weft_device *wdev)
{
	struct weft_ctx *ctx;
	unsigned long id;

	for (;;) {
		id = 0;
		spin_lock(&wdev->obj_lock);
		ctx = xa_find(&wdev->ctxs, &id, ULONG_MAX, XA_PRESENT);
		if (ctx)
			kref_get(&ctx->ref);
		spin_unlock(&wdev->obj_lock);
		if (!ctx)
			break;
		weft_ctx_close(ctx);
		kref_put(&ctx->ref, weft_ctx_free);
	}
}

static int weft_ctx_alloc_memory(struct weft_ctx *ctx)
{
	struct weft_device *wdev = ctx->wdev;
	int ret;

	ctx->dummy = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!ctx->dummy)
		return -ENOMEM;
	ret = weft_pages_alloc(wdev, &ctx->shadow_pages, WEFT_SHADOW_PAGES, true);
	if (ret)
		return ret;
	ctx->shadow = page_address(ctx->shadow_pages.page[0]);

	ctx->shadow_map = weft_map_create(ctx, WEFT_MAP_PAGES, WEFT_SHADOW_PAGES);
	if (IS_ERR(ctx->shadow_map)) {
		ret = PTR_ERR(ctx->shadow_map);
		goto err_free_shadow;
	}
	ctx->shadow_map->pages = &ctx->shadow_pages;
	ctx->shadow_map->read_only = true;

	ctx->doorbell = weft_map_create(ctx, WEFT_MAP_DOORBELL, 1);
	if (IS_ERR(ctx->doorbell)) {
		ret = PTR_ERR(ctx->doorbell);
		goto err_kill_map;
	}
	return 0;

err_kill_map:
	weft_map_kill(ctx->shadow_map);
err_free_shadow:
	weft_pages_free(wdev, &ctx->shadow_pages);
	return ret;
}

/* Makes the context in the device and lets the event reader and the removal find it. */
static int weft_ctx_start(struct weft_ctx *ctx)
{
	struct weft_device *wdev = ctx->wdev;
	int idx, ret;

	ret = weft_dev_enter(wdev, &idx);
	if (ret)
		return ret;

	ret = xa_alloc(&wdev->ctxs, &ctx->id, ctx, XA_LIMIT(1, wdev->contexts - 1), GFP_KERNEL);
	if (ret) {
		if (ret == -EBUSY)
			drm_dbg(&wdev->drm, "all %u contexts are in use\n", wdev->contexts - 1);
		goto out_exit;
	}
	ctx->epoch = atomic64_read(&wdev->epoch);
	ctx->vector = wdev->vectors > 1 ? 1 + (ctx->id - 1) % (wdev->vectors - 1) : 0;
	ctx->doorbell->pfn = PHYS_PFN(pci_resource_start(wdev->pdev, WEFT_BAR_REGS) + WEFT_DOORBELLS_BASE) + ctx->id;
	ret = weft_cmd_ctx_create(wdev, ctx->id, ctx->vector, ctx->shadow_pages.dma[0]);
	if (ret) {
		spin_lock(&wdev->obj_lock);
		xa_erase(&wdev->ctxs, ctx->id);
		spin_unlock(&wdev->obj_lock);
	}
out_exit:
	weft_dev_exit(wdev, idx);
	return ret;
}

int weft_open(struct drm_device *drm, struct drm_file *file)
{
	struct weft_device *wdev = to_weft(drm);
	struct weft_ctx *ctx;
	int idx, ret;

	/* Nothing may be mapped for a device that is gone. */
	if (!drm_dev_enter(drm, &idx))
		return -ENODEV;
	ctx = kzalloc(sizeof(*ctx), GFP_KERNEL);
	if (!ctx) {
		ret = -ENOMEM;
		goto err_exit;
	}
	kref_init(&ctx->ref);
	mutex_init(&ctx->lock);
	spin_lock_init(&ctx->wait_lock);
	INIT_LIST_HEAD(&ctx->waiters);
	INIT_LIST_HEAD(&ctx->channels);
	xa_init_flags(&ctx->hosts, XA_FLAGS_ALLOC1);
	ctx->wdev = wdev;
	ctx->file = file;
	ctx->generation = atomic64_inc_return(&wdev->generation);

	ret = weft_ctx_alloc_memory(ctx);
	if (ret)
		goto err_put;
	ret = weft_ctx_start(ctx);
	if (ret)
		goto err_release;
	file->driver_priv = ctx;
	drm_dev_exit(idx);
	return 0;

err_release:
	/* A context that the device may or may not have made must not keep the shadow array's address. */
	if (ret == -EIO)
		weft_settle(wdev);
	weft_ctx_release(ctx);
err_put:
	kref_put(&ctx->ref, weft_ctx_free);
err_exit:
	drm_dev_exit(idx);
	return ret;
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
	int lost;

	if (args->flags)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	if (ctx->closed) {
		mutex_unlock(&ctx->lock);
		return -ENODEV;
	}
	lost = weft_ctx_lost(ctx);
	args->ctx = ctx->id;
	args->state = -lost;
	args->doorbell_offset = weft_map_offset(ctx->doorbell);
	args->shadow_offset = weft_map_offset(ctx->shadow_map);
	args->shadow_bytes = WEFT_SHADOW_PAGES * PAGE_SIZE;
	args->generation = ctx->generation;
	mutex_unlock(&ctx->lock);
	return 0;
}
