// SPDX-License-Identifier: MIT
// The smallest backend: opens and tells its argument.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "whole_table.hpp"

namespace {

std::string& text(void* device) { return *static_cast<std::string*>(device); }

weft_backend table() {
  weft_backend made = weft::test::whole_table("test");
  made.count = [] { return 3; };
  made.open = [](const char* argument, void** device, char* message, std::size_t room) {
    const char* fails = std::getenv("WEFT_TEST_BACKEND_FAILS");
    if (std::strcmp(argument, "fail") == 0 || (fails != nullptr && std::strcmp(argument, fails) == 0)) {
      std::snprintf(message, room, "asked to fail");
      return -EIO;
    }
    *device = std::make_unique<std::string>(argument).release();
    return 0;
  };
  made.close = [](void* device) { std::unique_ptr<std::string> owner(&text(device)); };
  made.info = [](void* device, struct weft_device_info* info) {
    std::snprintf(info->serial, sizeof(info->serial), "%s", text(device).c_str());
    return 0;
  };
  return made;
}

}  // namespace

const weft_backend* weft_backend_entry(std::uint32_t version) {
  static const weft_backend made = table();
  return version == WEFT_BACKEND_VERSION ? &made : nullptr;
}
