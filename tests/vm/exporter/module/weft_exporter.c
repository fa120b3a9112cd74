// SPDX-License-Identifier: GPL-2.0
/*
 * Exports a PCI function's memory BAR (QEMU's ivshmem-plain, BAR2) as DMA-BUFs, rightly, or with one of the bugs that
 * exporters have. For tests of examples/dmabuf-readback. Any PCI function is taken to reach the BAR: this is no driver
 * to copy the peer-to-peer check from.
 */
#include "weft_exporter.h"

#include <linux/dma-buf.h>
#include <linux/genalloc.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

MODULE_IMPORT_NS(DMA_BUF);

static char *bug = "none";
module_param(bug, charp, 0444);
MODULE_PARM_DESC(bug, "none, revoke, free, offset, part or segment");

#define EXPORTER_BAR 2
/* As far as the pool aligns. */
#define POOL_BASE SZ_2M

/**
 * struct exporter - a function that was bound; lives as long as pieces of it do
 * @refs: the binding's, and one of each piece
 * @lock: serialises all that follows
 * @pool: the BAR's offsets, counted from POOL_BASE, since 0 means none
 * @memory: the BAR, NULL after removal
 * @bar: its bus address
 * @bytes: its size
 */
struct exporter {
	struct kref refs;
	struct mutex lock;
	struct gen_pool *pool;
	void __iomem *memory;
	phys_addr_t bar;
	u64 bytes;
};

/**
 * struct piece - an allocation
 * @refs: its file's, and one of each DMA-BUF
 * @exporter: where
 * @start: byte of the BAR
 * @bytes: how many
 * @handed_back: the range may be somebody else's by now
 */
struct piece {
	struct kref refs;
	struct exporter *exporter;
	u64 start;
	u64 bytes;
	bool handed_back;
};

struct share {
	struct piece *piece;
	u64 offset;
	u64 bytes;
};

struct mapping {
	struct sg_table sgt;
	dma_addr_t dma;
	u64 bytes;
};

static DEFINE_MUTEX(bound_lock);
static struct exporter *bound;
/* By importers, of whichever binding. */
static atomic_t mapped;

static bool has_bug(const char *name)
{
	return !strcmp(bug, name);
}

static void exporter_free(struct kref *refs)
{
	struct exporter *exporter = container_of(refs, struct exporter, refs);

	gen_pool_destroy(exporter->pool);
	mutex_destroy(&exporter->lock);
	kfree(exporter);
}

static void piece_hand_back(struct piece *piece)
{
	if (piece->handed_back)
		return;
	piece->handed_back = true;
	gen_pool_free(piece->exporter->pool, piece->start + POOL_BASE, piece->bytes);
}

static void piece_free(struct kref *refs)
{
	struct piece *piece = container_of(refs, struct piece, refs);

	piece_hand_back(piece);
	kref_put(&piece->exporter->refs, exporter_free);
	kfree(piece);
}

/* ---- DMA-BUF. No pin: the importer is mapped once, when it attaches, and nothing ever moves. */

static int mapping_fill(struct mapping *mapping, struct device *importer)
{
	u64 step = min_t(u64, dma_get_max_seg_size(importer), SZ_2G);
	struct scatterlist *sg;
	u64 done = 0;
	unsigned int i;
	int ret;

	step = max_t(u64, round_down(step, PAGE_SIZE), PAGE_SIZE);
	if (has_bug("segment"))
		step = mapping->bytes; /* sg_dma_len() keeps the lower 32 bits of it */
	ret = sg_alloc_table(&mapping->sgt, DIV_ROUND_UP_ULL(mapping->bytes, step), GFP_KERNEL);
	if (ret)
		return ret;
	for_each_sgtable_dma_sg(&mapping->sgt, sg, i) {
		sg_set_page(sg, NULL, 0, 0);
		sg_dma_address(sg) = mapping->dma + done;
		sg_dma_len(sg) = min(step, mapping->bytes - done);
		done += min(step, mapping->bytes - done);
	}
	mapping->sgt.orig_nents = 0;
	return 0;
}

static struct sg_table *share_map(struct dma_buf_attachment *attach, enum dma_data_direction direction)
{
	struct share *share = attach->dmabuf->priv;
	struct piece *piece = share->piece;
	struct exporter *exporter = piece->exporter;
	u64 at = piece->start + share->offset;
	struct mapping *mapping;
	int ret = -ENODEV;

	if (!attach->peer2peer)
		return ERR_PTR(-EPERM);
	if (has_bug("offset"))
		at = share->offset;
	if (has_bug("part"))
		at = piece->start;
	mapping = kzalloc(sizeof(*mapping), GFP_KERNEL);
	if (!mapping)
		return ERR_PTR(-ENOMEM);
	mapping->bytes = share->bytes;

