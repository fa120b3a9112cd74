// SPDX-License-Identifier: MIT
// --json FILE|- and --version, the same in all tools.
#pragma once

#include <string>

namespace weft::tools {

// A file to be written, or standard output with "-": whatever else the program prints then goes to standard error.
class Output {
 public:
  // Empty: nothing is wanted. Throws std::runtime_error.
  explicit Output(const std::string& path);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  explicit operator bool() const { return !path_.empty(); }
  // The whole of the file, or one more document on standard output. Throws std::runtime_error.
  void write(const std::string& text);

 private:
  std::string path_;
  int standard_ = -1;  // what standard output was
};

// "wccl-perf 0.1.0"
std::string version(const char* program);

}  // namespace weft::tools
