/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: the device types.  A new model is a new entry here.
 */
#include "qemu/osdep.h"
#include "qemu/module.h"
#include "weft-pci.h"
#ifdef CONFIG_WEFT_EFA
#include "weft/efa/efa.h"
#endif

static const WeftModelType weft_any_model = {
    .name = "weft-model",
    .desc = "Device model from a shared object (path=)",
};

#ifdef CONFIG_WEFT_ACCELERATOR
static const char *const weft_accelerator_options[] = {
    "hbm", "ports", "link", "serial", "fault", "firmware", NULL
};

static const WeftModelType weft_accelerator = {
    .name = "weft",
    .desc = "Weft AI accelerator",
    .entry = weft_model_entry,
    .options = weft_accelerator_options,
};
#endif

#ifdef CONFIG_WEFT_EFA
static const char *const weft_efa_options[] = { "mac",    "mtu",    "spray",
                                                "posted", "serial", NULL };

static const WeftModelType weft_efa = {
    .name = "weft-efa",
    .desc = "Host NIC: an emulated AWS EFA",
    .entry = weft_efa_model_entry,
    .options = weft_efa_options,
};
#endif

static void weft_models_register_types(void)
{
    weft_model_type_register(&weft_any_model);
#ifdef CONFIG_WEFT_ACCELERATOR
    weft_model_type_register(&weft_accelerator);
#endif
#ifdef CONFIG_WEFT_EFA
    weft_model_type_register(&weft_efa);
#endif
}

type_init(weft_models_register_types)
