// SPDX-License-Identifier: GPL-2.0
/*
 * The mailbox: requests to the firmware, one at a time. The response is announced by vector 0; a lost interrupt costs
 * a poll interval, a silent firmware the device.
 */
#include <drm/drm_managed.h>

#include "weft_core.h"

#define WEFT_MBOX_POLL_MS 20

int weft_mbox_init(struct weft_device *wdev)
{
	init_completion(&wdev->mbox.done);
	return drmm_mutex_init(&wdev->drm, &wdev->mbox.lock);
}

/* Ends the request under way and refuses those to come, until weft_start() opens it again. */
void weft_mbox_close(struct weft_device *wdev)
{
	WRITE_ONCE(wdev->mbox.open, false);
	complete(&wdev->mbox.done);
}

static int weft_mbox_errno(u32 status)
{
	switch (status) {
	case WEFT_ERR_OK:
		return 0;
	case WEFT_ERR_MBOX_NO_ROOM:
		return -ENOSPC;
	case WEFT_ERR_MBOX_NOT_FOUND:
		return -ENOENT;
	case WEFT_ERR_MBOX_BUSY:
		return -EBUSY;
	case WEFT_ERR_MBOX_STATE:
	case WEFT_ERR_BAD_FIELD:
	case WEFT_ERR_BAD_KEY:
	case WEFT_ERR_BAD_RANGE:
	case WEFT_ERR_BAD_ALIGN:
	case WEFT_ERR_BAD_SYNC:
	case WEFT_ERR_BAD_CHANNEL:
		return -EINVAL;
	case WEFT_ERR_BAD_RIGHTS:
		return -EACCES;
	case WEFT_ERR_MBOX_OP:
	case WEFT_ERR_BAD_OP:
		return -EOPNOTSUPP;
	case WEFT_ERR_DMA:
		return -EFAULT;
	case WEFT_ERR_PORT_DOWN:
		return -ENETDOWN;
	default:
		return -EREMOTEIO;
	}
}

/* These come before memory is freed: they are not given up, whoever was killed. Others may be. */
static bool weft_mbox_must(enum weft_mbox_op op)
{
	switch (op) {
	case WEFT_MBOX_CTX_DESTROY:
	case WEFT_MBOX_REGION_DESTROY:
	case WEFT_MBOX_QUEUE_DESTROY:
	case WEFT_MBOX_QUEUE_ABORT:
	case WEFT_MBOX_QP_DESTROY:
	case WEFT_MBOX_CQ_DESTROY:
	case WEFT_MBOX_SRQ_DESTROY:
	case WEFT_MBOX_FIFO_DESTROY:
		return true;
	default:
		return false;
	}
}

static int weft_mbox_wait(struct weft_device *wdev, u32 seq, unsigned int timeout_ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(timeout_ms) + 1;
	bool last;
	u32 done;

	do {
		last = time_after(jiffies, end);
		wait_for_completion_timeout(&wdev->mbox.done, msecs_to_jiffies(WEFT_MBOX_POLL_MS));
		if (!READ_ONCE(wdev->mbox.open))
			return -EIO;
		done = readl(wdev->regs + WEFT_REG_MBOX_DONE);
		if (done == seq)
			return 0;
		if (!weft_answers(wdev)) {
			weft_fail(wdev, "the device does not answer on the bus");
			return -EIO;
		}
	} while (!last);

	return -ETIMEDOUT;
}

/**
 * weft_mbox_call() - one request and its response
 * @wdev: the device, reset_sem held
 * @op: enum weft_mbox_op
 * @in: payload of the request
 * @in_bytes: its size, a multiple of 4, at most WEFT_MBOX_PAYLOAD
 * @out: where the response's payload goes; may be @in
 * @out_bytes: size that the response must have, a multiple of 4; 0: whatever comes is ignored
 * @timeout_ms: when the firmware counts as dead
 *
 * Return: 0, the errno that goes with the firmware's status, -EINTR when the process was killed while others used the
 * mailbox (not for what ends an object), or -EIO when the device failed or is being reset.
 */
int weft_mbox_call(struct weft_device *wdev, enum weft_mbox_op op, const void *in, size_t in_bytes, void *out,
		   size_t out_bytes, unsigned int timeout_ms)
{
	struct weft_mbox *mbox = &wdev->mbox;
	struct weft_mbox_header head = {};
	u32 seq, status;
	int ret;

	if (WARN_ON_ONCE(in_bytes > WEFT_MBOX_PAYLOAD || in_bytes % 4))
		return -EINVAL;
	if (WARN_ON_ONCE(out_bytes > WEFT_MBOX_PAYLOAD || out_bytes % 4))
		return -EINVAL;

	if (weft_mbox_must(op))
		mutex_lock(&mbox->lock);
	else if (mutex_lock_killable(&mbox->lock))
		return -EINTR;
	if (!READ_ONCE(mbox->open)) {
		ret = -EIO;
		goto out_unlock;
	}
	seq = ++mbox->seq;
	if (!seq)
		seq = ++mbox->seq;

	reinit_completion(&mbox->done);
	head.seq = cpu_to_le32(seq);
	head.op = cpu_to_le16(op);
	head.length = cpu_to_le16(in_bytes);
	head.version = WEFT_MBOX_VERSION;
	__iowrite32_copy(wdev->regs + WEFT_MBOX_REQUEST, &head, sizeof(head) / 4);
	__iowrite32_copy(wdev->regs + WEFT_MBOX_REQUEST + sizeof(head), in, in_bytes / 4);
	writel(seq, wdev->regs + WEFT_REG_MBOX_DOORBELL);

	ret = weft_mbox_wait(wdev, seq, timeout_ms);
	if (ret == -ETIMEDOUT) {
		drm_err(&wdev->drm, "mailbox: no response to operation %u within %u ms\n", op, timeout_ms);
		weft_fail(wdev, "the firmware is silent");
		ret = -EIO;
	}
	if (ret)
		goto out_unlock;

	__ioread32_copy(&head, wdev->regs + WEFT_MBOX_RESPONSE, sizeof(head) / 4);
	status = le16_to_cpu(head.status);
	if (le32_to_cpu(head.seq) != seq || le16_to_cpu(head.op) != op) {
		drm_err(&wdev->drm, "mailbox: response %u to operation %u answers request %u, operation %u\n",
			le32_to_cpu(head.seq), le16_to_cpu(head.op), seq, op);
		weft_fail(wdev, "the firmware mixes up its answers");
		ret = -EIO;
		goto out_unlock;
	}
	ret = weft_mbox_errno(status);
	if (ret) {
		drm_dbg(&wdev->drm, "mailbox: operation %u refused: %s\n", op, weft_error_text(status));
	} else if (out_bytes && le16_to_cpu(head.length) != out_bytes) {
		drm_err(&wdev->drm, "mailbox: operation %u answered with %u bytes, not %zu\n", op,
			le16_to_cpu(head.length), out_bytes);
		ret = -EPROTO;
	} else if (out_bytes) {
		__ioread32_copy(out, wdev->regs + WEFT_MBOX_RESPONSE + sizeof(head), out_bytes / 4);
	}

out_unlock:
	mutex_unlock(&mbox->lock);
	return ret;
}
