// SPDX-License-Identifier: GPL-2.0
/*
 * Start, failure, reset and removal. Each of them ends the epoch: what was made in it is lost, its users get errors at
 * once and its memory is released when they close.
 */
#include <linux/mm.h>

#include <drm/drm_managed.h>

#include "weft_core.h"

/* More automatic recoveries than this within a minute of each other: something is broken for good. */
#define WEFT_RECOVERIES 3
#define WEFT_RECOVERY_REST (60 * HZ)

/*
 * Whoever waits for the device learns that it is not there; whoever comes is refused. Mappings go before users are
 * told, and fault in nothing any more.
 */
static void weft_end_epoch(struct weft_device *wdev, enum weft_life life)
{
	lockdep_assert_held(&wdev->end_lock);
	WRITE_ONCE(wdev->life, life);
	atomic64_inc(&wdev->epoch);
	weft_mbox_close(wdev);
	unmap_mapping_range(wdev->drm.anon_inode->i_mapping, 0, 0, 1);
	weft_wake_all(wdev);
}

/**
 * weft_end_wait() - wait until an epoch that is ending has ended
 * @wdev: the device
 *
 * To be called before a user hears of the loss, since the mappings go after the life has changed. A page fault of another
 * thread that began before may map a page once more; weft_stop() takes it away. Does not wait for the reset.
 */
void weft_end_wait(struct weft_device *wdev)
{
	if (READ_ONCE(wdev->life) == WEFT_READY)
		return;
	mutex_lock(&wdev->end_lock);
	mutex_unlock(&wdev->end_lock);
}

/* Returns with reset_sem held for writing: nobody else uses the device, no user sees it. */
static void weft_stop(struct weft_device *wdev, enum weft_life life)
{
	mutex_lock(&wdev->end_lock);
	weft_end_epoch(wdev, life);
	mutex_unlock(&wdev->end_lock);
	down_write(&wdev->reset_sem);
	/* A recovery may have ended in between, and a page fault that began before the epoch's end has ended by now. */
	mutex_lock(&wdev->end_lock);
	weft_end_epoch(wdev, life);
	mutex_unlock(&wdev->end_lock);
	weft_irq_enable(wdev, false);
	weft_fw_reset(wdev);
	blocking_notifier_call_chain(&wdev->notify, WEFT_NOTICE_LOST, NULL);
}

/**
 * weft_start() - boot the device and open it for use
 * @wdev: the device; the caller is the only one to use it
 *
 * Return: 0, or an error that was told in the log.
 */
int weft_start(struct weft_device *wdev)
{
	struct weft_mbox_identity *identity = &wdev->identity;
	u32 version;
	int ret;

	ret = weft_fw_boot(wdev);
	if (ret)
		return ret;

	WRITE_ONCE(wdev->mbox.open, true);
	weft_irq_enable(wdev, true);
	ret = weft_cmd_identify(wdev, identity);
	if (ret) {
		drm_err(&wdev->drm, "firmware does not identify itself: %d\n", ret);
		goto err_reset;
	}
	version = le32_to_cpu(identity->hw_version);
	if (version >> 16 != WEFT_HW_MAJOR) {
		drm_err(&wdev->drm, "firmware speaks hardware interface %u.%u, this driver %u.%u\n", version >> 16,
			version & 0xffff, WEFT_HW_MAJOR, WEFT_HW_MINOR);
		ret = -EPROTO;
		goto err_reset;
	}
	ret = weft_event_start(wdev);
	if (ret) {
		drm_err(&wdev->drm, "event queue refused: %d\n", ret);
		goto err_reset;
	}
	WRITE_ONCE(wdev->life, WEFT_READY);
	return 0;

err_reset:
	weft_mbox_close(wdev);
	weft_irq_enable(wdev, false);
	weft_fw_reset(wdev);
	return ret;
}

