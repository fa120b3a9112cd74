// SPDX-License-Identifier: GPL-2.0
/* The module, the PCI function and the DRM device; ioctls go to their files from here. */
#include <linux/module.h>
#include <linux/uaccess.h>

#include <drm/drm_accel.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_managed.h>

#include "weft_ctx.h"

#define WEFT_DESC "Weft AI accelerator"

/* A larger page would map other contexts' doorbells, too, and the device's page lists count in 4 KiB. */
static_assert(PAGE_SIZE == WEFT_DOORBELL_PAGE, "weft needs a kernel with pages of 4 KiB");

static bool weft_is_ours(unsigned int cmd)
{
	return _IOC_TYPE(cmd) == DRM_IOCTL_BASE && DRM_IOCTL_NR(cmd) >= DRM_COMMAND_BASE &&
	       DRM_IOCTL_NR(cmd) < DRM_COMMAND_END;
}

static const struct drm_ioctl_desc weft_ioctls[] = {
	DRM_IOCTL_DEF_DRV(WEFT_BO_CREATE, weft_bo_create_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_BO_INFO, weft_bo_info_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_CHANNEL_CONNECT, weft_channel_connect_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_CHANNEL_CREATE, weft_channel_create_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_CHANNEL_DESTROY, weft_channel_destroy_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_CHANNEL_QUERY, weft_channel_query_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_CONTEXT, weft_context_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_HOST_REGISTER, weft_host_register_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_HOST_UNREGISTER, weft_host_unregister_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_INFO, weft_info_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_LOG, weft_log_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_PORT, weft_port_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_QUEUE_CREATE, weft_queue_create_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_QUEUE_DESTROY, weft_queue_destroy_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_SYNC_CREATE, weft_sync_create_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_SYNC_DESTROY, weft_sync_destroy_ioctl, 0),
	DRM_IOCTL_DEF_DRV(WEFT_WAIT, weft_wait_ioctl, 0),
};

/*
 * The size rules of weft_accel.h. The DRM core fills what a shorter structure lacks with zeroes and ignores what a
 * longer one has more; whether that is zero is seen here.
 */
static int weft_check_size(unsigned int cmd, unsigned long arg)
{
	unsigned int index = DRM_IOCTL_NR(cmd) - DRM_COMMAND_BASE;
	unsigned int given = _IOC_SIZE(cmd);
	unsigned int known;
	u32 size;
	int ret;

	if (index >= ARRAY_SIZE(weft_ioctls))
		return -EINVAL;
	known = _IOC_SIZE(weft_ioctls[array_index_nospec(index, ARRAY_SIZE(weft_ioctls))].cmd);
	if ((cmd & IOC_INOUT) != IOC_INOUT || given < 2 * sizeof(u32))
		return -EINVAL;
	if (get_user(size, (u32 __user *)arg))
		return -EFAULT;
	if (size != given)
		return -EINVAL;
	if (given <= known)
		return 0;
	ret = check_zeroed_user((void __user *)(arg + known), given - known);
	if (ret < 0)
		return ret;
	return ret ? 0 : -E2BIG;
}

static long weft_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct drm_file *file = filp->private_data;
	struct weft_device *wdev = to_weft(file->minor->dev);
	long ret;

	if (drm_dev_is_unplugged(&wdev->drm))
		return -ENODEV;
	if (weft_is_ours(cmd)) {
		ret = weft_check_size(cmd, arg);
		if (ret)
			return ret;
	}
	ret = drm_ioctl(filp, cmd, arg);
	weft_end_wait(wdev);
	/* What failed since the device goes did not fail because it is broken. */
	return ret == -EIO && weft_dev_lost(wdev) == -ENODEV ? -ENODEV : ret;
}

#ifdef CONFIG_COMPAT
/* Our structures are the same for 32 and 64 bits. */
static long weft_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	if (weft_is_ours(cmd))
		return weft_ioctl(filp, cmd, (unsigned long)compat_ptr(arg));
	return drm_compat_ioctl(filp, cmd, arg);
}
#else
#define weft_compat_ioctl NULL
#endif

