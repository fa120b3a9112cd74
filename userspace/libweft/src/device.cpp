// SPDX-License-Identifier: MIT
#include "device.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "copies.hpp"
#include "error.hpp"
#include "weft/sized.hpp"

using weft::front::fail;
using weft::front::guarded;

weft_device::weft_device(const weft_backend* table, void* backend_device)
    : backend(table), handle(backend_device), copies(std::make_unique<weft::front::Copies>(*this)) {}

// What the user left behind goes with the device: first what uses memory, then memory.
weft_device::~weft_device() {
  copies.reset();
  while (!streams.empty()) weft_stream_destroy(*streams.begin());
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
  return guarded("weft_device_open", [&] {
    const char* from = spec != nullptr ? spec : std::getenv("WEFT_DEVICE");
    const std::string text = from != nullptr && *from != '\0' ? from : "kernel";
    const auto [name, argument] = weft::front::parse(text);
    int error = 0;
    const weft_backend* backend = weft::front::find_backend(name, error);
    if (backend == nullptr) return error;
    std::array<char, 400> message{};
    void* handle = nullptr;
    error = backend->open(argument.c_str(), &handle, message.data(), message.size());
    if (error != 0)
      return fail(-error, "cannot open %s: %s", text.c_str(),
                  message[0] != '\0' ? message.data() : std::strerror(-error));
    std::unique_ptr<void, void (*)(void*)> opened(handle, backend->close);
    auto device = std::make_unique<weft_device>(backend, handle);
    opened.release();
    *out = device.release();
    return 0;
  });
}

void weft_device_close(weft_device* device) { std::unique_ptr<weft_device> owner(device); }

int weft_device_count(const char* name) {
  return guarded("weft_device_count", [&] {
    int error = 0;
    const weft_backend* backend =
        weft::front::find_backend(weft::front::parse(name != nullptr ? name : "kernel").backend, error);
    return backend != nullptr ? backend->count() : error;
  });
}

int weft_device_info(weft_device* device, struct weft_device_info* info) {
  return guarded("weft_device_info", [&] {
    struct weft_device_info whole{};
    whole.size = sizeof(whole);
    if (const int error = device->backend->info(device->handle, &whole); error != 0)
      return fail(-error, "weft_device_info: %s", std::strerror(-error));
    return weft::write_sized(whole, info) == 0 ? 0 : fail(EINVAL, "weft_device_info: size is not set");
  });
}

int weft_counters(weft_device* device, int port, uint64_t* value, size_t room) {
  return guarded("weft_counters", [&] {
    const int count = device->backend->counters(device->handle, port, value, room);
    return count < 0 ? fail(-count, "weft_counters: port %d: %s", port, std::strerror(-count)) : count;
  });
}

int weft_sensors(weft_device* device, weft_mbox_sensors* out) {
  return guarded("weft_sensors", [&] {
    const int error = device->backend->sensors(device->handle, out);
    return error != 0 ? fail(-error, "weft_sensors: %s", std::strerror(-error)) : 0;
  });
}

int weft_port(weft_device* device, uint32_t port, weft_mbox_port* out) {
  return guarded("weft_port", [&] {
    const int error = device->backend->port(device->handle, port, out);
    return error != 0 ? fail(-error, "weft_port: port %u: %s", port, std::strerror(-error)) : 0;
  });
}

int weft_log(weft_device* device, uint32_t first, weft_log_record* record, size_t room) {
  return guarded("weft_log", [&] {
    const int count = device->backend->log(device->handle, first, record, room);
    return count < 0 ? fail(-count, "weft_log: %s", std::strerror(-count)) : count;
  });
}