	mutex_lock(&exporter->lock);
	if (!exporter->memory && !has_bug("revoke"))
		goto err_unlock;
	ret = -ENOMEM;
	mapping->dma =
		dma_map_resource(attach->dev, exporter->bar + at, mapping->bytes, direction, DMA_ATTR_SKIP_CPU_SYNC);
	if (dma_mapping_error(attach->dev, mapping->dma))
		goto err_unlock;
	ret = mapping_fill(mapping, attach->dev);
	if (ret)
		goto err_unmap;
	atomic_inc(&mapped);
	mutex_unlock(&exporter->lock);
	return &mapping->sgt;

err_unmap:
	dma_unmap_resource(attach->dev, mapping->dma, mapping->bytes, direction, DMA_ATTR_SKIP_CPU_SYNC);
err_unlock:
	mutex_unlock(&exporter->lock);
	kfree(mapping);
	return ERR_PTR(ret);
}

static void share_unmap(struct dma_buf_attachment *attach, struct sg_table *sgt, enum dma_data_direction direction)
{
	struct mapping *mapping = container_of(sgt, struct mapping, sgt);

	dma_unmap_resource(attach->dev, mapping->dma, mapping->bytes, direction, DMA_ATTR_SKIP_CPU_SYNC);
	sgt->orig_nents = sgt->nents;
	sg_free_table(sgt);
	kfree(mapping);
	atomic_dec(&mapped);
}

static void share_release(struct dma_buf *dma_buf)
{
	struct share *share = dma_buf->priv;

	kref_put(&share->piece->refs, piece_free);
	kfree(share);
}

static const struct dma_buf_ops share_ops = {
	.map_dma_buf = share_map,
	.unmap_dma_buf = share_unmap,
	.release = share_release,
};

static int piece_share(struct piece *piece, const struct weft_exporter_share *args)
{
	DEFINE_DMA_BUF_EXPORT_INFO(info);
	struct dma_buf *dma_buf;
	struct share *share;

	if (!args->bytes || !PAGE_ALIGNED(args->offset | args->bytes) || args->offset > piece->bytes ||
	    args->bytes > piece->bytes - args->offset)
		return -EINVAL;
	share = kzalloc(sizeof(*share), GFP_KERNEL);
	if (!share)
		return -ENOMEM;
	*share = (struct share){ piece, args->offset, args->bytes };
	info.ops = &share_ops;
	info.size = args->bytes;
	info.flags = O_CLOEXEC;
	info.priv = share;
	dma_buf = dma_buf_export(&info);
	if (IS_ERR(dma_buf)) {
		kfree(share);
		return PTR_ERR(dma_buf);
	}
	kref_get(&piece->refs);
	return dma_buf_fd(dma_buf, O_CLOEXEC);
}

/* ---- /dev/weft_exporter */

static int piece_alloc(struct file *file, u64 bytes)
{
	struct genpool_data_align align = { .align = bytes >= SZ_2M ? POOL_BASE : PAGE_SIZE };
	struct exporter *exporter;
	struct piece *piece;
	unsigned long start;

	if (file->private_data)
		return -EBUSY;
	if (!bytes || !PAGE_ALIGNED(bytes))
		return -EINVAL;
	piece = kzalloc(sizeof(*piece), GFP_KERNEL);
	if (!piece)
		return -ENOMEM;
	mutex_lock(&bound_lock);
	exporter = bound;
	if (exporter)
		kref_get(&exporter->refs);
	mutex_unlock(&bound_lock);
	if (!exporter) {
		kfree(piece);
		return -ENODEV;
	}
	start = gen_pool_alloc_algo(exporter->pool, bytes, gen_pool_first_fit_align, &align);
	if (!start) {
		kref_put(&exporter->refs, exporter_free);
		kfree(piece);
		return -ENOSPC;
	}
	kref_init(&piece->refs);
	piece->exporter = exporter;
	piece->start = start - POOL_BASE;
	piece->bytes = bytes;
	file->private_data = piece;
	return 0;
}

static long exporter_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	struct weft_exporter_share share;
	u64 bytes = 0;

	switch (command) {
	case WEFT_EXPORTER_ALLOC:
		return copy_from_user(&bytes, user, sizeof(bytes)) ? -EFAULT : piece_alloc(file, bytes);
	case WEFT_EXPORTER_SHARE:
		if (!file->private_data)
			return -EINVAL;
		return copy_from_user(&share, user, sizeof(share)) ? -EFAULT : piece_share(file->private_data, &share);
	case WEFT_EXPORTER_LARGEST:
		mutex_lock(&bound_lock);
		if (bound)
			bytes = bound->bytes - SZ_2M; /* what alignment may take */
		mutex_unlock(&bound_lock);
		return copy_to_user(user, &bytes, sizeof(bytes)) ? -EFAULT : 0;
	}
	return -ENOTTY;
}

