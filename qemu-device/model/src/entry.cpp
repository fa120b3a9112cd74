// SPDX-License-Identifier: MIT
// The accelerator behind the model ABI.
#include "device.hpp"
#include "weft/abi/model.hpp"

namespace weft::model {
namespace {

std::unique_ptr<Device> make(const weft_abi_host& host, const weft_abi_config& config) {
  return std::make_unique<Device>(host, parse_options(config), DeviceParts{make_nic, boot_image, boot_native});
}

constexpr weft_abi_model kModel = abi::model_of<Device, make>();

}  // namespace
}  // namespace weft::model

extern "C" __attribute__((visibility("default"))) const weft_abi_model* weft_model_entry(std::uint32_t version) {
  return version == WEFT_ABI_VERSION ? &weft::model::kModel : nullptr;
}
