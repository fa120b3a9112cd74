// SPDX-License-Identifier: MIT
// Capture of frames as pcapng (draft-ietf-opsawg-pcapng), one interface a port, nanosecond time stamps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/fabric/link.hpp"

namespace weft::fabric {

class Capture {
 public:
  // Creates (truncates) `path`; throws std::system_error when that fails.
  explicit Capture(const std::string& path);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // A new interface of the section; its number is what frame() takes.
  unsigned interface(std::string_view name);

  // One frame that came in on `interface` at `time_ns` (of any clock, since 1970 in the switch program). `comment` is
  // shown with the packet, "" for none.
  void frame(unsigned interface, std::uint64_t time_ns, std::span<const Segment> segments,
             std::string_view comment = {});

  // Everything so far is in the file.
  void flush();

 private:
  void block(std::uint32_t type, std::span<const Segment> body);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  unsigned interfaces_ = 0;
};

}  // namespace weft::fabric
