// SPDX-License-Identifier: GPL-2.0
/* Command queues: the user fills the ring and rings the doorbell, the driver only makes and ends them. */
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/slab.h>

#include "weft_ctx.h"

#define WEFT_QUEUE_ENTRIES_MIN 16
#define WEFT_QUEUE_ENTRIES_MAX 65536

/* Rings of a context, above all addresses that HOST_REGISTER gives. */
#define WEFT_VA_RING (WEFT_VA_HOST + BIT_ULL(58))

static bool weft_queue_in_hbm(const struct weft_queue *queue)
{
	return drm_mm_node_allocated(&queue->hbm);
}

/* The ring's memory and its mmap offset; the device does not know of it yet. */
static int weft_queue_alloc_ring(struct weft_ctx *ctx, struct weft_queue *queue, u64 bytes, bool in_hbm)
{
	struct weft_device *wdev = ctx->wdev;
	u32 i, pages = bytes >> PAGE_SHIFT;
	int ret;

	if (in_hbm) {
		ret = weft_hbm_alloc(wdev, &queue->hbm, bytes, 0);
		if (ret)
			return ret;
		ret = weft_hbm_zero(wdev, &queue->hbm);
		if (ret)
			goto err_free;
	} else {
		ret = weft_pages_alloc(wdev, &queue->pages, pages, false);
		if (ret)
			return ret;
		ret = weft_pagelist_alloc(wdev, &queue->list, pages);
		if (ret)
			goto err_free;
		for (i = 0; i < pages; i++)
			weft_pagelist_set(&queue->list, i, queue->pages.dma[i]);
	}

	queue->map = weft_map_create(ctx, WEFT_MAP_RING, pages);
	if (IS_ERR(queue->map)) {
		ret = PTR_ERR(queue->map);
		queue->map = NULL;
		goto err_free;
	}
	if (in_hbm)
		queue->map->pfn = PHYS_PFN(wdev->hbm_start + queue->hbm.start);
	else
		queue->map->pages = &queue->pages;
	return 0;

err_free:
	if (in_hbm) {
		weft_hbm_free(wdev, &queue->hbm);
	} else {
		weft_pagelist_free(wdev, &queue->list);
		weft_pages_free(wdev, &queue->pages);
	}
	return ret;
}

static void weft_queue_free_ring(struct weft_ctx *ctx, struct weft_queue *queue)
{
	weft_map_kill(queue->map);
	if (weft_queue_in_hbm(queue)) {
		weft_hbm_free(ctx->wdev, &queue->hbm);
	} else {
		weft_pagelist_free(ctx->wdev, &queue->list);
		weft_pages_free(ctx->wdev, &queue->pages);
	}
}

/* Region and queue in the device. */
static int weft_queue_start(struct weft_ctx *ctx, struct weft_queue *queue, u32 entries, u64 bytes)
{
	struct weft_region_entry region = {
		.rights = WEFT_RIGHT_READ | WEFT_RIGHT_WRITE,
		.length = cpu_to_le64(bytes),
	};
	struct weft_queue_entry entry = {
		.ctx = cpu_to_le32(ctx->hw.id),
		.queue = cpu_to_le32(queue->number),
		.entries = cpu_to_le32(entries),
	};
	int idx, ret;

	if (weft_queue_in_hbm(queue)) {
		region.type = WEFT_REGION_HBM;
		region.va = cpu_to_le64(WEFT_VA_HBM + queue->hbm.start);
		region.base = cpu_to_le64(queue->hbm.start);
	} else {
		region.type = WEFT_REGION_HOST;
		region.page_shift = PAGE_SHIFT;
		region.levels = queue->list.levels;
		region.va = cpu_to_le64(WEFT_VA_RING + weft_map_offset(queue->map));
		region.base = cpu_to_le64(queue->list.base);
		region.pages = cpu_to_le64(queue->list.pages);
	}

	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		return ret;
	ret = weft_region_create(&ctx->hw, &region, &queue->key);
	if (ret)
		goto out_exit;
	entry.ring_key = cpu_to_le32(queue->key);
	entry.ring_addr = region.va;
	ret = weft_cmd_queue_create(ctx->wdev, &entry);
out_exit:
	weft_dev_exit(ctx->wdev, idx);
	if (ret && queue->key)
		weft_region_destroy(&ctx->hw, queue->key);
	return ret;
}

