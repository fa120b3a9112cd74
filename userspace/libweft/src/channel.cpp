// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstring>
#include <memory>

#include "device.hpp"
#include "error.hpp"

using weft::front::fail;
using weft::front::guarded;

int weft_channel_create(weft_device* device, uint32_t port, uint32_t sync_base, uint32_t sync_count, weft_channel** out,
                        weft_endpoint* local) {
  *out = nullptr;
  if (device->backend->channel_create == nullptr)
    return fail(EOPNOTSUPP, "backend %s has no channels", device->backend->name);
  return guarded("weft_channel_create", [&] {
    auto made = std::make_unique<weft_channel>();
    made->device = device;
    const int error = device->backend->channel_create(device->handle, port, sync_base, sync_count, &made->backend);
    if (error == -EOPNOTSUPP) return fail(EOPNOTSUPP, "backend %s has no channels", device->backend->name);
    if (error != 0) return fail(-error, "weft_channel_create: port %u: %s", port, std::strerror(-error));
    std::unique_ptr<weft_channel, decltype(&weft_channel_destroy)> channel(made.release(), weft_channel_destroy);
    if (local != nullptr) *local = channel->backend.local;
    std::lock_guard guard(device->objects_lock);
    device->channels.insert(channel.get());
    *out = channel.release();
    return 0;
  });
}

int weft_channel_connect(weft_channel* channel, const weft_endpoint* remote, uint8_t timeout, uint8_t retry_cnt) {
  if (timeout > 31 || retry_cnt > 7)
    return fail(EINVAL, "weft_channel_connect: timeout %u (at most 31), retry_cnt %u (at most 7)", timeout, retry_cnt);
  const int error =
      channel->device->backend->channel_connect(channel->device->handle, &channel->backend, remote, timeout, retry_cnt);
  return error != 0
             ? fail(-error, "weft_channel_connect: channel %u: %s", channel->backend.number, std::strerror(-error))
             : 0;
}

uint32_t weft_channel_number(const weft_channel* channel) { return channel->backend.number; }

int weft_channel_state(weft_channel* channel, uint32_t* state, uint32_t* error) {
  std::uint32_t ignored = 0;
  const int result =
      channel->device->backend->channel_state(channel->device->handle, &channel->backend,
                                              state != nullptr ? state : &ignored, error != nullptr ? error : &ignored);
  return result != 0
             ? fail(-result, "weft_channel_state: channel %u: %s", channel->backend.number, std::strerror(-result))
             : 0;
}

void weft_channel_destroy(weft_channel* channel) {
  if (channel == nullptr) return;
  std::unique_ptr<weft_channel> owner(channel);
  {
    std::lock_guard guard(channel->device->objects_lock);
    channel->device->channels.erase(channel);
  }
  channel->device->backend->channel_destroy(channel->device->handle, &channel->backend);
}
