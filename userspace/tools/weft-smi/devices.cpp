// SPDX-License-Identifier: MIT
#include "devices.hpp"

namespace weft::smi {
namespace {

constexpr unsigned kNumbers = 256;  // of one backend

weft_device* open(const std::string& specification) {
  weft_device* device = nullptr;
  if (weft_device_open(specification.c_str(), &device) != 0) throw Error(weft_last_error());
  return device;
}

}  // namespace

Device::Device(const std::string& specification) : name_(specification), device_(open(specification)) {}

std::vector<Device> open_devices(const std::string& specification) {
  std::vector<Device> devices;
  const bool numbered = specification == "kernel" || specification == "sim";
  const int count = numbered ? weft_device_count(specification.c_str()) : 0;
  if (count <= 0) {
    devices.emplace_back(specification);
    return devices;
  }
  // Numbers may have gaps: other drivers' accelerators count, too.
  for (unsigned number = 0; number < kNumbers && devices.size() < static_cast<std::size_t>(count); ++number) {
    try {
      devices.emplace_back(specification + ":" + std::to_string(number));
    } catch (const Error&) {
      continue;
    }
  }
  if (devices.empty()) devices.emplace_back(specification);
  return devices;
}

}  // namespace weft::smi
