// SPDX-License-Identifier: MIT
// program LIBRARY: loads the OFI wrapper and makes it initialise libfabric.
#include <cstdio>

#include "weft/ofi_load.h"

int main(int count, char** argument) {
  char message[512];
  const weft_ofi_api* api = count == 2 ? weft_ofi_load(argument[1], message, sizeof(message)) : nullptr;
  if (api == nullptr) {
    std::fprintf(stderr, "%s\n", count == 2 ? message : "usage: program LIBRARY");
    return 1;
  }
  return api->list("tcp", nullptr, 0) > 0 ? 0 : 2;
}
