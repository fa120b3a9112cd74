// SPDX-License-Identifier: GPL-2.0
/* HBM as GEM objects. A handle is a region of the context that has it; the object is the range itself. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "weft_ctx.h"

#define WEFT_BO_FLAGS (WEFT_BO_REMOTE_READ | WEFT_BO_REMOTE_WRITE)
/* Pages mapped by one page fault: HBM is used in large pieces, a fault a page would take longer than the copy. */
#define WEFT_FAULT_PAGES (SZ_2M / PAGE_SIZE)

/**
 * struct weft_attach - the region of an object in one context
 * @node: in &weft_bo.attaches
 * @ctx: the context
 * @handles: GEM handles that the context has of the object
 * @key: the region
 */
struct weft_attach {
	struct list_head node;
	struct weft_ctx *ctx;
	unsigned int handles;
	u32 key;
};

bool weft_bo_lost(struct weft_bo *bo)
{
	struct weft_device *wdev = to_weft(bo->base.dev);

	return READ_ONCE(wdev->life) != WEFT_READY || atomic64_read(&wdev->epoch) != bo->epoch;
}

static struct weft_attach *weft_bo_attach_of(struct weft_bo *bo, struct weft_ctx *ctx)
{
	struct weft_attach *attach;

	lockdep_assert_held(&bo->lock);
	list_for_each_entry(attach, &bo->attaches, node)
		if (attach->ctx == ctx)
			return attach;
	return NULL;
}

static int weft_bo_region(struct weft_bo *bo, struct weft_ctx *ctx, u32 *key)
{
	struct weft_region_entry entry = {
		.type = WEFT_REGION_HBM,
		.rights = WEFT_RIGHT_READ | WEFT_RIGHT_WRITE,
		.va = cpu_to_le64(WEFT_VA_HBM + bo->range.start),
		.length = cpu_to_le64(bo->range.size),
		.base = cpu_to_le64(bo->range.start),
		.object = cpu_to_le64(bo->generation),
	};
	int idx, ret;

	if (bo->flags & WEFT_BO_REMOTE_READ)
		entry.rights |= WEFT_RIGHT_REMOTE_READ;
	if (bo->flags & WEFT_BO_REMOTE_WRITE)
		entry.rights |= WEFT_RIGHT_REMOTE_WRITE;

	ret = weft_ctx_enter(ctx, &idx);
	if (ret)
		return ret;
	ret = weft_bo_lost(bo) ? -EIO : weft_region_create(&ctx->hw, &entry, key);
	weft_dev_exit(ctx->wdev, idx);
	return ret;
}

/* A handle comes: by creation, or by import of our own dma-buf. */
static int weft_bo_open(struct drm_gem_object *obj, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_bo *bo = to_weft_bo(obj);
	struct weft_attach *attach;
	int ret = 0;

	mutex_lock(&ctx->lock);
	mutex_lock(&bo->lock);
	attach = weft_bo_attach_of(bo, ctx);
	if (attach) {
		attach->handles++;
		goto out_unlock;
	}
	attach = kzalloc(sizeof(*attach), GFP_KERNEL);
	if (!attach) {
		ret = -ENOMEM;
		goto out_unlock;
	}
	ret = weft_bo_region(bo, ctx, &attach->key);
	if (ret) {
		kfree(attach);
		goto out_unlock;
	}
	attach->ctx = ctx;
	attach->handles = 1;
	list_add(&attach->node, &bo->attaches);
out_unlock:
	mutex_unlock(&bo->lock);
	mutex_unlock(&ctx->lock);
	return ret;
}

static void weft_bo_close(struct drm_gem_object *obj, struct drm_file *file)
{
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_bo *bo = to_weft_bo(obj);
	struct weft_attach *attach;

	mutex_lock(&ctx->lock);
	mutex_lock(&bo->lock);
	attach = weft_bo_attach_of(bo, ctx);
	if (attach && !--attach->handles) {
		list_del(&attach->node);
		weft_region_destroy(&ctx->hw, attach->key);
		kfree(attach);
	}
	mutex_unlock(&bo->lock);
	mutex_unlock(&ctx->lock);
}

/* No handle, export or mapping is left: no region either. */
static void weft_bo_free(struct drm_gem_object *obj)
{
	struct weft_bo *bo = to_weft_bo(obj);

	drm_WARN_ON(obj->dev, !list_empty(&bo->attaches));
	drm_gem_object_release(obj);
	weft_hbm_free(to_weft(obj->dev), &bo->range);
	mutex_destroy(&bo->lock);
	kfree(bo);
}

static int weft_bo_mmap(struct drm_gem_object *obj, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	/*
	 * The BAR is prefetchable: reads have no side effects and writes may be gathered. A CPU cache over it would not
	 * see what the device does to its memory, so write-combining is the most that is right on hardware.
	 */
	vma->vm_page_prot = pgprot_writecombine(vm_get_page_prot(vma->vm_flags));
	return 0;
}

