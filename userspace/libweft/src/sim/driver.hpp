// SPDX-License-Identifier: MIT
// What the kernel driver does, in this process: boots the firmware, speaks the mailbox, hands out the device's
// resources. It reaches the device by registers, doorbells and DMA memory only, so that the same device paths are used
// as in a VM.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device.hpp"
#include "range_allocator.hpp"
#include "weft/backend.h"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"

namespace weft::sim {

// Lets virtual time pass until `done` or until `deadline_ns`; false at the deadline.
using RunUntil = std::function<bool(const std::function<bool()>& done, std::uint64_t deadline_ns)>;

// Page-aligned memory of this process that the device reaches.
class DmaBuffer {
 public:
  DmaBuffer(HostMemory& host, std::size_t bytes, bool watched);
  ~DmaBuffer();
  DmaBuffer(const DmaBuffer&) = delete;
  DmaBuffer& operator=(const DmaBuffer&) = delete;

  std::byte* data() const { return data_.get(); }
  std::uint64_t iova() const { return iova_; }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* base) const { std::free(base); }
  };
  HostMemory& host_;
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
  std::uint64_t iova_;
};

class Context;

// One device's driver. Calls return 0 or a negative errno value; all of them under the simulator's lock.
class Driver {
 public:
  Driver(Device& device, RunUntil run, std::uint64_t seed);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  // Resets and boots; `image` empty: the firmware that the model has in itself. On failure `why` says what happened.
  int boot(std::span<const std::byte> image, std::string& why);

  Device& device() { return device_; }
  int info(struct weft_device_info& info);
  int counters(int port, std::uint64_t* value, std::size_t room);
  int sensors(weft_mbox_sensors& out);
  int port(std::uint32_t number, weft_mbox_port& out);
  int log(std::uint32_t first, weft_log_record* record, std::size_t room);

  std::unique_ptr<Context> open(int& error);
  std::size_t contexts() const;

 private:
  friend class Context;

  std::uint32_t read32(std::uint64_t reg) { return static_cast<std::uint32_t>(device_.read(WEFT_BAR_REGS, reg, 4)); }
  void write32(std::uint64_t reg, std::uint32_t value) { device_.write(WEFT_BAR_REGS, reg, value, 4); }
  std::uint64_t read64(std::uint64_t reg) { return device_.read(WEFT_BAR_REGS, reg, 8); }

  // A mailbox request; 0 or a negative errno value, the device's own error in *status.
  int call(weft_mbox_op op, const void* request, std::size_t bytes, void* response = nullptr, std::size_t room = 0,
           weft_error* status = nullptr);
  template <typename Request>
  int call(weft_mbox_op op, const Request& request) {
    return call(op, &request, sizeof(request));
  }
  void interrupt(std::uint32_t vector);
  void take_events();

  std::uint32_t random_psn() { return static_cast<std::uint32_t>(random_.next()); }
  std::optional<std::uint32_t> take_key();
  void give_key(std::uint32_t key);

  Device& device_;
  RunUntil run_;
  Random random_;
  std::unique_ptr<DmaBuffer> events_;
  std::uint64_t events_taken_ = 0;
  std::uint32_t sequence_ = 0;
  bool failed_ = false;  // the device stopped answering
  weft_mbox_identity identity_{};
  std::string fw_name_;
  std::unique_ptr<RangeAllocator> hbm_;
  std::deque<std::uint32_t>
      free_keys_;                   // index << 8 | next generation; oldest first, so that a stale key stays stale long
  std::vector<Context*> contexts_;  // by number; 0 is the driver's own
  std::uint64_t generation_ = 0;    // of memory objects
};

// A hardware context: what an open file is with the kernel driver.
class Context {
 public:
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  struct Memory;
  struct Queue;
  struct Channel;

  Driver& driver() { return driver_; }

  int mem_alloc(std::uint64_t bytes, unsigned flags, weft_backend_mem& out);
  int mem_register(void* base, std::uint64_t bytes, unsigned flags, weft_backend_mem& out);
  void mem_free(Memory* memory);
  void* mem_map(Memory* memory);

  int sync_alloc(std::uint32_t count, std::uint32_t& first);
  void sync_free(std::uint32_t first, std::uint32_t count);
  std::uint64_t sync_value(std::uint32_t sync) const;
  int sync_signal(std::uint32_t sync, std::uint32_t add);
  // Ask for an interrupt once `sync` has reached `value`.
  void sync_arm(std::uint32_t sync, std::uint64_t value);

  int queue_create(std::uint32_t entries, unsigned flags, weft_backend_queue& out);
  void queue_destroy(Queue* queue);
  void queue_ring(Queue* queue, std::uint64_t producer);

  int channel_create(std::uint32_t port, std::uint32_t sync_base, std::uint32_t sync_count, weft_backend_channel& out);
  int channel_connect(Channel* channel, const weft_endpoint& remote, std::uint8_t timeout, std::uint8_t retry_cnt);
  int channel_state(Channel* channel, std::uint32_t& state, std::uint32_t& error);
  void channel_destroy(Channel* channel);

  // What of `scope` failed and is still there; nullptr: nothing.
  const weft_failure* failure(const weft_wait_scope* scope) const;

 private:
  friend class Driver;
  Context(Driver& driver, std::uint32_t number);

  void doorbell(std::uint64_t offset, std::uint64_t value);
  void on_event(const weft_event& event);
  bool has(const weft_event& event) const;  // the object that an event is about
  void forgive(std::uint32_t type, std::uint32_t object);
  int region(weft_region_entry entry, std::uint32_t& key);
  void region_destroy(std::uint32_t key);

  Driver& driver_;
  const std::uint32_t number_;
  DmaBuffer shadow_;
  RangeAllocator syncs_;
  std::vector<std::unique_ptr<Memory>> memory_;
  std::array<std::unique_ptr<Queue>, WEFT_QUEUES_PER_CONTEXT> queues_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<weft_failure> failures_;
};

}  // namespace weft::sim
