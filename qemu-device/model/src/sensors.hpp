// SPDX-License-Identifier: MIT
// Sensors of a board that is not there: readings follow the device's activity, the same for the same history.
#pragma once

#include <cstdint>

#include "weft/hw/mbox.h"

namespace weft::model {

class Sensors {
 public:
  // Reading at `now_ns` when the engines have moved `bytes` in all since the last reset.
  weft_mbox_sensors read(std::uint64_t now_ns, std::uint64_t bytes);
  void reset() { *this = {}; }

 private:
  std::uint64_t last_ns_ = 0;
  std::uint64_t last_bytes_ = 0;
  std::uint64_t load_ppm_ = 0;  // smoothed, of full load
};

}  // namespace weft::model
