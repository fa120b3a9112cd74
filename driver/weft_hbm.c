// SPDX-License-Identifier: GPL-2.0
/* Ranges of HBM: contiguous, zeroed before anybody sees them. */
#include <linux/sched/signal.h>

#include <drm/drm_managed.h>

#include "weft_core.h"

/* From this size on ranges start at a multiple of it, so that NICs and IOMMUs can use large pages. */
#define WEFT_HBM_LARGE SZ_2M
/* One mailbox request zeroes this much, so that others get their turn soon. */
#define WEFT_HBM_ZERO_STEP SZ_4M

static void weft_hbm_fini(struct drm_device *drm, void *data)
{
	struct weft_hbm *hbm = data;

	drm_mm_takedown(&hbm->mm);
}

int weft_hbm_init(struct weft_device *wdev)
{
	int ret;

	ret = drmm_mutex_init(&wdev->drm, &wdev->hbm.lock);
	if (ret)
		return ret;
	drm_mm_init(&wdev->hbm.mm, 0, wdev->hbm_bytes);
	return drmm_add_action_or_reset(&wdev->drm, weft_hbm_fini, &wdev->hbm);
}

/**
 * weft_hbm_alloc() - take a range
 * @wdev: the device
 * @node: the range, zero-initialised
 * @bytes: a multiple of PAGE_SIZE
 * @align: 0, or a power of two
 *
 * The content is whatever was there before: see weft_hbm_zero().
 *
 * Return: 0 or -ENOSPC.
 */
int weft_hbm_alloc(struct weft_device *wdev, struct drm_mm_node *node, u64 bytes, u64 align)
{
	int ret;

	align = max_t(u64, align, bytes >= WEFT_HBM_LARGE ? WEFT_HBM_LARGE : PAGE_SIZE);
	mutex_lock(&wdev->hbm.lock);
	ret = drm_mm_insert_node_generic(&wdev->hbm.mm, node, bytes, align, 0, DRM_MM_INSERT_BEST);
	if (!ret) {
		wdev->hbm.used += bytes;
		wdev->hbm.objects++;
	}
	mutex_unlock(&wdev->hbm.lock);
	return ret;
}

/**
 * weft_hbm_zero() - zero a range
 * @wdev: the device; reset_sem not held
 * @node: the range
 *
 * Return: 0, -EINTR for a killed process, or as weft_dev_enter().
 */
int weft_hbm_zero(struct weft_device *wdev, const struct drm_mm_node *node)
{
	u64 done, step;
	int idx, ret;

	for (done = 0; done < node->size; done += step) {
		step = min_t(u64, node->size - done, WEFT_HBM_ZERO_STEP);
		if (fatal_signal_pending(current))
			return -EINTR;
		ret = weft_dev_enter(wdev, &idx);
		if (ret)
			return ret;
		ret = weft_cmd_hbm_zero(wdev, node->start + done, step);
		weft_dev_exit(wdev, idx);
		if (ret)
			return ret;
	}
	return 0;
}

void weft_hbm_free(struct weft_device *wdev, struct drm_mm_node *node)
{
	mutex_lock(&wdev->hbm.lock);
	wdev->hbm.used -= node->size;
	wdev->hbm.objects--;
	drm_mm_remove_node(node);
	mutex_unlock(&wdev->hbm.lock);
}

void weft_hbm_usage(struct weft_device *wdev, struct drm_weft_hbm *out)
{
	u64 start, end, largest = 0;
	struct drm_mm_node *hole;

	mutex_lock(&wdev->hbm.lock);
	drm_mm_for_each_hole(hole, &wdev->hbm.mm, start, end)
		largest = max(largest, end - start);
	out->total = wdev->hbm_bytes;
	out->used = wdev->hbm.used;
	out->largest_free = largest;
	out->objects = wdev->hbm.objects;
	mutex_unlock(&wdev->hbm.lock);
}
