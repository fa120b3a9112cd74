// SPDX-License-Identifier: GPL-2.0
/* User memory as regions: pinned, counted, mapped for the device. */
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "weft_ctx.h"

/* Keeps the tables of pages within what can be allocated at all: INT_MAX bytes, and 4 MiB of coherent memory. */
#define WEFT_HOST_BYTES_MAX (SZ_1T / 4)
/* Pages pinned at once: between two steps a killed process gets out. */
#define WEFT_HOST_PIN_STEP 65536ul

/**
 * struct weft_host - registered host memory
 * @mm: who pays for the pages
 * @page: the pages
 * @pages: how many
 * @writable: by the device
 * @sgt: the pages as the DMA mapping sees them
 * @list: the same as the device sees them
 * @key: the region
 */
struct weft_host {
	struct mm_struct *mm;
	struct page **page;
	unsigned long pages;
	bool writable;
	struct sg_table sgt;
	struct weft_pagelist list;
	u32 key;
};

static enum dma_data_direction weft_host_direction(const struct weft_host *host)
{
	return host->writable ? DMA_BIDIRECTIONAL : DMA_TO_DEVICE;
}

/* Counted before anything is allocated: what a user may not have costs nothing. */
static int weft_host_account(struct weft_host *host)
{
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;

	if (atomic64_add_return(host->pages, &host->mm->pinned_vm) <= limit || capable(CAP_IPC_LOCK))
		return 0;
	atomic64_sub(host->pages, &host->mm->pinned_vm);
	return -ENOMEM;
}

static int weft_host_pin(struct weft_host *host, unsigned long address)
{
	unsigned int flags = FOLL_LONGTERM | (host->writable ? FOLL_WRITE : 0);
	unsigned long done = 0;
	int got;

	while (done < host->pages) {
		got = pin_user_pages_fast(address + done * PAGE_SIZE, min(host->pages - done, WEFT_HOST_PIN_STEP),
					  flags, host->page + done);
		if (got <= 0) {
			got = got ?: -EFAULT;
			goto err_unpin;
		}
		done += got;
		if (fatal_signal_pending(current)) {
			got = -EINTR;
			goto err_unpin;
		}
	}
	return 0;

err_unpin:
	unpin_user_pages(host->page, done);
	return got;
}

static void weft_host_unpin(struct weft_host *host)
{
	/* What the device wrote is dirty. */
	unpin_user_pages_dirty_lock(host->page, host->pages, host->writable);
}

static int weft_host_map(struct weft_device *wdev, struct weft_host *host, unsigned long offset, u64 bytes)
{
	struct sg_dma_page_iter iter;
	u64 i = 0;
	int ret;

	ret = sg_alloc_table_from_pages(&host->sgt, host->page, host->pages, offset, bytes, GFP_KERNEL);
	if (ret)
		return ret;
	ret = dma_map_sgtable(wdev->drm.dev, &host->sgt, weft_host_direction(host), 0);
	if (ret)
		goto err_free_table;

	/* One run, as an IOMMU makes it: no list to walk. */
	if (host->sgt.nents == 1) {
		host->list.base = sg_dma_address(host->sgt.sgl);
		return 0;
	}
	ret = weft_pagelist_alloc(wdev, &host->list, host->pages);
	if (ret)
		goto err_unmap;
	for_each_sgtable_dma_page(&host->sgt, &iter, 0) {
		if (i < host->pages)
			weft_pagelist_set(&host->list, i, sg_page_iter_dma_address(&iter) & PAGE_MASK);
		i++;
	}
	/* A mapping that split pages cannot be told to the device. */
	if (i == host->pages)
		return 0;
	ret = -EINVAL;
	weft_pagelist_free(wdev, &host->list);
err_unmap:
	dma_unmap_sgtable(wdev->drm.dev, &host->sgt, weft_host_direction(host), 0);
err_free_table:
	sg_free_table(&host->sgt);
	return ret;
}

static void weft_host_unmap(struct weft_device *wdev, struct weft_host *host)
{
	weft_pagelist_free(wdev, &host->list);
	dma_unmap_sgtable(wdev->drm.dev, &host->sgt, weft_host_direction(host), 0);
	sg_free_table(&host->sgt);
}

static void weft_host_free(struct weft_host *host)
{
	atomic64_sub(host->pages, &host->mm->pinned_vm);
	mmdrop(host->mm);
	kvfree(host->page);
	kfree(host);
}

/* Pages pinned; what the device needs comes next. */
static struct weft_host *weft_host_create(u64 address, u64 bytes, bool writable)
{
	struct weft_host *host;
	int ret;

