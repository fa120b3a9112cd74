// SPDX-License-Identifier: GPL-2.0
/* Channels: RC queue pairs that the device owns, between two contexts' sync objects and memory. */
#include <linux/etherdevice.h>
#include <linux/log2.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <net/ipv6.h>

#include "weft_ctx.h"

#define WEFT_PSN_MASK GENMASK(23, 0)
#define WEFT_QPN_MASK GENMASK(23, 0)
/* 67 ms an attempt, eight attempts: a dead peer is known in about half a second, a busy one is not given up. */
#define WEFT_CHANNEL_TIMEOUT 14
#define WEFT_CHANNEL_TIMEOUT_MAX 31
#define WEFT_CHANNEL_RETRY_MAX 7
#define WEFT_CHANNEL_RNR_RETRY 6 /* 7 would be for ever */
#define WEFT_CHANNEL_RNR_TIMER 12 /* 0.64 ms */
#define WEFT_CHANNEL_READS 4
#define WEFT_CHANNEL_HOPS 64
/* Of a port's GID table, as the device makes it. */
#define WEFT_CHANNEL_GID_IPV6 1

static u8 weft_mtu_of(u32 bytes)
{
	if (bytes < 256)
		return 0;
	return min(ilog2(bytes) - 7, (int)WEFT_MTU_8192);
}

/* A port's address as RoCE v2 names it: IPv4 where there is one. */
void weft_port_gid(const struct weft_mbox_port *port, u8 gid[16])
{
	if (memchr_inv(port->ipv4, 0, sizeof(port->ipv4))) {
		memset(gid, 0, 10);
		memset(gid + 10, 0xff, 2);
		memcpy(gid + 12, port->ipv4, sizeof(port->ipv4));
	} else {
		memcpy(gid, port->ipv6, sizeof(port->ipv6));
	}
}

static void weft_channel_failed(struct weft_qp *qp, const struct weft_event *event)
{
	struct weft_channel *channel = container_of(qp, struct weft_channel, qp);

	weft_ctx_failure(weft_ctx_of(qp->hw), &channel->failure, le16_to_cpu(event->error), le64_to_cpu(event->value));
}

/* The context's channel of that number, or NULL; with obj_lock held. */
struct weft_channel *weft_channel_find(struct weft_ctx *ctx, u32 qpn)
{
	struct weft_qp *qp;

	lockdep_assert_held(&ctx->wdev->obj_lock);
	qp = xa_load(&ctx->wdev->qps, qpn);
	if (!qp || qp->hw != &ctx->hw)
		return NULL;
	return container_of(qp, struct weft_channel, qp);
}

/* The same with the context's lock, for as long as that is held. */
static struct weft_channel *weft_channel_get(struct weft_ctx *ctx, u32 qpn)
{
	struct weft_channel *channel;

	lockdep_assert_held(&ctx->lock);
	spin_lock(&ctx->wdev->obj_lock);
	channel = weft_channel_find(ctx, qpn);
	spin_unlock(&ctx->wdev->obj_lock);
	return channel;
}

/* Has it failed without an event? Between weft_ctx_enter() and weft_dev_exit(), with the context's lock. */
void weft_channel_find_failure(struct weft_ctx *ctx, struct weft_channel *channel)
{
	struct weft_qp_entry qp = {};

	if (weft_cmd_qp_query(ctx->wdev, ctx->hw.id, channel->qp.qpn, &qp) || qp.state != WEFT_QPS_ERR)
		return;
	spin_lock(&ctx->wdev->obj_lock);
	weft_ctx_failure(ctx, &channel->failure, le32_to_cpu(qp.error), 0);
	spin_unlock(&ctx->wdev->obj_lock);
}

bool weft_channel_uses_sync(struct weft_ctx *ctx, u32 first, u32 count)
{
	struct weft_channel *channel;

	lockdep_assert_held(&ctx->lock);
	list_for_each_entry(channel, &ctx->channels, node)
		if (channel->sync_count && first < channel->sync_base + channel->sync_count &&
		    channel->sync_base < first + count)
			return true;
	return false;
}

