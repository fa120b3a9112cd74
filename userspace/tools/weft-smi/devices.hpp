// SPDX-License-Identifier: MIT
// The devices that weft-smi looks at.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weft/weft.h"

namespace weft::smi {

// What the user reads: the library's words.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Device {
 public:
  Device(std::string name, weft_device* opened) : name_(std::move(name)), device_(opened) {}

  const std::string& name() const { return name_; }
  weft_device* get() const { return device_.get(); }

 private:
  struct Close {
    void operator()(weft_device* device) const { weft_device_close(device); }
  };
  std::string name_;
  std::unique_ptr<weft_device, Close> device_;
};

struct Devices {
  std::vector<Device> opened;
  std::vector<std::pair<std::string, std::string>> failed;  // name and reason: they are there and cannot be opened
};

// The one that `specification` names or, when it names a backend alone, all of that backend's. Throws Error when there
// is none.
Devices open_devices(const std::string& specification);

}  // namespace weft::smi
