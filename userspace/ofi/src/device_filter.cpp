// SPDX-License-Identifier: MIT
#include "device_filter.hpp"

#include <dlfcn.h>
#include <rdma/fabric.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <mutex>

namespace weft::ofi {
namespace {

constexpr const char* kSysfs = "/sys/class/infiniband";

std::atomic<unsigned> asked{0};  // by libfabric

std::string driver_of(const std::string& sysfs, const std::string& device) {
  std::error_code error;
  return std::filesystem::read_symlink(sysfs + "/" + device + "/device/driver", error).filename().string();
}

bool is_libfabric(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return false;
  return std::filesystem::path(info.dli_fname).filename().string().rfind("libfabric.so", 0) == 0;
}

// The real function of libibverbs: behind us in our own scope, or, when we are not a part of anyone's, by name.
template <typename Function>
Function* real(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == nullptr) {
    if (void* library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD)) symbol = dlsym(library, name);
  }
  return reinterpret_cast<Function*>(symbol);
}

}  // namespace

int keep_efa(void** list, int count, const std::function<const char*(void*)>& name_of, const std::string& sysfs) {
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const char* name = name_of(list[i]);
    if (name != nullptr && driver_of(sysfs, name) == "efa") list[kept++] = list[i];
  }
  if (kept < count) list[kept] = nullptr;
  return kept;
}

VerbsDevices verbs_devices(const std::string& sysfs) {
  VerbsDevices devices;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sysfs, error)) {
    const std::string name = entry.path().filename().string();
    (driver_of(sysfs, name) == "efa" ? devices.efa : devices.foreign).push_back(name);
  }
  std::sort(devices.efa.begin(), devices.efa.end());
  std::sort(devices.foreign.begin(), devices.foreign.end());
  return devices;
}

void initialise_libfabric() {
  static std::once_flag once;
  std::call_once(once, [] {
    fi_info* hints = fi_allocinfo();
    fi_info* found = nullptr;
    if (hints == nullptr) return;
    // By name, so that no other provider makes its list now: theirs shall have every device.
    hints->fabric_attr->prov_name = ::strdup("efa");
    hints->ep_attr->type = FI_EP_RDM;
    fi_getinfo(FI_VERSION(1, 20), nullptr, nullptr, 0, hints, &found);
    fi_freeinfo(found);
    fi_freeinfo(hints);
  });
}

bool libfabric_sees_filter() { return asked != 0; }

}  // namespace weft::ofi

// Asked instead of libibverbs' own. libfabric's first question is the efa provider's: providers are initialised before
// any of them is asked for its domains. Every other question gets all devices.
extern "C" __attribute__((visibility("default"))) void** ibv_get_device_list(int* count) {
  using List = void**(int*);
  using Name = const char*(void*);
  static List* const list_of = weft::ofi::real<List>("ibv_get_device_list");
  static Name* const name_of = weft::ofi::real<Name>("ibv_get_device_name");
  if (count != nullptr) *count = 0;
  if (list_of == nullptr) {
    errno = ENOSYS;
    return nullptr;
  }
  int all = 0;
  void** list = list_of(&all);
  if (weft::ofi::is_libfabric(__builtin_return_address(0)) && weft::ofi::asked.fetch_add(1) == 0 && list != nullptr &&
      name_of != nullptr)
    all = weft::ofi::keep_efa(list, all, name_of, weft::ofi::kSysfs);
  if (count != nullptr) *count = all;
  return list;
}
