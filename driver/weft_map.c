// SPDX-License-Identifier: GPL-2.0
/*
 * mmap of what is not a GEM object: doorbell page, shadow array, rings. Everything is mapped by page fault, so that
 * taking it away (a reset, a removal, the end of a queue) is one call that no mapping in the making escapes.
 */
#include <linux/mm.h>
#include <linux/slab.h>

#include <drm/drm_managed.h>

#include "weft_ctx.h"

static void weft_maps_fini(struct drm_device *drm, void *data)
{
	drm_vma_offset_manager_destroy(data);
}

int weft_maps_init(struct weft_device *wdev)
{
	drm_vma_offset_manager_init(&wdev->maps, 1, DRM_FILE_PAGE_OFFSET_START - 1);
	return drmm_add_action_or_reset(&wdev->drm, weft_maps_fini, &wdev->maps);
}

static void weft_map_free(struct kref *ref)
{
	struct weft_map *map = container_of(ref, struct weft_map, ref);
	int i;

	for (i = 0; i < ARRAY_SIZE(map->spare); i++)
		if (map->spare[i])
			__free_page(map->spare[i]);
	mutex_destroy(&map->lock);
	kfree(map);
}

/*
 * The pages that users find once the device is lost. Nothing that they show may look like progress: the ring says that
 * it is halted, shadow values are zero (the kernel's own zero page), and what is written shows up nowhere else.
 */
static int weft_map_alloc_spares(struct weft_map *map, unsigned long pages)
{
	struct weft_ring_head *head;
	int i;

	if (map->kind == WEFT_MAP_SHADOW)
		return 0;
	for (i = 0; i < min_t(unsigned long, pages, ARRAY_SIZE(map->spare)); i++) {
		map->spare[i] = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
		if (!map->spare[i])
			return -ENOMEM;
	}
	if (map->kind != WEFT_MAP_DOORBELL) {
		head = page_address(map->spare[0]);
		head->state = cpu_to_le32(WEFT_QUEUE_HALTED);
		head->error = cpu_to_le32(WEFT_ERR_ABORTED);
	}
	return 0;
}

static struct page *weft_map_spare(struct weft_map *map, unsigned long page)
{
	return map->kind == WEFT_MAP_SHADOW ? ZERO_PAGE(0) : map->spare[min(page, 1ul)];
}

/**
 * weft_map_create() - give something an mmap offset
 * @ctx: owner
 * @kind: what it is
 * @pages: its size
 *
 * Nobody knows the offset yet: the caller fills in the rest.
 *
 * Return: the map, or an error pointer.
 */
struct weft_map *weft_map_create(struct weft_ctx *ctx, enum weft_map_kind kind, unsigned long pages)
{
	struct weft_map *map;
	int ret;

	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return ERR_PTR(-ENOMEM);
	kref_init(&map->ref);
	mutex_init(&map->lock);
	map->ctx = ctx;
	map->kind = kind;
	drm_vma_node_reset(&map->node);
	ret = weft_map_alloc_spares(map, pages);
	if (!ret)
		ret = drm_vma_offset_add(&ctx->wdev->maps, &map->node, pages);
	if (ret) {
		kref_put(&map->ref, weft_map_free);
		return ERR_PTR(ret);
	}
	map->start = drm_vma_node_start(&map->node);
	return map;
}

/**
 * weft_map_kill() - take it away from users, who may have it mapped still
 * @map: the map, or NULL; its offset leads nowhere afterwards
 */
void weft_map_kill(struct weft_map *map)
{
	struct weft_device *wdev;

	if (IS_ERR_OR_NULL(map))
		return;
	wdev = map->ctx->wdev;

	mutex_lock(&map->lock);
	map->dead = true;
	mutex_unlock(&map->lock);
	drm_vma_node_unmap(&map->node, wdev->drm.anon_inode->i_mapping);
	drm_vma_offset_remove(&wdev->maps, &map->node);
	kref_put(&map->ref, weft_map_free);
}

u64 weft_map_offset(struct weft_map *map)
{
	return drm_vma_node_offset_addr(&map->node);
}

static void weft_map_vm_open(struct vm_area_struct *vma)
{
	struct weft_map *map = vma->vm_private_data;

	kref_get(&map->ref);
}

static void weft_map_vm_close(struct vm_area_struct *vma)
{
	struct weft_map *map = vma->vm_private_data;

	kref_put(&map->ref, weft_map_free);
}

