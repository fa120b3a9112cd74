// SPDX-License-Identifier: MIT
#include "output.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace weft::tools {

Output::Output(const std::string& path) : path_(path) {
  if (path_ != "-") return;
  std::fflush(stdout);
  standard_ = dup(STDOUT_FILENO);
  if (standard_ < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
    throw std::runtime_error(std::string("standard output: ") + std::strerror(errno));
}

Output::~Output() {
  if (standard_ >= 0) close(standard_);
}

void Output::write(const std::string& text) {
  if (path_.empty()) return;
  if (standard_ < 0) {
    std::ofstream file(path_, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) throw std::runtime_error(path_ + ": cannot be written");
    return;
  }
  std::fflush(stdout);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(standard_, text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw std::runtime_error(std::string("standard output: ") + std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
}

std::string version(const char* program) { return std::string(program) + " " + WEFT_VERSION; }

}  // namespace weft::tools
