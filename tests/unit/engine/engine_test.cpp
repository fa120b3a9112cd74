// SPDX-License-Identifier: MIT
// The engine with a toy model: order, wake and sleep, DMA, links, stop and go.
#include "weft/engine/engine.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "toy_model.h"
#include "weft/fabric/socket_link.hpp"

namespace {

using namespace std::chrono_literals;
using weft::fabric::Fd;

// A machine with guest RAM at 0x10000..0x50000 in pages of `page` bytes, another device's memory at 0x100000..0x110000.
struct Machine {
  std::vector<std::byte> ram = std::vector<std::byte>(0x40000);
  std::vector<std::byte> peer = std::vector<std::byte>(0x10000);
  std::size_t page = 0x10000;
  std::atomic<int> mapped{0};
  std::atomic<std::uint64_t> used{0};
  std::atomic<int> irqs[4]{};
  std::atomic<int> begun{0}, ended{0};
  std::mutex mutex;
  std::vector<std::string> log;
  std::atomic<bool> handing_over{false};
  std::condition_variable handed;
  bool pass_wanted = false;

  weft_engine_host host() {
    weft_engine_host h{};
    h.opaque = this;
    h.clock_ns = [](void*) {
      return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / 1ns);
    };
    h.dma_map = [](void* o, uint64_t iova, size_t* bytes, weft_abi_dir, weft_abi_target* target) -> void* {
      auto& m = *static_cast<Machine*>(o);
      const auto inside = [&](std::vector<std::byte>& memory, uint64_t base) -> std::byte* {
        if (iova < base || iova - base >= memory.size()) return nullptr;
        *bytes = std::min({*bytes, memory.size() - (iova - base), m.page - iova % m.page});
        return memory.data() + (iova - base);
      };
      std::byte* p = inside(m.ram, 0x10000);
      *target = WEFT_ABI_TARGET_RAM;
      if (p == nullptr) {
        p = inside(m.peer, 0x100000);
        *target = WEFT_ABI_TARGET_DEVICE;
      }
      if (p != nullptr) ++m.mapped;
      return p;
    };
    h.dma_unmap = [](void* o, void*, size_t, weft_abi_dir, size_t done) {
      auto& m = *static_cast<Machine*>(o);
      --m.mapped;
      m.used += done;
    };
    h.irq = [](void* o, uint32_t vector) { ++static_cast<Machine*>(o)->irqs[vector]; };
    h.irq_clear = [](void* o) {
      for (auto& n : static_cast<Machine*>(o)->irqs) n = 0;
    };
    h.log = [](void* o, weft_abi_log_level, const char* text) {
      auto& m = *static_cast<Machine*>(o);
      std::lock_guard guard(m.mutex);
      m.log.emplace_back(text);
    };
    h.thread_begin = [](void* o) { ++static_cast<Machine*>(o)->begun; };
    h.thread_end = [](void* o) { ++static_cast<Machine*>(o)->ended; };
    h.hand_over = [](void* o) -> int {
      auto& m = *static_cast<Machine*>(o);
      if (!m.handing_over) return 0;
      std::lock_guard guard(m.mutex);
      m.pass_wanted = true;
      m.handed.notify_all();
      return 1;
    };
    return h;
  }
};

using Options = std::vector<std::pair<const char*, const char*>>;
const Options kLinked{{"links", "1"}};

struct Device {
  std::unique_ptr<Machine> machine = std::make_unique<Machine>();
  std::vector<std::byte> ram;
  weft_engine* engine = nullptr;

