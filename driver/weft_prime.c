// SPDX-License-Identifier: GPL-2.0
/*
 * DMA-BUF export of HBM. The generic PRIME helpers assume struct pages, which HBM has not: importers get bus addresses
 * of BAR2, made by dma_map_resource() for the importer. Who cannot reach the BAR peer-to-peer is refused when it maps.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/pci-p2pdma.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include <drm/drm_managed.h>
#include <drm/drm_prime.h>

#include "weft_ctx.h"

MODULE_IMPORT_NS(DMA_BUF);

/**
 * struct weft_mapping - HBM as one importer sees it
 * @sgt: what the importer gets: addresses only
 * @dma: the whole range's address
 * @bytes: its size
 */
struct weft_mapping {
	struct sg_table sgt;
	dma_addr_t dma;
	size_t bytes;
};

/**
 * struct weft_export - a dma-buf of HBM
 * @node: in &weft_device.exports
 * @dma_buf: alive as long as this is in the list
 */
struct weft_export {
	struct list_head node;
	struct dma_buf *dma_buf;
};

static LIST_HEAD(weft_instances);
static DEFINE_MUTEX(weft_instances_lock);

/*
 * The content is lost: dynamic importers drop their mappings and get -EIO when they map again. Who pinned it was promised
 * not to be called: they keep the addresses, which nobody else gets before they let go.
 */
static int weft_prime_notice(struct notifier_block *nb, unsigned long notice, void *data)
{
	struct weft_device *wdev = container_of(nb, struct weft_device, exports_nb);
	struct dma_buf_attachment *attach;
	struct weft_export *export;

	if (notice != WEFT_NOTICE_LOST)
		return NOTIFY_DONE;
	mutex_lock(&wdev->exports_lock);
	list_for_each_entry(export, &wdev->exports, node) {
		dma_resv_lock(export->dma_buf->resv, NULL);
		list_for_each_entry(attach, &export->dma_buf->attachments, node)
			if (attach->importer_ops && !attach->priv)
				attach->importer_ops->move_notify(attach);
		dma_resv_unlock(export->dma_buf->resv);
	}
	mutex_unlock(&wdev->exports_lock);
	return NOTIFY_OK;
}

static void weft_prime_fini(struct drm_device *drm, void *data)
{
	struct weft_device *wdev = data;

	mutex_lock(&weft_instances_lock);
	list_del(&wdev->instance);
	mutex_unlock(&weft_instances_lock);
}

/*
 * A device that was unbound lives on while dma-bufs of it do, and importers may hold addresses in its BAR: its memory
 * must not be handed out anew before they let go.
 */
int weft_prime_init(struct weft_device *wdev)
{
	struct weft_device *other;
	int ret;

	INIT_LIST_HEAD(&wdev->exports);
	ret = drmm_mutex_init(&wdev->drm, &wdev->exports_lock);
	if (ret)
		return ret;
	wdev->exports_nb.notifier_call = weft_prime_notice;
	blocking_notifier_chain_register(&wdev->notify, &wdev->exports_nb);

	mutex_lock(&weft_instances_lock);
	list_for_each_entry(other, &weft_instances, instance)
		if (atomic_read(&other->mapped) && other->hbm_start < wdev->hbm_start + wdev->hbm_bytes &&
		    wdev->hbm_start < other->hbm_start + other->hbm_bytes)
			ret = -EBUSY;
	if (!ret)
		list_add(&wdev->instance, &weft_instances);
	mutex_unlock(&weft_instances_lock);
	if (ret)
		return dev_err_probe(wdev->drm.dev, ret,
				     "HBM is still mapped by an importer of an earlier binding; let it go first\n");
	return drmm_add_action_or_reset(&wdev->drm, weft_prime_fini, wdev);
}

/* Does the bridge send peer-to-peer requests up to the root complex? PCIe base specification, section 6.12.1. */
static bool weft_bridge_redirects(struct pci_dev *bridge)
{
	u16 ctrl = 0;

	if (!bridge->acs_cap)
		return false;
	pci_read_config_word(bridge, bridge->acs_cap + PCI_ACS_CTRL, &ctrl);
	return ctrl & (PCI_ACS_RR | PCI_ACS_CR | PCI_ACS_EC);
}

static bool weft_below(struct pci_dev *pdev, struct pci_dev *bridge)
{
	struct pci_dev *up;

	for (up = pci_upstream_bridge(pdev); up; up = pci_upstream_bridge(up)) {
		if (up == bridge)
			return true;
		if (weft_bridge_redirects(up))
			return false;
	}
	return false;
}

