/* SPDX-License-Identifier: MIT */
/**
 * PCI identity, BARs and registers of the accelerator, and of its NIC without the accelerator.
 *
 * BAR0 (2 MiB, MMIO)   registers, counters, mailbox, doorbell pages; accesses of 4 or 8 bytes, naturally aligned. A
 *                      doorbell page is 4 KiB: a kernel with larger pages cannot map one context's page without its
 *                      neighbours', so drivers refuse the device there
 * BAR2 (hbm=, RAM)     the whole HBM, 64-bit prefetchable
 * BAR4 (MSI-X)         vector table and PBA
 *
 * Registers are 32 bits wide unless marked "u64" (two 32-bit accesses, low word first, or one 64-bit access). A read
 * of an unlisted register gives 0 and counts `mmio_unknown`; a write to one is ignored and counts the same.
 */
#ifndef WEFT_HW_REGS_H
#define WEFT_HW_REGS_H

#include "types.h"

/* 1af4:10f0 lies in the range that QEMU reserves for experiments (QEMU docs/specs/pci-ids). */
#define WEFT_PCI_VENDOR 0x1af4
#define WEFT_PCI_DEVICE 0x10f0
#define WEFT_PCI_DEVICE_NIC 0x10f1 /* the ports alone: no BAR2, WEFT_REG_HBM_SIZE 0, no command queues */
#define WEFT_PCI_SUBSYSTEM 0x5746 /* "WF" */
#define WEFT_PCI_CLASS 0x1200 /* processing accelerator */
#define WEFT_PCI_CLASS_NIC 0x0200 /* Ethernet controller */
#define WEFT_PCI_REVISION 1

#define WEFT_BAR_REGS 0
#define WEFT_BAR_HBM 2
#define WEFT_BAR_MSIX 4

#define WEFT_REGS_SIZE 0x200000u

/* Identity: read-only. */
#define WEFT_REG_MAGIC 0x000 /* WEFT_MAGIC */
#define WEFT_REG_HW_VERSION 0x004 /* major << 16 | minor; a driver refuses another major */
#define WEFT_REG_CAPS 0x008 /* WEFT_CAP_* */
#define WEFT_REG_PORTS 0x00c
#define WEFT_REG_HBM_SIZE 0x010 /* u64, bytes */
#define WEFT_REG_CONTEXTS 0x018 /* contexts, 0 is the driver's own */
#define WEFT_REG_REGIONS 0x01c /* region table entries, entry 0 is never valid */
#define WEFT_REG_QPS 0x020 /* queue pairs, QPN 0 and 1 are reserved (IBTA) */
#define WEFT_REG_VECTORS 0x024 /* MSI-X vectors */
#define WEFT_REG_WINDOW 0x028 /* commands one queue can hold in its scoreboard */
#define WEFT_REG_CQS 0x02c

/* Control. */
#define WEFT_REG_CTL 0x040 /* WEFT_CTL_*, write-only */
#define WEFT_REG_STATUS 0x044 /* enum weft_dev_state */
#define WEFT_REG_BOOT_ERROR 0x048 /* enum weft_boot_error */
#define WEFT_REG_BOOT_DETAIL 0x04c /* what was found where the error was met */
#define WEFT_REG_FW_ADDR 0x050 /* u64, DMA address of the firmware image */
#define WEFT_REG_FW_SIZE 0x058 /* bytes */
#define WEFT_REG_FW_VERSION 0x05c /* of the running image, major << 16 | minor */
#define WEFT_REG_HEARTBEAT 0x060 /* counts up while the firmware runs */
#define WEFT_REG_IRQ_CAUSE 0x070 /* WEFT_IRQ_*, write 1 to clear */
#define WEFT_REG_IRQ_MASK 0x074 /* 1 = may raise vector 0; reset value 0 */
#define WEFT_REG_MBOX_DOORBELL 0x080 /* sequence number of the request in WEFT_MBOX_REQUEST */
#define WEFT_REG_MBOX_DONE 0x084 /* sequence number of the response in WEFT_MBOX_RESPONSE */
#define WEFT_REG_TIME 0x090 /* u64, ns of the device clock */
#define WEFT_REG_EQ_CONSUMER 0x098 /* events taken by the driver, free-running */

/* Windows. */
#define WEFT_COUNTERS_BASE 0x1000 /* u64[WEFT_COUNTERS_MAX], order of weft/hw/counters.h */
#define WEFT_COUNTERS_MAX 512
#define WEFT_MBOX_REQUEST 0x2000
#define WEFT_MBOX_RESPONSE 0x2100
#define WEFT_MBOX_BYTES 256
#define WEFT_PORT_COUNTERS_BASE 0x4000 /* u64[WEFT_PORT_COUNTERS_MAX] a port */
#define WEFT_PORT_COUNTERS_MAX 64
#define WEFT_DOORBELLS_BASE 0x100000 /* one page a context, in order of context number */
#define WEFT_DOORBELL_PAGE 0x1000u

/* Fixed sizes. */
#define WEFT_MAGIC 0x54464557u /* "WEFT" */
#define WEFT_HW_MAJOR 2
#define WEFT_HW_MINOR 0
#define WEFT_CONTEXTS_MAX 256
#define WEFT_QUEUES_PER_CONTEXT 16
#define WEFT_SYNCS_PER_CONTEXT 4096
#define WEFT_PORTS_MAX 24
#define WEFT_GIDS_PER_PORT 32
#define WEFT_FIFOS_PER_CONTEXT 4
#define WEFT_VECTORS 16 /* 0: mailbox and events; 1..: contexts and completion queues */

