/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: the device types.  A new model is a new entry here.
 */
#include "qemu/osdep.h"
#include "qemu/module.h"
#include "weft-pci.h"

static const WeftModelType weft_any_model = {
    .name = "weft-model",
    .desc = "Device model from a shared object (path=)",
};

#ifdef CONFIG_WEFT_ACCELERATOR
static const char *const weft_accelerator_options[] = {
    "hbm", "ports", "link", "profile", "serial", "fault", "firmware", NULL
};

static const WeftModelType weft_accelerator = {
    .name = "weft",
    .desc = "Weft AI accelerator",
    .entry = weft_model_entry,
    .options = weft_accelerator_options,
};
#endif

static void weft_models_register_types(void)
{
    weft_model_type_register(&weft_any_model);
#ifdef CONFIG_WEFT_ACCELERATOR
    weft_model_type_register(&weft_accelerator);
#endif
}

type_init(weft_models_register_types)
