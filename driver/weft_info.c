// SPDX-License-Identifier: GPL-2.0
/* What the device tells of itself: identity, counters, sensors, ports, firmware's log. */
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "weft_dev.h"

#define WEFT_LOG_RECORDS_MAX 4096

static const struct {
	u32 value;
	const char *text;
} weft_error_texts[] = {
#define WEFT_ERROR_TEXT(name, value, text) { WEFT_ERR_##name, text },
	WEFT_ERRORS(WEFT_ERROR_TEXT)
#undef WEFT_ERROR_TEXT
};

const char *weft_error_text(u32 error)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(weft_error_texts); i++)
		if (weft_error_texts[i].value == error)
			return weft_error_texts[i].text;
	return "unknown error";
}

/**
 * union weft_info_data - the topics' results
 * @device: WEFT_INFO_DEVICE
 * @counters: WEFT_INFO_COUNTERS
 * @port_counters: WEFT_INFO_PORT_COUNTERS
 * @sensors: WEFT_INFO_SENSORS
 * @hbm: WEFT_INFO_HBM
 */
union weft_info_data {
	struct drm_weft_device device;
	u64 counters[WEFT_CTR_COUNT];
	u64 port_counters[WEFT_PCTR_COUNT];
	struct weft_mbox_sensors sensors;
	struct drm_weft_hbm hbm;
};

static void weft_info_device(struct weft_device *wdev, struct drm_weft_device *out)
{
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
}

static void weft_info_counters(struct weft_device *wdev, u32 base, u64 *out, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		out[i] = readq(wdev->regs + base + i * sizeof(u64));
}

/* Returns the size of the result, or an error. */
static int weft_info_get(struct weft_device *wdev, u32 topic, u32 index, union weft_info_data *out)
{
	switch (topic) {
	case WEFT_INFO_DEVICE:
		weft_info_device(wdev, &out->device);
		return sizeof(out->device);
	case WEFT_INFO_COUNTERS:
		weft_info_counters(wdev, WEFT_COUNTERS_BASE, out->counters, WEFT_CTR_COUNT);
		return sizeof(out->counters);
	case WEFT_INFO_PORT_COUNTERS:
		weft_info_counters(wdev, WEFT_PORT_COUNTERS_BASE + index * WEFT_PORT_COUNTERS_MAX * sizeof(u64),
				   out->port_counters, WEFT_PCTR_COUNT);
		return sizeof(out->port_counters);
	case WEFT_INFO_SENSORS:
		return weft_cmd_sensors(wdev, &out->sensors) ?: sizeof(out->sensors);
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
	int idx, ret;
	u32 room;

	if (args->flags || args->reserved || args->topic > WEFT_INFO_HBM)
		return -EINVAL;
	if (args->index && (args->topic != WEFT_INFO_PORT_COUNTERS || args->index >= wdev->ports))
		return -EINVAL;
	out = kzalloc(sizeof(*out), GFP_KERNEL);
	if (!out)
		return -ENOMEM;

	ret = weft_dev_enter(wdev, &idx);
	if (ret)
		goto out_free;
	ret = weft_info_get(wdev, args->topic, args->index, out);
	weft_dev_exit(wdev, idx);
	if (ret < 0)
		goto out_free;
	room = min_t(u32, args->bytes, ret);
	args->bytes = ret;
	ret = copy_to_user(u64_to_user_ptr(args->data), out, room) ? -EFAULT : 0;
out_free:
	kfree(out);
	return ret;
}

int weft_port_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_device *wdev = to_weft(drm);
	struct drm_weft_port *args = data;
	struct weft_mbox_port port = {};
	int idx, ret;

	if (args->flags || args->port >= wdev->ports)
		return -EINVAL;
	ret = weft_dev_enter(wdev, &idx);
	if (ret)
		return ret;
	ret = weft_cmd_port_get(wdev, args->port, &port);
	weft_dev_exit(wdev, idx);
	if (ret)
		return ret;
	args->state = le32_to_cpu(port.state);
	args->admin_up = port.admin_up;
	memcpy(args->mac, port.mac, sizeof(args->mac));
	weft_port_gid(&port, args->gid);
	args->mtu = le32_to_cpu(port.mtu);
	args->speed_mbps = le32_to_cpu(port.speed_mbps);
	return 0;
}

/* Fills `out` with up to `room` records from *first on; *first becomes the first that was there. */
static int weft_log_collect(struct weft_device *wdev, u32 *first, struct weft_log_record *out, u32 room)
{
	struct weft_mbox_log log = {};
	u32 next = *first, got = 0;
	u32 i, count, number;
	int idx, ret;

	while (got < room) {
		ret = weft_dev_enter(wdev, &idx);
		if (ret)
			return ret;
		ret = weft_cmd_log_read(wdev, next, &log);
		weft_dev_exit(wdev, idx);
		if (ret)
			return ret;
		count = min_t(u32, le32_to_cpu(log.count), ARRAY_SIZE(log.record));
		if (!count)
			break;
		for (i = 0; i < count && got < room; i++) {
			number = le32_to_cpu(log.record[i].number);
			/* Numbers count up; a firmware that repeats itself must not keep us here. */
			if (number < next)
				return got;
			if (!got)
				*first = number;
			out[got++] = log.record[i];
			next = number + 1;
		}
		if (!next)
			break;
	}
	return got;
}

int weft_log_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_device *wdev = to_weft(drm);
	struct drm_weft_log *args = data;
	struct weft_log_record *records;
	u32 room;
	int ret;

	if (args->flags)
		return -EINVAL;
	room = min_t(u32, args->count, WEFT_LOG_RECORDS_MAX);
	records = kvcalloc(max(room, 1u), sizeof(*records), GFP_KERNEL);
	if (!records)
		return -ENOMEM;
	ret = weft_log_collect(wdev, &args->first, records, room);
	if (ret >= 0) {
		args->count = ret;
		ret = copy_to_user(u64_to_user_ptr(args->records), records, ret * sizeof(*records)) ? -EFAULT : 0;
	}
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

	drm_printf(p, "weft-context:\t%u\n", ctx->id);
	drm_printf(p, "weft-state:\t%d\n", weft_ctx_lost(ctx));
	drm_printf(p, "weft-queues:\t%u\n", queues);
	drm_printf(p, "weft-channels:\t%u\n", channels);
	drm_printf(p, "weft-syncs:\t%u\n", bitmap_weight(ctx->sync_used, WEFT_SYNCS_PER_CONTEXT));
}