/* The context ends in the device before its handles are closed one by one, which would wait for transfers in flight. */
static int weft_release(struct inode *inode, struct file *filp)
{
	struct drm_file *file = filp->private_data;

	weft_ctx_close(file->driver_priv);
	return drm_release(inode, filp);
}

static const struct file_operations weft_fops = {
	.owner = THIS_MODULE,
	.open = accel_open,
	.release = weft_release,
	.unlocked_ioctl = weft_ioctl,
	.compat_ioctl = weft_compat_ioctl,
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.mmap = weft_mmap,
	.show_fdinfo = drm_show_fdinfo,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

static const struct drm_driver weft_driver = {
	.driver_features = DRIVER_COMPUTE_ACCEL | DRIVER_GEM,
	.name = WEFT_NAME,
	.desc = WEFT_DESC,
	.date = "20261201",
	.major = WEFT_DRIVER_MAJOR,
	.minor = WEFT_DRIVER_MINOR,
	.fops = &weft_fops,
	.ioctls = weft_ioctls,
	.num_ioctls = ARRAY_SIZE(weft_ioctls),
	.open = weft_open,
	.postclose = weft_postclose,
	.gem_prime_import = weft_gem_import,
	.show_fdinfo = weft_show_fdinfo,
};

/* After all else: the BARs go silent, so that a peer's late request ends in an error and not in somebody's memory. */
static void weft_decode_off(void *data)
{
	struct pci_dev *pdev = data;
	u16 command;

	pci_read_config_word(pdev, PCI_COMMAND, &command);
	pci_write_config_word(pdev, PCI_COMMAND, command & ~(PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER));
}

static int weft_init_pci(struct weft_device *wdev)
{
	struct pci_dev *pdev = wdev->pdev;
	struct device *dev = &pdev->dev;
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return dev_err_probe(dev, ret, "cannot be enabled\n");
	ret = devm_add_action_or_reset(dev, weft_decode_off, pdev);
	if (ret)
		return ret;
	if (pci_resource_len(pdev, WEFT_BAR_REGS) < WEFT_REGS_SIZE || !pci_resource_len(pdev, WEFT_BAR_HBM))
		return dev_err_probe(dev, -ENODEV, "BAR0 or BAR2 got no room; see the bridge windows in lspci -vv\n");
	ret = pcim_request_all_regions(pdev, WEFT_NAME);
	if (ret)
		return dev_err_probe(dev, ret, "BARs are in use\n");
	wdev->regs = pcim_iomap(pdev, WEFT_BAR_REGS, WEFT_REGS_SIZE);
	if (!wdev->regs)
		return -ENOMEM;

	wdev->hbm_start = pci_resource_start(pdev, WEFT_BAR_HBM);
	/* Without it, page tables could not map the BAR write-combining. */
	ret = devm_arch_io_reserve_memtype_wc(dev, wdev->hbm_start, pci_resource_len(pdev, WEFT_BAR_HBM));
	if (ret)
		return dev_err_probe(dev, ret, "HBM cannot be write-combining\n");

	ret = dma_set_mask_and_coherent(dev, DMA_BIT_MASK(64));
	if (ret)
		return dev_err_probe(dev, ret, "no 64-bit DMA\n");
	/* Regions name pages, however they lie: segments of any length, over any boundary. */
	dma_set_max_seg_size(dev, UINT_MAX);
	dma_set_seg_boundary(dev, ULONG_MAX);
	return 0;
}

static int weft_init_identity(struct weft_device *wdev)
{
	struct device *dev = &wdev->pdev->dev;
	u32 magic = readl(wdev->regs + WEFT_REG_MAGIC);

	if (magic != WEFT_MAGIC)
		return dev_err_probe(dev, -ENODEV, "magic %#x: no Weft accelerator, or it is not there\n", magic);
	wdev->hw_version = readl(wdev->regs + WEFT_REG_HW_VERSION);
	if (wdev->hw_version >> 16 != WEFT_HW_MAJOR)
		return dev_err_probe(dev, -ENODEV, "hardware interface %u.%u, this driver knows %u.x\n",
				     wdev->hw_version >> 16, wdev->hw_version & 0xffff, WEFT_HW_MAJOR);
	wdev->caps = readl(wdev->regs + WEFT_REG_CAPS);
	wdev->ports = min_t(u32, readl(wdev->regs + WEFT_REG_PORTS), WEFT_PORTS_MAX);
	wdev->contexts = min_t(u32, readl(wdev->regs + WEFT_REG_CONTEXTS), WEFT_CONTEXTS_MAX);
	wdev->window = readl(wdev->regs + WEFT_REG_WINDOW);
	wdev->hbm_bytes = min_t(u64, readq(wdev->regs + WEFT_REG_HBM_SIZE), pci_resource_len(wdev->pdev, WEFT_BAR_HBM));
	wdev->hbm_bytes = round_down(wdev->hbm_bytes, PAGE_SIZE);
	if (wdev->contexts < 2 || !wdev->hbm_bytes)
		return dev_err_probe(dev, -ENODEV, "%u contexts, %llu bytes of HBM: nothing to drive\n", wdev->contexts,
				     wdev->hbm_bytes);
	return 0;
}

static int weft_init_state(struct weft_device *wdev)
{
	int ret;

	xa_init_flags(&wdev->hws, XA_FLAGS_ALLOC1);
	xa_init(&wdev->qps);
	spin_lock_init(&wdev->obj_lock);
	/* Never used twice, not by the next load of the driver either. */
	atomic64_set(&wdev->generation, ktime_get_real_ns());
	ret = weft_reset_init(wdev);
	if (ret)
		return ret;
	ret = weft_mbox_init(wdev);
	if (ret)
		return ret;
	ret = weft_keys_init(wdev);
	if (ret)
		return ret;
	ret = weft_hbm_init(wdev);
	if (ret)
		return ret;
	ret = weft_told_init(wdev);
	if (ret)
		return ret;
	return weft_maps_init(wdev);
}

/* The device stops, users lose it, and what they held of it is released. */
static void weft_leave(struct weft_device *wdev)
{
	weft_stop_for_good(wdev);
	drm_dev_unplug(&wdev->drm);
	weft_ctx_close_all(wdev);
}

static int weft_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct weft_device *wdev;
	int ret;

	wdev = devm_drm_dev_alloc(&pdev->dev, &weft_driver, struct weft_device, drm);
	if (IS_ERR(wdev))
		return PTR_ERR(wdev);
	wdev->pdev = pdev;
	pci_set_drvdata(pdev, wdev);

	ret = weft_init_pci(wdev);
	if (ret)
		return ret;
	ret = weft_init_identity(wdev);
	if (ret)
		return ret;
	ret = weft_init_state(wdev);
	if (ret)
		return ret;
	ret = weft_prime_init(wdev);
	if (ret)
		return ret;
	ret = weft_event_init(wdev);
	if (ret)
		return ret;
	ret = weft_irq_init(wdev);
	if (ret)
		return ret;

	ret = weft_start(wdev);
	if (ret)
		return ret;
	weft_debugfs_init(wdev);
	ret = drm_dev_register(&wdev->drm, 0);
	if (ret) {
		weft_leave(wdev);
		return ret;
	}
	drm_info(&wdev->drm, "%llu MiB HBM, %u ports, firmware %u.%u\n", wdev->hbm_bytes >> 20, wdev->ports,
		 le32_to_cpu(wdev->identity.fw_version) >> 16, le32_to_cpu(wdev->identity.fw_version) & 0xffff);
	return 0;
}

static void weft_remove(struct pci_dev *pdev)
{
	weft_leave(pci_get_drvdata(pdev));
}

/* The next kernel must not find a device that still writes. */
static void weft_shutdown(struct pci_dev *pdev)
{
	weft_leave(pci_get_drvdata(pdev));
	pci_clear_master(pdev);
}

static const struct pci_device_id weft_ids[] = {
	{ PCI_DEVICE(WEFT_PCI_VENDOR, WEFT_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, weft_ids);

static struct pci_driver weft_pci_driver = {
	.name = WEFT_NAME,
	.id_table = weft_ids,
	.probe = weft_probe,
	.remove = weft_remove,
	.shutdown = weft_shutdown,
	.err_handler = &weft_err_handlers,
};
module_pci_driver(weft_pci_driver);

MODULE_DESCRIPTION("Weft AI accelerator");
MODULE_AUTHOR("Weft");
MODULE_LICENSE("GPL");
