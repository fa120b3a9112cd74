/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: what the engine asks of QEMU; called by its thread and by QEMU's.
 *
 * Threads: the engine's thread runs the model.  It never takes the big QEMU
 * lock (BQL): vCPUs that hold the BQL wait for the model in register reads.
 * So it reaches memory only by pointer, under RCU, and hands interrupts to the
 * main loop.  With an IOMMU this is not enough: translating an address may
 * raise the IOMMU's fault interrupt (asserts the BQL) or change memory regions
 * (takes it), so then the main loop runs the model, under the BQL.
 */
#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/error-report.h"
#include "qemu/log.h"
#include "qemu/rcu.h"
#include "qemu/timer.h"
#include "hw/pci/pci.h"
#include "hw/pci/pci_bus.h"
#if __has_include("exec/memory.h")
#include "exec/memory.h"
#else
#include "system/memory.h"
#endif
#include "weft-state.h"

static uint64_t weft_clock_ns(void *opaque)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

/*
 * address_space_map() would bounce what is not RAM: it would access registers,
 * with the BQL.  Look first, and map by the same means.
 *
 * The memory view that the region was found in holds a reference to it for as
 * long as a reader is in its RCU section.  So the reference that is given back
 * at the end is never the last one, and no device is finalized in a thread
 * that does not hold the BQL.
 */
static void *weft_dma_map(void *opaque, uint64_t iova, size_t *bytes,
                          enum weft_abi_dir dir, enum weft_abi_target *target)
{
    WeftPCIState *s = opaque;
    AddressSpace *as = pci_get_address_space(PCI_DEVICE(s));
    bool is_write = dir == WEFT_ABI_TO_GUEST;
    MemTxAttrs attrs = MEMTXATTRS_UNSPECIFIED;
    hwaddr len = MIN(*bytes, WEFT_ABI_MAP_MAX);
    hwaddr xlat;
    MemoryRegion *mr;
    Object *owner;

    rcu_read_lock(); /* until weft_dma_unmap(), in the same thread */
    mr = address_space_translate(as, iova, &xlat, &len, is_write, attrs);
    if (len == 0 || !memory_access_is_direct(mr, is_write, attrs)) {
        rcu_read_unlock();
        return NULL;
    }
    owner = memory_region_owner(mr);
    *target = owner && object_dynamic_cast(owner, TYPE_PCI_DEVICE)
                  ? WEFT_ABI_TARGET_DEVICE
                  : WEFT_ABI_TARGET_RAM;
    *bytes = len;
    memory_region_ref(mr);
    return qemu_map_ram_ptr(mr->ram_block, xlat);
}

static void weft_dma_unmap(void *opaque, void *pointer, size_t bytes,
                           enum weft_abi_dir dir, size_t done)
{
    WeftPCIState *s = opaque;

    address_space_unmap(pci_get_address_space(PCI_DEVICE(s)), pointer, bytes,
                        dir == WEFT_ABI_TO_GUEST, done);
    rcu_read_unlock();
}

static void weft_irq(void *opaque, uint32_t vector)
{
    WeftPCIState *s = opaque;

    set_bit_atomic(vector, s->irq_pending);
    if (!qatomic_xchg(&s->irq_raised, true)) {
        event_notifier_set(&s->irq);
    }
}

/* In weft_engine_reset(): the model sends nothing meanwhile */
static void weft_irq_clear(void *opaque)
{
    WeftPCIState *s = opaque;
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(s->irq_pending); i++) {
        qatomic_set(&s->irq_pending[i], 0);
    }
}

static int weft_log_wanted(void *opaque, enum weft_abi_log_level level)
{
    WeftPCIState *s = opaque;

    switch (level) {
    case WEFT_ABI_LOG_ERROR:
        return true;
    case WEFT_ABI_LOG_WARNING:
    case WEFT_ABI_LOG_INFO:
        return qemu_loglevel_mask(LOG_GUEST_ERROR);
    default:
        return s->trace;
    }
}

static void weft_log(void *opaque, enum weft_abi_log_level level,
                     const char *text)
{
    if (level == WEFT_ABI_LOG_ERROR) {
        error_report("%s", text);
    } else {
        qemu_log("%s\n", text);
    }
}

static void weft_thread_begin(void *opaque)
{
    rcu_register_thread();
}

static void weft_thread_end(void *opaque)
{
    rcu_unregister_thread();
}

static int weft_hand_over(void *opaque)
{
    WeftPCIState *s = opaque;

    if (!qatomic_read(&s->iommu)) {
        return 0;
    }
    qemu_bh_schedule(s->pass);
    return 1;
}

struct weft_engine_host weft_host(WeftPCIState *s)
{
    return (struct weft_engine_host){
        .opaque = s,
        .clock_ns = weft_clock_ns,
        .dma_map = weft_dma_map,
        .dma_unmap = weft_dma_unmap,
        .irq = weft_irq,
        .irq_clear = weft_irq_clear,
        .log = weft_log,
        .log_wanted = weft_log_wanted,
        .thread_begin = weft_thread_begin,
        .thread_end = weft_thread_end,
        .hand_over = weft_hand_over,
    };
}
