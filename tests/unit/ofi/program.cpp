// SPDX-License-Identifier: MIT
// program LIBRARY [PROVIDER]: loads the OFI wrapper, makes it initialise libfabric, and says how many domains of the
// provider (tcp) there are, or why there are none.
#include <cstdio>

#include "weft/ofi_load.h"

int main(int count, char** argument) {
  char message[512] = "usage: program LIBRARY [PROVIDER]";
  const weft_ofi_api* api = count >= 2 ? weft_ofi_load(argument[1], message, sizeof(message)) : nullptr;
  if (api == nullptr) {
    std::fprintf(stderr, "%s\n", message);
    return 1;
  }
  const int domains = api->list(count == 3 ? argument[2] : "tcp", nullptr, 0);
  if (domains <= 0) {
    std::fprintf(stderr, "%s\n", api->error());
    return 2;
  }
  std::printf("%d\n", domains);
}
