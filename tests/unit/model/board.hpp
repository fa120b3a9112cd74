// SPDX-License-Identifier: MIT
// A device on a fake host, and the part of a driver that tests need: registers, mailbox, contexts, regions, queues.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "device.hpp"
#include "fake_host.hpp"
#include "fake_nic.hpp"
#include "weft/hw/cmd.h"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"

namespace weft::test {

inline constexpr std::uint32_t kNoSync = WEFT_SYNC_NONE;

// Commands, with the fields that tests vary.
inline weft_cmd command(weft_cmd_op op) {
  weft_cmd cmd{};
  cmd.op = static_cast<std::uint8_t>(op);
  cmd.version = WEFT_CMD_VERSION;
  cmd.wait_id = cmd.signal_id = kNoSync;
  return cmd;
}
inline weft_cmd after(weft_cmd cmd, std::uint32_t sync, std::uint64_t value) {
  cmd.wait_id = sync;
  cmd.wait_value = value;
  return cmd;
}
inline weft_cmd then(weft_cmd cmd, std::uint32_t sync, std::uint16_t add = 1) {
  cmd.signal_id = sync;
  cmd.signal_add = add;
  return cmd;
}
// Operand: a region and a place in it.
struct Place {
  std::uint32_t key = 0;
  std::uint64_t va = 0;
  Place operator+(std::uint64_t bytes) const { return {key, va + bytes}; }
};
inline weft_cmd copy(Place to, Place from, std::uint32_t bytes) {
  weft_cmd cmd = command(WEFT_OP_COPY);
  cmd.addr[0] = to.va;
  cmd.key[0] = to.key;
  cmd.addr[1] = from.va;
  cmd.key[1] = from.key;
  cmd.length = bytes;
  return cmd;
}
inline weft_cmd fill(Place to, std::uint64_t pattern, std::uint32_t bytes) {
  weft_cmd cmd = command(WEFT_OP_FILL);
  cmd.addr[0] = to.va;
  cmd.key[0] = to.key;
  cmd.addr[1] = pattern;
  cmd.length = bytes;
  return cmd;
}
inline weft_cmd reduce(weft_dtype dtype, weft_redop op, Place to, Place a, Place b, std::uint32_t elements) {
  weft_cmd cmd = command(WEFT_OP_REDUCE);
  cmd.arg0 = static_cast<std::uint8_t>(dtype);
  cmd.arg1 = static_cast<std::uint8_t>(op);
  cmd.addr[0] = to.va;
  cmd.key[0] = to.key;
  cmd.addr[1] = a.va;
  cmd.key[1] = a.key;
  cmd.addr[2] = b.va;
  cmd.key[2] = b.key;
  cmd.length = elements;
  return cmd;
}
inline weft_cmd rdma_write(std::uint32_t channel, Place local, Place remote, std::uint32_t bytes,
                           std::optional<std::uint32_t> immediate = {}) {
  weft_cmd cmd = command(WEFT_OP_RDMA);
  cmd.arg0 = immediate ? WEFT_RDMA_WRITE_IMM : WEFT_RDMA_WRITE;
  cmd.addr[0] = local.va;
  cmd.key[0] = local.key;
  cmd.addr[1] = remote.va;
  cmd.key[1] = remote.key;
  cmd.addr[2] = immediate.value_or(0);
  cmd.key[2] = channel;
  cmd.length = bytes;
  return cmd;
}
inline weft_cmd add_to(std::uint32_t sync, std::uint64_t amount) {
  weft_cmd cmd = command(WEFT_OP_SIGNAL);
  cmd.signal_id = sync;
  cmd.addr[0] = amount;
  return cmd;
}

// A request without payload.
struct Nothing {};

class Board {
 public:
  static constexpr std::uint64_t kHbm = 64u << 20;

  // With a fake NIC, unless `parts` has another.
  // `prepare` sets up the host before the device sees it.
  explicit Board(
      std::optional<model::DeviceParts> parts = {}, model::Options options = defaults(),
      const std::function<void(FakeHost&)>& prepare = [](FakeHost&) {})
      : hbm(std::max<std::uint64_t>(options.hbm_bytes, 4096)) {
    host.hbm = hbm.span();
    prepare(host);
    if (!parts) {
      parts = model::DeviceParts{[this](model::NicHost& nic_host, const model::NicConfig&) {
                                   auto made = std::make_unique<FakeNic>(nic_host);
                                   nic = made.get();
                                   return made;
                                 },
                                 model::boot_image, model::boot_native};
    }
    device = std::make_unique<model::Device>(host.abi(), options, *parts);
    if (options.hbm_bytes != 0) {
      EXPECT_EQ(device->attach_ram(WEFT_BAR_HBM, hbm.data(), hbm.size()), 0);
    }
  }
  ~Board() {
    EXPECT_TRUE(host.nothing_mapped());
    EXPECT_EQ(host.bad_unmaps, 0u);
  }

