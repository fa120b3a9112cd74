// SPDX-License-Identifier: GPL-2.0
/* What the device tells of itself: identity, counters, sensors, ports, firmware's log. */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "weft_ctx.h"

#define WEFT_LOG_RECORDS_MAX 4096

/**
 * union weft_info_data - the topics' results
 * @device: WEFT_INFO_DEVICE
 * @counter: WEFT_INFO_COUNTERS
 * @port_counter: WEFT_INFO_PORT_COUNTERS
 * @sensors: WEFT_INFO_SENSORS
 * @hbm: WEFT_INFO_HBM
 */
union weft_info_data {
	struct drm_weft_device device;
	struct drm_weft_counter counter[WEFT_CTR_COUNT];
	struct drm_weft_counter port_counter[WEFT_PCTR_COUNT];
	struct drm_weft_sensors sensors;
	struct drm_weft_hbm hbm;
};

#define WEFT_COUNTER_NAME(name, text) #name,
static const char *const weft_counter_names[] = { WEFT_COUNTERS(WEFT_COUNTER_NAME) };
static const char *const weft_port_counter_names[] = { WEFT_PORT_COUNTERS(WEFT_COUNTER_NAME) };
#undef WEFT_COUNTER_NAME

static u32 weft_info_state(struct weft_device *wdev)
{
	switch (READ_ONCE(wdev->life)) {
	case WEFT_READY:
		return WEFT_STATE_READY;
	case WEFT_RESETTING:
		return WEFT_STATE_RESETTING;
	default:
		return WEFT_STATE_FAILED;
	}
}

/* Of what was read when the device started: it need not answer now. */
static void weft_info_device(struct weft_device *wdev, struct drm_weft_device *out)
{
	struct weft_hwctx *hw;
	unsigned long id;

	out->hw_version = wdev->hw_version;
	out->fw_version = le32_to_cpu(wdev->identity.fw_version);
	out->caps = wdev->caps;
	out->ports = wdev->ports;
	out->hbm_bytes = wdev->hbm_bytes;
	out->queue_window = wdev->window;
	out->syncs = WEFT_SYNCS_PER_CONTEXT;
	out->queues = WEFT_QUEUES_PER_CONTEXT;
	out->resets = atomic_read(&wdev->resets);
	/* Texts of the device, which need not end. */
	memcpy(out->serial, wdev->identity.serial, sizeof(out->serial) - 1);
	strscpy(out->bdf, pci_name(wdev->pdev), sizeof(out->bdf));
	strscpy(out->fw_name, wdev->fw_name, sizeof(out->fw_name));
	out->state = weft_info_state(wdev);
	out->contexts = wdev->contexts - 1;
	xa_for_each(&wdev->hws, id, hw)
		out->contexts_used++;
}

/* Registers alone: no firmware is asked. */
static int weft_info_counters(struct weft_device *wdev, u32 base, const char *const *name, unsigned int count,
			      struct drm_weft_counter *out)
{
	unsigned int i;
	int idx, ret = 0;

	if (!drm_dev_enter(&wdev->drm, &idx))
		return -ENODEV;
	down_read(&wdev->reset_sem);
	for (i = 0; i < count; i++) {
		strscpy(out[i].name, name[i], sizeof(out[i].name));
		out[i].value = readq(wdev->regs + base + i * sizeof(u64));
	}
	if (!weft_answers(wdev))
		ret = -EIO;
	weft_dev_exit(wdev, idx);
	return ret ?: count * sizeof(*out);
}

/* Returns the size of the result, or an error. */
static int weft_info_get(struct weft_device *wdev, u32 topic, u32 index, union weft_info_data *out)
{
	switch (topic) {
	case WEFT_INFO_DEVICE:
		weft_info_device(wdev, &out->device);
		return sizeof(out->device);
	case WEFT_INFO_COUNTERS:
		return weft_info_counters(wdev, WEFT_COUNTERS_BASE, weft_counter_names, WEFT_CTR_COUNT, out->counter);
	case WEFT_INFO_PORT_COUNTERS:
		return weft_info_counters(wdev, WEFT_PORT_COUNTERS_BASE + index * WEFT_PORT_COUNTERS_MAX * sizeof(u64),
					  weft_port_counter_names, WEFT_PCTR_COUNT, out->port_counter);
	case WEFT_INFO_SENSORS:
		return weft_told_sensors(wdev, &out->sensors) ?: sizeof(out->sensors);
	case WEFT_INFO_HBM:
		weft_hbm_usage(wdev, &out->hbm);
		return sizeof(out->hbm);
	default:
		return -EINVAL;
	}
}

