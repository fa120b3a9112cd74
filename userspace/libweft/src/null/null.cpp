// SPDX-License-Identifier: MIT
// The "null" backend: no device at all. Memory is plain host memory, commands run on the calling CPU. It is the
// template for a backend of your own (userspace/PORTING.md), and what the runtime's tests use when no device matters.
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "../backends.hpp"
#include "reduce.hpp"
#include "weft/hw/regs.h"

namespace weft::null {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kHbm = 4ull << 30;  // what memory objects may sum up to
constexpr std::uint32_t kSyncs = WEFT_SYNCS_PER_CONTEXT;
constexpr std::uint32_t kQueues = 16;
constexpr std::size_t kWindow = 64;  // commands of a queue that may wait at a time

// A memory object: HBM (mapped here) or registered host memory. Its device address is its CPU address with the two top
// bits changed, so that nobody can mistake one for the other.
constexpr std::uint64_t kVa = 0x4000000000000000ull;

struct Memory {
  std::uint32_t key = 0;
  std::byte* base = nullptr;
  std::uint64_t bytes = 0;
  bool mapped = false;  // by us
  bool writable = true;

  std::uint64_t va() const { return kVa | reinterpret_cast<std::uintptr_t>(base); }
};

// A command that was fetched and has not run.
struct Pending {
  weft_cmd cmd;
  weft_cmd_ext ext;
  std::uint64_t slot;  // free-running index of its first slot

  bool fenced() const { return cmd.op == WEFT_OP_FENCE || (cmd.flags & WEFT_CMD_FENCED) != 0; }
};

struct Queue {
  std::uint32_t number = 0;
  std::uint32_t entries = 0;
  std::vector<weft_cmd> memory;  // [0] is the head
  std::uint64_t producer = 0, fetched = 0;
  std::vector<Pending> pending;  // with room for all of the window: a doorbell needs no memory

  weft_ring_head& head() { return reinterpret_cast<weft_ring_head&>(memory[0]); }
  const weft_cmd& slot(std::uint64_t index) const { return memory[1 + (index & (entries - 1))]; }
  bool halted() { return head().state == WEFT_QUEUE_HALTED; }
};

class Device {
 public:
  int mem_alloc(std::uint64_t bytes, unsigned, weft_backend_mem* out) {
    if (bytes > kHbm) return -ENOMEM;
    bytes = (bytes + kPage - 1) / kPage * kPage;
    std::lock_guard guard(lock_);
    if (bytes > kHbm - used_) return -ENOMEM;
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return -ENOMEM;
    try {
      add({0, static_cast<std::byte*>(base), bytes, true, true}, out);
    } catch (...) {
      munmap(base, bytes);
      throw;
    }
    used_ += bytes;
    return 0;
  }

  int mem_register(void* base, std::uint64_t bytes, unsigned flags, weft_backend_mem* out) {
    std::lock_guard guard(lock_);
    add({0, static_cast<std::byte*>(base), bytes, false, (flags & WEFT_MEM_READ_ONLY) == 0}, out);
    return 0;
  }

  void mem_free(weft_backend_mem* mem) {
    std::lock_guard guard(lock_);
    const auto found = memory_.find(mem->key);
    if (found == memory_.end()) return;
    if (found->second.mapped) {
      munmap(found->second.base, found->second.bytes);
      used_ -= found->second.bytes;
    }
    memory_.erase(found);
  }

  void* mem_map(weft_backend_mem* mem) {
    std::lock_guard guard(lock_);
    const auto found = memory_.find(mem->key);
    return found != memory_.end() && found->second.mapped ? found->second.base : nullptr;
  }

  std::uint64_t used() {
    std::lock_guard guard(lock_);
    return used_;
  }

  int sync_alloc(std::uint32_t count, std::uint32_t* first) {
    std::lock_guard guard(lock_);
    for (std::uint32_t begin = 0, length = 0; begin + length < kSyncs;) {
      if (taken_[begin + length]) {
        begin += length + 1;
        length = 0;
      } else if (++length == count) {
        std::fill_n(taken_.begin() + begin, count, true);
        *first = begin;
        return 0;
      }
    }
    return -ENOSPC;
  }