static ssize_t exporter_copy(struct file *file, char __user *user, size_t count, loff_t *pos, bool write)
{
	struct piece *piece = file->private_data;
	u8 *bounce;
	ssize_t ret;

	if (!piece || *pos < 0 || *pos >= piece->bytes)
		return -EINVAL;
	count = min3(count, (size_t)SZ_1M, (size_t)(piece->bytes - *pos));
	bounce = kvmalloc(count, GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	ret = -EFAULT;
	if (write && copy_from_user(bounce, user, count))
		goto out_free;

	ret = -ENODEV;
	mutex_lock(&piece->exporter->lock);
	if (piece->exporter->memory) {
		void __iomem *at = piece->exporter->memory + piece->start + *pos;

		if (write)
			memcpy_toio(at, bounce, count);
		else
			memcpy_fromio(bounce, at, count);
		ret = count;
	}
	mutex_unlock(&piece->exporter->lock);
	if (ret > 0 && !write && copy_to_user(user, bounce, count))
		ret = -EFAULT;
	if (ret > 0)
		*pos += count;
out_free:
	kvfree(bounce);
	return ret;
}

static ssize_t exporter_read(struct file *file, char __user *user, size_t count, loff_t *pos)
{
	return exporter_copy(file, user, count, pos, false);
}

static ssize_t exporter_write(struct file *file, const char __user *user, size_t count, loff_t *pos)
{
	return exporter_copy(file, (char __user *)user, count, pos, true);
}

/* misc_open() leaves its device there. */
static int exporter_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

static int exporter_release(struct inode *inode, struct file *file)
{
	struct piece *piece = file->private_data;

	if (piece && has_bug("free"))
		piece_hand_back(piece);
	if (piece)
		kref_put(&piece->refs, piece_free);
	return 0;
}

static const struct file_operations exporter_fops = {
	.owner = THIS_MODULE,
	.open = exporter_open,
	.release = exporter_release,
	.read = exporter_read,
	.write = exporter_write,
	.unlocked_ioctl = exporter_ioctl,
};

static struct miscdevice exporter_misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "weft_exporter",
	.fops = &exporter_fops,
};

/* ---- the function */

static int exporter_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct exporter *exporter;
	int ret;

	/* An importer of an earlier binding may still use what would be handed out anew. */
	if (atomic_read(&mapped) && !has_bug("revoke"))
		return -EBUSY;
	if (bound || !(pci_resource_flags(pdev, EXPORTER_BAR) & IORESOURCE_MEM))
		return -ENODEV;
	exporter = kzalloc(sizeof(*exporter), GFP_KERNEL);
	if (!exporter)
		return -ENOMEM;
	kref_init(&exporter->refs);
	mutex_init(&exporter->lock);
	exporter->bar = pci_resource_start(pdev, EXPORTER_BAR);
	exporter->bytes = pci_resource_len(pdev, EXPORTER_BAR);
	exporter->pool = gen_pool_create(PAGE_SHIFT, NUMA_NO_NODE);
	ret = -ENOMEM;
	if (!exporter->pool)
		goto err_free;
	ret = gen_pool_add(exporter->pool, POOL_BASE, exporter->bytes, NUMA_NO_NODE);
	if (ret)
		goto err_pool;
	ret = pci_enable_device_mem(pdev);
	if (ret)
		goto err_pool;
	ret = -ENOMEM;
	exporter->memory = ioremap_wc(exporter->bar, exporter->bytes);
	if (!exporter->memory)
		goto err_disable;
	pci_set_drvdata(pdev, exporter);
	mutex_lock(&bound_lock);
	bound = exporter;
	mutex_unlock(&bound_lock);
	return 0;

err_disable:
	pci_disable_device(pdev);
err_pool:
	gen_pool_destroy(exporter->pool);
err_free:
	kfree(exporter);
	return ret;
}

static void exporter_remove(struct pci_dev *pdev)
{
	struct exporter *exporter = pci_get_drvdata(pdev);
	u16 command;

	mutex_lock(&bound_lock);
	bound = NULL;
	mutex_unlock(&bound_lock);
	mutex_lock(&exporter->lock);
	iounmap(exporter->memory);
	exporter->memory = NULL;
	mutex_unlock(&exporter->lock);
	pci_disable_device(pdev); /* ends its own accesses, not those of others to it */
	if (!has_bug("revoke")) {
		pci_read_config_word(pdev, PCI_COMMAND, &command);
		pci_write_config_word(pdev, PCI_COMMAND, command & ~PCI_COMMAND_MEMORY);
	}
	kref_put(&exporter->refs, exporter_free);
}

static const struct pci_device_id exporter_ids[] = { { PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET,
								  0x1110) }, /* ivshmem */
						     {} };

static struct pci_driver exporter_driver = {
	.name = "weft_exporter",
	.id_table = exporter_ids,
	.probe = exporter_probe,
	.remove = exporter_remove,
};

static int __init exporter_init(void)
{
	int ret;

	if (!has_bug("none") && !has_bug("revoke") && !has_bug("free") && !has_bug("offset") && !has_bug("part") &&
	    !has_bug("segment"))
		return -EINVAL;
	ret = misc_register(&exporter_misc);
	if (ret)
		return ret;
	ret = pci_register_driver(&exporter_driver);
	if (ret)
		misc_deregister(&exporter_misc);
	return ret;
}

static void __exit exporter_exit(void)
{
	pci_unregister_driver(&exporter_driver);
	misc_deregister(&exporter_misc);
}

module_init(exporter_init);
module_exit(exporter_exit);
MODULE_DESCRIPTION("Exports a memory BAR as DMA-BUFs, rightly or with a bug");
MODULE_AUTHOR("Weft");
MODULE_LICENSE("GPL");
