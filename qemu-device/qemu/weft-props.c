/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Weft: the devices' properties.
 */
#include "qemu/osdep.h"
#include "qemu/cutils.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "weft-state.h"

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

static const Property weft_properties[] = {
    DEFINE_PROP_STRING("fabric", WeftPCIState, fabric),
    DEFINE_PROP_STRING("name", WeftPCIState, name),
    DEFINE_PROP_STRING("options", WeftPCIState, options),
    DEFINE_PROP_BOOL("trace", WeftPCIState, trace, false),
};

static const Property weft_path_properties[] = {
    DEFINE_PROP_STRING("path", WeftPCIState, path),
};

void weft_props_class_init(ObjectClass *oc)
{
    device_class_set_props(DEVICE_CLASS(oc), weft_properties);

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

void weft_props_model_init(ObjectClass *oc, const WeftModelType *type)
{
    const char *const *option;

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
