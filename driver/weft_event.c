// SPDX-License-Identifier: GPL-2.0
/* The event queue: what the device tells by itself, and which object it is about. */
#include <drm/drm_managed.h>

#include "weft_core.h"

#define WEFT_EVENTS 256

int weft_event_init(struct weft_device *wdev)
{
	struct weft_eq *eq = &wdev->eq;
	int ret;

	ret = drmm_mutex_init(&wdev->drm, &eq->lock);
	if (ret)
		return ret;
	eq->ring = dmam_alloc_coherent(wdev->drm.dev, WEFT_EVENTS * sizeof(*eq->ring), &eq->dma, GFP_KERNEL);
	return eq->ring ? 0 : -ENOMEM;
}

/* Starts the queue of a device that was just booted. */
int weft_event_start(struct weft_device *wdev)
{
	struct weft_eq *eq = &wdev->eq;

	mutex_lock(&eq->lock);
	memset(eq->ring, 0, WEFT_EVENTS * sizeof(*eq->ring));
	eq->head = 0;
	mutex_unlock(&eq->lock);
	return weft_cmd_event_queue(wdev, eq->dma, WEFT_EVENTS);
}

/* The objects' numbers come from the device: only pointers found in the tables are followed. */
static void weft_event_object(struct weft_device *wdev, const struct weft_event *event)
{
	bool of_queue = event->type == WEFT_EVENT_QUEUE_ERROR;
	u32 object = le32_to_cpu(event->object);
	u32 id = le32_to_cpu(event->ctx);
	struct weft_hwctx *hw;
	struct weft_qp *qp;

	spin_lock(&wdev->obj_lock);
	if (of_queue) {
		hw = xa_load(&wdev->hws, id);
		if (hw)
			hw->queue_failed(hw, event);
	} else {
		qp = xa_load(&wdev->qps, object);
		if (qp && qp->hw->id == id)
			qp->failed(qp, event);
	}
	spin_unlock(&wdev->obj_lock);
	drm_dbg(&wdev->drm, "context %u: %s %u failed: %s\n", id, of_queue ? "queue" : "queue pair", object,
		weft_error_text(le16_to_cpu(event->error)));
}

static void weft_event_handle(struct weft_device *wdev, const struct weft_event *event)
{
	switch (event->type) {
	case WEFT_EVENT_QUEUE_ERROR:
	case WEFT_EVENT_QP_ERROR:
		weft_event_object(wdev, event);
		break;
	case WEFT_EVENT_PORT:
		drm_info(&wdev->drm, "port %u is %s\n", le32_to_cpu(event->object),
			 le64_to_cpu(event->value) == WEFT_PORT_ACTIVE ? "active" : "down");
		blocking_notifier_call_chain(&wdev->notify, WEFT_NOTICE_EVENT, (void *)event);
		break;
	case WEFT_EVENT_LOG:
		drm_dbg(&wdev->drm, "firmware log: newest record is %llu\n", le64_to_cpu(event->value));
		weft_told_log_grew(wdev);
		break;
	case WEFT_EVENT_FATAL:
		drm_err(&wdev->drm, "device failed: error %u, detail %#llx\n", le32_to_cpu(event->object),
			le64_to_cpu(event->value));
		weft_fail(wdev, "the device reports a fatal error");
		break;
	default:
		/* Such as a completion queue's: an auxiliary driver may know it. */
		blocking_notifier_call_chain(&wdev->notify, WEFT_NOTICE_EVENT, (void *)event);
		break;
	}
}

/**
 * weft_event_drain() - take what is in the event queue
 * @wdev: the device, reset_sem held
 *
 * Besides the interrupt thread, whoever destroys an object calls this before its number is used again, so that no event
 * of the old one is taken for the new one's.
 */
void weft_event_drain(struct weft_device *wdev)
{
	struct weft_eq *eq = &wdev->eq;
	unsigned int budget = WEFT_EVENTS;
	u32 start;

	mutex_lock(&eq->lock);
	start = eq->head;
	while (budget--) {
		struct weft_event *slot = &eq->ring[eq->head % WEFT_EVENTS];
		u8 owner = eq->head / WEFT_EVENTS % 2 ? 0 : 1;
		struct weft_event event;

		if (READ_ONCE(slot->owner) != owner)
			break;
		dma_rmb(); /* the rest of the event was written before its owner */
		event = *slot;
		weft_event_handle(wdev, &event);
		eq->head++;
	}
	if (eq->head != start)
		writel(eq->head, wdev->regs + WEFT_REG_EQ_CONSUMER);
	mutex_unlock(&eq->lock);
}

/* Events that the device dropped because the queue was full; with reset_sem held. */
u64 weft_events_lost(struct weft_device *wdev)
{
	return readq(wdev->regs + WEFT_COUNTERS_BASE + WEFT_CTR_events_lost * sizeof(u64));
}
