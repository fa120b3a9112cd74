// SPDX-License-Identifier: MIT
#include "device.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "copy_queue.hpp"
#include "error.hpp"

using weft::front::fail;

weft_device::weft_device(const weft_backend* table, void* backend_device)
    : backend(table), handle(backend_device), copies(std::make_unique<weft::front::CopyQueue>(*this)) {}

// What the user left behind goes with the device: first what uses memory, then memory.
weft_device::~weft_device() {
  copies.reset();
  while (!channels.empty()) weft_channel_destroy(*channels.begin());
  while (!queues.empty()) weft_queue_destroy(*queues.begin());
  std::vector<weft_mem*> left;
  memory.for_each([&](weft_mem* mem) { left.push_back(mem); });
  for (weft_mem* mem : left) weft_mem_free(mem);
  backend->close(handle);
}

int weft_device_open(const char* spec, weft_device** out) {
  if (out == nullptr) return fail(EINVAL, "weft_device_open: out is NULL");
  *out = nullptr;
  if (spec == nullptr) spec = std::getenv("WEFT_DEVICE");
  if (spec == nullptr || *spec == '\0') spec = "kernel";
  const auto [name, argument] = weft::front::parse(spec);
  int error = 0;
  const weft_backend* backend = weft::front::find_backend(name, error);
  if (backend == nullptr) return error;
  std::array<char, 400> message{};
  void* handle = nullptr;
  error = backend->open(argument.c_str(), &handle, message.data(), message.size());
  if (error != 0)
    return fail(-error, "cannot open %s: %s", spec, message[0] != '\0' ? message.data() : std::strerror(-error));
  *out = std::make_unique<weft_device>(backend, handle).release();
  return 0;
}

void weft_device_close(weft_device* device) { std::unique_ptr<weft_device> owner(device); }

int weft_device_count(const char* name) {
  int error = 0;
  const weft_backend* backend =
      weft::front::find_backend(weft::front::parse(name != nullptr ? name : "kernel").backend, error);
  return backend != nullptr ? backend->count() : error;
}

int weft_device_info(weft_device* device, struct weft_device_info* info) {
  if (info == nullptr || info->size < sizeof(info->size)) return fail(EINVAL, "weft_device_info: size is not set");
  struct weft_device_info whole{};
  whole.size = sizeof(whole);
  const int error = device->backend->info(device->handle, &whole);
  if (error != 0) return fail(-error, "weft_device_info: %s", std::strerror(-error));
  whole.size = std::min<std::uint32_t>(info->size, sizeof(whole));
  std::memcpy(info, &whole, whole.size);
  return 0;
}

int weft_counters(weft_device* device, int port, uint64_t* value, size_t room) {
  const int count = device->backend->counters(device->handle, port, value, room);
  return count < 0 ? fail(-count, "weft_counters: port %d: %s", port, std::strerror(-count)) : count;
}

int weft_sensors(weft_device* device, weft_mbox_sensors* out) {
  const int error = device->backend->sensors(device->handle, out);
  return error != 0 ? fail(-error, "weft_sensors: %s", std::strerror(-error)) : 0;
}

int weft_port(weft_device* device, uint32_t port, weft_mbox_port* out) {
  const int error = device->backend->port(device->handle, port, out);
  return error != 0 ? fail(-error, "weft_port: port %u: %s", port, std::strerror(-error)) : 0;
}

int weft_log(weft_device* device, uint32_t first, weft_log_record* record, size_t room) {
  const int count = device->backend->log(device->handle, first, record, room);
  return count < 0 ? fail(-count, "weft_log: %s", std::strerror(-count)) : count;
}
