// SPDX-License-Identifier: MIT
// The "kernel" backend: the weft driver's /dev/accel/accelN.
#include <dirent.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../backends.hpp"
#include "weft/hw/regs.h"
#include "weft_accel.h"

namespace weft::kernel {
namespace {

constexpr std::uint32_t kWaitItems = 64;  // a DRM_IOCTL_WEFT_WAIT

class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;

  int get() const { return fd_; }

  // 0 or a negative errno value. A signal does not end it: no ioctl but WAIT blocks for long.
  template <typename Argument>
  int call(unsigned long request, Argument& argument) const {
    int result;
    do {
      result = ioctl(fd_, request, &argument);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    return result == 0 ? 0 : -errno;
  }

 private:
  int fd_;
};

class Mapping {
 public:
  Mapping() = default;
  // Empty when it fails (errno).
  Mapping(const File& file, std::uint64_t offset, std::size_t bytes, int protection)
      : base_(mmap(nullptr, bytes, protection, MAP_SHARED, file.get(), static_cast<off_t>(offset))), bytes_(bytes) {
    if (base_ == MAP_FAILED) base_ = nullptr;
  }
  ~Mapping() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }
  Mapping(Mapping&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* base() const { return base_; }

 private:
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
};

template <typename Argument>
Argument argument() {
  Argument empty{};
  empty.size = sizeof(empty);
  return empty;
}

// An open file. Its context in the device, and what is mapped of it, is made when it is first needed: who only asks
// questions may ask a device that is full, or failed.
struct Device {
  explicit Device(File opened) : file(std::move(opened)) {}

  // 0 or a negative errno value.
  int need_context() {
    if (syncs.load(std::memory_order_acquire) != 0) return 0;
    std::lock_guard guard(lock);
    if (syncs.load() != 0) return 0;
    auto context = argument<drm_weft_context>();
    if (const int error = file.call(DRM_IOCTL_WEFT_CONTEXT, context); error != 0) return error;
    doorbells = Mapping(file, context.doorbell_offset, WEFT_DOORBELL_PAGE, PROT_WRITE);
    if (doorbells.base() == nullptr) return -errno;
    shadow = Mapping(file, context.shadow_offset, context.shadow_bytes, PROT_READ);
    if (shadow.base() == nullptr) return -errno;
    syncs.store(context.shadow_bytes / sizeof(std::uint64_t), std::memory_order_release);
    return 0;
  }

  void ring(std::uint64_t offset, std::uint64_t value) const {
    auto* word = reinterpret_cast<volatile std::uint64_t*>(static_cast<std::byte*>(doorbells.base()) + offset);
    // Rings may lie behind a write-combining mapping: a full barrier drains it before the doorbell.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    *word = value;
  }

