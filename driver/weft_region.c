// SPDX-License-Identifier: GPL-2.0
/* Regions: keys, and the entries of the device's table that they name. */
#include <linux/bitmap.h>

#include <drm/drm_managed.h>

#include "weft_core.h"

/* A key could name 2^24; no device has so many, and each costs a byte here. */
#define WEFT_REGIONS_MAX BIT(20)

int weft_keys_init(struct weft_device *wdev)
{
	struct weft_keys *keys = &wdev->keys;

	spin_lock_init(&keys->lock);
	keys->count = min_t(u32, readl(wdev->regs + WEFT_REG_REGIONS), WEFT_REGIONS_MAX);
	if (keys->count < 2)
		return -ENODEV;
	keys->used = drmm_kcalloc(&wdev->drm, BITS_TO_LONGS(keys->count), sizeof(long), GFP_KERNEL);
	keys->generation = drmm_kcalloc(&wdev->drm, keys->count, sizeof(u8), GFP_KERNEL);
	if (!keys->used || !keys->generation)
		return -ENOMEM;
	__set_bit(0, keys->used); /* entry 0 is never valid */
	keys->next = 1;
	return 0;
}

static int weft_key_alloc(struct weft_device *wdev, u32 *key)
{
	struct weft_keys *keys = &wdev->keys;
	unsigned long index;
	int ret = 0;

	spin_lock(&keys->lock);
	index = find_next_zero_bit(keys->used, keys->count, keys->next);
	if (index >= keys->count)
		index = find_next_zero_bit(keys->used, keys->count, 1);
	if (index < keys->count) {
		__set_bit(index, keys->used);
		keys->next = index + 1;
		*key = WEFT_KEY(index, ++keys->generation[index]);
	} else {
		ret = -ENOSPC;
	}
	spin_unlock(&keys->lock);
	return ret;
}

void weft_key_free(struct weft_device *wdev, u32 key)
{
	spin_lock(&wdev->keys.lock);
	__clear_bit(WEFT_KEY_INDEX(key), wdev->keys.used);
	spin_unlock(&wdev->keys.lock);
}

/**
 * weft_region_create() - make a region of a context
 * @hw: the context; between weft_hwctx_enter() and weft_dev_exit()
 * @entry: the region; key and ctx are filled in
 * @key: its key
 *
 * Return: 0, -ENOSPC when the table is full, or what the mailbox says.
 */
int weft_region_create(struct weft_hwctx *hw, struct weft_region_entry *entry, u32 *key)
{
	int ret;

	ret = weft_key_alloc(hw->wdev, key);
	if (ret)
		return ret;
	entry->key = cpu_to_le32(*key);
	entry->ctx = cpu_to_le32(hw->id);
	ret = weft_cmd_region_create(hw->wdev, entry);
	if (ret) {
		weft_key_free(hw->wdev, *key);
		*key = 0;
	}
	return ret;
}

/**
 * weft_region_destroy() - end a region: afterwards the device does not reach its memory
 * @hw: the context, which its owner does not close meanwhile; in the device or not
 * @key: the region
 */
void weft_region_destroy(struct weft_hwctx *hw, u32 key)
{
	struct weft_device *wdev = hw->wdev;
	int idx, ret;

	/* All regions of a closed context went with it. */
	if (!hw->closed) {
		ret = weft_hwctx_enter(hw, &idx);
		if (!ret) {
			ret = weft_cmd_region_destroy(wdev, key);
			if (ret) {
				drm_err(&wdev->drm, "region %#x of context %u: not destroyed: %d\n", key, hw->id, ret);
				weft_fail(wdev, "a region cannot be ended");
			}
			weft_dev_exit(wdev, idx);
		}
		if (ret)
			weft_settle(wdev);
	}
	weft_key_free(wdev, key);
}
