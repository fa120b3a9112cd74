/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: hosts a device model as a PCIe endpoint.
 *
 * Threads: see weft-host.c.
 */
#include "qemu/osdep.h"
#include <dlfcn.h>
#include "qemu/atomic.h"
#include "qemu/memfd.h"
#include "qemu/module.h"
#include "qapi/error.h"
#include "hw/pci/pci.h"
#include "hw/pci/msix.h"
#include "hw/pci/pcie.h"
#include "migration/vmstate.h"
#if __has_include("exec/address-spaces.h")
#include "exec/address-spaces.h"
#include "exec/memory.h"
#else
#include "system/address-spaces.h"
#include "system/memory.h"
#endif
#include "system/reset.h"
#include "system/system.h"
#ifndef CONFIG_WEFT_IN_TREE
#include "qapi/qapi-commands-control.h"
#endif
#include "weft-state.h"

#define WEFT_EXP_CAP 0x80

/* ---- Main loop */

static void weft_pass(void *opaque)
{
    WeftPCIState *s = opaque;

    weft_engine_pass(s->engine);
}

static void weft_irq_deliver(EventNotifier *notifier)
{
    WeftPCIState *s = container_of(notifier, WeftPCIState, irq);
    unsigned i;

    event_notifier_test_and_clear(notifier);
    qatomic_xchg(&s->irq_raised, false); /* before the bits are looked at */
    for (i = 0; i < BITS_TO_LONGS(s->info.vectors); i++) {
        unsigned long bits = qatomic_xchg(&s->irq_pending[i], 0);

        while (bits) {
            msix_notify(PCI_DEVICE(s), i * BITS_PER_LONG + ctzl(bits));
            bits &= bits - 1;
        }
    }
}

static void weft_vm_change_state(void *opaque, bool running, RunState state)
{
    WeftPCIState *s = opaque;
    AddressSpace *as;

    if (running) {
        as = pci_device_iommu_address_space(PCI_DEVICE(s));
        qatomic_set(&s->iommu, as != &address_space_memory);
        weft_engine_resume(s->engine);
    } else {
        weft_engine_quiesce(s->engine);
    }
}

/* The process ends: no thread of ours may run while others clean up. */
static void weft_process_exit(Notifier *notifier, void *data)
{
    WeftPCIState *s = container_of(notifier, WeftPCIState, exit);

    weft_engine_stop(s->engine);
}

/* ---- Guest accesses */

static uint64_t weft_mmio_read(void *opaque, hwaddr addr, unsigned size)
{
    WeftBar *bar = opaque;

    return weft_engine_read(bar->device->engine, bar->index, addr, size);
}

static void weft_mmio_write(void *opaque, hwaddr addr, uint64_t val,
                            unsigned size)
{
    WeftBar *bar = opaque;

    weft_engine_write(bar->device->engine, bar->index, addr, val, size);
}

static const MemoryRegionOps weft_mmio_ops = {
    .read = weft_mmio_read,
    .write = weft_mmio_write,
    .endianness = DEVICE_LITTLE_ENDIAN,
    .valid = { .min_access_size = 1, .max_access_size = 8 },
    .impl = { .min_access_size = 1, .max_access_size = 8 },
};

static void weft_config_write(PCIDevice *pd, uint32_t addr, uint32_t val,
                              int len)
{
    pci_default_write_config(pd, addr, val, len);
    pcie_cap_flr_write_config(pd, addr, val, len); /* calls weft_reset() */
}

/* FLR and reset of the bus above: the function forgets, its memory does not. */
static void weft_reset(DeviceState *dev)
{
    weft_engine_reset(WEFT_PCI(dev)->engine, WEFT_ABI_RESET_FLR);
}

static void weft_machine_reset(void *opaque)
{
    WeftPCIState *s = opaque;

    weft_engine_reset(s->engine, WEFT_ABI_RESET_COLD);
}

/* ---- Realize and exit */