  explicit Device(const Options& options = {}, const char* fabric = nullptr, const char* name = nullptr) {
    std::vector<weft_abi_option> list;
    for (const auto& [key, value] : options) list.push_back({key, value});
    const weft_engine_host host = machine->host();
    weft_engine_config config{};
    config.options = static_cast<uint32_t>(list.size());
    config.option = list.data();
    config.model = toy_model_entry(WEFT_ABI_VERSION);
    config.host = &host;
    config.name = name;
    config.fabric = fabric;
    char message[200] = "";
    EXPECT_EQ(weft_engine_create(&config, &engine, message, sizeof(message)), 0) << message;
    weft_abi_info info;
    weft_engine_info(engine, &info);
    ram.resize(info.bar[2].size);
    EXPECT_EQ(weft_engine_attach_ram(engine, 2, ram.data(), ram.size(), -1), 0);
  }
  Device(const Device&) = delete;
  ~Device() { weft_engine_destroy(engine); }

  Device& start() {
    EXPECT_EQ(weft_engine_start(engine), 0);
    return *this;
  }
  std::uint64_t read(std::uint64_t offset) { return weft_engine_read(engine, 0, offset, 8); }
  void write(std::uint64_t offset, std::uint64_t value) { weft_engine_write(engine, 0, offset, value, 8); }
  weft_engine_counters counters() {
    weft_engine_counters c;
    weft_engine_get_counters(engine, &c);
    return c;
  }
  weft_engine_link_counters link_counters() {
    weft_engine_link_counters c{};
    EXPECT_EQ(weft_engine_get_link_counters(engine, 0, &c), 0);
    return c;
  }
};

// Wait for something that another thread does; false after far more time than it needs.
bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(i < 100 ? 100us : 5ms);
  }
  return false;
}

TEST(Engine, ReadSeesTheWritesBeforeIt) {
  Device d;
  d.start();
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    d.write(TOY_SEQUENCE, i);
    if (i % 7 == 0) {
      ASSERT_EQ(d.read(TOY_SEQUENCE), i);
    }
  }
  EXPECT_EQ(d.read(TOY_SEQUENCE), 2000u);
  EXPECT_EQ(d.read(TOY_SEQUENCE_ERRORS), 0u);
  EXPECT_EQ(weft_engine_read(d.engine, 0, TOY_MAGIC, 4), 0x594f54u);
}

TEST(Engine, FullQueueKeepsOrder) {
  Device d;  // not started: nobody takes the writes
  for (std::uint64_t i = 1; i <= 10000; ++i) d.write(TOY_SEQUENCE, i);
  EXPECT_EQ(d.read(TOY_SEQUENCE), 10000u);
  EXPECT_EQ(d.read(TOY_SEQUENCE_ERRORS), 0u);
  EXPECT_EQ(d.counters().writes, 10000u);
  EXPECT_GT(d.counters().writes_inline, 0u);
}

TEST(Engine, ManyThreadsWriteAndReadABusyModel) {
  Device d;
  d.start();
  d.write(TOY_BUSY, 1);
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 50000; ++i) d.write(TOY_SEQUENCE, i);
  });
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      std::uint64_t last = 0;
      for (int i = 0; i < 2000; ++i) {
        const std::uint64_t now = d.read(TOY_SEQUENCE);
        EXPECT_GE(now, last);
        last = now;
      }
    });
  }
  writer.join();
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(d.read(TOY_SEQUENCE), 50000u);
  EXPECT_EQ(d.read(TOY_SEQUENCE_ERRORS), 0u);
}

TEST(Engine, InsaneAccessesGoNowhere) {
  Device d;
  d.write(TOY_SCRATCH, 5);
  weft_engine_write(d.engine, 0, TOY_SCRATCH + 1, 9, 8);
  weft_engine_write(d.engine, 6, TOY_SCRATCH, 9, 8);
  weft_engine_write(d.engine, 0, TOY_SCRATCH, 9, 3);
  EXPECT_EQ(d.read(TOY_SCRATCH), 5u);
  EXPECT_EQ(weft_engine_read(d.engine, 0, TOY_SCRATCH, 16), 0u);
  EXPECT_EQ(weft_engine_read(d.engine, 9, 0, 4), 0u);
}

