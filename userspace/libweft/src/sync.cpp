// SPDX-License-Identifier: MIT
#include <cerrno>
#include <cstring>

#include "device.hpp"
#include "error.hpp"

using weft::front::fail;
using weft::front::guarded;

int weft_sync_alloc(weft_device* device, uint32_t count, unsigned flags, uint32_t* first) {
  if (count == 0 || flags != 0) return fail(EINVAL, "weft_sync_alloc: %u objects, flags 0x%x", count, flags);
  return guarded("weft_sync_alloc", [&] {
    const int error = device->backend->sync_alloc(device->handle, count, flags, first);
    if (error == -ENOSPC || error == -ENOMEM)
      return fail(-error, "weft_sync_alloc: no run of %u sync objects is free", count);
    return error != 0 ? fail(-error, "weft_sync_alloc: %s", std::strerror(-error)) : 0;
  });
}

void weft_sync_free(weft_device* device, uint32_t first, uint32_t count) {
  device->backend->sync_free(device->handle, first, count);
}

uint64_t weft_sync_value(weft_device* device, uint32_t sync) {
  return device->backend->sync_value(device->handle, sync);
}

int weft_sync_signal(weft_device* device, uint32_t sync, uint32_t add) {
  return guarded("weft_sync_signal", [&] {
    const int error = device->backend->sync_signal(device->handle, sync, add);
    return error != 0 ? fail(-error, "weft_sync_signal: sync object %u: %s", sync, std::strerror(-error)) : 0;
  });
}

int weft_sync_wait(weft_device* device, const weft_sync_event* event, uint32_t events, int64_t timeout_ns,
                   const weft_wait_scope* scope, uint32_t* any, weft_failure* failure) {
  if (event == nullptr || events == 0) return fail(EINVAL, "weft_sync_wait: nothing to wait for");
  weft_failure local{};
  const int error = guarded("weft_sync_wait", [&] {
    return device->backend->sync_wait(device->handle, event, events, timeout_ns, scope, any, &local);
  });
  if (failure != nullptr) *failure = local;
  switch (error) {
    case 0:
      return 0;
    case -ETIME:
      if (timeout_ns == 0) return -ETIME;  // just a look: no failure
      return fail(ETIME, "time-out: sync object %u did not reach %llu", event[0].sync,
                  static_cast<unsigned long long>(event[0].value));
    case -EIO:
      if (local.type == WEFT_EVENT_QUEUE_ERROR)
        return fail(EIO, "queue %u failed at slot %llu: %s", local.object, static_cast<unsigned long long>(local.value),
                    weft_error_text(local.error));
      if (local.type == WEFT_EVENT_QP_ERROR)
        return fail(EIO, "channel %u failed: %s", local.object, weft_error_text(local.error));
      return fail(EIO, "device failed: %s", weft_error_text(local.error));
    case -ENODEV:
      return fail(ENODEV, "the device was removed");
    default:
      return fail(-error, "weft_sync_wait: %s", std::strerror(-error));
  }
}
