// SPDX-License-Identifier: MIT
// What weft-smi shows: each view makes rows of one device. Throws Error with the library's words.
#pragma once

#include <vector>

#include "devices.hpp"
#include "table.hpp"

namespace weft::smi {

std::vector<Row> list(const Device& device);
std::vector<Row> hbm(const Device& device);
std::vector<Row> ports(const Device& device);
std::vector<Row> firmware(const Device& device);
std::vector<Row> log(const Device& device);
std::vector<Row> sensors(const Device& device);
// All counters of the device and its ports; with `zeros` false without those that are 0.
std::vector<Row> counters(const Device& device, bool zeros);

}  // namespace weft::smi