TEST(Engine, SleepsWhenIdleAndWakesForAWrite) {
  Device d;
  d.start();
  ASSERT_TRUE(eventually([&] { return d.counters().sleeps > 0; }));
  std::this_thread::sleep_for(20ms);
  const std::uint64_t before = d.counters().steps;
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(d.counters().steps, before);
  d.write(TOY_IRQ, 3);
  EXPECT_TRUE(eventually([&] { return d.machine->irqs[3] == 1; }));
  EXPECT_LE(d.counters().steps, before + 4);
}

TEST(Engine, StepsAtTheDeadline) {
  Device d;
  d.start();
  const auto begin = std::chrono::steady_clock::now();
  d.write(TOY_TIMER, 30'000'000);
  ASSERT_TRUE(eventually([&] { return d.read(TOY_FIRED) == 1; }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);  // never early
  EXPECT_LE(d.counters().steps, 10u);                         // and not by polling
}

TEST(Engine, InterruptVectorIsBounded) {
  Device d;
  d.start();
  d.write(TOY_IRQ, 4);
  ASSERT_TRUE(eventually([&] { return d.counters().irqs_refused == 1; }));
  EXPECT_EQ(d.counters().irqs, 0u);
}

// ---- DMA

struct EngineDma : testing::TestWithParam<std::size_t> {
  Device d;
  EngineDma() {
    d.machine->page = GetParam();
    for (std::size_t i = 0; i < d.machine->ram.size(); ++i) d.machine->ram[i] = static_cast<std::byte>(i * 13);
    for (std::size_t i = 0; i < d.ram.size(); ++i) d.ram[i] = static_cast<std::byte>(i * 7 + 1);
    d.start();
  }
  std::uint64_t transfer(unsigned go, std::uint64_t iova, std::uint64_t bytes) {
    const std::uint64_t before = d.read(TOY_DMA_DONE);
    d.write(TOY_DMA_ADDR, iova);
    d.write(TOY_DMA_BYTES, bytes);
    d.write(TOY_DMA_GO, go);
    EXPECT_TRUE(eventually([&] { return d.read(TOY_DMA_DONE) == before + 1; }));
    EXPECT_EQ(d.machine->mapped, 0);
    return d.read(TOY_DMA_ERROR);
  }
};
INSTANTIATE_TEST_SUITE_P(Pages, EngineDma, testing::Values(0x1000, 0x10000));

TEST_P(EngineDma, ReadsAndCountsByTarget) {
  EXPECT_EQ(transfer(1, 0x10003, 0x23456), 0u);
  EXPECT_EQ(std::memcmp(d.ram.data(), d.machine->ram.data() + 3, 0x23456), 0);
  EXPECT_EQ(transfer(1, 0x100000, 0x100), 0u);
  const auto c = d.counters().dma;
  EXPECT_EQ(c.read_bytes[WEFT_ABI_DMA_PAYLOAD][0], 0x23456u);
  EXPECT_EQ(c.read_bytes[WEFT_ABI_DMA_PAYLOAD][1], 0x100u);
  EXPECT_EQ(c.read_bytes[WEFT_ABI_DMA_CONTROL][0], 0u);
  EXPECT_EQ(c.errors, 0u);
}

TEST_P(EngineDma, WritesAndCountsByTarget) {
  EXPECT_EQ(transfer(2, 0x10010, 0x30000), 0u);
  EXPECT_EQ(std::memcmp(d.ram.data(), d.machine->ram.data() + 0x10, 0x30000), 0);
  EXPECT_EQ(d.counters().dma.write_bytes[WEFT_ABI_DMA_CONTROL][0], 0x30000u);
  EXPECT_EQ(d.machine->used, 0x30000u);
}

TEST_P(EngineDma, WriteThatEndsInNothingWritesNothing) {
  const auto before = d.machine->ram;
  EXPECT_EQ(transfer(2, 0x20000, 0x30001), static_cast<std::uint64_t>(EFAULT));
  EXPECT_EQ(d.machine->ram, before);
  EXPECT_EQ(d.machine->used, 0u);
  EXPECT_EQ(d.counters().dma.errors, 1u);
}

TEST_P(EngineDma, AddressesOutsideAreErrors) {
  EXPECT_EQ(transfer(1, 0, 8), static_cast<std::uint64_t>(EFAULT));
  EXPECT_EQ(transfer(1, ~std::uint64_t{0} - 3, 8), static_cast<std::uint64_t>(EFAULT));
  EXPECT_EQ(transfer(2, ~std::uint64_t{0}, 0x20000), static_cast<std::uint64_t>(EFAULT));
  EXPECT_EQ(d.counters().dma.errors, 3u);
}

TEST_P(EngineDma, ForgottenMapIsGivenBack) {
  EXPECT_EQ(transfer(3, 0x10000, 100), 0u);
  EXPECT_EQ(d.counters().maps_leaked, 1u);
  EXPECT_EQ(d.machine->used, 0u);
}

// ---- Links

void connect(Device& a, Device& b) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  ASSERT_EQ(weft_engine_link_fd(a.engine, 0, fds[0]), 0);
  ASSERT_EQ(weft_engine_link_fd(b.engine, 0, fds[1]), 0);
}