int weft_queue_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_queue_create *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = to_weft(drm);
	struct weft_queue *queue;
	int idx, ret;
	u64 bytes;
	u32 n;

	if (args->flags & ~WEFT_QUEUE_IN_HBM)
		return -EINVAL;
	if (args->entries < WEFT_QUEUE_ENTRIES_MIN || args->entries > WEFT_QUEUE_ENTRIES_MAX ||
	    !is_power_of_2(args->entries))
		return -EINVAL;
	bytes = PAGE_ALIGN(sizeof(struct weft_ring_head) + (u64)args->entries * sizeof(struct weft_cmd));

	if (!drm_dev_enter(drm, &idx))
		return -ENODEV;
	mutex_lock(&ctx->lock);
	ret = weft_ctx_lost(ctx);
	if (ret)
		goto out_unlock;
	for (n = 0; n < ARRAY_SIZE(ctx->queues) && ctx->queues[n]; n++)
		;
	if (n == ARRAY_SIZE(ctx->queues)) {
		ret = -ENOSPC;
		goto out_unlock;
	}

	queue = kzalloc(sizeof(*queue), GFP_KERNEL);
	if (!queue) {
		ret = -ENOMEM;
		goto out_unlock;
	}
	queue->number = n;
	ret = weft_queue_alloc_ring(ctx, queue, bytes, args->flags & WEFT_QUEUE_IN_HBM);
	if (ret)
		goto err_free;
	ret = weft_queue_start(ctx, queue, args->entries, bytes);
	if (ret)
		goto err_free_ring;

	spin_lock(&wdev->obj_lock);
	ctx->queues[n] = queue;
	spin_unlock(&wdev->obj_lock);
	args->queue = n;
	args->ring_offset = weft_map_offset(queue->map);
	args->ring_bytes = bytes;
	goto out_unlock;

err_free_ring:
	weft_queue_free_ring(ctx, queue);
err_free:
	kfree(queue);
out_unlock:
	mutex_unlock(&ctx->lock);
	drm_dev_exit(idx);
	return ret;
}

/* Not in the device any more: forget it. */
static void weft_queue_release(struct weft_ctx *ctx, struct weft_queue *queue)
{
	spin_lock(&ctx->wdev->obj_lock);
	ctx->queues[queue->number] = NULL;
	spin_unlock(&ctx->wdev->obj_lock);
	weft_queue_free_ring(ctx, queue);
	kfree(queue);
}

int weft_queue_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = to_weft(drm);
	struct drm_weft_handle *args = data;
	struct weft_queue *queue;
	int idx, ret;

	if (args->flags || args->reserved)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	queue = args->handle < ARRAY_SIZE(ctx->queues) ? ctx->queues[args->handle] : NULL;
	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		goto out_unlock; /* its memory goes with the context */
	if (!queue) {
		weft_dev_exit(wdev, idx);
		ret = -ENOENT;
		goto out_unlock;
	}
	/* A command may wait for something that never comes: abort first. Refused when the queue is halted already. */
	weft_cmd_queue_abort(wdev, ctx->hw.id, queue->number);
	ret = weft_cmd_queue_destroy(wdev, ctx->hw.id, queue->number);
	if (ret)
		weft_fail(wdev, "a queue cannot be ended");
	else
		weft_event_drain(wdev);
	weft_dev_exit(wdev, idx);
	if (ret) {
		ret = -EIO;
		goto out_unlock;
	}
	weft_region_destroy(&ctx->hw, queue->key);
	weft_queue_release(ctx, queue);
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

/* Has the queue halted without an event? Its ring says so; a user who writes there fools only themselves. */
void weft_queue_find_failure(struct weft_ctx *ctx, struct weft_queue *queue)
{
	struct weft_device *wdev = ctx->wdev;
	struct weft_ring_head head = {};
	void __iomem *at;

	if (weft_queue_in_hbm(queue)) {
		at = ioremap_wc(wdev->hbm_start + queue->hbm.start, sizeof(head));
		if (!at)
			return;
		memcpy_fromio(&head, at, sizeof(head));
		iounmap(at);
	} else {
		memcpy(&head, page_address(queue->pages.page[0]), sizeof(head));
	}
	if (le32_to_cpu(head.state) != WEFT_QUEUE_HALTED)
		return;
	spin_lock(&wdev->obj_lock);
	weft_ctx_failure(ctx, &queue->failure, le32_to_cpu(head.error), le64_to_cpu(head.error_index));
	spin_unlock(&wdev->obj_lock);
}

/* Between weft_ctx_enter() and weft_dev_exit(); the context is ended next, so nobody asks whether it worked. */
void weft_queue_abort_all(struct weft_ctx *ctx)
{
	u32 n;

	for (n = 0; n < ARRAY_SIZE(ctx->queues); n++)
		if (ctx->queues[n])
			weft_cmd_queue_abort(ctx->wdev, ctx->hw.id, n);
}

void weft_queue_release_all(struct weft_ctx *ctx)
{
	u32 n;

	for (n = 0; n < ARRAY_SIZE(ctx->queues); n++)
		if (ctx->queues[n]) {
			weft_key_free(ctx->wdev, ctx->queues[n]->key);
			weft_queue_release(ctx, ctx->queues[n]);
		}
}
