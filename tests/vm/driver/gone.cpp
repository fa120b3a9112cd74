// SPDX-License-Identifier: MIT
// weft-gonetest: writes and reads HBM through libweft, says "ready", and does it again once a line comes in. By then the
// device is gone: each call must fail. Exit code 0 when it does.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "weft/weft.h"

namespace {

void need(int error) {
  if (error == 0) return;
  std::fprintf(stderr, "%s\n", weft_last_error());
  std::exit(2);
}

}  // namespace

int main() {
  weft_device* device = nullptr;
  weft_mem* mem = nullptr;
  std::vector<std::uint8_t> bytes(1u << 20), back(bytes.size());
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  need(weft_device_open("kernel", &device));
  need(weft_mem_alloc(device, bytes.size(), 0, &mem));
  need(weft_write(device, weft_mem_va(mem), bytes.data(), bytes.size()));
  need(weft_read(device, back.data(), weft_mem_va(mem), back.size()));
  if (back != bytes) return 3;
  std::puts("ready");
  std::fflush(stdout);
  if (std::getchar() == EOF) return 2;

  int wrong = 0;
  for (int round = 0; round < 20; ++round) {
    wrong += weft_read(device, back.data(), weft_mem_va(mem), back.size()) == 0;
    wrong += weft_write(device, weft_mem_va(mem), bytes.data(), bytes.size()) == 0;
  }
  if (wrong != 0) std::fprintf(stderr, "%d of 40 calls succeeded without a device\n", wrong);
  weft_mem_free(mem);
  weft_device_close(device);
  return wrong == 0 ? 0 : 1;
}
