// SPDX-License-Identifier: MIT
// The calling thread's last failure, as weft_last_error() gives it.
#pragma once

#include <cerrno>
#include <exception>
#include <new>

namespace weft::front {

// Keeps the text for weft_last_error() and returns -error, so that a call site reads `return fail(ENODEV, "...", ...)`.
// `error` is a positive errno value.
[[gnu::format(printf, 2, 3)]] int fail(int error, const char* format, ...);

// Runs the body of a C function `name`: no exception leaves it.
template <typename Body>
int guarded(const char* name, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM, "%s: no memory", name);
  } catch (const std::exception& error) {
    return fail(EIO, "%s: %s", name, error.what());
  }
}

}  // namespace weft::front
