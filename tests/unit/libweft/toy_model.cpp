// SPDX-License-Identifier: MIT
#include "toy_model.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace weft::test {
namespace {

struct Toy {
  const weft_abi_host& host;
  std::byte* ram = nullptr;
  std::deque<std::uint64_t> requests{};
  std::deque<std::vector<std::byte>> frames{};
  std::uint64_t received = 0, faults = 0, ticks = 0;
  bool up = false;
};

Toy& of(void* model) { return *static_cast<Toy*>(model); }

weft_abi_step step(void* model, std::uint32_t) {
  Toy& toy = of(model);
  const weft_abi_host& host = toy.host;
  if (!toy.requests.empty()) {
    const std::uint64_t iova = toy.requests.front();
    toy.requests.pop_front();
    std::uint64_t value = 0;
    if (host.dma_read(host.opaque, iova, &value, 8, WEFT_ABI_DMA_CONTROL) != 0) {
      ++toy.faults;
    } else {
      ++value;
      host.dma_write(host.opaque, iova, &value, 8, WEFT_ABI_DMA_PAYLOAD);
      host.irq(host.opaque, 1);
    }
  }
  if (!toy.frames.empty()) {
    std::vector<std::byte>& frame = toy.frames.front();
    std::byte destination[6];
    std::memcpy(destination, frame.data() + 6, 6);
    std::memcpy(frame.data() + 6, frame.data(), 6);
    std::memcpy(frame.data(), destination, 6);
    const weft_abi_segment segment{frame.data(), frame.size()};
    if (host.link_send(host.opaque, 0, 0, &segment, 1) == 0) {
      toy.frames.pop_front();
      host.link_credit(host.opaque, 0, 0, 1);
    }
  }
  const bool more = !toy.requests.empty() || !toy.frames.empty();
  if (!more) ++toy.ticks;
  return {more, 0, more ? 0 : host.clock_ns(host.opaque) + 1000};
}

const weft_abi_model kToy = {
    .size = sizeof(weft_abi_model),
    .version = WEFT_ABI_VERSION,
    .create =
        [](const weft_abi_host* host, const weft_abi_config* config, void** model, char* message, std::size_t room) {
          for (std::uint32_t i = 0; i < config->options; ++i) {
            if (std::strcmp(config->option[i].key, "fail") != 0) continue;
            std::snprintf(message, room, "told to fail: %s", config->option[i].value);
            return -EINVAL;
          }
          *model = std::make_unique<Toy>(Toy{*host}).release();
          return 0;
        },
    .destroy = [](void* model) { std::unique_ptr<Toy> owner(&of(model)); },
    .info =
        [](void*, weft_abi_info* info) {
          info->links = 1;
          info->vectors = 2;
          info->frame_max = 9000;
          info->bar[0] = {4096, WEFT_ABI_BAR_MMIO, 0, 0};
          info->bar[2] = {1 << 20, WEFT_ABI_BAR_RAM, 1, 0};
          info->name = "toy";
        },
    .attach_ram =
        [](void* model, std::uint32_t, void* base, std::uint64_t) {
          of(model).ram = static_cast<std::byte*>(base);
          return 0;
        },
    .region_read = [](void* model, std::uint32_t, std::uint64_t offset, std::uint32_t) -> std::uint64_t {
      const Toy& toy = of(model);
      switch (offset) {
        case 8:
          return toy.received;
        case 16:
          return toy.host.clock_ns(toy.host.opaque);
        case 24:
          return toy.faults;
        case 32:
          return toy.ticks;
        default:
          return 0;
      }
    },
    .region_write =
        [](void* model, std::uint32_t, std::uint64_t, std::uint64_t value, std::uint32_t) {
          Toy& toy = of(model);
          toy.requests.push_back(value);
          toy.host.wake(toy.host.opaque);
        },
    .reset = [](void*, weft_abi_reset) { return 0; },
    .quiesce = [](void*) { return 0; },
    .resume = [](void*) { return 0; },
    .link_receive =
        [](void* model, std::uint32_t, std::uint32_t, const void* frame, std::size_t bytes) {
          Toy& toy = of(model);
          ++toy.received;
          const auto* begin = static_cast<const std::byte*>(frame);
          toy.frames.emplace_back(begin, begin + bytes);
          toy.host.wake(toy.host.opaque);
          return 0;
        },
    .link_ready = [](void* model, std::uint32_t, std::uint32_t) { of(model).host.wake(of(model).host.opaque); },
    .link_pause = [](void*, std::uint32_t, std::uint32_t, int) {},
    .link_state = [](void* model, std::uint32_t, int up) { of(model).up = up != 0; },
    .link_station = nullptr,
    .link_receive_ref = nullptr,
    .link_ref_done = nullptr,
    .step = step,
    .fault = nullptr,
};

}  // namespace

const weft_abi_model& toy_model() { return kToy; }

}  // namespace weft::test
