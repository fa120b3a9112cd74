// SPDX-License-Identifier: MIT
#include "interrupt.hpp"

#include <signal.h>
#include <unistd.h>

namespace weft::tools {
namespace {

volatile sig_atomic_t stop = 0;

}  // namespace

bool interrupted() { return stop != 0; }

void catch_signals() {
  struct sigaction action{};
  action.sa_handler = [](int) {
    if (stop) _exit(130);
    stop = 1;
  };
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

}  // namespace weft::tools