/* Ends what weft_stop() began. */
static void weft_restart(struct weft_device *wdev)
{
	int ret;

	atomic_inc(&wdev->resets);
	ret = weft_start(wdev);
	if (ret) {
		WRITE_ONCE(wdev->life, WEFT_FAILED);
		drm_err(&wdev->drm, "not usable; once the cause is cured: echo 1 > /sys/bus/pci/devices/%s/reset\n",
			pci_name(wdev->pdev));
	} else {
		drm_info(&wdev->drm, "ready again; what was open before is lost\n");
	}
	up_write(&wdev->reset_sem);
	if (!ret)
		blocking_notifier_call_chain(&wdev->notify, WEFT_NOTICE_READY, NULL);
}

static void weft_recover(struct work_struct *work)
{
	struct weft_device *wdev = container_of(work, struct weft_device, recover_work);

	if (READ_ONCE(wdev->life) != WEFT_FAILED)
		return;
	weft_stop(wdev, WEFT_RESETTING);
	if (time_after(jiffies, wdev->recover_jiffies + WEFT_RECOVERY_REST))
		wdev->recover_count = 0;
	wdev->recover_jiffies = jiffies;
	if (wdev->recover_count++ < WEFT_RECOVERIES) {
		weft_restart(wdev);
		return;
	}
	WRITE_ONCE(wdev->life, WEFT_FAILED);
	drm_err(&wdev->drm, "failed again and again, given up; to try once more: echo 1 > /sys/bus/pci/devices/%s/reset\n",
		pci_name(wdev->pdev));
	up_write(&wdev->reset_sem);
}

int weft_reset_init(struct weft_device *wdev)
{
	init_rwsem(&wdev->reset_sem);
	BLOCKING_INIT_NOTIFIER_HEAD(&wdev->notify);
	INIT_WORK(&wdev->recover_work, weft_recover);
	wdev->life = WEFT_RESETTING;
	return drmm_mutex_init(&wdev->drm, &wdev->end_lock);
}

/**
 * weft_fail() - the device is not to be trusted any more
 * @wdev: the device
 * @what: why, for the log
 *
 * All contexts are lost; a reset is under way when this returns. May be called with reset_sem held for reading.
 */
void weft_fail(struct weft_device *wdev, const char *what)
{
	bool first;

	mutex_lock(&wdev->end_lock);
	first = READ_ONCE(wdev->life) == WEFT_READY;
	if (first) {
		drm_err(&wdev->drm, "%s: resetting\n", what);
		weft_end_epoch(wdev, WEFT_FAILED);
	}
	mutex_unlock(&wdev->end_lock);
	if (first)
		schedule_work(&wdev->recover_work);
}

/**
 * weft_settle() - make sure that a lost epoch's work is not in the device any more
 * @wdev: the device, reset_sem not held
 *
 * To be called before memory is freed that the device may still use, by someone whose context is lost.
 */
void weft_settle(struct weft_device *wdev)
{
	bool ready;

	/* Ready means that it was reset after the loss. Others use it then: they are not to wait for us. */
	down_read(&wdev->reset_sem);
	ready = READ_ONCE(wdev->life) == WEFT_READY;
	up_read(&wdev->reset_sem);
	if (ready)
		return;
	down_write(&wdev->reset_sem);
	if (READ_ONCE(wdev->life) != WEFT_READY)
		weft_fw_reset(wdev);
	up_write(&wdev->reset_sem);
}

/* For the removal: nobody uses the device any more, and no reset begins. */
void weft_stop_for_good(struct weft_device *wdev)
{
	disable_work_sync(&wdev->recover_work);
	weft_stop(wdev, WEFT_GONE);
	up_write(&wdev->reset_sem);
}

static void weft_reset_prepare(struct pci_dev *pdev)
{
	struct weft_device *wdev = pci_get_drvdata(pdev);

	drm_info(&wdev->drm, "function reset\n");
	weft_stop(wdev, WEFT_RESETTING);
}

static void weft_reset_done(struct pci_dev *pdev)
{
	struct weft_device *wdev = pci_get_drvdata(pdev);

	wdev->recover_count = 0;
	weft_restart(wdev);
}

const struct pci_error_handlers weft_err_handlers = {
	.reset_prepare = weft_reset_prepare,
	.reset_done = weft_reset_done,
};
