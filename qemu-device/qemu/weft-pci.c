/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: hosts a device model as a PCIe endpoint.
 *
 * Threads: the engine's thread runs the model.  It never takes the big QEMU
 * lock (BQL): vCPUs that hold the BQL wait for the model in register reads.
 * So it reaches memory only by pointer, under RCU, and hands interrupts to the
 * main loop.  With an IOMMU this is not enough: translating an address may
 * raise the IOMMU's fault interrupt (asserts the BQL) or change memory regions
 * (takes it), so then the main loop runs the model, under the BQL.
 */
#include "qemu/osdep.h"
#include <dlfcn.h>
#include "qemu/atomic.h"
#include "qemu/bitops.h"
#include "qemu/cutils.h"
#include "qemu/error-report.h"
#include "qemu/event_notifier.h"
#include "qemu/log.h"
#include "qemu/main-loop.h"
#include "qemu/memfd.h"
#include "qemu/module.h"
#include "qemu/notify.h"
#include "qemu/rcu.h"
#include "qemu/timer.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hw/pci/pci.h"
#include "hw/pci/pci_bus.h"
#include "hw/pci/pci_device.h"
#include "hw/pci/msix.h"
#include "hw/pci/pcie.h"
#if __has_include("hw/qdev-properties.h")
#include "hw/qdev-properties.h"
#else
#include "hw/core/qdev-properties.h"
#endif
#include "migration/vmstate.h"
#if __has_include("exec/address-spaces.h")
#include "exec/address-spaces.h"
#include "exec/memory.h"
#else
#include "system/address-spaces.h"
#include "system/memory.h"
#endif
#include "system/reset.h"
#include "system/runstate.h"
#include "system/system.h"
#include "qom/object.h"
#ifndef CONFIG_WEFT_IN_TREE
#include "qapi/qapi-commands-control.h"
#endif
#include "weft/engine/engine.h"
#include "weft-pci.h"

#define WEFT_VECTORS_MAX 2048 /* of MSI-X */
#define WEFT_EXP_CAP 0x80

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

/* ---- What the engine asks for; called by its thread and by ours */

static uint64_t weft_clock_ns(void *opaque)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

/*
 * address_space_map() would bounce what is not RAM: it would access registers,
 * with the BQL.  Look first, and map by the same means.
 */
static void *weft_dma_map(void *opaque, uint64_t iova, size_t *bytes,
                          enum weft_abi_dir dir,
                          enum weft_engine_target *target)
{
    WeftPCIState *s = opaque;
    AddressSpace *as = pci_get_address_space(PCI_DEVICE(s));
    bool is_write = dir == WEFT_ABI_TO_GUEST;
    MemTxAttrs attrs = MEMTXATTRS_UNSPECIFIED;
    hwaddr len = MIN(*bytes, WEFT_ABI_MAP_MAX);
    hwaddr xlat;
    MemoryRegion *mr;
    Object *owner;

    RCU_READ_LOCK_GUARD();
    mr = address_space_translate(as, iova, &xlat, &len, is_write, attrs);
    if (len == 0 || !memory_access_is_direct(mr, is_write, attrs)) {
        return NULL;
    }
    owner = memory_region_owner(mr);
    *target = owner && object_dynamic_cast(owner, TYPE_PCI_DEVICE)
                  ? WEFT_ENGINE_DEVICE_MEMORY
                  : WEFT_ENGINE_GUEST_RAM;
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
}

