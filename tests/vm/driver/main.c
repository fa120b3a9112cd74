/* SPDX-License-Identifier: MIT */
/*
 * weft-drvtest [--device PATH] [CASE...]   runs cases (default: all), one line each; exit code 1 when one fails
 * weft-drvtest list                        names them
 * weft-drvtest smoke | busy | reset | hold   one copy; busy until killed; busy until reset; busy until removed
 * weft-drvtest innocent                    the device is reset, lost files are closed: nobody else notices
 * weft-drvtest failed                      what a device that failed still tells
 * weft-drvtest opens                       opens over and over until /tmp/stop is there
 * weft-drvtest export BDF                  an object, attached for the function BDF by the module weft_importer
 * weft-drvtest watch BDF                   the same, neither pinned nor mapped
 */
#include <stdlib.h>
#include <string.h>

#include "device.h"

static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {
    {"info", test_info},
    {"sizes", test_sizes},
    {"context", test_context},
    {"bo", test_bo},
    {"bo_zeroed", test_bo_zeroed},
    {"bo_exhaust", test_bo_exhaust},
    {"bo_mmap", test_bo_mmap},
    {"bo_zero_shares", test_bo_zero_shares},
    {"full", test_full},
    {"bo_share", test_bo_share},
    {"sync", test_sync},
    {"sync_threads", test_sync_threads},
    {"sync_wrong", test_sync_wrong},
    {"queue_ops", test_queue_ops},
    {"queue_hbm", test_queue_hbm},
    {"queue_wrap", test_queue_wrap},
    {"queue_error", test_queue_error},
    {"queue_events_lost", test_queue_events_lost},
    {"queue_wrong", test_queue_wrong},
    {"queue_destroy_waiting", test_queue_destroy_waiting},
    {"host", test_host},
    {"host_limit", test_host_limit},
    {"isolation", test_isolation},
    {"channel", test_channel},
    {"channel_wrong", test_channel_wrong},
    {"channel_silent", test_channel_silent},
};

static const struct {
  const char* name;
  int (*run)(void);
} modes[] = {
    {"smoke", mode_smoke}, {"busy", mode_busy},         {"reset", mode_reset},   {"look", mode_look},
    {"hold", mode_hold},   {"innocent", mode_innocent}, {"failed", mode_failed},     {"opens", mode_opens},
};

static int run(size_t i) {
  const int64_t start = now_ns();
  failures = 0;
  cases[i].run();
  printf("%s %s (%.2f s)\n", failures ? "FAILED" : "ok", cases[i].name, (double)(now_ns() - start) / 1e9);
  fflush(stdout);
  return failures != 0;
}

int main(int argc, char** argv) {
  int bad = 0;
  int first = 1;
  if (argc > 2 && strcmp(argv[1], "--device") == 0) {
    device_path = argv[2];
    first = 3;
  }
  if (first == argc) {
    for (size_t i = 0; i < COUNT(cases); ++i) bad += run(i);
    return bad ? 1 : 0;
  }
  if (strcmp(argv[first], "list") == 0) {
    for (size_t i = 0; i < COUNT(cases); ++i) puts(cases[i].name);
    return 0;
  }
  for (size_t i = 0; i < COUNT(modes); ++i) {
    if (strcmp(argv[first], modes[i].name) == 0) return modes[i].run();
  }
  if (strcmp(argv[first], "export") == 0 && first + 1 < argc) return mode_export(argv[first + 1], true);
  if (strcmp(argv[first], "watch") == 0 && first + 1 < argc) return mode_export(argv[first + 1], false);
  for (; first < argc; ++first) {
    size_t i = 0;
    while (i < COUNT(cases) && strcmp(argv[first], cases[i].name) != 0) ++i;
    if (i == COUNT(cases)) {
      fprintf(stderr, "no case %s; see weft-drvtest list\n", argv[first]);
      return 2;
    }
    bad += run(i);
  }
  return bad ? 1 : 0;
}
