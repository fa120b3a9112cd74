// SPDX-License-Identifier: GPL-2.0
/* Firmware: from the file to a device that says it is ready. */
#include <linux/delay.h>
#include <linux/firmware.h>

#include "weft/hw/fw.h"
#include "weft_core.h"

MODULE_FIRMWARE(WEFT_FIRMWARE);

#define WEFT_FW_BOOT_MS 20000
#define WEFT_FW_ROM_MS 5000
#define WEFT_FW_BYTES_MAX (sizeof(struct weft_fw_header) + WEFT_FW_RAM_BYTES)

/* A device that fell off the bus, or whose memory decode is off, reads as ones or zeroes everywhere. */
bool weft_answers(struct weft_device *wdev)
{
	return readl(wdev->regs + WEFT_REG_MAGIC) == WEFT_MAGIC;
}

static int weft_fw_wait(struct weft_device *wdev, u32 wanted, unsigned int timeout_ms)
{
	unsigned long end = jiffies + msecs_to_jiffies(timeout_ms) + 1;
	bool last;
	u32 status;

	do {
		last = time_after(jiffies, end);
		status = readl(wdev->regs + WEFT_REG_STATUS);
		if (status == wanted)
			return 0;
		if (!weft_answers(wdev))
			return -ENODEV;
		if (wanted == WEFT_DEV_READY && status == WEFT_DEV_FAILED)
			return -EIO;
		usleep_range(500, 1000);
	} while (!last);

	return -ETIMEDOUT;
}

/**
 * weft_fw_reset() - stop everything in the device
 * @wdev: the device
 *
 * Afterwards it reaches no memory: either it is in its ROM or it may not master the bus.
 *
 * Return: 0, or an error when it does not come out of reset.
 */
int weft_fw_reset(struct weft_device *wdev)
{
	int ret;

	writel(WEFT_CTL_RESET, wdev->regs + WEFT_REG_CTL);
	ret = weft_fw_wait(wdev, WEFT_DEV_ROM, WEFT_FW_ROM_MS);
	if (!ret)
		return 0;
	pci_clear_master(wdev->pdev);
	if (ret == -ENODEV)
		drm_err(&wdev->drm, "the device does not answer on the bus\n");
	else
		drm_err(&wdev->drm, "the device does not come out of reset (status %#x)\n",
			readl(wdev->regs + WEFT_REG_STATUS));
	return ret;
}

/* Says what the boot ROM refused and what to do about it. */
static void weft_fw_explain(struct weft_device *wdev, size_t bytes)
{
	u32 error = readl(wdev->regs + WEFT_REG_BOOT_ERROR);
	u32 detail = readl(wdev->regs + WEFT_REG_BOOT_DETAIL);
	struct drm_device *drm = &wdev->drm;

	switch (error) {
	case WEFT_BOOT_DMA:
		drm_err(drm, "firmware: the device could not read the image from memory; is bus mastering allowed and the IOMMU set up?\n");
		break;
	case WEFT_BOOT_SHORT:
		drm_err(drm, "firmware: %s is %zu bytes: too short or larger than the core's memory; install the file anew\n",
			WEFT_FIRMWARE, bytes);
		break;
	case WEFT_BOOT_MAGIC:
		drm_err(drm, "firmware: %s is no Weft firmware (magic %#010x, not %#010x); install the right file\n",
			WEFT_FIRMWARE, detail, WEFT_FW_MAGIC);
		break;
	case WEFT_BOOT_HEADER:
		drm_err(drm, "firmware: image header version %u, the device knows %u; update device or firmware\n",
			detail, WEFT_FW_HEADER_VERSION);
		break;
	case WEFT_BOOT_SIZE:
		drm_err(drm, "firmware: %s is %zu bytes, its header says %u; the file is cut short or damaged, install it anew\n",
			WEFT_FIRMWARE, bytes, detail);
		break;
	case WEFT_BOOT_ABI:
		drm_err(drm, "firmware: built for hardware interface %u.%u, the device has %u.%u; install the firmware of this device\n",
			detail >> 16, detail & 0xffff, wdev->hw_version >> 16, wdev->hw_version & 0xffff);
		break;
	case WEFT_BOOT_LAYOUT:
		drm_err(drm, "firmware: load or entry address %#010x lies outside the core's memory; the image was linked wrongly\n",
			detail);
		break;
	case WEFT_BOOT_CRC:
		drm_err(drm, "firmware: checksum wrong (computed %#010x); the file is damaged, install it anew\n",
			detail);
		break;
	case WEFT_BOOT_TRAP:
		drm_err(drm, "firmware: the core trapped (mcause %#x) while it started; this firmware does not run here\n",
			detail);
		break;
	case WEFT_BOOT_SILENT:
		drm_err(drm, "firmware: started but did not report within its time (detail %#x)\n", detail);
		break;
	default:
		drm_err(drm, "firmware: boot failed, status %u, error %u, detail %#x\n",
			readl(wdev->regs + WEFT_REG_STATUS), error, detail);
		break;
	}
}

static int weft_fw_run(struct weft_device *wdev, const struct firmware *fw)
{
	const struct weft_fw_header *header = (const void *)fw->data;
	dma_addr_t dma;
	void *image;
	int ret;

	image = dma_alloc_coherent(wdev->drm.dev, fw->size, &dma, GFP_KERNEL);
	if (!image)
		return -ENOMEM;
	memcpy(image, fw->data, fw->size);

	writeq(dma, wdev->regs + WEFT_REG_FW_ADDR);
	writel(fw->size, wdev->regs + WEFT_REG_FW_SIZE);
	writel(WEFT_CTL_BOOT, wdev->regs + WEFT_REG_CTL);
	ret = weft_fw_wait(wdev, WEFT_DEV_READY, WEFT_FW_BOOT_MS);
	if (ret == -ETIMEDOUT)
		drm_err(&wdev->drm, "firmware: not ready after %u ms\n", WEFT_FW_BOOT_MS);
	else if (ret)
		weft_fw_explain(wdev, fw->size);
	if (ret)
		weft_fw_reset(wdev); /* the ROM may still be reading the image */
	else
		strscpy(wdev->fw_name, header->name, min(sizeof(wdev->fw_name), sizeof(header->name)));
	dma_free_coherent(wdev->drm.dev, fw->size, image, dma);
	return ret;
}

/**
 * weft_fw_boot() - reset the device and start its firmware
 * @wdev: the device; the caller is the only one to use it
 *
 * Return: 0 and a served mailbox, or an error that was explained in the log.
 */
int weft_fw_boot(struct weft_device *wdev)
{
	const struct firmware *fw;
	int ret;

	pci_set_master(wdev->pdev);
	ret = weft_fw_reset(wdev);
	if (ret)
		return ret;

	ret = request_firmware(&fw, WEFT_FIRMWARE, wdev->drm.dev);
	if (ret) {
		drm_err(&wdev->drm, "firmware: %s cannot be loaded (%d); install it below /lib/firmware\n",
			WEFT_FIRMWARE, ret);
		return ret;
	}
	if (fw->size < sizeof(struct weft_fw_header) || fw->size > WEFT_FW_BYTES_MAX) {
		drm_err(&wdev->drm, "firmware: %s is %zu bytes, not %zu to %zu; install the file anew\n", WEFT_FIRMWARE,
			fw->size, sizeof(struct weft_fw_header), (size_t)WEFT_FW_BYTES_MAX);
		ret = -EINVAL;
	} else {
		ret = weft_fw_run(wdev, fw);
	}
	release_firmware(fw);
	return ret;
}
