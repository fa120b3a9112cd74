// SPDX-License-Identifier: GPL-2.0
/* Host memory that the device shares: pages, and lists of pages as a region names them. */
#include <linux/mm.h>
#include <linux/slab.h>

#include "weft_core.h"

#define WEFT_LEAF_ENTRIES (PAGE_SIZE / sizeof(__le64))

/**
 * weft_pages_alloc() - zeroed pages for rings and shadow arrays
 * @wdev: the device
 * @pages: the result
 * @count: pages
 * @contiguous: one run, with one address; otherwise each page has its own, and large counts do not depend on luck
 *
 * Rings are shared with the device for as long as they live; there is no transfer to synchronise on. That needs a
 * coherent bus, which PCIe is on the architectures that this driver is built for.
 *
 * Return: 0 or -ENOMEM.
 */
int weft_pages_alloc(struct weft_device *wdev, struct weft_pages *pages, u32 count, bool contiguous)
{
	struct device *dev = wdev->drm.dev;
	u32 i;

	pages->count = 0;
	pages->run = contiguous ? count : 1;
	pages->page = kvcalloc(count, sizeof(*pages->page), GFP_KERNEL);
	pages->dma = kvcalloc(count, sizeof(*pages->dma), GFP_KERNEL);
	if (!pages->page || !pages->dma)
		goto err_free;

	while (pages->count < count) {
		dma_addr_t dma;
		struct page *page;

		page = dma_alloc_pages(dev, pages->run * PAGE_SIZE, &dma, DMA_BIDIRECTIONAL, GFP_KERNEL);
		if (!page)
			goto err_free;
		memset(page_address(page), 0, pages->run * PAGE_SIZE);
		for (i = 0; i < pages->run; i++) {
			pages->page[pages->count] = page + i;
			pages->dma[pages->count++] = dma + i * PAGE_SIZE;
		}
	}
	return 0;

err_free:
	weft_pages_free(wdev, pages);
	return -ENOMEM;
}

void weft_pages_free(struct weft_device *wdev, struct weft_pages *pages)
{
	u32 i;

	for (i = 0; i < pages->count; i += pages->run)
		dma_free_pages(wdev->drm.dev, pages->run * PAGE_SIZE, pages->page[i], pages->dma[i],
			       DMA_BIDIRECTIONAL);
	kvfree(pages->page);
	kvfree(pages->dma);
	memset(pages, 0, sizeof(*pages));
}

/**
 * weft_pagelist_alloc() - room for a page list
 * @wdev: the device
 * @list: the result; fill it by weft_pagelist_set()
 * @pages: entries
 *
 * One level up to a page of entries, two levels beyond, so that no table is longer than it can be got.
 *
 * Return: 0 or -ENOMEM.
 */
int weft_pagelist_alloc(struct weft_device *wdev, struct weft_pagelist *list, u64 pages)
{
	struct device *dev = wdev->drm.dev;
	u32 i, leaves;

	memset(list, 0, sizeof(*list));
	list->pages = pages;
	leaves = pages > WEFT_LEAF_ENTRIES ? DIV_ROUND_UP(pages, WEFT_LEAF_ENTRIES) : 0;
	list->levels = leaves ? 2 : 1;
	list->top_bytes = (leaves ?: pages) * sizeof(__le64);
	list->top = dma_alloc_coherent(dev, list->top_bytes, &list->top_dma, GFP_KERNEL);
	if (!list->top)
		return -ENOMEM;
	list->base = list->top_dma;
	if (!leaves)
		return 0;

	list->leaf = kvcalloc(leaves, sizeof(*list->leaf), GFP_KERNEL);
	list->leaf_dma = kvcalloc(leaves, sizeof(*list->leaf_dma), GFP_KERNEL);
	if (!list->leaf || !list->leaf_dma)
		goto err_free;
	for (i = 0; i < leaves; i++) {
		list->leaf[i] = dma_alloc_coherent(dev, PAGE_SIZE, &list->leaf_dma[i], GFP_KERNEL);
		if (!list->leaf[i])
			goto err_free;
		list->leaves++;
		list->top[i] = cpu_to_le64(list->leaf_dma[i]);
	}
	return 0;

err_free:
	weft_pagelist_free(wdev, list);
	return -ENOMEM;
}

void weft_pagelist_set(struct weft_pagelist *list, u64 index, dma_addr_t addr)
{
	if (list->levels == 1)
		list->top[index] = cpu_to_le64(addr);
	else
		list->leaf[index / WEFT_LEAF_ENTRIES][index % WEFT_LEAF_ENTRIES] = cpu_to_le64(addr);
}

void weft_pagelist_free(struct weft_device *wdev, struct weft_pagelist *list)
{
	struct device *dev = wdev->drm.dev;
	u32 i;

	for (i = 0; i < list->leaves; i++)
		dma_free_coherent(dev, PAGE_SIZE, list->leaf[i], list->leaf_dma[i]);
	kvfree(list->leaf);
	kvfree(list->leaf_dma);
	if (list->top)
		dma_free_coherent(dev, list->top_bytes, list->top, list->top_dma);
	memset(list, 0, sizeof(*list));
}