static vm_fault_t weft_bo_insert(struct weft_bo *bo, struct vm_fault *vmf)
{
	struct weft_device *wdev = to_weft(bo->base.dev);
	struct vm_area_struct *vma = vmf->vma;
	unsigned long first = drm_vma_node_start(&bo->base.vma_node);
	unsigned long page = vmf->pgoff - first;
	unsigned long window = round_down(page, WEFT_FAULT_PAGES);
	unsigned long pfn = PHYS_PFN(wdev->hbm_start + bo->range.start);
	unsigned long lowest = vma->vm_pgoff - first;
	unsigned long i, end;
	vm_fault_t ret;

	if (page >= bo->range.size >> PAGE_SHIFT)
		return VM_FAULT_SIGBUS;
	ret = vmf_insert_pfn(vma, vmf->address, pfn + page);
	if (ret != VM_FAULT_NOPAGE)
		return ret;

	/* The neighbours may fail: they get a fault of their own. */
	end = min3(window + WEFT_FAULT_PAGES, lowest + vma_pages(vma), (unsigned long)(bo->range.size >> PAGE_SHIFT));
	for (i = max(window, lowest); i < end; i++)
		if (i != page &&
		    vmf_insert_pfn(vma, vma->vm_start + ((i - lowest) << PAGE_SHIFT), pfn + i) != VM_FAULT_NOPAGE)
			break;
	return VM_FAULT_NOPAGE;
}

/* Data that is lost must not be read as something else: no spare page here. */
static vm_fault_t weft_bo_fault(struct vm_fault *vmf)
{
	struct weft_bo *bo = to_weft_bo(vmf->vma->vm_private_data);
	struct weft_device *wdev = to_weft(bo->base.dev);
	vm_fault_t ret;
	int idx;

	ret = weft_fault_enter(wdev, &idx);
	if (ret)
		return ret;
	ret = weft_bo_lost(bo) ? VM_FAULT_SIGBUS : weft_bo_insert(bo, vmf);
	weft_dev_exit(wdev, idx);
	return ret;
}

static const struct vm_operations_struct weft_bo_vm_ops = {
	.open = drm_gem_vm_open,
	.close = drm_gem_vm_close,
	.fault = weft_bo_fault,
};

static const struct drm_gem_object_funcs weft_bo_funcs = {
	.close = weft_bo_close,
	.export = weft_gem_export,
	.free = weft_bo_free,
	.mmap = weft_bo_mmap,
	.open = weft_bo_open,
	.vm_ops = &weft_bo_vm_ops,
};

static struct weft_bo *weft_bo_create(struct weft_device *wdev, u64 bytes, u64 align, u32 flags)
{
	struct weft_bo *bo;
	int ret;

	bo = kzalloc(sizeof(*bo), GFP_KERNEL);
	if (!bo)
		return ERR_PTR(-ENOMEM);
	bo->flags = flags;
	bo->generation = atomic64_inc_return(&wdev->generation);
	bo->epoch = atomic64_read(&wdev->epoch);
	mutex_init(&bo->lock);
	INIT_LIST_HEAD(&bo->attaches);
	bo->base.funcs = &weft_bo_funcs;

	ret = weft_hbm_alloc(wdev, &bo->range, bytes, align);
	if (ret) {
		mutex_destroy(&bo->lock);
		kfree(bo);
		return ERR_PTR(ret);
	}
	drm_gem_private_object_init(&wdev->drm, &bo->base, bytes);
	ret = weft_hbm_zero(wdev, &bo->range);
	if (!ret)
		ret = drm_gem_create_mmap_offset(&bo->base);
	if (ret) {
		drm_gem_object_put(&bo->base);
		return ERR_PTR(ret);
	}
	return bo;
}

static u32 weft_bo_key(struct weft_bo *bo, struct weft_ctx *ctx)
{
	struct weft_attach *attach;
	u32 key = 0;

	mutex_lock(&bo->lock);
	attach = weft_bo_attach_of(bo, ctx);
	if (attach)
		key = attach->key;
	mutex_unlock(&bo->lock);
	return key;
}

int weft_bo_create_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_bo_create *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = to_weft(drm);
	struct weft_bo *bo;
	int ret;

	if (args->flags & ~WEFT_BO_FLAGS)
		return -EINVAL;
	if (!args->bytes || (args->align && !is_power_of_2(args->align)))
		return -EINVAL;
	/* Before rounding up, which could overflow. */
	if (args->bytes > wdev->hbm_bytes || args->align > wdev->hbm_bytes)
		return -ENOSPC;
	ret = weft_ctx_lost(ctx);
	if (ret)
		return ret;

	bo = weft_bo_create(wdev, PAGE_ALIGN(args->bytes), args->align, args->flags);
	if (IS_ERR(bo))
		return PTR_ERR(bo);
	ret = drm_gem_handle_create(file, &bo->base, &args->handle);
	if (!ret) {
		args->bytes = bo->range.size;
		args->key = weft_bo_key(bo, ctx);
		args->va = WEFT_VA_HBM + bo->range.start;
		args->mmap_offset = drm_vma_node_offset_addr(&bo->base.vma_node);
		args->generation = bo->generation;
	}
	drm_gem_object_put(&bo->base);
	return ret;
}

int weft_bo_info_ioctl(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_weft_bo_info *args = data;
	struct weft_ctx *ctx = file->driver_priv;
	struct drm_gem_object *obj;
	struct weft_bo *bo;
	int ret;

	if (args->flags)
		return -EINVAL;
	ret = weft_ctx_lost(ctx);
	if (ret)
		return ret;
	obj = drm_gem_object_lookup(file, args->handle);
	if (!obj)
		return -ENOENT;
	bo = to_weft_bo(obj);
	args->flags = bo->flags;
	args->key = weft_bo_key(bo, ctx);
	args->bytes = bo->range.size;
	args->va = WEFT_VA_HBM + bo->range.start;
	args->mmap_offset = drm_vma_node_offset_addr(&bo->base.vma_node);
	args->generation = bo->generation;
	args->hbm_offset = bo->range.start;
	args->exports = atomic_read(&bo->exports);
	args->pins = atomic_read(&bo->pins);
	drm_gem_object_put(obj);
	return 0;
}
