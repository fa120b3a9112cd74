// SPDX-License-Identifier: MIT
// Memory of an accelerator, registered with a host NIC, and a stream of writes from it to a peer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weft/ofi.h"
#include "weft/weft.h"

namespace lifetimes {

class Owner {
 public:
  Owner();
  ~Owner();
  Owner(const Owner&) = delete;

  /** Carry out one line; the answer. Throws std::exception when it fails. */
  std::string serve(const std::string& line);
  /** Move transfers on. True: some are in flight. */
  bool progress();
  bool finished() const { return finished_; }

 private:
  struct Buffer {
    weft_mem* mem = nullptr;  // null: freed
    std::uint64_t bytes = 0;
    weft_ofi_mr* region = nullptr;
  };
  struct Stream {
    bool on = false;
    bool keep = false;  // goes on after failures
    weft_ofi_mr* region = nullptr;
    std::uint32_t peer = 0;
    std::uint64_t bytes = 0, address = 0, key = 0;
    std::uint64_t completed = 0, failed = 0;
    std::string text;  // of the last failure
  };

  Buffer& buffer(const std::string& name);
  std::string add(const std::string& name);
  void seed(const Buffer& buffer, unsigned seed);
  std::string holds(const Buffer& buffer, unsigned seed);
  void drop(Buffer& buffer);
  std::uint32_t peer(const std::string& hex);
  std::string status();
  std::string stop();
  void post();

  const weft_ofi_api* api_;
  weft_device* device_ = nullptr;
  weft_ofi* ofi_ = nullptr;
  std::map<std::string, Buffer> buffers_;
  std::map<std::string, std::uint32_t> peers_;
  Stream stream_;
  std::uint32_t in_flight_ = 0;
  bool finished_ = false;
};

extern const char* const kCommands;

}  // namespace lifetimes