TEST(EngineLinks, TwoEnginesOverASocketPair) {
  Device a(kLinked), b(kLinked);
  a.start();
  b.start();
  EXPECT_EQ(a.read(TOY_LINKS_UP), 0u);
  connect(a, b);
  ASSERT_TRUE(eventually([&] { return a.read(TOY_LINKS_UP) == 1 && b.read(TOY_LINKS_UP) == 1; }));
  a.write(TOY_SEND, 20000);
  b.write(TOY_SEND, 20000);
  ASSERT_TRUE(eventually([&] { return a.read(TOY_RECEIVED) == 20000 && b.read(TOY_RECEIVED) == 20000; }));
  EXPECT_EQ(a.read(TOY_BAD_FRAMES), 0u);
  EXPECT_EQ(b.read(TOY_BAD_FRAMES), 0u);
  EXPECT_EQ(a.link_counters().tx_frames, 20000u);
  EXPECT_EQ(a.link_counters().rx_frames, 20000u);
  EXPECT_EQ(a.link_counters().rx_dropped, 0u);
}

TEST(EngineLinks, CreditsHoldTheSenderUntilTheModelGivesThemBack) {
  Device a(kLinked), b(Options{{"links", "1"}, {"hold", "1"}});
  a.start();
  b.start();
  connect(a, b);
  ASSERT_TRUE(eventually([&] { return a.read(TOY_LINKS_UP) == 1; }));
  a.write(TOY_SEND, 1500);
  ASSERT_TRUE(eventually([&] { return b.read(TOY_RECEIVED) == weft::fabric::kCreditFrames; }));
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(a.read(TOY_SENT), weft::fabric::kCreditFrames);
  b.write(TOY_RELEASE, 1000);
  ASSERT_TRUE(eventually([&] { return b.read(TOY_RECEIVED) == 1500; }));
  // A reset device has no frames: its peer gets every credit back.
  EXPECT_EQ(weft_engine_reset(b.engine, WEFT_ABI_RESET_FLR), 0);
  EXPECT_EQ(b.read(TOY_RESETS), std::uint64_t{1} << 32);
  EXPECT_EQ(b.read(TOY_LINKS_UP), 1u);
  a.write(TOY_SEND, weft::fabric::kCreditFrames);
  EXPECT_TRUE(eventually([&] { return a.read(TOY_SENT) == 1500 + weft::fabric::kCreditFrames; }));
}