/**
 * weft_fault_enter() - begin to insert bus memory in a page fault
 * @wdev: the device
 * @idx: for weft_dev_exit()
 *
 * With reset_sem held, so that weft_stop() revokes it for sure. Only tried: it must not wait below mmap_lock. Who holds
 * it for writing is about to take the page away, or, when the device is ready, gives it back soon: the fault comes again.
 *
 * Return: 0 with reset_sem held for reading, VM_FAULT_NOPAGE or VM_FAULT_SIGBUS.
 */
vm_fault_t weft_fault_enter(struct weft_device *wdev, int *idx)
{
	vm_fault_t ret;

	if (!drm_dev_enter(&wdev->drm, idx))
		return VM_FAULT_SIGBUS;
	if (down_read_trylock(&wdev->reset_sem))
		return 0;
	ret = READ_ONCE(wdev->life) == WEFT_READY ? VM_FAULT_NOPAGE : VM_FAULT_SIGBUS;
	drm_dev_exit(*idx);
	return ret;
}

static vm_fault_t weft_map_fault_bus(struct weft_map *map, struct vm_fault *vmf, unsigned long pfn)
{
	struct weft_device *wdev = map->ctx->wdev;
	vm_fault_t ret;
	int idx;

	ret = weft_fault_enter(wdev, &idx);
	if (ret)
		return ret;
	ret = weft_ctx_lost(map->ctx) ? VM_FAULT_SIGBUS : vmf_insert_pfn(vmf->vma, vmf->address, pfn);
	weft_dev_exit(wdev, idx);
	return ret;
}

static vm_fault_t weft_map_fault(struct vm_fault *vmf)
{
	struct weft_map *map = vmf->vma->vm_private_data;
	vm_fault_t ret = VM_FAULT_SIGBUS;
	unsigned long page;

	mutex_lock(&map->lock);
	/* mmap() checked the range, and the mapping cannot grow. */
	page = vmf->pgoff - map->start;
	if (!map->dead) {
		if (!map->pages)
			ret = weft_map_fault_bus(map, vmf, map->pfn + page);
		else if (page < map->pages->count)
			ret = vmf_insert_pfn(vmf->vma, vmf->address, page_to_pfn(map->pages->page[page]));
	}
	if (ret == VM_FAULT_SIGBUS && weft_ctx_lost(map->ctx))
		ret = vmf_insert_pfn(vmf->vma, vmf->address, page_to_pfn(weft_map_spare(map, page)));
	mutex_unlock(&map->lock);
	return ret;
}

static const struct vm_operations_struct weft_map_vm_ops = {
	.open = weft_map_vm_open,
	.close = weft_map_vm_close,
	.fault = weft_map_fault,
};

static int weft_map_mmap(struct weft_map *map, struct vm_area_struct *vma)
{
	/* A private mapping would copy pages that must stay shared. */
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	if (map->kind == WEFT_MAP_SHADOW) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		vm_flags_clear(vma, VM_MAYWRITE);
	}
	/* A child that rang its parent's doorbells would only confuse it. */
	vm_flags_set(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	if (!map->pages)
		vm_flags_set(vma, VM_IO);
	if (map->kind == WEFT_MAP_DOORBELL)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	else if (!map->pages)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	vma->vm_ops = &weft_map_vm_ops;
	vma->vm_private_data = map; /* with the caller's reference */
	return 0;
}

int weft_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct drm_file *file = filp->private_data;
	struct weft_ctx *ctx = file->driver_priv;
	struct weft_device *wdev = ctx->wdev;
	struct drm_vma_offset_node *node;
	struct weft_map *map = NULL;
	int ret;

	if (vma->vm_pgoff >= DRM_FILE_PAGE_OFFSET_START)
		return drm_gem_mmap(filp, vma);

	ret = weft_ctx_lost(ctx);
	if (ret)
		return ret;
	drm_vma_offset_lock_lookup(&wdev->maps);
	node = drm_vma_offset_exact_lookup_locked(&wdev->maps, vma->vm_pgoff, vma_pages(vma));
	if (node) {
		map = container_of(node, struct weft_map, node);
		/* The offset is removed before the owner's reference goes: it is alive here. */
		kref_get(&map->ref);
	}
	drm_vma_offset_unlock_lookup(&wdev->maps);
	if (!map)
		return -EINVAL;

	ret = map->ctx == ctx ? weft_map_mmap(map, vma) : -EACCES;
	if (ret)
		kref_put(&map->ref, weft_map_free);
	return ret;
}
