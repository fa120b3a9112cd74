// SPDX-License-Identifier: MIT
// Errors at set-up are thrown as Failure and become results at the C API.
#pragma once

#include <stdexcept>
#include <string>

#include "wccl/wccl.h"

namespace weft::ccl {

class Failure : public std::runtime_error {
 public:
  Failure(wcclResult_t result, const std::string& text, int culprit = -1)
      : std::runtime_error(text), result_(result), culprit_(culprit) {}
  wcclResult_t result() const { return result_; }
  int culprit() const { return culprit_; }  // rank, or -1

 private:
  wcclResult_t result_;
  int culprit_;
};

// A failure of a libweft call, with its text.
Failure device_failure(const std::string& what);

}  // namespace weft::ccl
