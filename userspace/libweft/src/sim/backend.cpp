// SPDX-License-Identifier: MIT
// The backend table over the simulator: locks, finds the object, calls the driver in this process.
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "../backends.hpp"
#include "context.hpp"
#include "process.hpp"

namespace weft::sim {
namespace {

constexpr std::uint32_t kGetOn = 64;  // events that a call which only looks lets happen

// An open device.
struct Open {
  std::shared_ptr<Simulator> simulator;
  std::unique_ptr<Context> context;
  Simulator::User* user = nullptr;
};

// Inside the simulator on behalf of a call.
class Entry {
 public:
  explicit Entry(void* device) : open_(*static_cast<Open*>(device)), lock_(open_.simulator->enter()) {
    open_.simulator->touch(open_.user);
  }
  ~Entry() { open_.simulator->leave(); }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  Open& open() { return open_; }
  Context* operator->() { return open_.context.get(); }
  std::unique_lock<std::mutex>& lock() { return lock_; }

 private:
  Open& open_;
  std::unique_lock<std::mutex> lock_;
};

int sim_count() { return static_cast<int>(process_devices()); }

int sim_open(const char* argument, void** device, char* message, std::size_t room) {
  const std::string text = *argument != '\0' ? argument : "0";
  std::uint32_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size()) {
    std::snprintf(message, room, "'%s' is no device number", text.c_str());
    return -EINVAL;
  }
  std::string why;
  auto open = std::make_unique<Open>();
  open->simulator = process_simulator(why);
  int error = -ENODEV;
  if (open->simulator) {
    const auto lock = open->simulator->enter();
    if (Driver* driver = open->simulator->driver(number, why, error)) {
      open->context = driver->open(error);
      if (!open->context)
        why = error == -EBUSY ? "all contexts of the device are in use" : "the device refused a context";
    }
    if (open->context) open->user = open->simulator->add_user();
    open->simulator->leave();
  }
  if (!open->context) {
    std::snprintf(message, room, "%s", why.c_str());
    return error;
  }
  *device = open.release();
  return 0;
}

void sim_close(void* device) {
  std::unique_ptr<Open> open(static_cast<Open*>(device));
  const auto lock = open->simulator->enter();
  open->context.reset();
  open->simulator->remove_user(open->user);
  open->simulator->leave();
}

int sim_info(void* device, struct weft_device_info* info) { return Entry(device)->driver().info(*info); }

int sim_counters(void* device, int port, std::uint64_t* value, std::size_t room) {
  return Entry(device)->driver().counters(port, value, room);
}

int sim_sensors(void* device, weft_mbox_sensors* out) { return Entry(device)->driver().sensors(*out); }

int sim_port(void* device, std::uint32_t port, weft_mbox_port* out) { return Entry(device)->driver().port(port, *out); }

int sim_log(void* device, std::uint32_t first, weft_log_record* record, std::size_t room) {
  return Entry(device)->driver().log(first, record, room);
}

int sim_mem_alloc(void* device, std::uint64_t bytes, unsigned flags, weft_backend_mem* out) {
  return Entry(device)->mem_alloc(bytes, flags, *out);
}

int sim_mem_register(void* device, void* base, std::uint64_t bytes, unsigned flags, weft_backend_mem* out) {
  return Entry(device)->mem_register(base, bytes, flags, *out);
}

void sim_mem_free(void* device, weft_backend_mem* mem) {
  Entry(device)->mem_free(static_cast<Context::Memory*>(mem->handle));
}

void* sim_mem_map(void* device, weft_backend_mem* mem) {
  return Entry(device)->mem_map(static_cast<Context::Memory*>(mem->handle));
}

void sim_mem_unmap(void*, weft_backend_mem*, void*) {}

int sim_sync_alloc(void* device, std::uint32_t count, unsigned, std::uint32_t* first) {
  return Entry(device)->sync_alloc(count, *first);
}

void sim_sync_free(void* device, std::uint32_t first, std::uint32_t count) { Entry(device)->sync_free(first, count); }

// Who polls must see time pass, too.
std::uint64_t sim_sync_value(void* device, std::uint32_t sync) {
  Entry entry(device);
  entry.open().simulator->get_on(kGetOn);
  return entry->sync_value(sync);
}

int sim_sync_signal(void* device, std::uint32_t sync, std::uint32_t add) {
  return Entry(device)->sync_signal(sync, add);
}

int sim_sync_wait(void* device, const weft_sync_event* event, std::uint32_t events, std::int64_t timeout_ns,
                  const weft_wait_scope* scope, std::uint32_t* any, weft_failure* failure) {
  Entry entry(device);
  Simulator& simulator = *entry.open().simulator;
  const Context& context = *entry.operator->();
  if (events == 0) {
    simulator.get_on(kGetOn);
    return 0;
  }
  for (std::uint32_t i = 0; i < events; ++i)
    if (event[i].sync >= WEFT_SYNCS_PER_CONTEXT) return -EINVAL;
  const auto reached = [&] {
    for (std::uint32_t i = 0; i < events; ++i) {
      const bool met = context.sync_value(event[i].sync) >= event[i].value;
      if (any != nullptr && met) {
        *any = i;
        return true;
      }
      if (any == nullptr && !met) return false;
    }
    return any == nullptr;
  };
  const std::function<bool()> over = [&] { return reached() || context.failure(scope) != nullptr; };
  if (timeout_ns == 0) {
    if (!over()) simulator.get_on(kGetOn);
  } else if (!over()) {
    for (std::uint32_t i = 0; i < events; ++i)
      if (context.sync_value(event[i].sync) < event[i].value) entry->sync_arm(event[i].sync, event[i].value);
    const std::uint64_t now = simulator.time();
    const auto span = static_cast<std::uint64_t>(timeout_ns);
    simulator.wait(entry.lock(), over, timeout_ns < 0 || span > UINT64_MAX - now ? UINT64_MAX : now + span);
  }
  if (reached()) return 0;
  if (const weft_failure* failed = context.failure(scope)) {
    *failure = *failed;
    return -EIO;
  }
  return -ETIME;
}

int sim_queue_create(void* device, std::uint32_t entries, unsigned flags, weft_backend_queue* out) {
  return Entry(device)->queue_create(entries, flags, *out);
}

void sim_queue_destroy(void* device, weft_backend_queue* queue) {
  Entry(device)->queue_destroy(static_cast<Context::Queue*>(queue->handle));
}

void sim_queue_ring(void* device, weft_backend_queue* queue, std::uint64_t producer) {
  Entry(device)->queue_ring(static_cast<Context::Queue*>(queue->handle), producer);
}

int sim_channel_create(void* device, std::uint32_t port, std::uint32_t sync_base, std::uint32_t sync_count,
                       weft_backend_channel* out) {
  return Entry(device)->channel_create(port, sync_base, sync_count, *out);
}

int sim_channel_connect(void* device, weft_backend_channel* channel, const weft_endpoint* remote, std::uint8_t timeout,
                        std::uint8_t retry_cnt) {
  return Entry(device)->channel_connect(static_cast<Context::Channel*>(channel->handle), *remote, timeout, retry_cnt);
}

int sim_channel_state(void* device, weft_backend_channel* channel, std::uint32_t* state, std::uint32_t* error) {
  return Entry(device)->channel_state(static_cast<Context::Channel*>(channel->handle), *state, *error);
}

void sim_channel_destroy(void* device, weft_backend_channel* channel) {
  Entry(device)->channel_destroy(static_cast<Context::Channel*>(channel->handle));
}

constexpr weft_backend kTable = {
    .size = sizeof(weft_backend),
    .version = WEFT_BACKEND_VERSION,
    .name = "sim",
    .count = sim_count,
    .open = sim_open,
    .close = sim_close,
    .info = sim_info,
    .counters = sim_counters,
    .sensors = sim_sensors,
    .port = sim_port,
    .log = sim_log,
    .mem_alloc = sim_mem_alloc,
    .mem_register = sim_mem_register,
    .mem_free = sim_mem_free,
    .mem_map = sim_mem_map,
    .mem_unmap = sim_mem_unmap,
    .mem_export = nullptr,
    .sync_alloc = sim_sync_alloc,
    .sync_free = sim_sync_free,
    .sync_value = sim_sync_value,
    .sync_signal = sim_sync_signal,
    .sync_wait = sim_sync_wait,
    .queue_create = sim_queue_create,
    .queue_destroy = sim_queue_destroy,
    .queue_ring = sim_queue_ring,
    .channel_create = sim_channel_create,
    .channel_connect = sim_channel_connect,
    .channel_state = sim_channel_state,
    .channel_destroy = sim_channel_destroy,
};

}  // namespace

const weft_backend* backend() { return &kTable; }

}  // namespace weft::sim