TEST(EngineLinks, QuiescedDeviceLeavesFramesInTheSocket) {
  Device a(kLinked), b(kLinked);
  a.start();
  b.start();
  connect(a, b);
  ASSERT_TRUE(eventually([&] { return a.read(TOY_LINKS_UP) == 1 && b.read(TOY_LINKS_UP) == 1; }));
  ASSERT_EQ(weft_engine_quiesce(b.engine), 0);
  ASSERT_EQ(weft_engine_quiesce(b.engine), 0);
  a.write(TOY_SEND, 5000);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(b.read(TOY_RECEIVED), 0u);
  EXPECT_EQ(b.read(TOY_MAGIC), 0x594f54u);  // registers can still be looked at
  ASSERT_EQ(weft_engine_resume(b.engine), 0);
  ASSERT_EQ(weft_engine_resume(b.engine), 0);
  ASSERT_TRUE(eventually([&] { return b.read(TOY_RECEIVED) == 5000; }));
  EXPECT_EQ(b.read(TOY_BAD_FRAMES), 0u);
}

TEST(EngineLinks, LostPeerIsADownLink) {
  Device a(kLinked);
  a.start();
  {
    Device b(kLinked);
    b.start();
    connect(a, b);
    ASSERT_TRUE(eventually([&] { return a.read(TOY_LINKS_UP) == 1; }));
  }
  EXPECT_TRUE(eventually([&] { return a.read(TOY_LINKS_UP) == 0; }));
}

// A switch's listening socket, of which the test plays the switch.
struct Listener {
  std::filesystem::path directory;
  std::string path;
  Fd fd;
  Listener() {
    char name[] = "/tmp/weft-engine-test-XXXXXX";
    directory = ::mkdtemp(name);
    path = directory / "weft.sock";
  }
  ~Listener() { std::filesystem::remove_all(directory); }
  void listen() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    Fd s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(s.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(s.get(), 8), 0);
    fd = std::move(s);
  }
  void close() {
    {
      Fd gone = std::exchange(fd, Fd());
    }
    ::unlink(path.c_str());
  }
  Fd accept() {
    pollfd p{fd.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&p, 1, 10000), 1);
    return Fd(::accept(fd.get(), nullptr, nullptr));
  }
};

struct Silent : weft::fabric::LinkOwner {
  void on_frame(unsigned, std::span<const std::byte>) override {}
  void on_ready(unsigned) override {}
  void on_pause(unsigned, bool) override {}
  void on_state(bool) override {}
};

TEST(EngineLinks, ConnectsToASwitchThatComesLateAndAgainWhenItWentAway) {
  Listener listener;
  Device d(kLinked, listener.path.c_str(), "n3d0");
  d.start();
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(d.read(TOY_LINKS_UP), 0u);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    listener.listen();
    Silent owner;
    auto port = std::make_unique<weft::fabric::SocketLink>(listener.accept(), owner,
                                                           weft::fabric::SocketLink::Options{.name = "switch"});
    ASSERT_TRUE(eventually([&] {
      port->readable();
      return d.read(TOY_LINKS_UP) == 1 && port->up();
    }));
    EXPECT_EQ(port->peer_name(), "n3d0p0");
    EXPECT_EQ(d.link_counters().connects, round);
    listener.close();
    port.reset();
    ASSERT_TRUE(eventually([&] { return d.read(TOY_LINKS_UP) == 0; }));
  }
}

TEST(EngineLinks, ModelHearsOfStationsThatAreGoneAndBack) {
  Device d(kLinked);
  d.start();
  auto [near, far] = weft::fabric::socket_pair();
  ASSERT_EQ(weft_engine_link_fd(d.engine, 0, ::dup(near.get())), 0);
  Silent owner;
  weft::fabric::SocketLink port(std::move(far), owner, {.name = "switch"});
  ASSERT_TRUE(eventually([&] {
    port.readable();
    return d.read(TOY_LINKS_UP) == 1 && port.up();
  }));
  port.station({2, 0, 0, 0, 0xab, 1}, false);
  port.station({2, 0, 0, 0, 0xab, 1}, true);
  port.station({2, 0, 0, 0, 0xab, 2}, false);
  port.flush();
  EXPECT_TRUE(eventually([&] { return d.read(TOY_GONE) == 0x010202000000ab02; })) << std::hex << d.read(TOY_GONE);
}

