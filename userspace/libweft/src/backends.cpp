// SPDX-License-Identifier: MIT
#include "backends.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <map>
#include <mutex>

#include "error.hpp"

namespace weft::front {
namespace {

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0);
}

// A shared object stays loaded: its threads and its thread-local destructors may outlive the last device.
const weft_backend* load(const std::string& path, int& error) {
  static std::mutex lock;
  static std::map<std::string, const weft_backend*> loaded;
  std::lock_guard guard(lock);
  if (auto known = loaded.find(path); known != loaded.end()) return known->second;

  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    error = fail(ENOENT, "cannot load the backend %s: %s", path.c_str(), dlerror());
    return nullptr;
  }
  auto refuse = [&](int code, const char* why) -> const weft_backend* {
    error = fail(code, "%s is not usable as a backend: %s", path.c_str(), why);
    dlclose(object);
    return nullptr;
  };
  auto entry = reinterpret_cast<decltype(&weft_backend_entry)>(dlsym(object, "weft_backend_entry"));
  if (entry == nullptr) return refuse(EINVAL, "it does not export weft_backend_entry()");
  const weft_backend* table = entry(WEFT_BACKEND_VERSION);
  if (table == nullptr) return refuse(EPROTO, "it does not offer the table's version of this library");
  if (table->version != WEFT_BACKEND_VERSION || table->size < sizeof(weft_backend))
    return refuse(EPROTO, "its table has another version or is too short");
  loaded.emplace(path, table);
  return table;
}

}  // namespace

Specification parse(const std::string& text) {
  // A path may hold ':' before its ".so"; its argument starts behind that.
  std::size_t colon = text.find(":");
  if (std::size_t object = text.find(".so:"); object != std::string::npos) {
    colon = object + 3;
  } else if (is_path(text)) {
    colon = std::string::npos;
  }
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

const weft_backend* find_backend(const std::string& name, int& error) {
  error = 0;
  if (name == "null") return null::backend();
#ifdef WEFT_WITH_SIM
  if (name == "sim") return sim::backend();
#else
  if (name == "sim") {
    error = fail(ENODEV, "this libweft was built without the simulator");
    return nullptr;
  }
#endif
#ifdef WEFT_WITH_KERNEL
  if (name == "kernel") return kernel::backend();
#else
  if (name == "kernel") {
    error = fail(ENODEV, "this libweft was built without the kernel backend (install libdrm-dev and build again)");
    return nullptr;
  }
#endif
  if (is_path(name)) return load(name, error);
  error = fail(EINVAL, "no backend is named '%s': use kernel[:N], sim[:N], null or PATH.so[:ARGUMENT]", name.c_str());
  return nullptr;
}

}  // namespace weft::front