/*
 * Peer-to-peer between the functions without the host bridge, which may or may not forward it: they need a common
 * bridge, and no bridge up to it, itself included, may redirect. The kernel's own check is used where it is built in.
 */
static bool weft_reachable(struct pci_dev *pdev, struct device *importer)
{
	struct pci_dev *peer, *up;

	if (!dev_is_pci(importer))
		return false;
	if (IS_ENABLED(CONFIG_PCI_P2PDMA))
		return pci_p2pdma_distance(pdev, importer, true) >= 0;

	peer = to_pci_dev(importer);
	for (up = pci_upstream_bridge(pdev); up; up = pci_upstream_bridge(up)) {
		if (weft_bridge_redirects(up))
			return false;
		if (weft_below(peer, up))
			return true;
	}
	return false;
}

static int weft_dmabuf_attach(struct dma_buf *dma_buf, struct dma_buf_attachment *attach)
{
	struct drm_gem_object *obj = dma_buf->priv;
	struct weft_device *wdev = to_weft(obj->dev);
	int idx;

	if (!drm_dev_enter(obj->dev, &idx))
		return -ENODEV;
	if (!weft_reachable(wdev->pdev, attach->dev)) {
		drm_dbg(obj->dev, "%s cannot reach HBM peer-to-peer\n", dev_name(attach->dev));
		attach->peer2peer = false;
	}
	drm_dev_exit(idx);
	return 0;
}

/*
 * HBM never moves: a pin is a count. Without CONFIG_DMABUF_MOVE_NOTIFY the core pins once more for each mapping. Called
 * with the reservation lock held, as map and unmap are.
 */
static int weft_dmabuf_pin(struct dma_buf_attachment *attach)
{
	struct weft_bo *bo = to_weft_bo(attach->dmabuf->priv);

	if (!attach->peer2peer)
		return -EPERM;
	attach->priv = (void *)((unsigned long)attach->priv + 1); /* the attachment's own pins */
	atomic_inc(&bo->pins);
	return 0;
}

static void weft_dmabuf_unpin(struct dma_buf_attachment *attach)
{
	struct weft_bo *bo = to_weft_bo(attach->dmabuf->priv);

	attach->priv = (void *)((unsigned long)attach->priv - 1);
	atomic_dec(&bo->pins);
}

/* How much of what is left at `dma` the importer takes as one segment; a scatter list counts bytes in 32 bits. */
static size_t weft_mapping_step(struct device *importer, dma_addr_t dma, size_t left)
{
	size_t longest = min_t(size_t, dma_get_max_seg_size(importer), SZ_2G);
	u64 boundary = dma_get_seg_boundary(importer);
	u64 ahead = boundary - (dma & boundary); /* bytes up to the boundary, less one */

	longest = max_t(size_t, round_down(longest, PAGE_SIZE), PAGE_SIZE);
	return min3(left, longest, ahead < SZ_2G ? (size_t)ahead + 1 : (size_t)SZ_2G);
}

static int weft_mapping_fill(struct weft_mapping *mapping, struct device *importer)
{
	struct scatterlist *sg;
	unsigned int i, count = 0;
	size_t done;
	int ret;

	for (done = 0; done < mapping->bytes; count++)
		done += weft_mapping_step(importer, mapping->dma + done, mapping->bytes - done);
	ret = sg_alloc_table(&mapping->sgt, count, GFP_KERNEL);
	if (ret)
		return ret;
	done = 0;
	for_each_sgtable_dma_sg(&mapping->sgt, sg, i) {
		sg_set_page(sg, NULL, 0, 0);
		sg_dma_address(sg) = mapping->dma + done;
		sg_dma_len(sg) = weft_mapping_step(importer, mapping->dma + done, mapping->bytes - done);
		done += sg_dma_len(sg);
	}
	/* There are no pages: nobody may walk the CPU's side of the list. */
	mapping->sgt.orig_nents = 0;
	return 0;
}

static struct sg_table *weft_dmabuf_map(struct dma_buf_attachment *attach, enum dma_data_direction direction)
{
	struct weft_bo *bo = to_weft_bo(attach->dmabuf->priv);
	struct weft_device *wdev = to_weft(bo->base.dev);
	struct weft_mapping *mapping;
	int idx, ret;