/* Queue pair in state INIT; between weft_ctx_enter() and weft_dev_exit(). */
static int weft_channel_start(struct weft_ctx *ctx, struct weft_channel *channel, struct drm_weft_endpoint *local)
{
	struct weft_device *wdev = ctx->wdev;
	struct weft_mbox_port port = {};
	struct weft_qp_entry qp = {
		.ctx = cpu_to_le32(ctx->hw.id),
		.type = WEFT_QP_CHANNEL,
		.av.port = channel->port,
		.access = cpu_to_le32(WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE),
		.sync_base = cpu_to_le32(channel->sync_base),
		.sync_count = cpu_to_le32(channel->sync_count),
	};
	int ret;

	ret = weft_cmd_port_get(wdev, channel->port, &port);
	if (ret)
		return ret;
	channel->mtu = weft_mtu_of(le32_to_cpu(port.mtu));
	if (!channel->mtu)
		return -EPROTO;

	ret = weft_cmd_qp_create(wdev, &qp);
	if (ret)
		return ret;
	channel->qp.qpn = le32_to_cpu(qp.qpn);
	qp.state = WEFT_QPS_INIT;
	ret = weft_cmd_qp_modify(wdev, WEFT_QPM_PORT | WEFT_QPM_PKEY | WEFT_QPM_ACCESS | WEFT_QPM_SYNC, &qp);
	if (!ret)
		ret = weft_qp_watch(&channel->qp);
	if (ret) {
		if (weft_cmd_qp_destroy(wdev, ctx->hw.id, channel->qp.qpn))
			weft_fail(wdev, "a queue pair cannot be ended");
		return ret;
	}

	memset(local, 0, sizeof(*local));
	local->qpn = channel->qp.qpn;
	local->psn = channel->psn;
	memcpy(local->mac, port.mac, sizeof(local->mac));
	local->mtu = channel->mtu;
	weft_port_gid(&port, local->gid);
	return 0;
}

int weft_channel_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_channel_create *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = to_weft(drm);
	struct weft_channel *channel;
	int idx, ret;

	if (args->flags || args->port >= wdev->ports)
		return -EINVAL;
	if (!(wdev->caps & WEFT_CAP_CHANNELS))
		return -EOPNOTSUPP;
	channel = kzalloc(sizeof(*channel), GFP_KERNEL);
	if (!channel)
		return -ENOMEM;
	channel->qp.hw = &ctx->hw;
	channel->qp.failed = weft_channel_failed;
	channel->port = args->port;
	channel->psn = get_random_u32() & WEFT_PSN_MASK;
	channel->sync_base = args->sync_base;
	channel->sync_count = args->sync_count;

	mutex_lock(&ctx->lock);
	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		goto err_unlock;
	if (args->sync_count && !weft_sync_owned(ctx, args->sync_base, args->sync_count))
		ret = -ENOENT;
	else
		ret = weft_channel_start(ctx, channel, &args->local);
	weft_dev_exit(wdev, idx);
	if (ret)
		goto err_unlock;

	spin_lock(&wdev->obj_lock);
	list_add_tail(&channel->node, &ctx->channels);
	spin_unlock(&wdev->obj_lock);
	args->channel = channel->qp.qpn;
	mutex_unlock(&ctx->lock);
	return 0;

err_unlock:
	mutex_unlock(&ctx->lock);
	kfree(channel);
	return ret;
}

/* RTR, then RTS: IBTA volume 1, section 10.3.1, with what tables 91 to 97 want. */
static int weft_channel_ready(struct weft_ctx *ctx, struct weft_channel *channel,
			      const struct drm_weft_channel_connect *args)
{
	const struct drm_weft_endpoint *remote = &args->remote;
	struct weft_device *wdev = ctx->wdev;
	struct weft_qp_entry qp = {
		.qpn = cpu_to_le32(channel->qp.qpn),
		.ctx = cpu_to_le32(ctx->hw.id),
		.type = WEFT_QP_CHANNEL,
		.state = WEFT_QPS_RTR,
		.path_mtu = min(channel->mtu, remote->mtu),
		.timeout = args->timeout ?: WEFT_CHANNEL_TIMEOUT,
		.retry_cnt = args->retry_cnt ?: WEFT_RETRY_UNLIMITED,
		.rnr_retry = WEFT_CHANNEL_RNR_RETRY,
		.min_rnr_timer = WEFT_CHANNEL_RNR_TIMER,
		.dest_qpn = cpu_to_le32(remote->qpn),
		.sq_psn = cpu_to_le32(channel->psn),
		.rq_psn = cpu_to_le32(remote->psn),
		.av.port = channel->port,
		.av.hop_limit = WEFT_CHANNEL_HOPS,
		.max_rd_atomic = WEFT_CHANNEL_READS,
		.max_dest_rd_atomic = WEFT_CHANNEL_READS,
	};
	int ret;

	memcpy(qp.av.dgid, remote->gid, sizeof(qp.av.dgid));
	memcpy(qp.av.dmac, remote->mac, sizeof(qp.av.dmac));
	if (!ipv6_addr_v4mapped((const struct in6_addr *)remote->gid))
		qp.av.sgid_index = WEFT_CHANNEL_GID_IPV6;

	ret = weft_cmd_qp_modify(wdev, WEFT_QPM_PATH | WEFT_QPM_MTU | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN |
				 WEFT_QPM_RNR_TIMER | WEFT_QPM_DEST_RD_ATOMIC, &qp);
	if (ret)
		return ret;
	qp.state = WEFT_QPS_RTS;
	return weft_cmd_qp_modify(wdev, WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY | WEFT_QPM_RD_ATOMIC, &qp);
}

