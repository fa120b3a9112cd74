// SPDX-License-Identifier: MIT
#include "devices.hpp"

#include <cerrno>

namespace weft::smi {
namespace {

constexpr unsigned kNumbers = 256;  // of one backend

weft_device* open(const std::string& specification) {
  weft_device* device = nullptr;
  if (weft_device_open(specification.c_str(), &device) != 0) throw Error(weft_last_error());
  return device;
}

}  // namespace

Devices open_devices(const std::string& specification) {
  Devices devices;
  const bool kernel = specification == "kernel";
  const bool one = specification.find(':') != std::string::npos;
  const int count = one ? 1 : weft_device_count(specification.c_str());
  // The kernel's numbers may have gaps, since other drivers' accelerators count, too; and a device that failed is not
  // counted.
  const unsigned numbers = kernel ? kNumbers : count > 1 ? static_cast<unsigned>(count) : 0;
  for (unsigned number = 0; number < numbers; ++number) {
    const std::string name = specification + ":" + std::to_string(number);
    weft_device* device = nullptr;
    const int error = weft_device_open(name.c_str(), &device);
    if (error == 0) {
      devices.opened.emplace_back(name, device);
    } else if (!kernel || error != -ENODEV) {  // of the kernel's: no such number, or another driver's
      devices.failed.emplace_back(name, weft_last_error());
    }
  }
  if (devices.opened.empty() && devices.failed.empty()) devices.opened.emplace_back(specification, open(specification));
  return devices;
}

}  // namespace weft::smi
