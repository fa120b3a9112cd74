/* SPDX-License-Identifier: MIT */
/** The host NIC, an emulated AWS EFA, behind the model ABI. See README.md for its options and faults. */
#ifndef WEFT_EFA_EFA_H
#define WEFT_EFA_EFA_H

#include "weft/abi/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/** As weft_model_entry(): the model, or NULL when it does not speak `version`. */
const struct weft_abi_model *weft_efa_model_entry(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