  void sync_free(std::uint32_t first, std::uint32_t count) {
    std::lock_guard guard(lock_);
    if (first < kSyncs && count <= kSyncs - first) std::fill_n(taken_.begin() + first, count, false);
  }

  std::uint64_t sync_value(std::uint32_t sync) {
    std::lock_guard guard(lock_);
    return sync < kSyncs ? value_[sync] : 0;
  }

  int sync_signal(std::uint32_t sync, std::uint32_t amount) {
    if (sync >= kSyncs) return -EINVAL;
    std::lock_guard guard(lock_);
    value_[sync] += amount;
    progress();
    return 0;
  }

  int sync_wait(const weft_sync_event* event, std::uint32_t events, std::int64_t timeout_ns,
                const weft_wait_scope* scope, std::uint32_t* any, weft_failure* failure) {
    for (std::uint32_t i = 0; i < events; ++i)
      if (event[i].sync >= kSyncs) return -EINVAL;
    std::unique_lock guard(lock_);
    const auto reached = [&] {
      std::uint32_t met = 0;
      for (std::uint32_t i = 0; i < events; ++i) {
        if (value_[event[i].sync] < event[i].value) continue;
        ++met;
        if (any != nullptr) *any = i;
        if (any != nullptr) break;
      }
      return any != nullptr ? met > 0 : met == events;
    };
    // Only queues fail here.
    const auto failed = [&] {
      return std::find_if(failures_.begin(), failures_.end(), [&](const weft_failure& one) {
        return scope == nullptr || std::count(scope->queue, scope->queue + scope->queues, one.object) != 0;
      });
    };
    const auto over = [&] { return events == 0 || reached() || failed() != failures_.end(); };
    if (timeout_ns < 0) {
      changed_.wait(guard, over);
    } else {
      changed_.wait_for(guard, std::chrono::nanoseconds(timeout_ns), over);
    }
    if (events == 0 || reached()) return 0;
    if (failed() == failures_.end()) return -ETIME;
    *failure = *failed();
    return -EIO;
  }

  int queue_create(std::uint32_t entries, weft_backend_queue* out) {
    std::lock_guard guard(lock_);
    const auto slot = std::find(queues_.begin(), queues_.end(), nullptr);
    if (slot == queues_.end()) return -ENOSPC;
    auto queue = std::make_unique<Queue>();
    queue->number = static_cast<std::uint32_t>(slot - queues_.begin());
    queue->entries = entries;
    queue->memory.resize(1 + std::size_t{entries});
    queue->pending.reserve(kWindow);
    failures_.reserve(kQueues);
    queue->head().state = WEFT_QUEUE_RUNNING;
    *out = {queue.get(), queue->number, entries, &queue->head(), &queue->memory[1]};
    *slot = std::move(queue);
    return 0;
  }

  void queue_destroy(weft_backend_queue* out) {
    std::lock_guard guard(lock_);
    std::erase_if(failures_, [&](const weft_failure& failure) { return failure.object == out->number; });
    queues_[out->number].reset();
  }

  void queue_ring(weft_backend_queue* out, std::uint64_t producer) {
    std::lock_guard guard(lock_);
    Queue& queue = *queues_[out->number];
    queue.producer = producer;
    ++doorbells_;
    progress();
  }

  int counters(int port, std::uint64_t* value, std::size_t room) {
    if (port >= 0) return -EINVAL;
    std::lock_guard guard(lock_);
    const std::size_t count = std::min<std::size_t>(room, WEFT_CTR_COUNT);
    std::fill_n(value, count, 0);
    if (count > WEFT_CTR_doorbells) value[WEFT_CTR_doorbells] = doorbells_;
    if (count > WEFT_CTR_commands) value[WEFT_CTR_commands] = commands_;
    return static_cast<int>(count);
  }

