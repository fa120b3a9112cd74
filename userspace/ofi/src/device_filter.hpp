// SPDX-License-Identifier: MIT
// Hides foreign verbs devices from libfabric's efa provider. libfabric 2.1 makes its list of EFA devices once, at the
// first fi_getinfo of the process, and gives up at the first device that is not one (a Soft-RoCE, our own on-chip NIC);
// fixed in 2.2. Therefore this library defines ibv_get_device_list and is asked before libibverbs, if it was what
// loaded libfabric.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace weft::ofi {

// Moves the devices whose driver is `efa` to the front of `list`, in order, and ends it behind them; how many they are.
// `sysfs` is /sys/class/infiniband.
int keep_efa(void** list, int count, const std::function<const char*(void*)>& name_of, const std::string& sysfs);

struct VerbsDevices {
  std::vector<std::string> efa, foreign;
};
VerbsDevices verbs_devices(const std::string& sysfs);

// Runs the process's first fi_getinfo, and so libfabric's initialisation, with foreign devices hidden. All later calls
// do nothing.
void initialise_libfabric();
// Whether libfabric asked us for the devices: it did not when something else loaded it.
bool libfabric_sees_filter();

}  // namespace weft::ofi