int weft_info_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_device *wdev = to_weft(drm);
	struct drm_weft_info *args = data;
	union weft_info_data *out;
	u32 room;
	int ret;

	if (args->flags || args->reserved || args->topic > WEFT_INFO_HBM)
		return -EINVAL;
	if (args->index && (args->topic != WEFT_INFO_PORT_COUNTERS || args->index >= wdev->ports))
		return -EINVAL;
	out = kzalloc(sizeof(*out), GFP_KERNEL);
	if (!out)
		return -ENOMEM;
	ret = weft_info_get(wdev, args->topic, args->index, out);
	if (ret < 0)
		goto out_free;
	room = min_t(u32, args->bytes, ret);
	args->bytes = ret;
	ret = copy_to_user(u64_to_user_ptr(args->data), out, room) ? -EFAULT : 0;
out_free:
	kfree(out);
	return ret;
}

/* The entries of a port's GID table that are in use; returns their number or an error. With reset_sem held. */
static int weft_port_gids(struct weft_device *wdev, u32 port, struct drm_weft_gid *out)
{
	struct weft_mbox_gid entry;
	int ret, count = 0;
	u32 i;

	for (i = 0; i < WEFT_GIDS_PER_PORT; i++) {
		ret = weft_cmd_gid_get(wdev, port, i, &entry);
		if (ret)
			return ret;
		if (entry.type == WEFT_GID_NONE)
			continue;
		out[count].index = i;
		out[count].type = entry.type;
		out[count].vlan = le16_to_cpu(entry.vlan);
		memcpy(out[count].mac, entry.mac, sizeof(entry.mac));
		memcpy(out[count].gid, entry.gid, sizeof(entry.gid));
		count++;
	}
	return count;
}

int weft_port_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_device *wdev = to_weft(drm);
	struct drm_weft_port *args = data;
	struct weft_mbox_port port = {};
	struct drm_weft_gid *gids = NULL;
	u32 room = args->gids ? args->gid_count : 0;
	int idx, ret;

	if (args->flags || args->reserved || args->reserved1 || args->port >= wdev->ports)
		return -EINVAL;
	if (room) {
		gids = kcalloc(WEFT_GIDS_PER_PORT, sizeof(*gids), GFP_KERNEL);
		if (!gids)
			return -ENOMEM;
	}
	ret = weft_dev_enter(wdev, &idx);
	if (ret)
		goto out_free;
	ret = weft_cmd_port_get(wdev, args->port, &port);
	args->gid_count = port.gids;
	if (!ret && room)
		ret = weft_port_gids(wdev, args->port, gids);
	weft_dev_exit(wdev, idx);
	if (ret < 0)
		goto out_free;
	if (room) {
		args->gid_count = ret;
		room = min_t(u32, room, ret);
		ret = copy_to_user(u64_to_user_ptr(args->gids), gids, room * sizeof(*gids)) ? -EFAULT : 0;
		if (ret)
			goto out_free;
	}
	args->state = le32_to_cpu(port.state);
	args->admin_up = port.admin_up;
	memcpy(args->mac, port.mac, sizeof(args->mac));
	memcpy(args->ipv4, port.ipv4, sizeof(args->ipv4));
	memcpy(args->ipv6, port.ipv6, sizeof(args->ipv6));
	args->mtu = le32_to_cpu(port.mtu);
	args->speed_mbps = le32_to_cpu(port.speed_mbps);
	args->flaps = le32_to_cpu(port.flaps);
out_free:
	kfree(gids);
	return ret;
}

int weft_log_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_log *args = data;
	struct drm_weft_log_record *records;
	u32 room;
	int ret;

	if (args->flags)
		return -EINVAL;
	room = min_t(u32, args->count, WEFT_LOG_RECORDS_MAX);
	records = kvcalloc(max(room, 1u), sizeof(*records), GFP_KERNEL);
	if (!records)
		return -ENOMEM;
	args->count = weft_told_log(to_weft(drm), &args->first, records, room);
	ret = copy_to_user(u64_to_user_ptr(args->records), records, args->count * sizeof(*records)) ? -EFAULT : 0;
	kvfree(records);
	return ret;
}

void weft_show_fdinfo(struct drm_printer *p, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	u32 n, queues = 0, channels = 0;
	struct weft_channel *channel;

	spin_lock(&ctx->wdev->obj_lock);
	for (n = 0; n < ARRAY_SIZE(ctx->queues); n++)
		queues += !!ctx->queues[n];
	list_for_each_entry(channel, &ctx->channels, node)
		channels++;
	spin_unlock(&ctx->wdev->obj_lock);

	drm_printf(p, "weft-context:\t%u\n", ctx->hw.id);
	drm_printf(p, "weft-state:\t%d\n", weft_ctx_lost(ctx));
	drm_printf(p, "weft-queues:\t%u\n", queues);
	drm_printf(p, "weft-channels:\t%u\n", channels);
	drm_printf(p, "weft-syncs:\t%u\n", bitmap_weight(ctx->sync_used, WEFT_SYNCS_PER_CONTEXT));
}
