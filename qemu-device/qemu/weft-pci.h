/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: PCI devices whose behaviour is a device model (weft/abi/model.h).
 *
 * One QOM type per model.  Nothing here knows what a model does.
 */
#ifndef WEFT_PCI_H
#define WEFT_PCI_H

#include "weft/abi/model.h"

#define TYPE_WEFT_PCI "weft-pci" /* abstract */

typedef struct WeftModelType {
    const char *name;
    const char *desc;
    /* NULL: the model is loaded from the file that the property "path" names */
    const struct weft_abi_model *(*entry)(uint32_t version);
    /* Options of the model that become properties, NULL at the end, or NULL */
    const char *const *options;
} WeftModelType;

/* Register the QOM type of a model; for type_init() functions. */
void weft_model_type_register(const WeftModelType *type);

#endif