TEST(EngineLinks, ALongNameKeepsThePortsNumber) {
  Device d(Options{{"links", "2"}}, nullptr, "a-serial-number-of-31-characters");
  d.start();
  for (std::uint32_t link = 0; link < 2; ++link) {
    auto [near, far] = weft::fabric::socket_pair();
    ASSERT_EQ(weft_engine_link_fd(d.engine, link, ::dup(near.get())), 0);
    Silent owner;
    weft::fabric::SocketLink port(std::move(far), owner, {.name = "switch"});
    ASSERT_TRUE(eventually([&] {
      port.readable();
      return port.up();
    }));
    EXPECT_EQ(port.peer_name(), "a-serial-number-of-31-charactp" + std::to_string(link));
  }
}

// ---- Life

TEST(Engine, ThreadBeginsAndEndsOnce) {
  Device d;
  d.start();
  EXPECT_EQ(weft_engine_start(d.engine), -EALREADY);
  ASSERT_TRUE(eventually([&] { return d.machine->begun == 1; }));
  weft_engine_stop(d.engine);
  EXPECT_EQ(d.machine->ended, 1);
  weft_engine_stop(d.engine);
  d.write(TOY_SCRATCH, 7);
  EXPECT_EQ(d.read(TOY_SCRATCH), 7u);  // registers outlive the thread
  d.start();
  d.write(TOY_IRQ, 1);
  EXPECT_TRUE(eventually([&] { return d.machine->irqs[1] == 1; }));
}

TEST(Engine, DestroyWhileEverythingMoves) {
  for (int i = 0; i < 20; ++i) {
    auto a = std::make_unique<Device>(kLinked);
    auto b = std::make_unique<Device>(kLinked);
    a->start();
    b->start();
    connect(*a, *b);
    ASSERT_TRUE(eventually([&] { return a->read(TOY_LINKS_UP) == 1; }));
    a->write(TOY_SEND, 1'000'000);
    b->write(TOY_SEND, 1'000'000);
    a->write(TOY_BUSY, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(500 * i));
    a.reset();
    b.reset();
  }
}

TEST(Engine, QuiesceStopsTheSteps) {
  Device d;
  d.start();
  d.write(TOY_BUSY, 1);
  ASSERT_TRUE(eventually([&] { return d.read(TOY_STEPS) > 100; }));
  d.write(TOY_SEQUENCE, 1);  // before it: applied
  ASSERT_EQ(weft_engine_quiesce(d.engine), 0);
  const std::uint64_t steps = d.read(TOY_STEPS);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(d.read(TOY_STEPS), steps);
  EXPECT_EQ(d.read(TOY_SEQUENCE), 1u);
  ASSERT_EQ(weft_engine_resume(d.engine), 0);
  EXPECT_TRUE(eventually([&] { return d.read(TOY_STEPS) > steps; }));
}

TEST(Engine, ResetForgetsWritesThatWait) {
  Device d;
  d.write(TOY_SCRATCH, 1);
  EXPECT_EQ(weft_engine_reset(d.engine, WEFT_ABI_RESET_FLR), 0);
  EXPECT_EQ(d.read(TOY_SCRATCH), 0u);
  d.ram[100] = std::byte{1};
  EXPECT_EQ(weft_engine_reset(d.engine, WEFT_ABI_RESET_FLR), 0);
  EXPECT_EQ(d.ram[100], std::byte{1});
  EXPECT_EQ(weft_engine_reset(d.engine, WEFT_ABI_RESET_COLD), 0);
  EXPECT_EQ(d.ram[100], std::byte{0});
}