  File file;
  std::mutex lock;
  Mapping doorbells;                    // struct of 64-bit words, write-only
  Mapping shadow;                       // sync objects' values
  std::atomic<std::uint64_t> syncs{0};  // how many there are; 0: no context yet
};

struct Memory {
  std::uint32_t handle = 0;
  bool host = false;
  std::uint64_t mmap_offset = 0;
};

struct Queue {
  Mapping ring;
};

Device& of(void* device) { return *static_cast<Device*>(device); }

bool is_weft(const File& file) {
  drm_version version{};
  std::array<char, 16> name{};
  version.name = name.data();
  version.name_len = name.size() - 1;
  return file.call(DRM_IOCTL_VERSION, version) == 0 && std::strcmp(name.data(), "weft") == 0;
}

std::string path_of(unsigned number) { return "/dev/accel/accel" + std::to_string(number); }

// Numbers of the accelerator nodes, whoever's they are.
std::vector<unsigned> nodes() {
  std::vector<unsigned> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir("/dev/accel"), closedir);
  if (!directory) return found;
  while (const dirent* entry = readdir(directory.get())) {
    constexpr std::string_view kPrefix = "accel";
    const std::string_view name = entry->d_name;
    unsigned number = 0;
    if (!name.starts_with(kPrefix)) continue;
    const auto [end, error] = std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  return found;
}

int count() {
  int devices = 0;
  for (unsigned number : nodes()) {
    const File file(open(path_of(number).c_str(), O_RDWR | O_CLOEXEC));
    if (file.get() >= 0 && is_weft(file)) ++devices;
  }
  return devices;
}

bool module_loaded() { return access("/sys/module/weft", F_OK) == 0; }

[[gnu::format(printf, 4, 5)]] int refuse(int error, char* message, std::size_t room, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, room, format, arguments);
  va_end(arguments);
  return -error;
}

int open_device(const char* text, void** out, char* message, std::size_t room) {
  std::optional<unsigned> wanted;
  if (*text != '\0') {
    unsigned number = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
    if (error != std::errc() || *end != '\0') return refuse(EINVAL, message, room, "'%s' is no device number", text);
    wanted = number;
  }
  std::optional<File> file;
  int denied = -1;
  for (unsigned number : wanted ? std::vector<unsigned>{*wanted} : nodes()) {
    File candidate(open(path_of(number).c_str(), O_RDWR | O_CLOEXEC));
    if (candidate.get() < 0) {
      if (errno == EACCES || errno == EPERM) denied = static_cast<int>(number);
      if (wanted && errno != ENOENT && errno != EACCES && errno != EPERM)
        return refuse(errno, message, room, "%s: %s", path_of(number).c_str(), std::strerror(errno));
      continue;
    }
    if (!is_weft(candidate)) {
      if (wanted) return refuse(ENODEV, message, room, "%s belongs to another driver", path_of(number).c_str());
      continue;
    }
    file.emplace(std::move(candidate));
    break;
  }
  if (!file) {
    if (denied >= 0)
      return refuse(EACCES, message, room, "%s: no permission (join the group that owns it, usually render)",
                    path_of(static_cast<unsigned>(denied)).c_str());
    if (!module_loaded()) return refuse(ENODEV, message, room, "the weft driver is not loaded (modprobe weft)");
    if (wanted) return refuse(ENODEV, message, room, "there is no %s", path_of(*wanted).c_str());
    return refuse(ENODEV, message, room, "the weft driver is loaded but has no device (see dmesg)");
  }

  *out = std::make_unique<Device>(std::move(*file)).release();
  return 0;
}

// Fetches a topic; bytes received or a negative errno value.
int query(Device& device, std::uint32_t topic, std::uint32_t index, void* data, std::size_t bytes) {
  auto request = argument<drm_weft_info>();
  request.topic = topic;
  request.index = index;
  request.data = reinterpret_cast<std::uintptr_t>(data);
  request.bytes = static_cast<std::uint32_t>(bytes);
  const int error = device.file.call(DRM_IOCTL_WEFT_INFO, request);
  return error != 0 ? error : static_cast<int>(std::min<std::size_t>(request.bytes, bytes));
}

template <std::size_t To, std::size_t From>
void copy_text(char (&to)[To], const std::uint8_t (&from)[From]) {
  const char* text = reinterpret_cast<const char*>(from);
  const std::size_t bytes = strnlen(text, std::min(From, To - 1));
  std::memcpy(to, text, bytes);
  to[bytes] = 0;
}

int info(void* handle, struct weft_device_info* info) {
  Device& device = of(handle);
  drm_weft_device about{};
  drm_weft_hbm hbm{};
  if (const int got = query(device, WEFT_INFO_DEVICE, 0, &about, sizeof(about)); got < 0) return got;
  if (const int got = query(device, WEFT_INFO_HBM, 0, &hbm, sizeof(hbm)); got < 0) return got;
  info->ports = about.ports;
  info->hw_version = about.hw_version;
  info->fw_version = about.fw_version;
  info->caps = about.caps;
  info->queue_window = about.queue_window;
  info->syncs = about.syncs;
  info->queues = about.queues;
  info->resets = about.resets;
  info->state = about.state;
  info->hbm_bytes = hbm.total;
  info->hbm_used = hbm.used;
  info->hbm_largest_free = hbm.largest_free;
  std::snprintf(info->backend, sizeof(info->backend), "kernel");
  copy_text(info->serial, about.serial);
  copy_text(info->bdf, about.bdf);
  copy_text(info->fw_name, about.fw_name);
  return 0;
}

#define WEFT_NAME(name, text) #name,
constexpr std::string_view kCounters[] = {WEFT_COUNTERS(WEFT_NAME)};
constexpr std::string_view kPortCounters[] = {WEFT_PORT_COUNTERS(WEFT_NAME)};
#undef WEFT_NAME

// The driver's counters have names; the library's have an order. What one of them does not know is left out, or 0.
int counters(void* handle, int port, std::uint64_t* value, std::size_t room) {
  const std::span<const std::string_view> names =
      port < 0 ? std::span<const std::string_view>(kCounters) : std::span<const std::string_view>(kPortCounters);
  std::vector<drm_weft_counter> counter(2 * names.size());
  const int got =
      query(of(handle), port < 0 ? WEFT_INFO_COUNTERS : WEFT_INFO_PORT_COUNTERS,
            port < 0 ? 0 : static_cast<std::uint32_t>(port), counter.data(), counter.size() * sizeof(counter[0]));
  if (got < 0) return got;
  counter.resize(static_cast<std::size_t>(got) / sizeof(counter[0]));
  const std::size_t count = std::min(room, names.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = std::find_if(counter.begin(), counter.end(), [&](const drm_weft_counter& one) {
      return names[i] == reinterpret_cast<const char*>(one.name);
    });
    value[i] = found != counter.end() ? found->value : 0;
  }
  return static_cast<int>(count);
}

int sensors(void* handle, weft_mbox_sensors* out) {
  drm_weft_sensors sensors{};
  const int got = query(of(handle), WEFT_INFO_SENSORS, 0, &sensors, sizeof(sensors));
  if (got < 0) return got;
  if (sensors.time_ns == 0) return -EIO;  // it failed before anybody asked
  *out = {};
  out->temperature_mc = sensors.temperature_mc;
  out->hbm_temperature_mc = sensors.hbm_temperature_mc;
  out->power_mw = sensors.power_mw;
  out->voltage_mv = sensors.voltage_mv;
  out->clock_mhz = sensors.clock_mhz;
  return 0;
}

int port(void* handle, std::uint32_t number, weft_mbox_port* out) {
  auto request = argument<drm_weft_port>();
  request.port = number;
  if (const int error = of(handle).file.call(DRM_IOCTL_WEFT_PORT, request); error != 0) return error;
  *out = {};
  out->port = number;
  out->state = request.state;
  out->admin_up = request.admin_up;
  out->gids = static_cast<std::uint8_t>(request.gid_count);
  std::memcpy(out->mac, request.mac, sizeof(out->mac));
  std::memcpy(out->ipv4, request.ipv4, sizeof(out->ipv4));
  std::memcpy(out->ipv6, request.ipv6, sizeof(out->ipv6));
  out->mtu = request.mtu;
  out->speed_mbps = request.speed_mbps;
  out->flaps = request.flaps;
  return 0;
}

int log(void* handle, std::uint32_t first, weft_log_record* record, std::size_t room) {
  std::vector<drm_weft_log_record> records(std::min<std::size_t>(room, 1024));
  auto request = argument<drm_weft_log>();
  request.first = first;
  request.count = static_cast<std::uint32_t>(records.size());
  request.records = reinterpret_cast<std::uintptr_t>(records.data());
  if (const int error = of(handle).file.call(DRM_IOCTL_WEFT_LOG, request); error != 0) return error;
  for (std::uint32_t i = 0; i < request.count; ++i) {
    const drm_weft_log_record& from = records[i];
    record[i] = {from.number, from.severity, from.code, from.time_ms, {}};
    std::memcpy(record[i].text, from.text, std::min(sizeof(record[i].text), sizeof(from.text)));
  }
  return static_cast<int>(request.count);
}

int mem_alloc(void* handle, std::uint64_t bytes, unsigned flags, weft_backend_mem* out) {
  if (const int error = of(handle).need_context(); error != 0) return error;
  auto request = argument<drm_weft_bo_create>();
  if ((flags & WEFT_MEM_REMOTE_READ) != 0) request.flags |= WEFT_BO_REMOTE_READ;
  if ((flags & WEFT_MEM_REMOTE_WRITE) != 0) request.flags |= WEFT_BO_REMOTE_WRITE;
  request.bytes = bytes;
  if (const int error = of(handle).file.call(DRM_IOCTL_WEFT_BO_CREATE, request); error != 0)
    return error == -ENOSPC ? -ENOMEM : error;
  auto memory = std::make_unique<Memory>(Memory{request.handle, false, request.mmap_offset});
  *out = {memory.release(), request.va, request.key, 0, request.bytes, request.generation};
  return 0;
}

int mem_register(void* handle, void* base, std::uint64_t bytes, unsigned flags, weft_backend_mem* out) {
  if ((flags & (WEFT_MEM_REMOTE_READ | WEFT_MEM_REMOTE_WRITE)) != 0) return -EOPNOTSUPP;
  if (const int error = of(handle).need_context(); error != 0) return error;
  static std::atomic<std::uint64_t> generation{1ull << 63};  // apart from the driver's own
  auto request = argument<drm_weft_host_register>();
  request.flags = (flags & WEFT_MEM_READ_ONLY) != 0 ? 0 : WEFT_HOST_WRITE;
  request.address = reinterpret_cast<std::uintptr_t>(base);
  request.bytes = bytes;
  if (const int error = of(handle).file.call(DRM_IOCTL_WEFT_HOST_REGISTER, request); error != 0) return error;
  auto memory = std::make_unique<Memory>(Memory{request.handle, true, 0});
  *out = {memory.release(), request.va, request.key, 0, bytes, generation.fetch_add(1)};
  return 0;
}

void mem_free(void* handle, weft_backend_mem* mem) {
  const std::unique_ptr<Memory> memory(static_cast<Memory*>(mem->handle));
  if (memory->host) {
    auto request = argument<drm_weft_handle>();
    request.handle = memory->handle;
    of(handle).file.call(DRM_IOCTL_WEFT_HOST_UNREGISTER, request);
  } else {
    drm_gem_close request{};
    request.handle = memory->handle;
    of(handle).file.call(DRM_IOCTL_GEM_CLOSE, request);
  }
}

void* mem_map(void* handle, weft_backend_mem* mem) {
  const auto& memory = *static_cast<Memory*>(mem->handle);
  if (memory.host) return nullptr;
  void* base = mmap(nullptr, mem->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, of(handle).file.get(),
                    static_cast<off_t>(memory.mmap_offset));
  return base == MAP_FAILED ? nullptr : base;
}

void mem_unmap(void*, weft_backend_mem* mem, void* base) { munmap(base, mem->bytes); }

// A DMA-BUF is a whole object; who needs a part takes offsets.
int mem_export(void* handle, weft_backend_mem* mem, std::uint64_t offset, std::uint64_t bytes, int* fd) {
  const auto& memory = *static_cast<Memory*>(mem->handle);
  if (memory.host) return -EOPNOTSUPP;
  if (offset != 0 || bytes != mem->bytes) return -EINVAL;
  drm_prime_handle request{};
  request.handle = memory.handle;
  request.flags = DRM_CLOEXEC | DRM_RDWR;
  const int error = of(handle).file.call(DRM_IOCTL_PRIME_HANDLE_TO_FD, request);
  if (error == 0) *fd = request.fd;
  return error;
}

int sync_alloc(void* handle, std::uint32_t number, unsigned, std::uint32_t* first) {
  if (const int error = of(handle).need_context(); error != 0) return error;
  auto request = argument<drm_weft_sync_create>();
  request.count = number;
  const int error = of(handle).file.call(DRM_IOCTL_WEFT_SYNC_CREATE, request);
  if (error == 0) *first = request.first;
  return error;
}

void sync_free(void* handle, std::uint32_t first, std::uint32_t number) {
  auto request = argument<drm_weft_sync_destroy>();
  request.first = first;
  request.count = number;
  of(handle).file.call(DRM_IOCTL_WEFT_SYNC_DESTROY, request);
}

std::uint64_t sync_value(void* handle, std::uint32_t sync) {
  const Device& device = of(handle);
  if (sync >= device.syncs) return 0;
  return __atomic_load_n(static_cast<const std::uint64_t*>(device.shadow.base()) + sync, __ATOMIC_ACQUIRE);
}

int sync_signal(void* handle, std::uint32_t sync, std::uint32_t add) {
  const Device& device = of(handle);
  if (sync >= device.syncs) return -EINVAL;
  device.ring(WEFT_DB_SIGNAL, WEFT_DB_PAIR(sync, add));
  return 0;
}

// CLOCK_MONOTONIC of `timeout_ns` from now, as the ioctl wants it: negative for ever, 0 just a look.
std::int64_t deadline_of(std::int64_t timeout_ns) {
  if (timeout_ns <= 0) return timeout_ns;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t ns = now.tv_sec * 1'000'000'000ll + now.tv_nsec;
  return timeout_ns > INT64_MAX - ns ? -1 : ns + timeout_ns;
}

int wait_once(Device& device, const weft_sync_event* item, std::uint32_t items, std::int64_t deadline,
              const weft_wait_scope* scope, std::uint32_t* any, weft_failure* failure) {
  static_assert(sizeof(weft_sync_event) == sizeof(drm_weft_wait_item));
  static_assert(WEFT_OBJECT_QUEUE == WEFT_EVENT_QUEUE_ERROR && WEFT_OBJECT_CHANNEL == WEFT_EVENT_QP_ERROR &&
                WEFT_OBJECT_DEVICE == WEFT_EVENT_FATAL);
  auto request = argument<drm_weft_wait>();
  request.flags = any != nullptr ? WEFT_WAIT_ANY : 0;
  request.items = reinterpret_cast<std::uintptr_t>(item);
  request.count = items;
  request.deadline_ns = deadline;
  if (scope != nullptr) {
    request.flags |= WEFT_WAIT_LISTED;
    request.queues = reinterpret_cast<std::uintptr_t>(scope->queue);
    request.channels = reinterpret_cast<std::uintptr_t>(scope->channel);
    request.queue_count = scope->queues;
    request.channel_count = scope->channels;
  }
  // A signal is the caller's affair, so this one is not tried again.
  const int error = ioctl(device.file.get(), DRM_IOCTL_WEFT_WAIT, &request) == 0 ? 0 : -errno;
  if (error == 0 && any != nullptr) *any = request.index;
  if (error == -EIO && failure != nullptr)
    *failure = {request.error, request.error_type, request.object, 0, request.value};
  return error;
}

int sync_wait(void* handle, const weft_sync_event* item, std::uint32_t items, std::int64_t timeout_ns,
              const weft_wait_scope* scope, std::uint32_t* any, weft_failure* failure) {
  Device& device = of(handle);
  // Often it is over already; the values are here, so that a look costs no system call.
  std::uint32_t met = 0;
  for (std::uint32_t i = 0; i < items; ++i) {
    if (sync_value(handle, item[i].sync) < item[i].value) continue;
    ++met;
    if (any == nullptr) continue;
    *any = i;
    return 0;
  }
  if (any == nullptr && met == items) return 0;
  if (any != nullptr && items > kWaitItems) return -E2BIG;
  const std::int64_t deadline = deadline_of(timeout_ns);
  for (std::uint32_t done = 0; done < items; done += kWaitItems) {
    const int error = wait_once(device, item + done, std::min(items - done, kWaitItems), deadline, scope, any, failure);
    if (error != 0) return error;
  }
  return 0;
}

int queue_create(void* handle, std::uint32_t entries, unsigned flags, weft_backend_queue* out) {
  Device& device = of(handle);
  if (const int error = device.need_context(); error != 0) return error;
  auto request = argument<drm_weft_queue_create>();
  request.flags = (flags & WEFT_QUEUE_HBM) != 0 ? WEFT_QUEUE_IN_HBM : 0;
  request.entries = entries;
  if (const int error = device.file.call(DRM_IOCTL_WEFT_QUEUE_CREATE, request); error != 0) return error;
  auto queue = std::make_unique<Queue>(
      Queue{Mapping(device.file, request.ring_offset, request.ring_bytes, PROT_READ | PROT_WRITE)});
  if (queue->ring.base() == nullptr) {
    const int error = -errno;
    auto destroy = argument<drm_weft_handle>();
    destroy.handle = request.queue;
    device.file.call(DRM_IOCTL_WEFT_QUEUE_DESTROY, destroy);
    return error;
  }
  auto* base = static_cast<std::byte*>(queue->ring.base());
  *out = {queue.release(), request.queue, entries, reinterpret_cast<weft_ring_head*>(base),
          base + sizeof(weft_ring_head)};
  return 0;
}

void queue_destroy(void* handle, weft_backend_queue* out) {
  const std::unique_ptr<Queue> queue(static_cast<Queue*>(out->handle));
  auto request = argument<drm_weft_handle>();
  request.handle = out->number;
  of(handle).file.call(DRM_IOCTL_WEFT_QUEUE_DESTROY, request);
}

void queue_ring(void* handle, weft_backend_queue* queue, std::uint64_t producer) {
  of(handle).ring(WEFT_DB_QUEUE(queue->number), producer);
}

int channel_create(void* handle, std::uint32_t number, std::uint32_t sync_base, std::uint32_t sync_count,
                   weft_backend_channel* out) {
  static_assert(sizeof(weft_endpoint) == sizeof(drm_weft_endpoint));
  if (const int error = of(handle).need_context(); error != 0) return error;
  auto request = argument<drm_weft_channel_create>();
  request.port = number;
  request.sync_base = sync_base;
  request.sync_count = sync_count;
  if (const int error = of(handle).file.call(DRM_IOCTL_WEFT_CHANNEL_CREATE, request); error != 0) return error;
  out->handle = nullptr;
  out->number = request.channel;
  std::memcpy(&out->local, &request.local, sizeof(out->local));
  return 0;
}

int channel_connect(void* handle, weft_backend_channel* channel, const weft_endpoint* remote, std::uint8_t timeout,
                    std::uint8_t retry_cnt) {
  auto request = argument<drm_weft_channel_connect>();
  request.channel = channel->number;
  request.timeout = timeout;
  request.retry_cnt = retry_cnt;
  std::memcpy(&request.remote, remote, sizeof(request.remote));
  return of(handle).file.call(DRM_IOCTL_WEFT_CHANNEL_CONNECT, request);
}

int channel_state(void* handle, weft_backend_channel* channel, std::uint32_t* state, std::uint32_t* failed) {
  auto request = argument<drm_weft_channel_query>();
  request.channel = channel->number;
  const int error = of(handle).file.call(DRM_IOCTL_WEFT_CHANNEL_QUERY, request);
  if (error == 0) {
    *state = request.state;
    *failed = request.error;
  }
  return error;
}

void channel_destroy(void* handle, weft_backend_channel* channel) {
  auto request = argument<drm_weft_handle>();
  request.handle = channel->number;
  of(handle).file.call(DRM_IOCTL_WEFT_CHANNEL_DESTROY, request);
}

constexpr weft_backend kTable = {
    .size = sizeof(weft_backend),
    .version = WEFT_BACKEND_VERSION,
    .name = "kernel",
    .count = count,
    .open = open_device,
    .close = [](void* device) { std::unique_ptr<Device> owner(&of(device)); },
    .info = info,
    .counters = counters,
    .sensors = sensors,
    .port = port,
    .log = log,
    .mem_alloc = mem_alloc,
    .mem_register = mem_register,
    .mem_free = mem_free,
    .mem_map = mem_map,
    .mem_unmap = mem_unmap,
    .mem_export = mem_export,
    .sync_alloc = sync_alloc,
    .sync_free = sync_free,
    .sync_value = sync_value,
    .sync_signal = sync_signal,
    .sync_wait = sync_wait,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_ring = queue_ring,
    .channel_create = channel_create,
    .channel_connect = channel_connect,
    .channel_state = channel_state,
    .channel_destroy = channel_destroy,
};

}  // namespace

const weft_backend* backend() { return &kTable; }

}  // namespace weft::kernel