  static model::Options defaults() {
    model::Options options;
    options.hbm_bytes = kHbm;
    options.native_firmware = true;
    return options;
  }

  // Boots the firmware and makes context 1 with all its sync objects mirrored.
  void start() {
    boot();
    make_context(1);
  }
  void boot() {
    write32(WEFT_REG_CTL, WEFT_CTL_BOOT);
    for (int i = 0; i < 10000 && read32(WEFT_REG_STATUS) == WEFT_DEV_BOOTING; ++i) step();
    ASSERT_EQ(read32(WEFT_REG_STATUS), WEFT_DEV_READY);
  }
  void make_context(std::uint32_t context, std::uint32_t syncs = WEFT_SYNCS_PER_CONTEXT) {
    weft_mbox_ctx entry{};
    entry.ctx = context;
    entry.vector = context % WEFT_VECTORS;
    entry.shadow = host.alloc(WEFT_SYNCS_PER_CONTEXT * 8);
    entry.syncs = syncs;
    ASSERT_EQ(mailbox(WEFT_MBOX_CTX_CREATE, entry), WEFT_ERR_OK);
    shadows[context] = entry.shadow;
    const weft_mbox_sync notify{context, 0, syncs, WEFT_SYNC_NOTIFY};
    ASSERT_EQ(mailbox(WEFT_MBOX_SYNC_CONFIG, notify), WEFT_ERR_OK);
  }

  // Registers.
  std::uint32_t read32(std::uint64_t offset) {
    return static_cast<std::uint32_t>(device->region_read(WEFT_BAR_REGS, offset, 4));
  }
  std::uint64_t read64(std::uint64_t offset) { return device->region_read(WEFT_BAR_REGS, offset, 8); }
  void write32(std::uint64_t offset, std::uint32_t value) { device->region_write(WEFT_BAR_REGS, offset, value, 4); }
  void write64(std::uint64_t offset, std::uint64_t value) { device->region_write(WEFT_BAR_REGS, offset, value, 8); }
  void doorbell(std::uint32_t context, std::uint32_t which, std::uint64_t value) {
    write64(WEFT_DOORBELLS_BASE + context * WEFT_DOORBELL_PAGE + which, value);
  }
  std::uint64_t counter(weft_counter which) { return read64(WEFT_COUNTERS_BASE + 8 * which); }

  // Steps until nothing is left to do at once. Fails after `limit` steps.
  void run(unsigned limit = 100000, std::uint32_t budget = 1u << 20) {
    while (step(budget).more) {
      if (limit-- == 0) {
        ADD_FAILURE() << "the device does not come to rest";
        return;
      }
    }
  }
  weft_abi_step step(std::uint32_t budget = 1u << 20) { return device->step(budget); }

  // One mailbox request; the response's payload in `answer`.
  template <class T>
  std::uint16_t mailbox(weft_mbox_op op, const T& payload) {
    post(op, payload);
    for (int i = 0; i < 1000 && !answered_now(); ++i) step();
    EXPECT_TRUE(answered_now()) << "no answer to mailbox operation " << op;
    std::uint32_t words[sizeof(answer) / 4];
    for (std::uint32_t i = 0; i < sizeof(answer) / 4; ++i) words[i] = read32(WEFT_MBOX_RESPONSE + 4 * i);
    std::memcpy(&answer, words, sizeof(answer));
    return answer.head.status;
  }
  bool answered_now() { return read32(WEFT_REG_MBOX_DONE) == sequence_; }
  template <class T>
  void post(weft_mbox_op op, const T& payload) {
    constexpr std::size_t kBytes = std::is_empty_v<T> ? 0 : sizeof(T);
    weft_mbox_message message{};
    static_assert(kBytes <= sizeof(message.payload));
    message.head.seq = ++sequence_;
    message.head.op = static_cast<std::uint16_t>(op);
    message.head.length = kBytes;
    message.head.version = WEFT_MBOX_VERSION;
    std::memcpy(message.payload, &payload, kBytes);
    std::uint32_t words[sizeof(message) / 4];
    std::memcpy(words, &message, sizeof(message));
    for (std::uint32_t i = 0; i < sizeof(message) / 4; ++i) write32(WEFT_MBOX_REQUEST + 4 * i, words[i]);
    write32(WEFT_REG_MBOX_DOORBELL, sequence_);
  }
  template <class T>
  T answered() const {
    T value;
    std::memcpy(&value, answer.payload, sizeof(value));
    return value;
  }

