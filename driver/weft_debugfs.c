// SPDX-License-Identifier: GPL-2.0
/* /sys/kernel/debug/accel/BDF: registers, contexts, HBM. */
#include <linux/seq_file.h>

#include <drm/drm_debugfs.h>

#include "weft_ctx.h"

static struct weft_device *weft_debugfs_device(struct seq_file *m)
{
	struct drm_debugfs_entry *entry = m->private;

	return to_weft(entry->dev);
}

static int weft_debugfs_registers(struct seq_file *m, void *unused)
{
	static const struct {
		const char *name;
		u32 offset;
	} list[] = {
		{ "magic", WEFT_REG_MAGIC },
		{ "hw_version", WEFT_REG_HW_VERSION },
		{ "caps", WEFT_REG_CAPS },
		{ "ports", WEFT_REG_PORTS },
		{ "contexts", WEFT_REG_CONTEXTS },
		{ "regions", WEFT_REG_REGIONS },
		{ "qps", WEFT_REG_QPS },
		{ "vectors", WEFT_REG_VECTORS },
		{ "window", WEFT_REG_WINDOW },
		{ "status", WEFT_REG_STATUS },
		{ "boot_error", WEFT_REG_BOOT_ERROR },
		{ "boot_detail", WEFT_REG_BOOT_DETAIL },
		{ "fw_version", WEFT_REG_FW_VERSION },
		{ "heartbeat", WEFT_REG_HEARTBEAT },
		{ "irq_mask", WEFT_REG_IRQ_MASK },
		{ "mbox_done", WEFT_REG_MBOX_DONE },
	};
	struct weft_device *wdev = weft_debugfs_device(m);
	int i, idx;

	if (!drm_dev_enter(&wdev->drm, &idx))
		return -ENODEV;
	down_read(&wdev->reset_sem);
	for (i = 0; i < ARRAY_SIZE(list); i++)
		seq_printf(m, "%-12s %#010x\n", list[i].name, readl(wdev->regs + list[i].offset));
	up_read(&wdev->reset_sem);
	drm_dev_exit(idx);
	seq_printf(m, "life %d, epoch %lld, resets %d, events read %u\n", READ_ONCE(wdev->life),
		   atomic64_read(&wdev->epoch), atomic_read(&wdev->resets), READ_ONCE(wdev->eq.head));
	return 0;
}

static int weft_debugfs_contexts(struct seq_file *m, void *unused)
{
	struct weft_device *wdev = weft_debugfs_device(m);
	struct weft_channel *channel;
	struct weft_hwctx *hw;
	struct weft_ctx *ctx;
	unsigned long id;
	u32 n;

	spin_lock(&wdev->obj_lock);
	xa_for_each(&wdev->hws, id, hw) {
		ctx = weft_ctx_of(hw);
		if (!ctx) {
			seq_printf(m, "context %lu: of another driver\n", id);
			continue;
		}
		seq_printf(m, "context %lu: state %d, vector %u, syncs %u, failures %u\n", id, weft_ctx_lost(ctx),
			   ctx->hw.vector, bitmap_weight(ctx->sync_used, WEFT_SYNCS_PER_CONTEXT), ctx->failures);
		for (n = 0; n < ARRAY_SIZE(ctx->queues); n++)
			if (ctx->queues[n])
				seq_printf(m, "  queue %u: ring %#x, error %u at %llu\n", n, ctx->queues[n]->key,
					   ctx->queues[n]->failure.error, ctx->queues[n]->failure.value);
		list_for_each_entry(channel, &ctx->channels, node)
			seq_printf(m, "  channel %u: port %u, %s, error %u\n", channel->qp.qpn, channel->port,
				   channel->connected ? "connected" : "not connected", channel->failure.error);
	}
	spin_unlock(&wdev->obj_lock);
	return 0;
}

static int weft_debugfs_hbm(struct seq_file *m, void *unused)
{
	struct weft_device *wdev = weft_debugfs_device(m);
	struct drm_printer p = drm_seq_file_printer(m);
	struct drm_weft_hbm usage;

	weft_hbm_usage(wdev, &usage);
	seq_printf(m, "total %llu, used %llu by %llu, largest free %llu\n", usage.total, usage.used, usage.objects,
		   usage.largest_free);
	mutex_lock(&wdev->hbm.lock);
	drm_mm_print(&wdev->hbm.mm, &p);
	mutex_unlock(&wdev->hbm.lock);
	return 0;
}

static const struct drm_debugfs_info weft_debugfs_files[] = {
	{ "weft_contexts", weft_debugfs_contexts, 0, NULL },
	{ "weft_hbm", weft_debugfs_hbm, 0, NULL },
	{ "weft_registers", weft_debugfs_registers, 0, NULL },
};

void weft_debugfs_init(struct weft_device *wdev)
{
	drm_debugfs_add_files(&wdev->drm, weft_debugfs_files, ARRAY_SIZE(weft_debugfs_files));
}