#define WEFT_CAP_REDUCE (1u << 0)
#define WEFT_CAP_CHANNELS (1u << 1)
#define WEFT_CAP_VERBS (1u << 2) /* user-owned queue pairs */
#define WEFT_CAP_PROGRAMS (1u << 3) /* LOOP, CALL, INDIRECT */
#define WEFT_CAP_GEMM (1u << 4)
#define WEFT_CAP_QUEUES (1u << 5) /* command queues; a device without them is a NIC alone */
#define WEFT_CAP_FIFO (1u << 6) /* device-to-host FIFOs */
#define WEFT_CAP_ETHERNET (1u << 7) /* queue pairs of raw Ethernet frames */

#define WEFT_CTL_RESET (1u << 0) /* all state but HBM content; STATUS goes to WEFT_DEV_ROM */
#define WEFT_CTL_BOOT (1u << 1) /* the ROM loads and starts FW_ADDR, FW_SIZE */

#define WEFT_IRQ_MBOX (1u << 0) /* a response is there */
#define WEFT_IRQ_EVENT (1u << 1) /* the event queue grew */
#define WEFT_IRQ_FATAL (1u << 2) /* STATUS became WEFT_DEV_FAILED */

enum weft_dev_state {
	WEFT_DEV_ROM = 1, /* waits for firmware */
	WEFT_DEV_BOOTING = 2, /* image being checked, firmware starting */
	WEFT_DEV_READY = 3, /* mailbox served */
	WEFT_DEV_FAILED = 4, /* BOOT_ERROR says why; only a reset helps */
};

enum weft_boot_error {
	WEFT_BOOT_OK = 0,
	WEFT_BOOT_DMA = 1, /* image not readable at FW_ADDR */
	WEFT_BOOT_SHORT = 2, /* FW_SIZE below the header or above the memory; detail: FW_SIZE */
	WEFT_BOOT_MAGIC = 3, /* detail: magic found */
	WEFT_BOOT_HEADER = 4, /* header version unknown; detail: version found */
	WEFT_BOOT_SIZE = 5, /* image size in the header differs from FW_SIZE; detail: size in the header */
	WEFT_BOOT_ABI = 6, /* built for another hardware major; detail: version found */
	WEFT_BOOT_LAYOUT = 7, /* load address or entry outside the core's memory; detail: address */
	WEFT_BOOT_CRC = 8, /* detail: CRC computed */
	WEFT_BOOT_TRAP = 9, /* the core trapped; detail: mcause */
	WEFT_BOOT_SILENT = 10, /* firmware did not report within its time */
};

/*
 * Doorbell page of a context (WEFT_DOORBELLS_BASE + context * 4 KiB), mappable by itself. 64-bit writes only; reads
 * give 0. Numbers are the context's own: nothing written here can name another context.
 */
#define WEFT_DB_QUEUE(q) (0x000 + 8 * (q)) /* producer index of command queue q, free-running 64 bits */
#define WEFT_DB_SIGNAL 0x800 /* WEFT_DB_PAIR(sync object, amount): host adds to a sync object */
#define WEFT_DB_ARM 0x808 /* WEFT_DB_ARM_VALUE(sync object, value): one MSI-X once it is reached */
#define WEFT_DB_SQ 0x810 /* WEFT_DB_PAIR(QPN, producer index of the send queue) */
#define WEFT_DB_RQ 0x818 /* WEFT_DB_PAIR(QPN, producer index of the receive queue) */
#define WEFT_DB_SRQ 0x820
#define WEFT_DB_CQ 0x828 /* WEFT_DB_PAIR(CQN | WEFT_DB_CQ_*, consumer index): entries taken, free-running 32 bits */
#define WEFT_DB_FIFO(f) (0x840 + 8 * (f)) /* consumer index of device-to-host FIFO f, free-running 64 bits */
#define WEFT_DB_PAIR(low, high) ((uint64_t)(uint32_t)(low) | (uint64_t)(uint32_t)(high) << 32)
/* With the consumer index alone nothing is armed: it tells the device how full the queue is (overrun, resize). */
#define WEFT_DB_CQ_ARM (1u << 30) /* one event when the next completion is written */
#define WEFT_DB_CQ_SOLICITED (1u << 31) /* with ARM: only for a solicited one or an error */
#define WEFT_DB_CQ_NUMBER 0xffffffu

/*
 * Arming takes 12 bits of sync object and the low 52 bits of a value. The device takes the value nearest to the
 * present one: up to WEFT_ARM_AHEAD_MAX ahead; others, and those already reached, give an MSI-X at once. It then waits
 * for value >= target in 64 bits, so that a signal of any size that passes the target is noticed.
 */
#define WEFT_ARM_VALUE_BITS 52
#define WEFT_ARM_AHEAD_MAX ((1ull << (WEFT_ARM_VALUE_BITS - 1)) - 1)
#define WEFT_DB_ARM_VALUE(sync, value) ((uint64_t)(sync) % WEFT_SYNCS_PER_CONTEXT | (uint64_t)(value) << 12)
static_assert(WEFT_SYNCS_PER_CONTEXT == 1 << (64 - WEFT_ARM_VALUE_BITS),
	      "sync objects fill the arm doorbell's 12 bits");

#endif
