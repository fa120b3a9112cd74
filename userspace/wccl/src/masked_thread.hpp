// SPDX-License-Identifier: MIT
// A thread of the library's own. Signals are the program's business, not this thread's.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace weft::ccl {

template <class F>
std::thread masked_thread(F&& body) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread thread(std::forward<F>(body));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return thread;
}

}  // namespace weft::ccl
