// SPDX-License-Identifier: GPL-2.0
/*
 * Sync objects: numbers handed out, and the wait for values. The device mirrors a value to the context's shadow array
 * and, once armed, sends one interrupt when it is reached; everything is looked at again then.
 */
#include <linux/bitmap.h>
#include <linux/hrtimer.h>
#include <linux/uaccess.h>

#include "weft_ctx.h"

#define WEFT_WAIT_ITEMS_MAX 64
#define WEFT_WAIT_LISTED_MAX 4096
/* Should an interrupt be lost: so late at most does a waiter notice. */
#define WEFT_WAIT_RECHECK_NS (100 * NSEC_PER_MSEC)

/**
 * struct weft_waiter - a thread in WAIT
 * @node: in &weft_ctx.waiters
 * @item: what it waits for
 * @count: how many
 * @listed: whose failures count, with WEFT_WAIT_LISTED: numbers of queues, then of channels
 * @queues: how many queues
 * @channels: how many channels
 */
struct weft_waiter {
	struct list_head node;
	struct drm_weft_wait_item item[WEFT_WAIT_ITEMS_MAX];
	u32 count;
	u32 *listed;
	u32 queues;
	u32 channels;
};

static bool weft_sync_in_range(u32 first, u32 count)
{
	return count && count <= WEFT_SYNCS_PER_CONTEXT && first <= WEFT_SYNCS_PER_CONTEXT - count;
}

/* Are all of them handed out to this context's user? With its lock held. */
bool weft_sync_owned(struct weft_ctx *ctx, u32 first, u32 count)
{
	lockdep_assert_held(&ctx->lock);
	return weft_sync_in_range(first, count) &&
	       find_next_zero_bit(ctx->sync_used, first + count, first) >= first + count;
}

static int weft_sync_config(struct weft_ctx *ctx, u32 first, u32 count, u32 flags)
{
	int idx, ret;

	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		return ret;
	ret = weft_cmd_sync_config(ctx->wdev, ctx->hw.id, first, count, flags);
	weft_dev_exit(ctx->wdev, idx);
	return ret;
}

int weft_sync_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_sync_create *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	unsigned long first;
	int ret;

	if (args->flags || !args->count)
		return -EINVAL;
	if (args->count > WEFT_SYNCS_PER_CONTEXT)
		return -ENOSPC;

	mutex_lock(&ctx->lock);
	first = bitmap_find_next_zero_area(ctx->sync_used, WEFT_SYNCS_PER_CONTEXT, 0, args->count, 0);
	if (first >= WEFT_SYNCS_PER_CONTEXT) {
		ret = weft_ctx_lost(ctx) ?: -ENOSPC;
		goto out_unlock;
	}
	ret = weft_sync_config(ctx, first, args->count, WEFT_SYNC_NOTIFY);
	if (ret)
		goto out_unlock;
	bitmap_set(ctx->sync_used, first, args->count);
	args->first = first;
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

int weft_sync_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_sync_destroy *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	int ret;

	if (args->flags || !args->count)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	ret = weft_ctx_lost(ctx);
	if (ret)
		goto out_unlock;
	if (!weft_sync_owned(ctx, args->first, args->count)) {
		ret = -ENOENT;
		goto out_unlock;
	}
	if (weft_channel_uses_sync(ctx, args->first, args->count)) {
		ret = -EBUSY;
		goto out_unlock;
	}
	ret = weft_sync_config(ctx, args->first, args->count, 0);
	if (ret)
		goto out_unlock;
	bitmap_clear(ctx->sync_used, args->first, args->count);
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

static u64 weft_sync_value(struct weft_ctx *ctx, u32 sync)
{
	return le64_to_cpu(READ_ONCE(ctx->shadow[sync]));
}

/* 1: done; 0: not yet; -EINVAL: a sync object that cannot be waited for. */
static int weft_wait_look(struct weft_ctx *ctx, struct weft_waiter *waiter, struct drm_weft_wait *args)
{
	bool all = true;
	u32 i;

	for (i = 0; i < waiter->count; i++) {
		if (!test_bit(waiter->item[i].sync, ctx->sync_used))
			return -EINVAL;
		if (weft_sync_value(ctx, waiter->item[i].sync) < waiter->item[i].value) {
			all = false;
		} else if (args->flags & WEFT_WAIT_ANY) {
			args->index = i;
			all = true;
			break;
		}
	}
	if (!all)
		return 0;
	/* What the signal announced was written before it. */
	dma_rmb();
	return 1;
}