	if (!attach->peer2peer)
		return ERR_PTR(-EPERM);
	if (!drm_dev_enter(&wdev->drm, &idx))
		return ERR_PTR(-ENODEV);
	if (weft_bo_lost(bo)) {
		ret = -EIO;
		goto err_exit;
	}
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping) {
		ret = -ENOMEM;
		goto err_exit;
	}
	mapping->bytes = bo->range.size;
	mapping->dma = dma_map_resource(attach->dev, wdev->hbm_start + bo->range.start, mapping->bytes, direction,
					DMA_ATTR_SKIP_CPU_SYNC);
	if (dma_mapping_error(attach->dev, mapping->dma)) {
		ret = -ENOMEM;
		goto err_free;
	}
	ret = weft_mapping_fill(mapping, attach->dev);
	if (ret)
		goto err_unmap;
	atomic_inc(&wdev->mapped);
	drm_dev_exit(idx);
	return &mapping->sgt;

err_unmap:
	dma_unmap_resource(attach->dev, mapping->dma, mapping->bytes, direction, DMA_ATTR_SKIP_CPU_SYNC);
err_free:
	kfree(mapping);
err_exit:
	drm_dev_exit(idx);
	return ERR_PTR(ret);
}

/* Also after the device is gone: what was mapped belongs to the importer. */
static void weft_dmabuf_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt,
			      enum dma_data_direction direction)
{
	struct weft_mapping *mapping = container_of(sgt, struct weft_mapping, sgt);
	struct weft_bo *bo = to_weft_bo(attach->dmabuf->priv);

	dma_unmap_resource(attach->dev, mapping->dma, mapping->bytes, direction, DMA_ATTR_SKIP_CPU_SYNC);
	sgt->orig_nents = sgt->nents; /* as it was allocated */
	sg_free_table(sgt);
	kfree(mapping);
	atomic_dec(&to_weft(bo->base.dev)->mapped);
}

static void weft_dmabuf_release(struct dma_buf *dma_buf)
{
	struct weft_bo *bo = to_weft_bo(dma_buf->priv);
	struct weft_device *wdev = to_weft(bo->base.dev);
	struct weft_export *export, *next;

	mutex_lock(&wdev->exports_lock);
	list_for_each_entry_safe(export, next, &wdev->exports, node)
		if (export->dma_buf == dma_buf) {
			list_del(&export->node);
			kfree(export);
		}
	mutex_unlock(&wdev->exports_lock);
	atomic_dec(&bo->exports);
	drm_gem_dmabuf_release(dma_buf);
}

static const struct dma_buf_ops weft_dmabuf_ops = {
	.attach = weft_dmabuf_attach,
	.map_dma_buf = weft_dmabuf_map,
	.pin = weft_dmabuf_pin,
	.release = weft_dmabuf_release,
	.unmap_dma_buf = weft_dmabuf_unmap,
	.unpin = weft_dmabuf_unpin,
};

struct dma_buf *weft_gem_export(struct drm_gem_object *obj, int flags)
{
	struct weft_device *wdev = to_weft(obj->dev);
	struct weft_bo *bo = to_weft_bo(obj);
	struct weft_export *export;
	DEFINE_DMA_BUF_EXPORT_INFO(info);

	if (weft_bo_lost(bo))
		return ERR_PTR(-EIO);
	export = kzalloc(sizeof(*export), GFP_KERNEL);
	if (!export)
		return ERR_PTR(-ENOMEM);
	info.ops = &weft_dmabuf_ops;
	info.size = obj->size;
	info.flags = flags;
	info.priv = obj;
	info.resv = obj->resv;
	export->dma_buf = drm_gem_dmabuf_export(obj->dev, &info);
	if (IS_ERR(export->dma_buf)) {
		struct dma_buf *error = export->dma_buf;

		kfree(export);
		return error;
	}
	atomic_inc(&bo->exports);
	mutex_lock(&wdev->exports_lock);
	list_add_tail(&export->node, &wdev->exports);
	mutex_unlock(&wdev->exports_lock);
	return export->dma_buf;
}

/* Only what is ours comes back, and as the object itself: (object, offset), not bus addresses. */
struct drm_gem_object *weft_gem_import(struct drm_device *drm, struct dma_buf *dma_buf)
{
	struct drm_gem_object *obj = dma_buf->priv;

	if (dma_buf->ops != &weft_dmabuf_ops || obj->dev != drm)
		return ERR_PTR(-EOPNOTSUPP);
	drm_gem_object_get(obj);
	return obj;
}