  // Regions. `index` is also the generation's start; keys are new for each call.
  std::uint32_t new_key() { return WEFT_KEY(++regions_, 1); }
  weft_region_entry entry(std::uint32_t context, weft_region_type type, std::uint64_t va, std::uint64_t length,
                          std::uint64_t base, std::uint8_t rights) {
    weft_region_entry out{};
    out.key = new_key();
    out.type = static_cast<std::uint8_t>(type);
    out.rights = rights;
    out.ctx = context;
    out.va = va;
    out.length = length;
    out.base = base;
    return out;
  }
  static constexpr std::uint8_t kLocal = WEFT_RIGHT_READ | WEFT_RIGHT_WRITE;
  static constexpr std::uint8_t kAll = 0x1f;
  Place hbm_region(std::uint64_t offset, std::uint64_t length, std::uint32_t context = 1, std::uint8_t rights = kAll) {
    const auto region = entry(context, WEFT_REGION_HBM, WEFT_VA_HBM + offset, length, offset, rights);
    EXPECT_EQ(mailbox(WEFT_MBOX_REGION_CREATE, region), WEFT_ERR_OK);
    return {region.key, region.va};
  }
  Place host_region(std::uint64_t iova, std::uint64_t length, std::uint32_t context = 1, std::uint8_t rights = kAll) {
    const auto region = entry(context, WEFT_REGION_HOST, WEFT_VA_HOST + iova, length, iova, rights);
    EXPECT_EQ(mailbox(WEFT_MBOX_REGION_CREATE, region), WEFT_ERR_OK);
    return {region.key, region.va};
  }

  // A command queue with its ring in guest memory.
  struct Queue {
    Board* board = nullptr;
    std::uint32_t context = 0;
    std::uint32_t number = 0;
    std::uint32_t entries = 0;
    std::uint64_t iova = 0;
    std::uint32_t key = 0;
    std::uint64_t producer = 0;

    weft_ring_head& head() { return *board->host.at<weft_ring_head>(iova); }
    void put(const void* slot) {
      std::memcpy(board->host.find(iova + 64 + 64 * (producer % entries), 64), slot, 64);
      ++producer;
    }
    void ring() { board->doorbell(context, WEFT_DB_QUEUE(number), producer); }
    // Writes the commands and rings once.
    void submit(std::initializer_list<weft_cmd> commands) {
      for (const weft_cmd& cmd : commands) put(&cmd);
      ring();
    }
    void submit(weft_cmd cmd, const weft_cmd_ext& ext) {
      cmd.flags |= WEFT_CMD_EXT;
      put(&cmd);
      put(&ext);
      ring();
    }
  };
  Queue make_queue(std::uint32_t number = 0, std::uint32_t entries = 1024, std::uint32_t context = 1) {
    Queue queue{this, context, number, entries, host.alloc(64 + 64 * entries), 0, 0};
    const Place ring = host_region(queue.iova, 64 + 64 * entries, context, kLocal);
    queue.key = ring.key;
    weft_queue_entry make{};
    make.ctx = context;
    make.queue = number;
    make.ring_key = ring.key;
    make.entries = entries;
    make.ring_addr = ring.va;
    EXPECT_EQ(mailbox(WEFT_MBOX_QUEUE_CREATE, make), WEFT_ERR_OK);
    return queue;
  }

  // What the driver sees of a sync object.
  std::uint64_t shadow(std::uint32_t sync, std::uint32_t context = 1) {
    return *host.at<std::uint64_t>(shadows[context] + 8 * std::uint64_t{sync});
  }

  // The event queue: made once, and what came since the last look.
  void make_event_queue(std::uint32_t entries = 16) {
    const weft_mbox_event_queue ring{host.alloc(entries * sizeof(weft_event)), entries, 0};
    ASSERT_EQ(mailbox(WEFT_MBOX_EVENT_QUEUE, ring), WEFT_ERR_OK);
    events_at_ = ring.addr;
    event_entries_ = entries;
  }
  std::vector<weft_event> events() {
    std::vector<weft_event> out;
    for (;;) {
      const auto& event = *host.at<weft_event>(events_at_ + (taken_ % event_entries_) * sizeof(weft_event));
      if (event.owner != (((taken_ / event_entries_) & 1) ^ 1)) break;
      out.push_back(event);
      ++taken_;
    }
    write32(WEFT_REG_EQ_CONSUMER, taken_);
    return out;
  }

  FakeHost host;
  Memory hbm;
  FakeNic* nic = nullptr;
  std::unique_ptr<model::Device> device;
  std::map<std::uint32_t, std::uint64_t> shadows;
  weft_mbox_message answer{};

 private:
  std::uint32_t sequence_ = 0;
  std::uint32_t regions_ = 0;
  std::uint64_t events_at_ = 0;
  std::uint32_t event_entries_ = 1;
  std::uint32_t taken_ = 0;
};

}  // namespace weft::test
