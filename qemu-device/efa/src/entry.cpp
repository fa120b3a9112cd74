// SPDX-License-Identifier: MIT
// The host NIC behind the model ABI.
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string_view>

#include "device.hpp"
#include "weft/efa/efa.h"

namespace weft::efa {

namespace {

Device& device(void* model) { return *static_cast<Device*>(model); }

int create(const weft_abi_host* host, const weft_abi_config* config, void** model, char* message, std::size_t room) {
  try {
    *model = std::make_unique<Device>(*host, parse_options(*config)).release();
    return 0;
  } catch (const std::bad_alloc&) {
    if (message && room) std::snprintf(message, room, "not enough memory for the device's tables");
    return -ENOMEM;
  } catch (const std::exception& error) {
    if (message && room) std::snprintf(message, room, "%s", error.what());
    return -EINVAL;
  }
}

constexpr weft_abi_model kModel = {
    .size = sizeof(weft_abi_model),
    .version = WEFT_ABI_VERSION,
    .create = create,
    .destroy = [](void* model) { std::unique_ptr<Device>(static_cast<Device*>(model)); },
    .info = [](void* model, weft_abi_info* info) { device(model).info(*info); },
    .attach_ram = [](void* model, std::uint32_t bar, void* base,
                     std::uint64_t bytes) { return device(model).attach_ram(bar, base, bytes); },
    .region_read = [](void* model, std::uint32_t bar, std::uint64_t offset,
                      std::uint32_t bytes) { return device(model).region_read(bar, offset, bytes); },
    .region_write = [](void* model, std::uint32_t bar, std::uint64_t offset, std::uint64_t value,
                       std::uint32_t bytes) { device(model).region_write(bar, offset, value, bytes); },
    // Bus memory is reached through the host's calls only, so there is nothing to note.
    .dma_map = [](void*, std::uint64_t, std::uint64_t, void*) {},
    .dma_unmap = [](void*, std::uint64_t, std::uint64_t) {},
    .reset = [](void* model, weft_abi_reset kind) { return device(model).reset(kind); },
    .quiesce = [](void* model) { return device(model).quiesce(); },
    .resume = [](void* model) { return device(model).resume(); },
    .link_receive =
        [](void* model, std::uint32_t link, std::uint32_t cls, const void* frame, std::size_t bytes) {
          return device(model).link_receive(link, cls, {static_cast<const std::byte*>(frame), bytes});
        },
    .link_ready = [](void* model, std::uint32_t link, std::uint32_t cls) { device(model).link_ready(link, cls); },
    // A paused link gives no credit, and link_ready() ends that.
    .link_pause = [](void*, std::uint32_t, std::uint32_t, int) {},
    .link_state = [](void* model, std::uint32_t link, int up) { device(model).link_state(link, up != 0); },
    .step = [](void* model, std::uint32_t budget) { return device(model).step(budget); },
    .fault = [](void* model, const char* name, const std::uint64_t* value,
                std::uint32_t values) { return device(model).fault(name, {value, value != nullptr ? values : 0}); },
};

}  // namespace

}  // namespace weft::efa

extern "C" __attribute__((visibility("default"))) const weft_abi_model* weft_efa_model_entry(std::uint32_t version) {
  return version == WEFT_ABI_VERSION ? &weft::efa::kModel : nullptr;
}