static const struct weft_abi_model *weft_load_model(WeftPCIState *s,
                                                    Error **errp)
{
    const WeftModelType *type = WEFT_PCI_GET_CLASS(s)->type;
    const struct weft_abi_model *(*entry)(uint32_t) = type->entry;
    const struct weft_abi_model *model;

    if (!entry) {
        if (!s->path) {
            error_setg(errp, "path= must name the model's shared object");
            return NULL;
        }
        s->library = dlopen(s->path, RTLD_NOW | RTLD_LOCAL);
        if (!s->library) {
            error_setg(errp, "cannot load the model: %s", dlerror());
            return NULL;
        }
        *(void **)&entry = dlsym(s->library, "weft_model_entry");
        if (!entry) {
            error_setg(errp, "%s is not a model: it has no weft_model_entry",
                       s->path);
            return NULL;
        }
    }
    model = entry(WEFT_ABI_VERSION);
    if (!model) {
        error_setg(errp, "the model does not speak version %u of the model ABI",
                   WEFT_ABI_VERSION);
    }
    return model;
}

static bool weft_add_free_options(WeftPCIState *s, GArray *options, char **list,
                                  Error **errp)
{
    for (; *list; list++) {
        char *equals = strchr(*list, '=');
        struct weft_abi_option option;

        if (!equals) {
            error_setg(errp, "options: '%s' is not key=value", *list);
            return false;
        }
        *equals = '\0';
        option = (struct weft_abi_option){ *list, equals + 1 };
        g_array_append_val(options, option);
    }
    return true;
}

static bool weft_create_engine(WeftPCIState *s, Error **errp)
{
    const struct weft_engine_host host = weft_host(s);
    struct weft_engine_config config = {
        .host = &host,
        .name = s->name,
        .fabric = s->fabric,
    };
    g_autoptr(GArray) options =
        g_array_new(false, false, sizeof(struct weft_abi_option));
    g_auto(GStrv) list = g_strsplit(s->options ?: "", ";", -1);
    char message[256] = "";
    GHashTableIter iter;
    gpointer key, value;
    int ret;

    config.model = weft_load_model(s, errp);
    if (!config.model) {
        return false;
    }
    g_hash_table_iter_init(&iter, s->option);
    while (g_hash_table_iter_next(&iter, &key, &value)) {
        struct weft_abi_option option = { key, value };

        g_array_append_val(options, option);
        if (!strcmp(key, "serial") && !config.name) {
            config.name = value;
        }
    }
    if (!weft_add_free_options(s, options, list, errp)) {
        return false;
    }
    config.options = options->len;
    config.option = (struct weft_abi_option *)options->data;
    if (!config.name) {
        config.name = DEVICE(s)->id;
    }

    ret = weft_engine_create(&config, &s->engine, message, sizeof(message));
    if (ret < 0) {
        error_setg(errp, "%s", message);
        return false;
    }
    weft_engine_info(s->engine, &s->info);
    return true;
}

static bool weft_init_ram_bar(WeftPCIState *s, unsigned index, Error **errp)
{
    MemoryRegion *mr = &s->bar[index].mr;
    uint64_t size = s->info.bar[index].size;
    g_autofree char *name = g_strdup_printf("%s-bar%u", s->info.name, index);
    int fd, ret;

    fd = qemu_memfd_create(name, size, false, 0, 0, errp);
    if (fd < 0) {
        return false;
    }
    /* The region owns the descriptor from here on. */
    if (!memory_region_init_ram_from_fd(mr, OBJECT(s), name, size,
                                        RAM_SHARED | RAM_NORESERVE, fd, 0,
                                        errp)) {
        close(fd);
        return false;
    }
    ret = weft_engine_attach_ram(s->engine, index,
                                 memory_region_get_ram_ptr(mr), size, fd);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "the model refused the memory of BAR%u",
                         index);
        return false;
    }
    return true;
}

