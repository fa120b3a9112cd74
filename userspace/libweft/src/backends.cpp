// SPDX-License-Identifier: MIT
#include "backends.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "error.hpp"
#include "weft/sized.hpp"

namespace weft::front {
namespace {

bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || (name.size() > 3 && name.compare(name.size() - 3, 3, ".so") == 0);
}

// The first call that every backend must have and this one lacks, or nullptr. Only mem_export and channel_* may be
// left out.
const char* missing(const weft_backend& table) {
  const std::pair<bool, const char*> calls[] = {
      {table.count, "count"},
      {table.open, "open"},
      {table.close, "close"},
      {table.info, "info"},
      {table.counters, "counters"},
      {table.sensors, "sensors"},
      {table.port, "port"},
      {table.log, "log"},
      {table.mem_alloc, "mem_alloc"},
      {table.mem_register, "mem_register"},
      {table.mem_free, "mem_free"},
      {table.mem_map, "mem_map"},
      {table.mem_unmap, "mem_unmap"},
      {table.sync_alloc, "sync_alloc"},
      {table.sync_free, "sync_free"},
      {table.sync_value, "sync_value"},
      {table.sync_signal, "sync_signal"},
      {table.sync_wait, "sync_wait"},
      {table.queue_create, "queue_create"},
      {table.queue_destroy, "queue_destroy"},
      {table.queue_ring, "queue_ring"},
  };
  for (const auto& [there, name] : calls)
    if (!there) return name;
  return nullptr;
}

// A shared object stays loaded: its threads and its thread-local destructors may outlive the last device.
const weft_backend* load(const std::string& path, int& error) {
  static std::mutex lock;
  static std::map<std::string, weft_backend> loaded;
  std::lock_guard guard(lock);
  if (auto known = loaded.find(path); known != loaded.end()) return &known->second;

  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    error = fail(ENOENT, "cannot load the backend %s: %s", path.c_str(), dlerror());
    return nullptr;
  }
  auto refuse = [&](int code, const std::string& why) -> const weft_backend* {
    error = fail(code, "%s is not usable as a backend: %s", path.c_str(), why.c_str());
    dlclose(object);
    return nullptr;
  };
  auto entry = reinterpret_cast<decltype(&weft_backend_entry)>(dlsym(object, "weft_backend_entry"));
  if (entry == nullptr) return refuse(EINVAL, "it does not export weft_backend_entry()");
  const weft_backend* theirs = entry(WEFT_BACKEND_VERSION);
  if (theirs == nullptr || theirs->version != WEFT_BACKEND_VERSION)
    return refuse(EPROTO, "it does not offer version " + std::to_string(WEFT_BACKEND_VERSION) + " of the table");
  weft_backend table;
  if (const int wrong = read_sized(theirs, &table); wrong != 0)
    return refuse(-wrong, wrong == -E2BIG ? "its table has calls that this library does not know"
                                          : "the size of its table is not set");
  if (const char* name = missing(table)) return refuse(EPROTO, std::string("its table has no ") + name + "()");
  return &loaded.emplace(path, table).first->second;
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