	host = kzalloc(sizeof(*host), GFP_KERNEL);
	if (!host)
		return ERR_PTR(-ENOMEM);
	host->writable = writable;
	host->pages = DIV_ROUND_UP(offset_in_page(address) + bytes, PAGE_SIZE);
	host->mm = current->mm;
	mmgrab(host->mm);
	ret = weft_host_account(host);
	if (ret)
		goto err_drop;
	host->page = kvcalloc(host->pages, sizeof(*host->page), GFP_KERNEL_ACCOUNT | __GFP_NOWARN);
	if (!host->page) {
		ret = -ENOMEM;
		goto err_free;
	}
	ret = weft_host_pin(host, address & PAGE_MASK);
	if (ret)
		goto err_free;
	return host;

err_free:
	weft_host_free(host);
	return ERR_PTR(ret);
err_drop:
	mmdrop(host->mm);
	kfree(host);
	return ERR_PTR(ret);
}

static void weft_host_destroy(struct weft_device *wdev, struct weft_host *host)
{
	weft_host_unmap(wdev, host);
	weft_host_unpin(host);
	weft_host_free(host);
}

static int weft_host_region(struct weft_ctx *ctx, struct weft_host *host, struct drm_weft_host_register *args)
{
	struct weft_region_entry entry = {
		.type = WEFT_REGION_HOST,
		.rights = WEFT_RIGHT_READ,
		.levels = host->list.levels,
		.va = cpu_to_le64(WEFT_VA_HOST + args->address),
		.length = cpu_to_le64(args->bytes),
		.base = cpu_to_le64(host->list.base),
	};
	int idx, ret;

	if (entry.levels) { /* one contiguous range has no list, and then no fields of one */
		entry.page_shift = PAGE_SHIFT;
		entry.pages = cpu_to_le64(host->list.pages);
	}
	if (host->writable)
		entry.rights |= WEFT_RIGHT_WRITE;
	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		return ret;
	ret = weft_region_create(&ctx->hw, &entry, &host->key);
	weft_dev_exit(ctx->wdev, idx);
	return ret;
}

int weft_host_register_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_host_register *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = to_weft(drm);
	struct weft_host *host;
	int idx, ret;

	if (args->flags & ~WEFT_HOST_WRITE)
		return -EINVAL;
	if (!args->bytes || args->bytes > WEFT_HOST_BYTES_MAX)
		return -EINVAL;
	if (args->address != (unsigned long)args->address ||
	    !access_ok((void __user *)(unsigned long)args->address, args->bytes))
		return -EFAULT;
	ret = weft_ctx_lost(ctx);
	if (ret)
		return ret;

	/* Pinning takes mmap_lock and may wait for who knows whom: no lock of ours is held. */
	host = weft_host_create(args->address, args->bytes, args->flags & WEFT_HOST_WRITE);
	if (IS_ERR(host))
		return PTR_ERR(host);

	/* Nothing may be mapped for a device that is gone. */
	if (!drm_dev_enter(drm, &idx)) {
		ret = -ENODEV;
		goto err_unpin;
	}
	ret = weft_host_map(wdev, host, offset_in_page(args->address), args->bytes);
	if (ret)
		goto err_exit;
	mutex_lock(&ctx->lock);
	ret = xa_alloc(&ctx->hosts, &args->handle, host, xa_limit_31b, GFP_KERNEL);
	if (ret)
		goto err_unlock;
	ret = weft_host_region(ctx, host, args);
	if (ret)
		goto err_erase;
	args->key = host->key;
	args->va = WEFT_VA_HOST + args->address;
	mutex_unlock(&ctx->lock);
	drm_dev_exit(idx);
	return 0;

err_erase:
	xa_erase(&ctx->hosts, args->handle);
err_unlock:
	mutex_unlock(&ctx->lock);
	weft_host_unmap(wdev, host);
err_exit:
	drm_dev_exit(idx);
err_unpin:
	weft_host_unpin(host);
	weft_host_free(host);
	return ret;
}

int weft_host_unregister_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	struct drm_weft_handle *args = data;
	struct weft_host *host;
	int ret;

	if (args->flags || args->reserved)
		return -EINVAL;
	mutex_lock(&ctx->lock);
	ret = weft_ctx_lost(ctx);
	if (ret)
		goto out_unlock;
	host = xa_erase(&ctx->hosts, args->handle);
	if (!host) {
		ret = -ENOENT;
		goto out_unlock;
	}
	weft_region_destroy(&ctx->hw, host->key);
	weft_host_destroy(ctx->wdev, host);
out_unlock:
	mutex_unlock(&ctx->lock);
	return ret;
}

/* Their regions went with the context. */
void weft_host_release_all(struct weft_ctx *ctx)
{
	struct weft_host *host;
	unsigned long handle;

	xa_for_each(&ctx->hosts, handle, host) {
		weft_key_free(ctx->wdev, host->key);
		weft_host_destroy(ctx->wdev, host);
	}
	xa_destroy(&ctx->hosts);
}