int weft_channel_connect_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_channel_connect *args = data;
	const struct drm_weft_endpoint *remote = &args->remote;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_channel *channel;
	int idx, ret;

	if (args->flags || args->reserved || remote->reserved)
		return -EINVAL;
	if (args->timeout > WEFT_CHANNEL_TIMEOUT_MAX || args->retry_cnt > WEFT_CHANNEL_RETRY_MAX)
		return -EINVAL;
	/* QPN 0 and 1 are management's (IBTA volume 1, section 3.5.2). */
	if (remote->qpn < 2 || remote->qpn & ~WEFT_QPN_MASK || remote->psn & ~WEFT_PSN_MASK)
		return -EINVAL;
	if (remote->mtu < WEFT_MTU_256 || remote->mtu > WEFT_MTU_8192 || !is_valid_ether_addr(remote->mac))
		return -EINVAL;
	if (!memchr_inv(remote->gid, 0, sizeof(remote->gid)))
		return -EINVAL;

	mutex_lock(&ctx->lock);
	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		goto out_unlock;
	channel = weft_channel_get(ctx, args->channel);
	if (!channel)
		ret = -ENOENT;
	else if (channel->connected)
		ret = -EISCONN;
	else
		ret = weft_channel_ready(ctx, channel, args);
	if (!ret)
		channel->connected = true;
	weft_dev_exit(ctx->wdev, idx);
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

int weft_channel_query_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_channel_query *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_qp_entry qp = {};
	int idx, ret;

	if (args->flags || args->reserved)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		goto out_unlock;
	if (weft_channel_get(ctx, args->channel))
		ret = weft_cmd_qp_query(ctx->wdev, ctx->hw.id, args->channel, &qp);
	else
		ret = -ENOENT;
	weft_dev_exit(ctx->wdev, idx);
	args->state = qp.state;
	args->error = le32_to_cpu(qp.error);
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

static void weft_channel_release(struct weft_ctx *ctx, struct weft_channel *channel)
{
	weft_qp_unwatch(&channel->qp);
	spin_lock(&ctx->wdev->obj_lock);
	list_del(&channel->node);
	spin_unlock(&ctx->wdev->obj_lock);
	kfree(channel);
}

int weft_channel_destroy_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = to_weft(drm);
	struct drm_weft_handle *args = data;
	struct weft_channel *channel;
	int idx, ret;

	if (args->flags || args->reserved)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		goto out_unlock;
	channel = weft_channel_get(ctx, args->handle);
	if (!channel) {
		ret = -ENOENT;
		goto out_exit;
	}
	ret = weft_cmd_qp_destroy(wdev, ctx->hw.id, channel->qp.qpn);
	if (ret) {
		weft_fail(wdev, "a queue pair cannot be ended");
		ret = -EIO;
		goto out_exit;
	}
	weft_event_drain(wdev);
	weft_channel_release(ctx, channel);
out_exit:
	weft_dev_exit(wdev, idx);
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

void weft_channel_release_all(struct weft_ctx *ctx)
{
	struct weft_channel *channel, *next;

	list_for_each_entry_safe(channel, next, &ctx->channels, node)
		weft_channel_release(ctx, channel);
}
