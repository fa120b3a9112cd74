/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: a device's state, shared by the files of the front end.
 */
#ifndef WEFT_STATE_H
#define WEFT_STATE_H

#include "qemu/bitops.h"
#include "qemu/event_notifier.h"
#include "qemu/main-loop.h"
#include "qemu/notify.h"
#include "hw/pci/pci_device.h"
#if __has_include("hw/qdev-properties.h")
#include "hw/qdev-properties.h"
#else
#include "hw/core/qdev-properties.h"
#endif
#include "system/runstate.h"
#include "qom/object.h"
#include "weft/engine/engine.h"
#include "weft-pci.h"

#define WEFT_VECTORS_MAX 2048 /* of MSI-X */

OBJECT_DECLARE_TYPE(WeftPCIState, WeftPCIClass, WEFT_PCI)

typedef struct WeftBar {
    WeftPCIState *device;
    MemoryRegion mr;
    unsigned index;
} WeftBar;

struct WeftPCIState {
    PCIDevice parent_obj;

    char *path;
    char *fabric;
    char *name;
    char *options;
    bool trace;
    GHashTable *option; /* of the model: name -> value, both owned */

    void *library;
    struct weft_engine *engine;
    struct weft_abi_info info;
    WeftBar bar[WEFT_ABI_BARS];

    VMChangeStateEntry *vm_state;
    Notifier exit;
    QEMUBH *pass;
    bool iommu;

    /* From the engine's thread to the main loop */
    EventNotifier irq;
    bool irq_ready;
    bool irq_raised;
    unsigned long irq_pending[BITS_TO_LONGS(WEFT_VECTORS_MAX)];
};

struct WeftPCIClass {
    PCIDeviceClass parent_class;

    const WeftModelType *type;
};

/* What a device's engine asks of QEMU */
struct weft_engine_host weft_host(WeftPCIState *s);

/* Properties of all devices, and the options of a model as properties */
void weft_props_class_init(ObjectClass *oc);
void weft_props_model_init(ObjectClass *oc, const WeftModelType *type);

#endif