 private:
  void add(Memory memory, weft_backend_mem* out) {
    memory.key = ++last_key_;
    *out = {nullptr, memory.va(), memory.key, 0, memory.bytes, ++generation_};
    memory_.emplace(memory.key, memory);
  }

  // The CPU's pointer to named memory, or nullptr and the error.
  std::byte* at(std::uint32_t key, std::uint64_t va, std::uint64_t bytes, bool write, weft_error& error) {
    const auto found = memory_.find(key);
    if (found == memory_.end()) return error = WEFT_ERR_BAD_KEY, nullptr;
    const Memory& memory = found->second;
    const std::uint64_t offset = va - memory.va();
    if (offset > memory.bytes || bytes > memory.bytes - offset) return error = WEFT_ERR_BAD_RANGE, nullptr;
    if (write && !memory.writable) return error = WEFT_ERR_BAD_RIGHTS, nullptr;
    return memory.base + offset;
  }

  bool ready(const Pending& entry) const {
    const auto met = [this](std::uint32_t sync, std::uint64_t wanted) {
      return sync == WEFT_SYNC_NONE || (sync < kSyncs && value_[sync] >= wanted);
    };
    if (!met(entry.cmd.wait_id, entry.cmd.wait_value)) return false;
    for (unsigned i = 0; i < entry.ext.waits; ++i)
      if (!met(entry.ext.wait_id[i], entry.ext.wait_value[i])) return false;
    return true;
  }

  // Fields that are wrong whatever memory holds.
  static weft_error check(const Pending& entry) {
    const auto known = [](std::uint32_t sync) { return sync == WEFT_SYNC_NONE || sync < kSyncs; };
    if (entry.cmd.version != WEFT_CMD_VERSION) return WEFT_ERR_BAD_VERSION;
    if (entry.ext.waits > 2) return WEFT_ERR_BAD_FIELD;
    if (!known(entry.cmd.wait_id) || !known(entry.cmd.signal_id)) return WEFT_ERR_BAD_SYNC;
    for (unsigned i = 0; i < entry.ext.waits; ++i)
      if (!known(entry.ext.wait_id[i])) return WEFT_ERR_BAD_SYNC;
    return WEFT_ERR_OK;
  }

  weft_error execute(const Pending& entry) {
    const weft_cmd& cmd = entry.cmd;
    weft_error error = WEFT_ERR_OK;
    switch (cmd.op) {
      case WEFT_OP_NOP:
      case WEFT_OP_FENCE:
        return WEFT_ERR_OK;
      case WEFT_OP_SIGNAL:
        if (cmd.signal_id < kSyncs) value_[cmd.signal_id] += cmd.addr[0];
        return WEFT_ERR_OK;
      case WEFT_OP_COPY: {
        std::byte* to = at(cmd.key[0], cmd.addr[0], cmd.length, true, error);
        const std::byte* from = at(cmd.key[1], cmd.addr[1], cmd.length, false, error);
        if (error == WEFT_ERR_OK) std::memmove(to, from, cmd.length);
        return error;
      }
      case WEFT_OP_FILL: {
        if (cmd.length % 8 != 0 || cmd.addr[0] % 8 != 0) return WEFT_ERR_BAD_ALIGN;
        std::byte* to = at(cmd.key[0], cmd.addr[0], cmd.length, true, error);
        if (error != WEFT_ERR_OK) return error;
        for (std::uint32_t done = 0; done < cmd.length; done += 8) std::memcpy(to + done, &cmd.addr[1], 8);
        return error;
      }
      case WEFT_OP_REDUCE: {
        const std::uint64_t bytes = cmd.length * std::uint64_t{element_bytes(cmd.arg0)};
        if (element_bytes(cmd.arg0) == 0) return WEFT_ERR_BAD_TYPE;
        std::byte* to = at(cmd.key[0], cmd.addr[0], bytes, true, error);
        const std::byte* one = at(cmd.key[1], cmd.addr[1], bytes, false, error);
        const std::byte* other = at(cmd.key[2], cmd.addr[2], bytes, false, error);
        if (error != WEFT_ERR_OK) return error;
        return reduce(cmd.arg0, cmd.arg1, entry.ext.arg16, to, one, other, cmd.length) ? WEFT_ERR_OK
                                                                                       : WEFT_ERR_BAD_TYPE;
      }
      case WEFT_OP_TIMESTAMP: {
        std::byte* to = at(cmd.key[0], cmd.addr[0], 8, true, error);
        const std::uint64_t now =
            static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
        if (error == WEFT_ERR_OK) std::memcpy(to, &now, sizeof(now));
        return error;
      }
      case WEFT_OP_RDMA:
        return WEFT_ERR_BAD_CHANNEL;
      default:
        return WEFT_ERR_BAD_OP;
    }
  }

