// SPDX-License-Identifier: GPL-2.0
/* Interrupts. Vector 0: mailbox, events, failure. The others tell contexts that a sync object reached its value. */
#include <linux/interrupt.h>

#include "weft_core.h"

void weft_wake(struct weft_device *wdev, unsigned int vector)
{
	struct weft_vector *v = &wdev->vector[vector];

	atomic_inc(&v->seq);
	wake_up_all(&v->wq);
}

void weft_wake_all(struct weft_device *wdev)
{
	unsigned int i;

	for (i = 0; i < wdev->vectors; i++)
		weft_wake(wdev, i);
}

/**
 * weft_listen() - be called at each interrupt of a vector
 * @wdev: the device
 * @vector: one of &weft_device.vectors
 * @listener: filled in; called from interrupt context until weft_unlisten()
 */
void weft_listen(struct weft_device *wdev, unsigned int vector, struct weft_listener *listener)
{
	struct weft_vector *v = &wdev->vector[vector];
	unsigned long flags;

	spin_lock_irqsave(&v->lock, flags);
	list_add_tail(&listener->node, &v->listeners);
	spin_unlock_irqrestore(&v->lock, flags);
}

/* Once it returns the listener is not called and not used any more. */
void weft_unlisten(struct weft_device *wdev, unsigned int vector, struct weft_listener *listener)
{
	struct weft_vector *v = &wdev->vector[vector];
	unsigned long flags;

	spin_lock_irqsave(&v->lock, flags);
	list_del(&listener->node);
	spin_unlock_irqrestore(&v->lock, flags);
}

static irqreturn_t weft_irq_context(int irq, void *data)
{
	struct weft_listener *listener;
	struct weft_vector *v = data;

	atomic_inc(&v->seq);
	wake_up_all(&v->wq);
	spin_lock(&v->lock);
	list_for_each_entry(listener, &v->listeners, node)
		listener->called(listener);
	spin_unlock(&v->lock);
	return IRQ_HANDLED;
}

static irqreturn_t weft_irq_control(int irq, void *data)
{
	struct weft_device *wdev = data;
	irqreturn_t ret = IRQ_HANDLED;
	u32 cause;

	cause = readl(wdev->regs + WEFT_REG_IRQ_CAUSE);
	if (cause == U32_MAX)
		return IRQ_HANDLED; /* fell off the bus: whoever waits finds out */
	writel(cause, wdev->regs + WEFT_REG_IRQ_CAUSE);

	if (cause & WEFT_IRQ_MBOX)
		complete(&wdev->mbox.done);
	if (cause & (WEFT_IRQ_EVENT | WEFT_IRQ_FATAL))
		ret = IRQ_WAKE_THREAD;
	/* With a single vector it serves the contexts, too. */
	if (wdev->vectors == 1)
		weft_irq_context(irq, &wdev->vector[0]);
	return ret;
}

static irqreturn_t weft_irq_control_thread(int irq, void *data)
{
	struct weft_device *wdev = data;

	/* Not just tried: the interrupt was acknowledged, and nobody else would look for its events. */
	down_read(&wdev->reset_sem);
	weft_event_drain(wdev);
	if (READ_ONCE(wdev->life) == WEFT_READY && readl(wdev->regs + WEFT_REG_STATUS) == WEFT_DEV_FAILED) {
		drm_err(&wdev->drm, "device failed: error %u, detail %#x\n", readl(wdev->regs + WEFT_REG_BOOT_ERROR),
			readl(wdev->regs + WEFT_REG_BOOT_DETAIL));
		weft_fail(wdev, "the firmware failed");
	}
	up_read(&wdev->reset_sem);
	return IRQ_HANDLED;
}

int weft_irq_init(struct weft_device *wdev)
{
	struct device *dev = wdev->drm.dev;
	unsigned int i, wanted;
	int ret;

	wanted = clamp(readl(wdev->regs + WEFT_REG_VECTORS), 1u, (u32)WEFT_VECTORS);
	ret = pci_alloc_irq_vectors(wdev->pdev, 1, wanted, PCI_IRQ_MSIX);
	if (ret < 0)
		return dev_err_probe(dev, ret, "no MSI-X vector\n");
	wdev->vectors = ret;

	for (i = 0; i < wdev->vectors; i++) {
		struct weft_vector *v = &wdev->vector[i];

		init_waitqueue_head(&v->wq);
		atomic_set(&v->seq, 0);
		spin_lock_init(&v->lock);
		INIT_LIST_HEAD(&v->listeners);
		snprintf(v->name, sizeof(v->name), "%s-%s-%u", WEFT_NAME, pci_name(wdev->pdev), i);
		if (i)
			ret = devm_request_irq(dev, pci_irq_vector(wdev->pdev, i), weft_irq_context, 0, v->name, v);
		else
			ret = devm_request_threaded_irq(dev, pci_irq_vector(wdev->pdev, 0), weft_irq_control,
							weft_irq_control_thread, 0, v->name, wdev);
		if (ret)
			return dev_err_probe(dev, ret, "vector %u\n", i);
	}
	return 0;
}

void weft_irq_enable(struct weft_device *wdev, bool on)
{
	writel(on ? WEFT_IRQ_MBOX | WEFT_IRQ_EVENT | WEFT_IRQ_FATAL : 0, wdev->regs + WEFT_REG_IRQ_MASK);
}
