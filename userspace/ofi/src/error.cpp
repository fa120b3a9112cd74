// SPDX-License-Identifier: MIT
#include "error.hpp"

#include <rdma/fi_errno.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>

namespace weft::ofi {
namespace {

thread_local char text[1024];

}  // namespace

int errno_of(int error) { return error >= FI_ERRNO_OFFSET ? EIO : error; }

int fail(int error, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return -errno_of(error);
}

const char* last_error() { return text; }

}  // namespace weft::ofi
