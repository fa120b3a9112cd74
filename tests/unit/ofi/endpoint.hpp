// SPDX-License-Identifier: MIT
// An endpoint for tests.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "weft/ofi_load.h"

namespace weft::ofi::test {

inline const weft_ofi_api& api() {
  static const weft_ofi_api* const table = [] {
    char message[512];
    const weft_ofi_api* loaded = weft_ofi_load(WEFT_OFI_FILE, message, sizeof(message));
    if (loaded == nullptr) ADD_FAILURE() << message;
    return loaded;
  }();
  return *table;
}

// tcp over the loopback interface; or, in a node with a host NIC, what WEFT_OFI_PROVIDER names.
inline std::string provider() {
  const char* asked = std::getenv("WEFT_OFI_PROVIDER");
  return asked != nullptr ? asked : "tcp";
}

inline weft_ofi_open_args tcp_args() {
  weft_ofi_open_args args{};
  args.size = sizeof(args);
  args.flags = WEFT_OFI_DELIVERY;
  args.provider = "tcp";
  args.address = "127.0.0.1";
  args.timeout_ms = 20000;
  return args;
}

inline weft_ofi_open_args default_args() {
  static const std::string name = provider();
  weft_ofi_open_args args = tcp_args();
  if (name == "tcp") return args;
  args.provider = name.c_str();
  args.address = nullptr;
  args.flags = 0;
  return args;
}

class Endpoint {
 public:
  explicit Endpoint(const weft_ofi_open_args& args = default_args()) {
    EXPECT_EQ(api().open(&args, &ofi), 0) << api().error();
  }
  ~Endpoint() { close(); }
  Endpoint(const Endpoint&) = delete;
  void close() {
    if (ofi != nullptr) api().close(ofi);
    ofi = nullptr;
  }
  std::vector<unsigned char> address() const {
    std::vector<unsigned char> blob(256);
    size_t bytes = blob.size();
    EXPECT_EQ(api().address(ofi, blob.data(), &bytes), 0) << api().error();
    blob.resize(bytes);
    return blob;
  }
  std::uint32_t insert(const std::vector<unsigned char>& blob) const {
    std::uint32_t peer = WEFT_OFI_ANY;
    EXPECT_EQ(api().insert(ofi, blob.data(), blob.size(), &peer), 0) << api().error();
    return peer;
  }
  weft_ofi_mr* add(std::vector<unsigned char>& memory, unsigned flags = 0) const {
    weft_ofi_mr* mr = nullptr;
    EXPECT_EQ(api().register_host(ofi, memory.data(), memory.size(), flags, &mr), 0) << api().error();
    return mr;
  }

  weft_ofi* ofi = nullptr;
};

// The next completion of `one`, while `other` gets on too; op NONE and status -ETIME when there is none in `seconds`.
// What `other` completes meanwhile goes to `others`.
inline weft_ofi_completion next(const Endpoint& one, const Endpoint& other,
                                std::vector<weft_ofi_completion>* others = nullptr, int seconds = 30) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  weft_ofi_completion mine{}, theirs{};
  while (std::chrono::steady_clock::now() < end) {
    if (others != nullptr && api().poll(other.ofi, &theirs, 1) == 1) others->push_back(theirs);
    if (api().wait(one.ofi, &mine, 1, 0) == 1) return mine;
  }
  mine.status = -ETIME;
  return mine;
}

inline unsigned char pattern(std::size_t i, unsigned seed) {
  return static_cast<unsigned char>(i * 131 + (i >> 8) * 7 + seed);
}
inline void fill(std::vector<unsigned char>& memory, std::size_t from, std::size_t bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i) memory[from + i] = pattern(i, seed);
}
inline ::testing::AssertionResult holds(const std::vector<unsigned char>& memory, std::size_t from, std::size_t bytes,
                                        unsigned seed) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (memory[from + i] != pattern(i, seed))
      return ::testing::AssertionFailure() << "byte " << i << " of " << bytes << " is " << int{memory[from + i]};
  return ::testing::AssertionSuccess();
}

}  // namespace weft::ofi::test