  void halt(Queue& queue, weft_error error, std::uint64_t slot) {
    queue.head().error = error;
    queue.head().error_index = slot;
    __atomic_store_n(&queue.head().state, std::uint32_t{WEFT_QUEUE_HALTED}, __ATOMIC_RELEASE);
    queue.pending.clear();
    failures_.push_back({error, WEFT_EVENT_QUEUE_ERROR, queue.number, 0, slot});
  }

  // Takes slots as long as the window has room. True when it took some.
  bool fetch(Queue& queue) {
    const std::uint64_t before = queue.fetched;
    while (queue.fetched < queue.producer && queue.pending.size() < kWindow && !queue.halted()) {
      Pending entry{queue.slot(queue.fetched), {}, queue.fetched};
      const bool extended = (entry.cmd.flags & WEFT_CMD_EXT) != 0;
      if (extended && queue.fetched + 1 == queue.producer) {
        halt(queue, WEFT_ERR_BAD_FIELD, entry.slot);
        break;
      }
      if (extended) std::memcpy(&entry.ext, &queue.slot(queue.fetched + 1), sizeof(entry.ext));
      queue.fetched += extended ? 2 : 1;
      if (const weft_error error = check(entry); error != WEFT_ERR_OK) {
        halt(queue, error, entry.slot);
        break;
      }
      queue.pending.push_back(entry);
    }
    __atomic_store_n(&queue.head().fetched, queue.fetched, __ATOMIC_RELEASE);
    return queue.fetched != before;
  }

  // Runs what can run, in order; a command that waits holds up only what comes behind a fence. True when something ran.
  bool dispatch(Queue& queue) {
    for (auto entry = queue.pending.begin(); entry != queue.pending.end(); ++entry) {
      const bool first = entry == queue.pending.begin();
      if (entry->fenced() && !first) return false;
      if (!ready(*entry)) {
        if (entry->cmd.op == WEFT_OP_FENCE) return false;
        continue;
      }
      const Pending now = *entry;
      queue.pending.erase(entry);
      if (const weft_error error = execute(now); error != WEFT_ERR_OK) {
        halt(queue, error, now.slot);
        return true;
      }
      if (now.cmd.op != WEFT_OP_SIGNAL && now.cmd.signal_id != WEFT_SYNC_NONE)
        value_[now.cmd.signal_id] += now.cmd.signal_add;
      ++commands_;
      __atomic_store_n(&queue.head().completed, queue.head().completed + 1, __ATOMIC_RELEASE);
      return true;
    }
    return false;
  }