static bool weft_init_bars(WeftPCIState *s, Error **errp)
{
    PCIDevice *pd = PCI_DEVICE(s);
    unsigned i, vector;

    for (i = 0; i < WEFT_ABI_BARS; i++) {
        const struct weft_abi_bar *bar = &s->info.bar[i];
        uint8_t type = PCI_BASE_ADDRESS_SPACE_MEMORY;

        if (bar->prefetch) {
            type |=
                PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;
        }
        s->bar[i].device = s;
        s->bar[i].index = i;
        switch (bar->kind) {
        case WEFT_ABI_BAR_MMIO:
            memory_region_init_io(&s->bar[i].mr, OBJECT(s), &weft_mmio_ops,
                                  &s->bar[i], s->info.name, bar->size);
            pci_register_bar(pd, i, type, &s->bar[i].mr);
            break;
        case WEFT_ABI_BAR_RAM:
            if (!weft_init_ram_bar(s, i, errp)) {
                return false;
            }
            pci_register_bar(pd, i, type, &s->bar[i].mr);
            break;
        case WEFT_ABI_BAR_MSIX:
            if (msix_present(pd)) {
                error_setg(errp, "the model has two BARs for MSI-X");
                return false;
            }
            if (msix_init_exclusive_bar(pd, s->info.vectors, i, errp) < 0) {
                return false;
            }
            for (vector = 0; vector < s->info.vectors; vector++) {
                msix_vector_use(pd, vector);
            }
            break;
        default:
            break;
        }
    }
    if (s->info.vectors && !msix_present(pd)) {
        error_setg(errp, "the model has vectors but no BAR for MSI-X");
        return false;
    }
    return true;
}

static void weft_set_identity(PCIDevice *pd, const struct weft_abi_info *info)
{
    pci_config_set_vendor_id(pd->config, info->vendor);
    pci_config_set_device_id(pd->config, info->device);
    pci_config_set_class(pd->config, info->class_code);
    pci_config_set_revision(pd->config, info->revision);
    pci_set_word(pd->config + PCI_SUBSYSTEM_VENDOR_ID, info->subsystem_vendor);
    pci_set_word(pd->config + PCI_SUBSYSTEM_ID, info->subsystem);
}

/* Undo as much of weft_realize() as was done. */
static void weft_release(WeftPCIState *s)
{
    PCIDevice *pd = PCI_DEVICE(s);

    if (s->vm_state) {
        qemu_del_vm_change_state_handler(s->vm_state);
        s->vm_state = NULL;
        qemu_remove_exit_notifier(&s->exit);
        qemu_unregister_reset(weft_machine_reset, s);
    }
    if (s->engine) {
        weft_engine_stop(s->engine); /* the thread may still want the rest */
    }
    if (s->pass) {
        qemu_bh_delete(s->pass);
        s->pass = NULL;
    }
    if (s->irq_ready) {
        event_notifier_set_handler(&s->irq, NULL);
        event_notifier_cleanup(&s->irq);
        s->irq_ready = false;
    }
    if (msix_present(pd)) {
        msix_uninit_exclusive_bar(pd);
    }
    if (pd->exp.exp_cap) {
        pcie_cap_exit(pd);
    }
    weft_engine_destroy(s->engine);
    s->engine = NULL;
    if (s->library) {
        dlclose(s->library);
        s->library = NULL;
    }
}

static bool weft_try_realize(WeftPCIState *s, Error **errp)
{
    PCIDevice *pd = PCI_DEVICE(s);
    int ret;

    if (!weft_create_engine(s, errp)) {
        return false;
    }
    weft_set_identity(pd, &s->info);

    ret = pcie_endpoint_cap_init(pd, WEFT_EXP_CAP);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "no room for the PCIe capability");
        return false;
    }
    pcie_cap_flr_init(pd);
    if (!weft_init_bars(s, errp)) {
        return false;
    }

    ret = event_notifier_init(&s->irq, 0);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "no event notifier");
        return false;
    }
    s->irq_ready = true;
    event_notifier_set_handler(&s->irq, weft_irq_deliver);
    s->pass = qemu_bh_new(weft_pass, s);

    weft_engine_quiesce(s->engine); /* until the machine runs */
    ret = weft_engine_start(s->engine);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "no thread for the model");
        return false;
    }
    s->vm_state =
        qdev_add_vm_change_state_handler(DEVICE(s), weft_vm_change_state, s);
    s->exit.notify = weft_process_exit;
    qemu_add_exit_notifier(&s->exit);
    qemu_register_reset(weft_machine_reset, s);
    if (runstate_is_running()) { /* hot-plugged */
        weft_vm_change_state(s, true, RUN_STATE_RUNNING);
    }
    return true;
}