TEST(Engine, ResetForgetsInterruptsBeforeItAndKeepsItsOwn) {
  Device d(Options{{"raise", "1"}});
  d.start();
  d.write(TOY_IRQ, 3);
  ASSERT_TRUE(eventually([&] { return d.machine->irqs[3] == 1; }));
  EXPECT_EQ(weft_engine_reset(d.engine, WEFT_ABI_RESET_FLR), 0);
  EXPECT_EQ(d.machine->irqs[3], 0);
  EXPECT_EQ(d.machine->irqs[1], 1);
}

TEST(Engine, WriteOnlyRegistersAreReadWithoutTheModel) {
  Device d;
  d.write(TOY_SEQUENCE, 1);  // waits in the queue
  const std::uint64_t reads = d.counters().reads;
  EXPECT_EQ(weft_engine_read(d.engine, 0, TOY_WRITE_ONLY, 8), 0u);
  EXPECT_EQ(weft_engine_read(d.engine, 0, 4092, 4), 0u);
  EXPECT_EQ(d.counters().reads, reads);
  EXPECT_EQ(d.read(TOY_SEQUENCE), 1u);
}

TEST(Engine, AModelThatThrowsIsDeadUntilItIsReset) {
  Device d({}, nullptr, "n0d0");
  d.start();
  d.write(TOY_THROW, 1);
  EXPECT_EQ(d.read(TOY_MAGIC), ~std::uint64_t{0});
  d.write(TOY_SCRATCH, 3);
  EXPECT_EQ(d.read(TOY_SCRATCH), ~std::uint64_t{0});
  EXPECT_EQ(weft_engine_reset(d.engine, WEFT_ABI_RESET_FLR), 0);
  EXPECT_EQ(d.read(TOY_MAGIC), 0x594f54u);
  std::lock_guard guard(d.machine->mutex);
  EXPECT_EQ(d.machine->log, std::vector<std::string>{"n0d0: model_exception"});
}

TEST(Engine, PayloadByReferenceIsRefusedByName) {
  Device d(kLinked);
  d.write(TOY_SEND_REF, 4096);
  EXPECT_EQ(d.read(TOY_DMA_ERROR), static_cast<std::uint64_t>(EOPNOTSUPP));
}

