// SPDX-License-Identifier: MIT
// The devices that weft-smi looks at.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
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
  // Throws Error with the reason.
  explicit Device(const std::string& specification);

  const std::string& name() const { return name_; }
  weft_device* get() const { return device_.get(); }

 private:
  struct Close {
    void operator()(weft_device* device) const { weft_device_close(device); }
  };
  std::string name_;
  std::unique_ptr<weft_device, Close> device_;
};

// The one that `specification` names or, when it names a backend alone, all of that backend's. Throws Error when there
// is none.
std::vector<Device> open_devices(const std::string& specification);

}  // namespace weft::smi