static void weft_realize(PCIDevice *pd, Error **errp)
{
    WeftPCIState *s = WEFT_PCI(pd);

    if (!weft_try_realize(s, errp)) {
        weft_release(s);
    }
}

static void weft_exit(PCIDevice *pd)
{
    weft_release(WEFT_PCI(pd));
}

/* ---- Types */

static void weft_instance_init(Object *obj)
{
    WEFT_PCI(obj)->option =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

static void weft_instance_finalize(Object *obj)
{
    g_hash_table_destroy(WEFT_PCI(obj)->option);
}

static const VMStateDescription weft_vmstate = {
    .name = TYPE_WEFT_PCI,
    .unmigratable = 1,
};

/* QEMU 10.1 made the second argument of class_init const. */
#if QEMU_VERSION_MAJOR > 10 || QEMU_VERSION_MINOR > 0
typedef const void WeftClassData;
#else
typedef void WeftClassData;
#endif

static void weft_pci_class_init(ObjectClass *oc, WeftClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(oc);
    PCIDeviceClass *pc = PCI_DEVICE_CLASS(oc);

    pc->realize = weft_realize;
    pc->exit = weft_exit;
    pc->config_write = weft_config_write;
    pc->class_id = PCI_CLASS_OTHERS; /* the model says what it is */
    dc->vmsd = &weft_vmstate;
    device_class_set_legacy_reset(dc, weft_reset);
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);
    weft_props_class_init(oc);
}

static void weft_model_class_init(ObjectClass *oc, WeftClassData *data)
{
    const WeftModelType *type = data;

    WEFT_PCI_CLASS(oc)->type = type;
    DEVICE_CLASS(oc)->desc = type->desc;
    weft_props_model_init(oc, type);
}

static const TypeInfo weft_pci_info = {
    .name = TYPE_WEFT_PCI,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(WeftPCIState),
    .instance_init = weft_instance_init,
    .instance_finalize = weft_instance_finalize,
    .class_size = sizeof(WeftPCIClass),
    .class_init = weft_pci_class_init,
    .abstract = true,
    .interfaces =
        (InterfaceInfo[]){
            { INTERFACE_PCIE_DEVICE },
            {},
        },
};

#ifndef CONFIG_WEFT_IN_TREE
/*
 * QEMU's structures differ between versions: loaded into another one than the
 * headers are of, this object would corrupt memory.
 */
static void weft_check_version(void)
{
    g_autoptr(VersionInfo) v = qmp_query_version(NULL);
    g_autofree char *have =
        g_strdup_printf("%" PRId64 ".%" PRId64 ".%" PRId64, v->qemu->major,
                        v->qemu->minor, v->qemu->micro);

    if (strcmp(have, QEMU_VERSION)) {
        fprintf(stderr,
                "weft-qemu.so was built for QEMU " QEMU_VERSION ", but "
                "this is QEMU %s: build it again with this QEMU's headers\n",
                have);
        exit(EXIT_FAILURE);
    }
}
#endif

void weft_model_type_register(const WeftModelType *type)
{
    const TypeInfo info = {
        .name = type->name,
        .parent = TYPE_WEFT_PCI,
        .class_init = weft_model_class_init,
        .class_data = (void *)type,
    };

    type_register_static(&info);
}

static void weft_pci_register_types(void)
{
#ifndef CONFIG_WEFT_IN_TREE
    weft_check_version();
#endif
    type_register_static(&weft_pci_info);
}

type_init(weft_pci_register_types)