static void weft_irq(void *opaque, uint32_t vector)
{
    WeftPCIState *s = opaque;

    set_bit_atomic(vector, s->irq_pending);
    if (!qatomic_xchg(&s->irq_raised, true)) {
        event_notifier_set(&s->irq);
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
    WeftPCIState *s = WEFT_PCI(dev);
    unsigned i;

    weft_engine_reset(s->engine, WEFT_ABI_RESET_FLR);
    for (i = 0; i < ARRAY_SIZE(s->irq_pending); i++) {
        qatomic_set(&s->irq_pending[i], 0);
    }
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
    const struct weft_engine_host host = {
        .size = sizeof(host),
        .version = WEFT_ENGINE_VERSION,
        .opaque = s,
        .clock_ns = weft_clock_ns,
        .dma_map = weft_dma_map,
        .dma_unmap = weft_dma_unmap,
        .irq = weft_irq,
        .log = weft_log,
        .log_wanted = weft_log_wanted,
        .thread_begin = weft_thread_begin,
        .thread_end = weft_thread_end,
        .hand_over = weft_hand_over,
    };
    struct weft_engine_config config = {
        .size = sizeof(config),
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

static void weft_option_get(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    char *value = g_hash_table_lookup(WEFT_PCI(obj)->option, name);

    value = value ?: (char *)"";
    visit_type_str(v, name, &value, errp);
}

static void weft_option_set(Object *obj, Visitor *v, const char *name,
                            void *opaque, Error **errp)
{
    char *value;

    if (DEVICE(obj)->realized) {
        qdev_prop_set_after_realize(DEVICE(obj), name, errp);
        return;
    }
    if (visit_type_str(v, name, &value, errp)) {
        g_hash_table_replace(WEFT_PCI(obj)->option, g_strdup(name), value);
    }
}

/* Write-only, at any time: "NAME [NUMBER]...", see the model's documentation */
static void weft_inject_set(Object *obj, const char *text, Error **errp)
{
    WeftPCIState *s = WEFT_PCI(obj);
    g_auto(GStrv) word = g_strsplit(text, " ", -1);
    uint64_t value[8];
    unsigned n;
    int ret;

    if (!s->engine || !word[0]) {
        error_setg(errp, "no device, or no fault named");
        return;
    }
    for (n = 0; word[n + 1]; n++) {
        if (n == ARRAY_SIZE(value) ||
            qemu_strtou64(word[n + 1], NULL, 0, &value[n]) < 0) {
            error_setg(errp, "at most %zu numbers may follow the fault's name",
                       ARRAY_SIZE(value));
            return;
        }
    }
    ret = weft_engine_fault(s->engine, word[0], value, n);
    if (ret < 0) {
        error_setg_errno(errp, -ret, "fault '%s'", word[0]);
    }
}

/* Read-only: what went through DMA, by direction, purpose and target, bytes */
static char *weft_dma_get(Object *obj, Error **errp)
{
    static const char *const purpose[] = { "control", "payload" };
    static const char *const target[] = { "ram", "peer" };
    WeftPCIState *s = WEFT_PCI(obj);
    struct weft_engine_counters now;
    GString *text = g_string_new(NULL);
    unsigned i, j;

    if (!s->engine) {
        error_setg(errp, "no device");
        return g_string_free(text, false);
    }
    weft_engine_get_counters(s->engine, &now);
    for (i = 0; i < 2; i++) {
        for (j = 0; j < 2; j++) {
            g_string_append_printf(
                text, "%s-%s-read=%" PRIu64 " %s-%s-write=%" PRIu64 " ",
                purpose[i], target[j], now.dma.read_bytes[i][j], purpose[i],
                target[j], now.dma.write_bytes[i][j]);
        }
    }
    g_string_append_printf(text, "errors=%" PRIu64, now.dma.errors);
    return g_string_free(text, false);
}

static void weft_instance_init(Object *obj)
{
    WEFT_PCI(obj)->option =
        g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free);
}

static void weft_instance_finalize(Object *obj)
{
    g_hash_table_destroy(WEFT_PCI(obj)->option);
}

static const Property weft_properties[] = {
    DEFINE_PROP_STRING("fabric", WeftPCIState, fabric),
    DEFINE_PROP_STRING("name", WeftPCIState, name),
    DEFINE_PROP_STRING("options", WeftPCIState, options),
    DEFINE_PROP_BOOL("trace", WeftPCIState, trace, false),
};

static const Property weft_path_properties[] = {
    DEFINE_PROP_STRING("path", WeftPCIState, path),
};

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
    device_class_set_props(dc, weft_properties);
    set_bit(DEVICE_CATEGORY_MISC, dc->categories);

    object_class_property_set_description(
        oc, "fabric", "UNIX socket of the switch that the links connect to");
    object_class_property_set_description(
        oc, "name",
        "Name on the fabric: link i is NAMEpi (default: serial, then id)");
    object_class_property_set_description(
        oc, "options", "More options of the model: key=value;key=value");
    object_class_property_set_description(
        oc, "trace",
        "Every event of the model to the log (-D FILE, else stderr)");
    object_class_property_add_str(oc, "inject", NULL, weft_inject_set);
    object_class_property_set_description(
        oc, "inject", "Plant a fault while running: name and numbers");
    object_class_property_add_str(oc, "dma", weft_dma_get, NULL);
    object_class_property_set_description(
        oc, "dma", "Bytes through DMA so far: name=number ...");
}

static void weft_model_class_init(ObjectClass *oc, WeftClassData *data)
{
    const WeftModelType *type = data;
    const char *const *option;

    WEFT_PCI_CLASS(oc)->type = type;
    DEVICE_CLASS(oc)->desc = type->desc;
    for (option = type->options; option && *option; option++) {
        object_class_property_add(oc, *option, "str", weft_option_get,
                                  weft_option_set, NULL, NULL);
        object_class_property_set_description(oc, *option,
                                              "Option of the model");
    }
    if (!type->entry) {
        device_class_set_props(DEVICE_CLASS(oc), weft_path_properties);
        object_class_property_set_description(oc, "path",
                                              "Shared object with the model");
    }
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
