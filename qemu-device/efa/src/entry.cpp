// SPDX-License-Identifier: MIT
// The host NIC behind the model ABI.
#include "device.hpp"
#include "weft/abi/model.hpp"
#include "weft/efa/efa.h"

namespace weft::efa {
namespace {

std::unique_ptr<Device> make(const weft_abi_host& host, const weft_abi_config& config) {
  return std::make_unique<Device>(host, parse_options(config));
}

constexpr weft_abi_model kModel = abi::model_of<Device, make>();

}  // namespace
}  // namespace weft::efa

extern "C" __attribute__((visibility("default"))) const weft_abi_model* weft_efa_model_entry(std::uint32_t version) {
  return version == WEFT_ABI_VERSION ? &weft::efa::kModel : nullptr;
}
