// SPDX-License-Identifier: GPL-2.0
/* What the firmware told last: sensors and log. It is kept, so that a device that failed can still be asked. */
#include <linux/workqueue.h>

#include <drm/drm_managed.h>

#include "weft_core.h"

#define WEFT_TOLD_RECORDS 256

/**
 * struct weft_told - what the firmware told last
 * @wdev: the device
 * @lock: protects all of it; outside of reset_sem
 * @log_work: fetches new log records
 * @epoch: device's epoch of the log: each start of the firmware begins it anew
 * @sensors: as read last, @sensors.time_ns 0: never
 * @next: number of the log record to fetch next
 * @count: records taken so far; the newest WEFT_TOLD_RECORDS are here
 * @record: record number n of those taken is at n modulo WEFT_TOLD_RECORDS
 */
struct weft_told {
	struct weft_device *wdev;
	struct mutex lock;
	struct work_struct log_work;
	s64 epoch;
	struct drm_weft_sensors sensors;
	u32 next;
	u32 count;
	struct drm_weft_log_record record[WEFT_TOLD_RECORDS];
};

/* With the lock and reset_sem held. Numbers count up; a firmware that repeats itself must not keep us here. */
static int weft_told_fetch(struct weft_told *told)
{
	struct weft_mbox_log log = {};
	unsigned int budget = WEFT_TOLD_RECORDS;
	u32 i, count, number;
	int ret;

	do {
		ret = weft_cmd_log_read(told->wdev, told->next, &log);
		if (ret)
			return ret;
		count = min_t(u32, le32_to_cpu(log.count), ARRAY_SIZE(log.record));
		for (i = 0; i < count; i++) {
			const struct weft_log_record *from = &log.record[i];
			struct drm_weft_log_record *to = &told->record[told->count % WEFT_TOLD_RECORDS];

			number = le32_to_cpu(from->number);
			if (number < told->next || number == U32_MAX)
				return 0;
			memset(to, 0, sizeof(*to));
			to->number = number;
			to->severity = le16_to_cpu(from->severity);
			to->code = le16_to_cpu(from->code);
			to->time_ms = le64_to_cpu(from->time_ms);
			memcpy(to->text, from->text, min(sizeof(to->text) - 1, sizeof(from->text)));
			told->next = number + 1;
			told->count++;
		}
	} while (count && budget--);
	return 0;
}

/* Brings the log up to date where the firmware answers. */
static void weft_told_update(struct weft_told *told)
{
	int idx;

	lockdep_assert_held(&told->lock);
	if (weft_dev_enter(told->wdev, &idx))
		return;
	if (told->epoch != atomic64_read(&told->wdev->epoch)) {
		told->epoch = atomic64_read(&told->wdev->epoch);
		told->next = 1;
		told->count = 0;
	}
	weft_told_fetch(told);
	weft_dev_exit(told->wdev, idx);
}

static void weft_told_work(struct work_struct *work)
{
	struct weft_told *told = container_of(work, struct weft_told, log_work);

	mutex_lock(&told->lock);
	weft_told_update(told);
	mutex_unlock(&told->lock);
}

static void weft_told_fini(void *data)
{
	struct weft_told *told = data;

	disable_work_sync(&told->log_work);
}

/* Before interrupts are requested, so that nobody schedules the work when it is disabled. */
int weft_told_init(struct weft_device *wdev)
{
	struct weft_told *told;
	int ret;

	told = drmm_kzalloc(&wdev->drm, sizeof(*told), GFP_KERNEL);
	if (!told)
		return -ENOMEM;
	told->wdev = wdev;
	told->epoch = -1;
	INIT_WORK(&told->log_work, weft_told_work);
	ret = drmm_mutex_init(&wdev->drm, &told->lock);
	if (ret)
		return ret;
	wdev->told = told;
	return devm_add_action_or_reset(wdev->drm.dev, weft_told_fini, told);
}

void weft_told_log_grew(struct weft_device *wdev)
{
	schedule_work(&wdev->told->log_work);
}

/**
 * weft_told_sensors() - read the sensors, or give what they read last
 * @wdev: the device
 * @out: the values
 *
 * Return: 0, or -ENODEV.
 */
int weft_told_sensors(struct weft_device *wdev, struct drm_weft_sensors *out)
{
	struct weft_told *told = wdev->told;
	struct weft_mbox_sensors now = {};
	int idx, ret;

	mutex_lock(&told->lock);
	ret = weft_dev_enter(wdev, &idx);
	if (!ret) {
		ret = weft_cmd_sensors(wdev, &now);
		weft_dev_exit(wdev, idx);
	}
	if (!ret) {
		told->sensors.temperature_mc = le32_to_cpu(now.temperature_mc);
		told->sensors.hbm_temperature_mc = le32_to_cpu(now.hbm_temperature_mc);
		told->sensors.power_mw = le32_to_cpu(now.power_mw);
		told->sensors.voltage_mv = le32_to_cpu(now.voltage_mv);
		told->sensors.clock_mhz = le32_to_cpu(now.clock_mhz);
		told->sensors.time_ns = ktime_get_ns();
	}
	*out = told->sensors;
	mutex_unlock(&told->lock);
	return ret == -ENODEV ? ret : 0;
}

/**
 * weft_told_log() - log records
 * @wdev: the device
 * @first: number of the first wanted; becomes that of the first in @out
 * @out: records
 * @room: how many
 *
 * Return: how many there are.
 */
int weft_told_log(struct weft_device *wdev, u32 *first, struct drm_weft_log_record *out, u32 room)
{
	struct weft_told *told = wdev->told;
	u32 i, got = 0;

	mutex_lock(&told->lock);
	weft_told_update(told);
	for (i = told->count - min(told->count, WEFT_TOLD_RECORDS); i != told->count && got < room; i++) {
		const struct drm_weft_log_record *record = &told->record[i % WEFT_TOLD_RECORDS];

		if (record->number < *first)
			continue;
		out[got++] = *record;
	}
	if (got)
		*first = out[0].number;
	mutex_unlock(&told->lock);
	return got;
}
