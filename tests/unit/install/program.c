/* SPDX-License-Identifier: MIT */
/* A stranger's C program on the installed headers and libraries: a stream on a device, then an all-reduce of one rank.
 */
#include <stdio.h>
#include <string.h>
#include <wccl/wccl.h>
#include <weft/weft.h>

int main(void) {
  struct weft_device* device;
  struct weft_stream* stream;
  struct weft_mem* mem;
  wcclComm_t comm;
  char got[16];

  if (weft_device_open("sim:0", &device) || weft_mem_alloc(device, 4096, 0, &mem) ||
      weft_stream_create(device, 64, 0, &stream)) {
    fprintf(stderr, "%s\n", weft_last_error());
    return 1;
  }
  if (weft_stream_fill(stream, weft_mem_va(mem), 0x6161616161616161, 8) || weft_stream_synchronize(stream, -1, NULL) ||
      weft_read(device, got, weft_mem_va(mem), 8) || memcmp(got, "aaaaaaaa", 8)) {
    fprintf(stderr, "stream: %s\n", weft_last_error());
    return 1;
  }
  if (wcclCommInitAll(&comm, 1, &device) != wcclSuccess) {
    fprintf(stderr, "wccl: %s\n", wcclGetLastError(NULL));
    return 1;
  }
  if (wcclCommDestroy(comm) != wcclSuccess) return 1;
  weft_stream_destroy(stream);
  weft_device_close(device);
  puts("fine");
  return 0;
}
