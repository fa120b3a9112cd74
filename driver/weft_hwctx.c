// SPDX-License-Identifier: GPL-2.0
/* Using the device, and the hardware contexts that everything in it belongs to, whoever owns them. */
#include "weft_core.h"

/**
 * weft_dev_lost() - can the device be used?
 * @wdev: the device
 *
 * Return: 0, -ENODEV when it is being removed, -EIO when it failed or is being reset.
 */
int weft_dev_lost(struct weft_device *wdev)
{
	enum weft_life life = READ_ONCE(wdev->life);

	if (life == WEFT_GONE || drm_dev_is_unplugged(&wdev->drm))
		return -ENODEV;
	return life == WEFT_READY ? 0 : -EIO;
}

/**
 * weft_dev_enter() - begin to use the device
 * @wdev: the device
 * @idx: for weft_dev_exit()
 *
 * Return: 0 with reset_sem held for reading, or as weft_dev_lost().
 */
int weft_dev_enter(struct weft_device *wdev, int *idx)
{
	int ret;

	if (!drm_dev_enter(&wdev->drm, idx))
		return -ENODEV;
	down_read(&wdev->reset_sem);
	ret = weft_dev_lost(wdev);
	if (ret)
		weft_dev_exit(wdev, *idx);
	return ret;
}

void weft_dev_exit(struct weft_device *wdev, int idx)
{
	up_read(&wdev->reset_sem);
	drm_dev_exit(idx);
}

/**
 * weft_hwctx_create() - make a context in the device
 * @wdev: the device; between weft_dev_enter() and weft_dev_exit()
 * @hw: the context, zeroed but for its callbacks
 * @shadow: DMA address of its sync objects' shadow array, or 0
 *
 * Return: 0, -EBUSY when all contexts are in use, or as the mailbox says. After -EIO the device may have made it and
 * know of @shadow: weft_settle() comes before the array is freed.
 */
int weft_hwctx_create(struct weft_device *wdev, struct weft_hwctx *hw, dma_addr_t shadow)
{
	u32 id;
	int ret;

	hw->wdev = wdev;
	hw->epoch = atomic64_read(&wdev->epoch);
	hw->events_lost = weft_events_lost(wdev);
	ret = xa_alloc(&wdev->hws, &id, hw, XA_LIMIT(1, wdev->contexts - 1), GFP_KERNEL);
	if (ret)
		return ret;
	hw->vector = wdev->vectors > 1 ? 1 + (id - 1) % (wdev->vectors - 1) : 0;
	ret = weft_cmd_ctx_create(wdev, id, hw->vector, shadow);
	if (ret) {
		spin_lock(&wdev->obj_lock);
		xa_erase(&wdev->hws, id);
		spin_unlock(&wdev->obj_lock);
		return ret;
	}
	WRITE_ONCE(hw->id, id);
	return 0;
}

/**
 * weft_hwctx_destroy() - end a context in the device, with all that belongs to it
 * @hw: the context; between weft_hwctx_enter() and weft_dev_exit()
 *
 * Return: 0, or an error after which the device is being reset: weft_settle() comes before memory is freed.
 */
int weft_hwctx_destroy(struct weft_hwctx *hw)
{
	int ret;

	ret = weft_cmd_ctx_destroy(hw->wdev, hw->id);
	if (ret)
		weft_fail(hw->wdev, "a context cannot be ended");
	else
		weft_event_drain(hw->wdev);
	return ret;
}

/* Its number may be used again: nothing of it is in the device any more. */
void weft_hwctx_forget(struct weft_hwctx *hw)
{
	WRITE_ONCE(hw->closed, true);
	if (!hw->id)
		return;
	spin_lock(&hw->wdev->obj_lock);
	xa_erase(&hw->wdev->hws, hw->id);
	spin_unlock(&hw->wdev->obj_lock);
}

/**
 * weft_hwctx_lost() - does the context still exist in the device, or can it still be made?
 * @hw: the context
 *
 * Return: 0, -ENODEV when the device is being removed, -EIO when the context was lost to a reset or failure.
 */
int weft_hwctx_lost(const struct weft_hwctx *hw)
{
	struct weft_device *wdev = hw->wdev;
	int ret;

	ret = weft_dev_lost(wdev);
	if (ret)
		return ret;
	if (READ_ONCE(hw->closed))
		return -EIO;
	return READ_ONCE(hw->id) && atomic64_read(&wdev->epoch) != hw->epoch ? -EIO : 0;
}

/**
 * weft_hwctx_enter() - begin to use the device in a context
 * @hw: the context
 * @idx: for weft_dev_exit()
 *
 * Return: 0 with reset_sem held for reading, or as weft_hwctx_lost(); that at once, also while a reset is under way.
 */
int weft_hwctx_enter(struct weft_hwctx *hw, int *idx)
{
	int ret;

	ret = weft_hwctx_lost(hw);
	if (ret)
		return ret;
	ret = weft_dev_enter(hw->wdev, idx);
	if (ret)
		return ret;
	ret = weft_hwctx_lost(hw);
	if (ret)
		weft_dev_exit(hw->wdev, *idx);
	return ret;
}

/**
 * weft_qp_watch() - hear of a queue pair's failure
 * @qp: the queue pair, filled in
 *
 * Return: 0 or -ENOMEM.
 */
int weft_qp_watch(struct weft_qp *qp)
{
	return xa_err(xa_store(&qp->hw->wdev->qps, qp->qpn, qp, GFP_KERNEL));
}

/* After it returns nobody uses @qp any more. */
void weft_qp_unwatch(struct weft_qp *qp)
{
	struct weft_device *wdev = qp->hw->wdev;

	spin_lock(&wdev->obj_lock);
	xa_cmpxchg(&wdev->qps, qp->qpn, qp, NULL, GFP_ATOMIC);
	spin_unlock(&wdev->obj_lock);
}