/* How far ahead the nearest value of `sync` is that anybody of the context waits for. */
static u64 weft_wait_nearest(struct weft_ctx *ctx, u32 sync, u64 now)
{
	u64 ahead = WEFT_ARM_AHEAD_MAX;
	struct weft_waiter *waiter;
	u32 i;

	list_for_each_entry(waiter, &ctx->waiters, node)
		for (i = 0; i < waiter->count; i++)
			if (waiter->item[i].sync == sync && waiter->item[i].value > now)
				ahead = min(ahead, waiter->item[i].value - now);
	return ahead;
}

/*
 * A sync object is armed for one value at a time, so the nearest one counts; who waits for a later one arms it when
 * it wakes. Between weft_ctx_enter() and weft_dev_exit().
 */
static void weft_wait_arm(struct weft_ctx *ctx, struct weft_waiter *waiter)
{
	void __iomem *page = ctx->wdev->regs + WEFT_DOORBELLS_BASE + ctx->hw.id * WEFT_DOORBELL_PAGE;
	u32 i;

	spin_lock(&ctx->wait_lock);
	for (i = 0; i < waiter->count; i++) {
		u32 sync = waiter->item[i].sync;
		u64 now = weft_sync_value(ctx, sync);

		if (now < waiter->item[i].value)
			writeq(WEFT_DB_ARM_VALUE(sync, now + weft_wait_nearest(ctx, sync, now)), page + WEFT_DB_ARM);
	}
	spin_unlock(&ctx->wait_lock);
}

static void weft_wait_blame(struct drm_weft_wait *args, const struct weft_failure *failure, u32 type, u32 number,
			    u32 *earliest)
{
	if (!failure->seq || failure->seq >= *earliest)
		return;
	*earliest = failure->seq;
	args->error = failure->error;
	args->error_type = type;
	args->object = number;
	args->value = failure->value;
}

static void weft_wait_failure_listed(struct weft_ctx *ctx, struct weft_waiter *waiter, struct drm_weft_wait *args,
				     u32 *earliest)
{
	const u32 *qpn = waiter->listed + waiter->queues;
	struct weft_channel *channel;
	struct weft_queue *queue;
	u32 i, number;

	for (i = 0; i < waiter->queues; i++) {
		number = waiter->listed[i];
		queue = number < ARRAY_SIZE(ctx->queues) ? ctx->queues[number] : NULL;
		if (queue)
			weft_wait_blame(args, &queue->failure, WEFT_OBJECT_QUEUE, number, earliest);
	}
	for (i = 0; i < waiter->channels; i++) {
		channel = weft_channel_find(ctx, qpn[i]);
		if (channel)
			weft_wait_blame(args, &channel->failure, WEFT_OBJECT_CHANNEL, qpn[i], earliest);
	}
}

static void weft_wait_failure_any(struct weft_ctx *ctx, struct drm_weft_wait *args, u32 *earliest)
{
	struct weft_channel *channel;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ctx->queues); i++)
		if (ctx->queues[i])
			weft_wait_blame(args, &ctx->queues[i]->failure, WEFT_OBJECT_QUEUE, i, earliest);
	list_for_each_entry(channel, &ctx->channels, node)
		weft_wait_blame(args, &channel->failure, WEFT_OBJECT_CHANNEL, channel->qp.qpn, earliest);
}

/* The first failure among the queues and channels that count. */
static int weft_wait_failure(struct weft_ctx *ctx, struct weft_waiter *waiter, struct drm_weft_wait *args)
{
	u32 earliest = U32_MAX;

	if (!READ_ONCE(ctx->failures))
		return 0;
	spin_lock(&ctx->wdev->obj_lock);
	if (args->flags & WEFT_WAIT_LISTED)
		weft_wait_failure_listed(ctx, waiter, args, &earliest);
	else
		weft_wait_failure_any(ctx, args, &earliest);
	spin_unlock(&ctx->wdev->obj_lock);
	return earliest == U32_MAX ? 0 : -EIO;
}