TEST(Engine, DiscardedMemoryReadsAsZero) {
  Device d;
  const Fd file(::memfd_create("toy-ram", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(file.get(), 1 << 20), 0);
  auto* base = static_cast<unsigned char*>(::mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  ASSERT_NE(base, MAP_FAILED);
  std::memset(base, 0xff, 1 << 20);
  ASSERT_EQ(weft_engine_attach_ram(d.engine, 2, base, 1 << 20, file.get()), 0);
  d.write(TOY_DMA_BYTES, 3 * 4096);
  d.write(TOY_DISCARD, 100);
  EXPECT_EQ(d.read(TOY_DMA_ERROR), 0u);
  for (int i = 0; i < 5 * 4096; ++i) ASSERT_EQ(base[i], i >= 100 && i < 100 + 3 * 4096 ? 0 : 0xff) << i;
  d.write(TOY_DISCARD, (1 << 20) - 4096);  // beyond the end
  EXPECT_EQ(d.read(TOY_DMA_ERROR), static_cast<std::uint64_t>(EINVAL));
  ::munmap(base, 1 << 20);
}

TEST(Engine, HandedOverPassesRunInTheHostsThread) {
  Device d(kLinked), peer(kLinked);
  Machine& m = *d.machine;
  m.handing_over = true;
  d.start();
  peer.start();
  connect(d, peer);
  std::atomic<bool> stop{false};
  std::uint64_t loop_id = 0;
  std::thread loop([&] {  // QEMU's main loop
    loop_id = static_cast<std::uint64_t>(pthread_self());
    while (!stop) {
      std::unique_lock guard(m.mutex);
      m.handed.wait_for(guard, 1ms, [&] { return m.pass_wanted; });
      const bool wanted = std::exchange(m.pass_wanted, false);
      guard.unlock();
      if (wanted) weft_engine_pass(d.engine);
      weft_engine_pass(d.engine);  // one too many does nothing
    }
  });
  peer.write(TOY_SEND, 5000);
  ASSERT_TRUE(eventually([&] { return d.read(TOY_RECEIVED) == 5000; }));
  d.write(TOY_IRQ, 0);
  ASSERT_TRUE(eventually([&] { return m.irqs[0] == 1; }));
  EXPECT_EQ(d.read(TOY_BAD_FRAMES), 0u);
  const std::uint64_t stepper = d.read(TOY_STEPPER);
  m.handing_over = false;
  ASSERT_TRUE(eventually([&] {  // a pass that was handed over before may still be under way
    d.write(TOY_IRQ, 0);
    return d.read(TOY_STEPPER) != stepper;
  }));
  m.handing_over = true;
  d.write(TOY_BUSY, 1);
  stop = true;
  loop.join();
  EXPECT_EQ(stepper, loop_id);
  // Ends although the loop that would run its pass is gone.
}

TEST(Engine, GuestsWarningsAreLimited) {
  Device d({}, nullptr, "n0d0");
  d.start();
  d.write(TOY_LOG, 100000);
  ASSERT_TRUE(eventually([&] { return d.counters().log_suppressed > 0; }));
  ASSERT_TRUE(eventually([&] { return d.counters().log_suppressed + d.machine->log.size() >= 100000; }));
  std::lock_guard guard(d.machine->mutex);
  EXPECT_GE(d.machine->log.size(), 50u);
  EXPECT_LT(d.machine->log.size(), 1000u);
  EXPECT_EQ(d.machine->log.front(), "n0d0: toy_warning 0x186a0");
}

// ---- Refusals

int create_with(const weft_abi_model* model, const weft_abi_option* option, std::string& message) {
  Machine m;
  const weft_engine_host host = m.host();
  weft_engine_config config{};
  config.model = model;
  config.host = &host;
  config.option = option;
  config.options = option != nullptr ? 1 : 0;
  weft_engine* engine = nullptr;
  char text[100] = "";
  const int rc = weft_engine_create(&config, &engine, text, sizeof(text));
  weft_engine_destroy(engine);
  message = text;
  return rc;
}

TEST(Engine, RefusesWithAReason) {
  std::string message;
  weft_abi_model model = *toy_model_entry(WEFT_ABI_VERSION);
  EXPECT_EQ(create_with(nullptr, nullptr, message), -EPROTO);
  model.version = WEFT_ABI_VERSION + 1;
  EXPECT_EQ(create_with(&model, nullptr, message), -EPROTO);
  EXPECT_EQ(message, "the model does not speak version " + std::to_string(WEFT_ABI_VERSION) + " of the model ABI");
  model = *toy_model_entry(WEFT_ABI_VERSION);
  model.step = nullptr;
  EXPECT_EQ(create_with(&model, nullptr, message), -EPROTO);
  const weft_abi_option unknown{"colour", "red"};
  EXPECT_EQ(create_with(toy_model_entry(WEFT_ABI_VERSION), &unknown, message), -EINVAL);
  EXPECT_EQ(message, "toy: no option colour");
  const weft_abi_option odd{"ram", "5000"};
  EXPECT_EQ(create_with(toy_model_entry(WEFT_ABI_VERSION), &odd, message), -EINVAL);
  EXPECT_EQ(message, "the model's BAR2 is not a power of two from 4096 up");
  const weft_abi_option many{"links", "65"};
  EXPECT_EQ(create_with(toy_model_entry(WEFT_ABI_VERSION), &many, message), -EINVAL);
}

}  // namespace
