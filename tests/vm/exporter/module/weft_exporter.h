/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/weft_exporter: an open file is an allocation. Its content is read and written by pread() and pwrite(), its last
 * close frees it.
 */
#ifndef WEFT_EXPORTER_H
#define WEFT_EXPORTER_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * struct weft_exporter_share - a DMA-BUF of a part
 * @offset: in the allocation, a multiple of the page size
 * @bytes: how much, likewise
 */
struct weft_exporter_share {
	__u64 offset;
	__u64 bytes;
};

#define WEFT_EXPORTER_ALLOC _IOW('x', 0, __u64) /* bytes; once a file */
#define WEFT_EXPORTER_SHARE _IOW('x', 1, struct weft_exporter_share) /* returns a file descriptor */
#define WEFT_EXPORTER_LARGEST _IOR('x', 2, __u64) /* bytes of the whole memory */

#endif
