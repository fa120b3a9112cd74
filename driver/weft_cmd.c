// SPDX-License-Identifier: GPL-2.0
/* Typed mailbox operations, and the texts of what they answer. Callers hold reset_sem. */
#include "weft_core.h"

#define WEFT_CMD_MS 10000
/* Work of the device itself comes before the answer: zeroing, draining what is in flight. */
#define WEFT_CMD_LONG_MS 30000

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

static int weft_cmd_in(struct weft_device *wdev, enum weft_mbox_op op, const void *in, size_t bytes)
{
	return weft_mbox_call(wdev, op, in, bytes, NULL, 0, WEFT_CMD_MS);
}

static int weft_cmd_index(struct weft_device *wdev, enum weft_mbox_op op, u32 index)
{
	const struct weft_mbox_index in = { .index = cpu_to_le32(index) };

	return weft_mbox_call(wdev, op, &in, sizeof(in), NULL, 0, WEFT_CMD_LONG_MS);
}

static int weft_cmd_pair(struct weft_device *wdev, enum weft_mbox_op op, u32 ctx, u32 index)
{
	const struct weft_mbox_pair in = { .ctx = cpu_to_le32(ctx), .index = cpu_to_le32(index) };

	return weft_mbox_call(wdev, op, &in, sizeof(in), NULL, 0, WEFT_CMD_LONG_MS);
}

int weft_cmd_identify(struct weft_device *wdev, struct weft_mbox_identity *identity)
{
	return weft_mbox_call(wdev, WEFT_MBOX_IDENTIFY, NULL, 0, identity, sizeof(*identity), WEFT_CMD_MS);
}

int weft_cmd_port_get(struct weft_device *wdev, u32 port, struct weft_mbox_port *out)
{
	const struct weft_mbox_index in = { .index = cpu_to_le32(port) };

	return weft_mbox_call(wdev, WEFT_MBOX_PORT_GET, &in, sizeof(in), out, sizeof(*out), WEFT_CMD_MS);
}

int weft_cmd_gid_get(struct weft_device *wdev, u32 port, u32 index, struct weft_mbox_gid *out)
{
	const struct weft_mbox_gid in = { .port = cpu_to_le32(port), .index = cpu_to_le32(index) };

	return weft_mbox_call(wdev, WEFT_MBOX_GID_GET, &in, sizeof(in), out, sizeof(*out), WEFT_CMD_MS);
}

int weft_cmd_sensors(struct weft_device *wdev, struct weft_mbox_sensors *out)
{
	return weft_mbox_call(wdev, WEFT_MBOX_SENSORS, NULL, 0, out, sizeof(*out), WEFT_CMD_MS);
}

int weft_cmd_log_read(struct weft_device *wdev, u32 first, struct weft_mbox_log *out)
{
	const struct weft_mbox_index in = { .index = cpu_to_le32(first) };

	return weft_mbox_call(wdev, WEFT_MBOX_LOG_READ, &in, sizeof(in), out, sizeof(*out), WEFT_CMD_MS);
}

int weft_cmd_event_queue(struct weft_device *wdev, dma_addr_t addr, u32 entries)
{
	const struct weft_mbox_event_queue in = {
		.addr = cpu_to_le64(addr),
		.entries = cpu_to_le32(entries),
	};

	return weft_cmd_in(wdev, WEFT_MBOX_EVENT_QUEUE, &in, sizeof(in));
}

int weft_cmd_hbm_zero(struct weft_device *wdev, u64 offset, u64 bytes)
{
	const struct weft_mbox_range in = {
		.offset = cpu_to_le64(offset),
		.length = cpu_to_le64(bytes),
	};

	return weft_mbox_call(wdev, WEFT_MBOX_HBM_ZERO, &in, sizeof(in), NULL, 0, WEFT_CMD_LONG_MS);
}

int weft_cmd_ctx_create(struct weft_device *wdev, u32 ctx, u32 vector, dma_addr_t shadow)
{
	const struct weft_mbox_ctx in = {
		.ctx = cpu_to_le32(ctx),
		.vector = cpu_to_le32(vector),
		.shadow = cpu_to_le64(shadow),
		.syncs = cpu_to_le32(WEFT_SYNCS_PER_CONTEXT),
	};

	return weft_cmd_in(wdev, WEFT_MBOX_CTX_CREATE, &in, sizeof(in));
}

int weft_cmd_ctx_destroy(struct weft_device *wdev, u32 ctx)
{
	return weft_cmd_index(wdev, WEFT_MBOX_CTX_DESTROY, ctx);
}

int weft_cmd_region_create(struct weft_device *wdev, const struct weft_region_entry *entry)
{
	return weft_cmd_in(wdev, WEFT_MBOX_REGION_CREATE, entry, sizeof(*entry));
}

int weft_cmd_region_destroy(struct weft_device *wdev, u32 key)
{
	return weft_cmd_index(wdev, WEFT_MBOX_REGION_DESTROY, key);
}

int weft_cmd_queue_create(struct weft_device *wdev, const struct weft_queue_entry *entry)
{
	return weft_cmd_in(wdev, WEFT_MBOX_QUEUE_CREATE, entry, sizeof(*entry));
}

int weft_cmd_queue_destroy(struct weft_device *wdev, u32 ctx, u32 queue)
{
	return weft_cmd_pair(wdev, WEFT_MBOX_QUEUE_DESTROY, ctx, queue);
}

int weft_cmd_queue_abort(struct weft_device *wdev, u32 ctx, u32 queue)
{
	return weft_cmd_pair(wdev, WEFT_MBOX_QUEUE_ABORT, ctx, queue);
}

int weft_cmd_sync_config(struct weft_device *wdev, u32 ctx, u32 first, u32 count, u32 flags)
{
	const struct weft_mbox_sync in = {
		.ctx = cpu_to_le32(ctx),
		.first = cpu_to_le32(first),
		.count = cpu_to_le32(count),
		.flags = cpu_to_le32(flags),
	};

	return weft_cmd_in(wdev, WEFT_MBOX_SYNC_CONFIG, &in, sizeof(in));
}

int weft_cmd_qp_create(struct weft_device *wdev, struct weft_qp_entry *qp)
{
	return weft_mbox_call(wdev, WEFT_MBOX_QP_CREATE, qp, sizeof(*qp), qp, sizeof(*qp), WEFT_CMD_MS);
}

int weft_cmd_qp_modify(struct weft_device *wdev, u32 mask, const struct weft_qp_entry *qp)
{
	const struct weft_mbox_qp_modify in = { .mask = cpu_to_le32(mask), .qp = *qp };

	return weft_cmd_in(wdev, WEFT_MBOX_QP_MODIFY, &in, sizeof(in));
}

int weft_cmd_qp_query(struct weft_device *wdev, u32 ctx, u32 qpn, struct weft_qp_entry *qp)
{
	const struct weft_mbox_pair in = { .ctx = cpu_to_le32(ctx), .index = cpu_to_le32(qpn) };

	return weft_mbox_call(wdev, WEFT_MBOX_QP_QUERY, &in, sizeof(in), qp, sizeof(*qp), WEFT_CMD_MS);
}

int weft_cmd_qp_destroy(struct weft_device *wdev, u32 ctx, u32 qpn)
{
	return weft_cmd_pair(wdev, WEFT_MBOX_QP_DESTROY, ctx, qpn);
}
