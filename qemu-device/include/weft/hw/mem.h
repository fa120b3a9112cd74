/* SPDX-License-Identifier: MIT */
/**
 * Memory regions: the only way to name memory.
 *
 * Every address in a command, a work request or a packet is (key, address). One table serves the copy engine, the
 * NIC and the firmware.
 *
 * A region belongs to a context and, inside it, to a protection domain (PD). Whoever accesses memory has a context and
 * a PD too: a queue pair or shared receive queue those it was created with, a command queue its context and PD 0. Both
 * must be the region's own, else the access ends with WEFT_ERR_BAD_KEY (context) or WEFT_ERR_BAD_PD.
 *
 * PDs are numbers that software hands out, per context, 0..WEFT_PD_MAX; the device keeps no table of them. PD 0 exists
 * from the start: it is the context's default, and that of its command queues. Software may use a number
 * again when no region, queue pair, shared receive queue or window of it is left.
 */
#ifndef WEFT_HW_MEM_H
#define WEFT_HW_MEM_H

#include "types.h"

#define WEFT_PD_MAX 0xffffffu

/**
 * A key is index << 8 | generation. The generation of an index changes each time the entry is made anew, so a stale
 * key is refused. As an RDMA rkey or lkey it is used as it is. 0 is never valid.
 */
#define WEFT_KEY_INDEX(key) ((key) >> 8)
#define WEFT_KEY_GENERATION(key) ((key) & 0xffu)
#define WEFT_KEY(index, generation) ((uint32_t)(index) << 8 | ((uint32_t)(generation) & 0xffu))

enum weft_region_type {
	WEFT_REGION_NONE = 0,
	WEFT_REGION_HBM = 1, /* base: offset in HBM, contiguous; congruent to va modulo 64 */
	WEFT_REGION_HOST = 2, /* pages of host memory */
	/* the context's sync objects as 64-bit words from byte `base` on; atomic adds only, 8-aligned */
	WEFT_REGION_SYNC = 3,
	WEFT_REGION_PEER = 4, /* bus pages of another device; as HOST, accounted apart */
	WEFT_REGION_WINDOW = 5, /* memory window, type 2; invalid until a BIND_MW work request binds it */
};

/*
 * Flags of a region. FAST (with type HOST): made without memory, for at most `pages` pages; a REG_MR work request gives
 * it memory and a new generation of the key, LOCAL_INV or a remote invalidate takes both away again. Such a region, and
 * a window that is not bound, is allocated but invalid: it grants nothing, an access ends with WEFT_ERR_KEY_INVALID.
 * va, length, base, levels and page_shift are 0 in REGION_CREATE, and for a window also rights and pages.
 */
#define WEFT_REGION_FAST (1u << 0)

/* Rights. Local ones are for the context's own commands and work requests, remote ones for packets. */
#define WEFT_RIGHT_READ (1u << 0)
#define WEFT_RIGHT_WRITE (1u << 1)
#define WEFT_RIGHT_REMOTE_READ (1u << 2)
#define WEFT_RIGHT_REMOTE_WRITE (1u << 3)
#define WEFT_RIGHT_REMOTE_ATOMIC (1u << 4)
#define WEFT_RIGHT_BIND (1u << 5) /* a memory window may be bound to the region */

/**
 * Region table entry. An access to [addr, addr + n) is granted when va <= addr and addr + n <= va + length without
 * overflow. HOST and PEER: byte `addr` lies in page ((va & pagemask) + (addr - va)) >> page_shift of the list.
 * levels 0: base is the DMA address of one contiguous range (that of va); 1: base is the DMA address of an array of
 * `pages` 64-bit page addresses; 2: of an array of DMA addresses of 4 KiB pages of 512 such addresses.
 */
struct weft_region_entry {
	weft_le32 key;
	uint8_t type; /* enum weft_region_type */
	uint8_t rights;
	uint8_t page_shift; /* HOST, PEER with levels > 0: 12..30 */
	uint8_t levels; /* 0..2 */
	weft_le32 ctx;
	weft_le32 flags; /* WEFT_REGION_FAST */
	weft_le64 va; /* first address that the region answers to */
	weft_le64 length; /* bytes, at least 1 */
	weft_le64 base;
	weft_le64 pages; /* HOST, PEER with levels > 0, and FAST */
	weft_le64 object; /* the driver's object number, for logs */
	weft_le32 pd; /* 0..WEFT_PD_MAX */
	weft_le32 reserved;
};
WEFT_ASSERT_SIZE(struct weft_region_entry, 64);

/**
 * Device pointers: a flat per-context address space. A region of HBM at offset `o` has va = WEFT_VA_HBM + o, so a pointer
 * is congruent to its BAR offset modulo any page size up to 1 TiB, and no CPU can dereference it (non-canonical on x86-64
 * with four and with five levels).
 */
#define WEFT_VA_HBM 0x4000000000000000ull
#define WEFT_VA_HOST 0x5000000000000000ull
#define WEFT_VA_SYNC 0x6000000000000000ull

/* Sync objects: 64-bit counters of a context, never cleared while it lives ("epochs"). */
#define WEFT_SYNC_NONE 0xffffffffu /* in wait_id and signal_id: nothing */
#define WEFT_SYNC_NOTIFY (1u << 0) /* the device mirrors the value to the context's shadow array */

#endif
