// SPDX-License-Identifier: GPL-2.0
/*
 * Imports a dma-buf on behalf of any PCI function, as an RDMA driver does for its umem (pinned, dynamic, peer-to-peer),
 * and tells what it got. For tests of exporters.
 *
 * Write "attach BDF FD" or "detach" to /dev/weft_importer; the write fails as the import does. Read what is attached:
 * a line "ADDRESS LENGTH" (hexadecimal) a segment. "watch BDF FD" attaches without pinning or mapping; read how often it
 * was told that the memory moves: "moved N". "boundary BDF MASK" sets what the function's DMA segments do not cross.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/scatterlist.h>
#include <linux/uaccess.h>

MODULE_IMPORT_NS(DMA_BUF);

static DEFINE_MUTEX(lock);
static struct pci_dev *function;
static struct dma_buf_attachment *attachment;
static struct sg_table *table;
static unsigned int moved;

/* Called with the reservation lock, as is pinning. */
static void move_notify(struct dma_buf_attachment *attach)
{
	moved++;
	if (table)
		pr_warn("weft_importer: pinned memory moves\n");
}

static const struct dma_buf_attach_ops attach_ops = {
	.allow_peer2peer = true,
	.move_notify = move_notify,
};

static struct pci_dev *find_function(const char *bdf)
{
	unsigned int domain, bus, slot, func;

	if (sscanf(bdf, "%x:%x:%x.%x", &domain, &bus, &slot, &func) != 4)
		return NULL;
	return pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, func));
}

static int import_boundary(const char *bdf, unsigned long mask)
{
	struct pci_dev *pdev = find_function(bdf);

	if (!pdev)
		return -ENXIO;
	dma_set_seg_boundary(&pdev->dev, mask);
	pci_dev_put(pdev);
	return 0;
}

static int import_attach(const char *bdf, int fd, bool map)
{
	struct dma_buf *dma_buf;
	int ret;

	if (attachment)
		return -EBUSY;
	moved = 0;
	function = find_function(bdf);
	if (!function)
		return -ENXIO;
	dma_buf = dma_buf_get(fd);
	if (IS_ERR(dma_buf)) {
		ret = PTR_ERR(dma_buf);
		goto err_put_function;
	}
	attachment = dma_buf_dynamic_attach(dma_buf, &function->dev, &attach_ops, NULL);
	if (IS_ERR(attachment)) {
		ret = PTR_ERR(attachment);
		goto err_put_buf;
	}
	if (!map)
		return 0;
	dma_resv_lock(dma_buf->resv, NULL);
	ret = dma_buf_pin(attachment);
	if (ret)
		goto err_detach;
	table = dma_buf_map_attachment(attachment, DMA_BIDIRECTIONAL);
	if (IS_ERR(table)) {
		ret = PTR_ERR(table);
		table = NULL;
		goto err_unpin;
	}
	dma_resv_unlock(dma_buf->resv);
	return 0;

err_unpin:
	dma_buf_unpin(attachment);
err_detach:
	dma_resv_unlock(dma_buf->resv);
	dma_buf_detach(dma_buf, attachment);
err_put_buf:
	attachment = NULL;
	dma_buf_put(dma_buf);
err_put_function:
	pci_dev_put(function);
	return ret;
}

static int import_detach(void)
{
	struct dma_buf *dma_buf;

	if (!attachment)
		return -ENOENT;
	dma_buf = attachment->dmabuf;
	if (table) {
		dma_resv_lock(dma_buf->resv, NULL);
		dma_buf_unmap_attachment(attachment, table, DMA_BIDIRECTIONAL);
		dma_buf_unpin(attachment);
		table = NULL;
		dma_resv_unlock(dma_buf->resv);
	}
	dma_buf_detach(dma_buf, attachment);
	attachment = NULL;
	dma_buf_put(dma_buf);
	pci_dev_put(function);
	return 0;
}

static ssize_t importer_write(struct file *file, const char __user *data, size_t count, loff_t *pos)
{
	char text[64], bdf[32];
	unsigned long mask;
	int fd, ret;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, data, count))
		return -EFAULT;
	text[count] = 0;
	mutex_lock(&lock);
	if (sscanf(text, "attach %31s %d", bdf, &fd) == 2)
		ret = import_attach(bdf, fd, true);
	else if (sscanf(text, "watch %31s %d", bdf, &fd) == 2)
		ret = import_attach(bdf, fd, false);
	else if (sscanf(text, "boundary %31s %lx", bdf, &mask) == 2)
		ret = import_boundary(bdf, mask);
	else if (!strncmp(text, "detach", 6))
		ret = import_detach();
	else
		ret = -EINVAL;
	mutex_unlock(&lock);
	return ret ?: count;
}

static ssize_t importer_read(struct file *file, char __user *data, size_t count, loff_t *pos)
{
	struct scatterlist *sg;
	unsigned int i;
	ssize_t ret;
	char *text;
	int n = 0;

	text = kzalloc(PAGE_SIZE, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	mutex_lock(&lock);
	if (attachment && !table)
		n = scnprintf(text, PAGE_SIZE, "moved %u\n", moved);
	else if (attachment)
		for_each_sgtable_dma_sg(table, sg, i)
			n += scnprintf(text + n, PAGE_SIZE - n, "%llx %x\n", (u64)sg_dma_address(sg), sg_dma_len(sg));
	mutex_unlock(&lock);
	ret = simple_read_from_buffer(data, count, pos, text, n);
	kfree(text);
	return ret;
}

static const struct file_operations importer_fops = {
	.owner = THIS_MODULE,
	.read = importer_read,
	.write = importer_write,
};

static struct miscdevice importer = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "weft_importer",
	.fops = &importer_fops,
};

static int __init importer_init(void)
{
	return misc_register(&importer);
}

static void __exit importer_exit(void)
{
	misc_deregister(&importer);
	import_detach();
}

module_init(importer_init);
module_exit(importer_exit);
MODULE_DESCRIPTION("Imports a dma-buf for any PCI function");
MODULE_AUTHOR("Weft");
MODULE_LICENSE("GPL");