  // A command of one queue may let one of another go on.
  void progress() {
    for (bool some = true; some;) {
      some = false;
      for (auto& queue : queues_) {
        if (!queue || queue->halted()) continue;
        while (fetch(*queue) | dispatch(*queue)) some = true;
      }
    }
    changed_.notify_all();
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::map<std::uint32_t, Memory> memory_;  // by key
  std::uint64_t used_ = 0;
  std::uint32_t last_key_ = 0;
  std::uint64_t generation_ = 0;
  std::array<std::uint64_t, kSyncs> value_{};
  std::array<bool, kSyncs> taken_{};
  std::array<std::unique_ptr<Queue>, kQueues> queues_;
  std::vector<weft_failure> failures_;
  std::uint64_t doorbells_ = 0, commands_ = 0;
};

Device& of(void* device) { return *static_cast<Device*>(device); }

int open_device(const char* argument, void** device, char* message, std::size_t room) {
  if (*argument != '\0') {
    std::snprintf(message, room, "null takes no argument, '%s' given", argument);
    return -EINVAL;
  }
  *device = std::make_unique<Device>().release();
  return 0;
}

int info(void* device, struct weft_device_info* info) {
  info->hw_version = 1u << 16;
  info->caps = WEFT_CAP_REDUCE;
  info->queue_window = kWindow;
  info->syncs = kSyncs;
  info->queues = kQueues;
  info->hbm_bytes = kHbm;
  info->hbm_used = of(device).used();
  info->hbm_largest_free = kHbm - info->hbm_used;
  std::snprintf(info->backend, sizeof(info->backend), "null");
  std::snprintf(info->serial, sizeof(info->serial), "NULL");
  return 0;
}

constexpr weft_backend kTable = {
    .size = sizeof(weft_backend),
    .version = WEFT_BACKEND_VERSION,
    .name = "null",
    .count = [] { return 1; },
    .open = open_device,
    .close = [](void* device) { std::unique_ptr<Device> owner(&of(device)); },
    .info = info,
    .counters = [](void* device, int port, std::uint64_t* value,
                   std::size_t room) { return of(device).counters(port, value, room); },
    .sensors = [](void*, weft_mbox_sensors*) { return -EOPNOTSUPP; },
    .port = [](void*, std::uint32_t, weft_mbox_port*) { return -EINVAL; },
    .log = [](void*, std::uint32_t, weft_log_record*, std::size_t) { return 0; },
    .mem_alloc = [](void* device, std::uint64_t bytes, unsigned flags,
                    weft_backend_mem* out) { return of(device).mem_alloc(bytes, flags, out); },
    .mem_register = [](void* device, void* base, std::uint64_t bytes, unsigned flags,
                       weft_backend_mem* out) { return of(device).mem_register(base, bytes, flags, out); },
    .mem_free = [](void* device, weft_backend_mem* mem) { of(device).mem_free(mem); },
    .mem_map = [](void* device, weft_backend_mem* mem) { return of(device).mem_map(mem); },
    .mem_unmap = [](void*, weft_backend_mem*, void*) {},
    .mem_export = nullptr,
    .sync_alloc = [](void* device, std::uint32_t count, unsigned,
                     std::uint32_t* first) { return of(device).sync_alloc(count, first); },
    .sync_free = [](void* device, std::uint32_t first, std::uint32_t count) { of(device).sync_free(first, count); },
    .sync_value = [](void* device, std::uint32_t sync) { return of(device).sync_value(sync); },
    .sync_signal = [](void* device, std::uint32_t sync,
                      std::uint32_t add) { return of(device).sync_signal(sync, add); },
    .sync_wait =
        [](void* device, const weft_sync_event* event, std::uint32_t events, std::int64_t timeout_ns,
           const weft_wait_scope* scope, std::uint32_t* any,
           weft_failure* failure) { return of(device).sync_wait(event, events, timeout_ns, scope, any, failure); },
    .queue_create = [](void* device, std::uint32_t entries, unsigned,
                       weft_backend_queue* out) { return of(device).queue_create(entries, out); },
    .queue_destroy = [](void* device, weft_backend_queue* queue) { of(device).queue_destroy(queue); },
    .queue_ring = [](void* device, weft_backend_queue* queue,
                     std::uint64_t producer) { of(device).queue_ring(queue, producer); },
    .channel_create = nullptr,
    .channel_connect = nullptr,
    .channel_state = nullptr,
    .channel_destroy = nullptr,
};

}  // namespace

const weft_backend* backend() { return &kTable; }

}  // namespace weft::null
