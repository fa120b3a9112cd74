// SPDX-License-Identifier: MIT
// Which provider is asked for, what is asked of it, and why there is none.
#pragma once

#include <string>

#include "fid.hpp"
#include "weft/ofi.h"

namespace weft::ofi {

// What we know of a provider that libfabric does not say.
struct Provider {
  const char* name;       // ours
  const char* libfabric;  // its name there
  const char* fabric;     // fabric's name, or nullptr
  bool is_efa;
  bool is_protocol;  // software between the calls and the device
};

// nullptr: unknown, and fail() was called.
const Provider* find_provider(const char* name);

// The domains of a provider, in its order. Empty: -errno, and fail() was called with the reason.
int find_domains(const Provider& provider, const char* domain, const char* address, unsigned flags, Info* out);

// What is known before anything is opened.
void describe(const Provider& provider, const fi_info& info, weft_ofi_info* out);

}  // namespace weft::ofi