/* One look with the device at hand; 1: done, 0: armed, go to sleep. */
static int weft_wait_once(struct weft_ctx *ctx, struct weft_waiter *waiter, struct drm_weft_wait *args, bool again)
{
	int idx, ret;

	ret = weft_hwctx_enter(&ctx->hw, &idx);
	if (ret) {
		args->error_type = WEFT_OBJECT_DEVICE;
		return ret;
	}
	ret = weft_wait_look(ctx, waiter, args);
	if (!ret && args->deadline_ns) {
		weft_wait_arm(ctx, waiter);
		if (again)
			weft_ctx_find_failures(ctx);
		/* It may have been reached while it was armed. */
		ret = weft_wait_look(ctx, waiter, args);
	}
	weft_dev_exit(ctx->wdev, idx);
	return ret;
}

static int weft_wait_sleep(struct weft_ctx *ctx, struct weft_waiter *waiter, struct drm_weft_wait *args)
{
	struct weft_vector *vector = &ctx->wdev->vector[ctx->hw.vector];
	bool again = false;
	s64 left;
	int ret;

	for (;;) {
		int seq = atomic_read(&vector->seq);

		ret = weft_wait_once(ctx, waiter, args, again);
		if (ret)
			return min(ret, 0);
		ret = weft_wait_failure(ctx, waiter, args);
		if (ret)
			return ret;

		left = WEFT_WAIT_RECHECK_NS;
		if (args->deadline_ns >= 0) {
			left = min(left, args->deadline_ns - (s64)ktime_get_ns());
			if (left <= 0)
				return -ETIME;
		}
		ret = wait_event_interruptible_hrtimeout(vector->wq, atomic_read(&vector->seq) != seq,
							 ns_to_ktime(left));
		if (ret == -ERESTARTSYS)
			return ret;
		again = ret == -ETIME;
	}
}

static int weft_wait_copy_listed(struct weft_waiter *waiter, const struct drm_weft_wait *args)
{
	u32 count = args->queue_count + args->channel_count;

	if (!count)
		return 0;
	waiter->listed = kvmalloc_array(count, sizeof(u32), GFP_KERNEL);
	if (!waiter->listed)
		return -ENOMEM;
	waiter->queues = args->queue_count;
	waiter->channels = args->channel_count;
	if (copy_from_user(waiter->listed, u64_to_user_ptr(args->queues), waiter->queues * sizeof(u32)) ||
	    copy_from_user(waiter->listed + waiter->queues, u64_to_user_ptr(args->channels),
			   waiter->channels * sizeof(u32)))
		return -EFAULT;
	return 0;
}

static int weft_wait_copy(struct weft_waiter *waiter, const struct drm_weft_wait *args)
{
	u32 i;

	waiter->count = args->count;
	if (copy_from_user(waiter->item, u64_to_user_ptr(args->items), args->count * sizeof(waiter->item[0])))
		return -EFAULT;
	for (i = 0; i < waiter->count; i++)
		if (waiter->item[i].reserved || waiter->item[i].sync >= WEFT_SYNCS_PER_CONTEXT)
			return -EINVAL;
	return weft_wait_copy_listed(waiter, args);
}

int weft_wait_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	struct drm_weft_wait *args = data;
	struct weft_waiter *waiter;
	int ret;

	if (args->flags & ~(WEFT_WAIT_ANY | WEFT_WAIT_LISTED) || args->reserved)
		return -EINVAL;
	if (!args->count || args->count > WEFT_WAIT_ITEMS_MAX)
		return -EINVAL;
	if (args->queue_count > WEFT_WAIT_LISTED_MAX || args->channel_count > WEFT_WAIT_LISTED_MAX - args->queue_count)
		return -EINVAL;
	if (!(args->flags & WEFT_WAIT_LISTED) &&
	    (args->queues || args->queue_count || args->channels || args->channel_count))
		return -EINVAL;
	args->index = 0;
	args->error = 0;
	args->error_type = 0;
	args->object = 0;
	args->value = 0;

	waiter = kzalloc(sizeof(*waiter), GFP_KERNEL);
	if (!waiter)
		return -ENOMEM;
	ret = weft_wait_copy(waiter, args);
	if (ret)
		goto out_free;

	spin_lock(&ctx->wait_lock);
	list_add_tail(&waiter->node, &ctx->waiters);
	spin_unlock(&ctx->wait_lock);
	ret = weft_wait_sleep(ctx, waiter, args);
	spin_lock(&ctx->wait_lock);
	list_del(&waiter->node);
	spin_unlock(&ctx->wait_lock);
out_free:
	kvfree(waiter->listed);
	kfree(waiter);
	return ret;
}
