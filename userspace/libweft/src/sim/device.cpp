// SPDX-License-Identifier: MIT
#include "device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace weft::sim {
namespace {

// Bytes of work a step: a few hundred frames, small enough to stay in the cache and to let other devices go on.
constexpr std::uint32_t kBudget = 256u << 10;

}  // namespace

class Device::StepTask final : public Task {
 public:
  explicit StepTask(Device& device) : device_(device) {}
  void run(std::uint64_t ticket) override { device_.step(ticket); }

 private:
  Device& device_;
};

class Device::InterruptTask final : public Task {
 public:
  explicit InterruptTask(Device& device) : device_(device) {}
  void run(std::uint64_t vector) override {
    ++device_.world_.changes;
    if (device_.handler_) device_.handler_(static_cast<std::uint32_t>(vector));
  }

 private:
  Device& device_;
};

// The owner of a link's end: gives the model what arrives.
class Device::Port final : public fabric::LinkOwner {
 public:
  Port(Device& device, std::uint32_t number)
      : device_(device),
        number_(number),
        end_(device.world_.scheduler, device.world_.frames, device.number_, LinkTiming{}) {
    end_.set_owner(*this);
  }
  LinkEnd& end() { return end_; }

  void on_frame(unsigned cls, std::span<const std::byte> frame) override {
    const std::uint64_t values[] = {number_, frame.size()};
    device_.world_.log.add(device_.world_.scheduler.now(), device_.number_, "frame", values);
    if (device_.model_.link_receive(device_.instance_.get(), number_, cls, frame.data(), frame.size()) != 0) {
      device_.world_.log.add(device_.world_.scheduler.now(), device_.number_, "frame_refused", values);
      end_.release(cls, 1);
    }
  }
  void on_ready(unsigned cls) override { device_.model_.link_ready(device_.instance_.get(), number_, cls); }
  void on_pause(unsigned cls, bool stop) override {
    if (device_.model_.link_pause == nullptr) return;
    device_.model_.link_pause(device_.instance_.get(), number_, cls, stop ? 1 : 0);
  }
  void on_state(bool up) override {
    const std::uint64_t values[] = {number_, up ? 1u : 0u};
    device_.world_.log.add(device_.world_.scheduler.now(), device_.number_, "link", values);
    device_.model_.link_state(device_.instance_.get(), number_, up ? 1 : 0);
  }
  void on_station(const fabric::Mac& mac, bool up) override {
    const std::uint64_t values[] = {number_,
                                    std::uint64_t{mac[0]} << 40 | std::uint64_t{mac[1]} << 32 |
                                        std::uint64_t{mac[2]} << 24 | std::uint64_t{mac[3]} << 16 |
                                        std::uint64_t{mac[4]} << 8 | mac[5],
                                    up ? 1u : 0u};
    device_.world_.log.add(device_.world_.scheduler.now(), device_.number_, "station", values);
    if (device_.model_.link_station == nullptr) return;
    device_.model_.link_station(device_.instance_.get(), number_, mac.data(), up ? 1 : 0);
  }

 private:
  Device& device_;
  const std::uint32_t number_;
  LinkEnd end_;
};

// The host's side of the ABI.
struct Device::Callbacks {
  static Device& of(void* opaque) { return *static_cast<Device*>(opaque); }

  static std::uint64_t clock_ns(void* opaque) { return of(opaque).world_.scheduler.now(); }
  static void random(void* opaque, void* buffer, std::size_t bytes) { of(opaque).random_.fill(buffer, bytes); }
  static void wake(void* opaque) { of(opaque).wake(); }

  static int dma_read(void* opaque, std::uint64_t iova, void* buffer, std::size_t bytes, weft_abi_dma_class what) {
    Device& device = of(opaque);
    const HostMemory::Range* range = device.host_memory_.find(iova, bytes);
    if (range == nullptr) {
      ++device.dma_.errors;
      return -EFAULT;
    }
    std::memcpy(buffer, range->base + (iova - range->iova), bytes);
    device.dma_.read_bytes[what != WEFT_ABI_DMA_CONTROL][0] += bytes;
    device.world_.effect();
    return 0;
  }

  static int dma_write(void* opaque, std::uint64_t iova, const void* buffer, std::size_t bytes,
                       weft_abi_dma_class what) {
    Device& device = of(opaque);
    const HostMemory::Range* range = device.host_memory_.find(iova, bytes);
    if (range == nullptr || !range->writable) {
      ++device.dma_.errors;
      return -EFAULT;
    }
    store_to_host(range->base + (iova - range->iova), static_cast<const std::byte*>(buffer), bytes);
    if (range->watched) ++device.world_.changes;
    device.dma_.write_bytes[what != WEFT_ABI_DMA_CONTROL][0] += bytes;
    device.world_.effect();
    return 0;
  }

  static void* dma_map(void* opaque, std::uint64_t iova, std::size_t* bytes, weft_abi_dir dir) {
    Device& device = of(opaque);
    const HostMemory::Range* range = device.host_memory_.find(iova);
    if (range == nullptr || (dir == WEFT_ABI_TO_GUEST && !range->writable)) {
      ++device.dma_.errors;
      return nullptr;
    }
    device.world_.effect();
    const std::uint64_t offset = iova - range->iova;
    *bytes = static_cast<std::size_t>(std::min<std::uint64_t>({*bytes, WEFT_ABI_MAP_MAX, range->bytes - offset}));
    return range->base + offset;
  }

  static void dma_unmap(void* opaque, void*, std::size_t, weft_abi_dir dir, std::size_t done, weft_abi_dma_class what) {
    Device& device = of(opaque);
    const bool payload = what != WEFT_ABI_DMA_CONTROL;
    if (dir == WEFT_ABI_FROM_GUEST) {
      device.dma_.read_bytes[payload][0] += done;
    } else {
      device.dma_.write_bytes[payload][0] += done;
      ++device.world_.changes;
    }
  }

  static void dma_counters(void* opaque, weft_abi_dma_counters* out) { *out = of(opaque).dma_; }

  static void irq(void* opaque, std::uint32_t vector) {
    Device& device = of(opaque);
    const std::uint64_t values[] = {vector};
    device.world_.effect();
    device.world_.log.add(device.world_.scheduler.now(), device.number_, "irq", values);
    device.world_.scheduler.at(device.world_.scheduler.now(), device.number_, *device.interrupt_task_, vector);
  }

  static int link_send(void* opaque, std::uint32_t link, std::uint32_t cls, const weft_abi_segment* segment,
                       std::uint32_t segments) {
    Device& device = of(opaque);
    constexpr std::uint32_t kSegments = 64;
    if (link >= device.ports_.size() || segments > kSegments) return -EINVAL;
    std::array<fabric::Segment, kSegments> parts;
    for (std::uint32_t i = 0; i < segments; ++i)
      parts[i] = {static_cast<const std::byte*>(segment[i].base), segment[i].length};
    device.world_.effect();
    switch (device.ports_[link]->end().send(cls, {parts.data(), segments})) {
      case fabric::SendResult::kSent:
        return 0;
      case fabric::SendResult::kNoCredit:
        return -EAGAIN;
      case fabric::SendResult::kDown:
        break;
    }
    return -ENETDOWN;
  }

  static void link_credit(void* opaque, std::uint32_t link, std::uint32_t cls, std::uint32_t frames) {
    Device& device = of(opaque);
    if (link < device.ports_.size()) device.ports_[link]->end().release(cls, frames);
  }

  static void link_pause(void* opaque, std::uint32_t link, std::uint32_t cls, int stop) {
    Device& device = of(opaque);
    if (link < device.ports_.size()) device.ports_[link]->end().pause(cls, stop != 0);
  }

  // Payload is copied by the switch in any case.
  static int link_send_ref(void*, std::uint32_t, std::uint32_t, const weft_abi_segment*, std::uint32_t,
                           const weft_abi_ref*) {
    return -EOPNOTSUPP;
  }
  static void link_ref_done(void*, std::uint32_t, std::uint64_t) {}

  static int ram_discard(void* opaque, std::uint32_t bar, std::uint64_t offset, std::uint64_t bytes) {
    Device& device = of(opaque);
    if (bar >= WEFT_ABI_BARS) return -EINVAL;
    const std::span<std::byte> ram = device.ram(bar);
    if (offset > ram.size() || bytes > ram.size() - offset) return -EINVAL;
    // Private anonymous memory reads as zero after this (madvise(2)); it works on whole pages.
    if (offset % 4096 != 0 || bytes % 4096 != 0) return -ENOTSUP;
    return madvise(ram.data() + offset, bytes, MADV_DONTNEED) == 0 ? 0 : -ENOTSUP;
  }

  static void log(void* opaque, weft_abi_log_level level, const char* event, const std::uint64_t* value,
                  std::uint32_t values) {
    if (level > WEFT_ABI_LOG_INFO) return;
    Device& device = of(opaque);
    device.world_.log.add(device.world_.scheduler.now(), device.number_, event, {value, values});
  }
};

Device::Device(World& world, std::uint32_t number, const weft_abi_model& model, const Options& options,
               std::uint64_t seed)
    : world_(world),
      number_(number),
      model_(model),
      random_(seed ^ (0xd6e8feb86659fd93ull * (number + 1))),
      step_task_(std::make_unique<StepTask>(*this)),
      interrupt_task_(std::make_unique<InterruptTask>(*this)),
      instance_(nullptr, model.destroy) {
  callbacks_ = {
      .size = sizeof(weft_abi_host),
      .version = WEFT_ABI_VERSION,
      .opaque = this,
      .clock_ns = Callbacks::clock_ns,
      .random = Callbacks::random,
      .wake = Callbacks::wake,
      .dma_read = Callbacks::dma_read,
      .dma_write = Callbacks::dma_write,
      .dma_map = Callbacks::dma_map,
      .dma_unmap = Callbacks::dma_unmap,
      .dma_counters = Callbacks::dma_counters,
      .irq = Callbacks::irq,
      .link_send = Callbacks::link_send,
      .link_credit = Callbacks::link_credit,
      .link_pause = Callbacks::link_pause,
      .ram_discard = Callbacks::ram_discard,
      .log = Callbacks::log,
      .dma_target = nullptr,  // no model in the simulator asks
      .link_send_ref = Callbacks::link_send_ref,
      .link_ref_done = Callbacks::link_ref_done,
  };
  std::vector<weft_abi_option> pairs;
  for (const auto& [key, value] : options) pairs.push_back({key.c_str(), value.c_str()});
  const weft_abi_config config{sizeof(config), static_cast<std::uint32_t>(pairs.size()), pairs.data()};
  std::array<char, 256> message{};
  void* instance = nullptr;
  if (const int error = model_.create(&callbacks_, &config, &instance, message.data(), message.size()); error != 0)
    throw std::runtime_error(message[0] != '\0' ? std::string(message.data())
                                                : "the model refused: " + std::string(std::strerror(-error)));
  instance_.reset(instance);
  info_.size = sizeof(info_);
  model_.info(instance_.get(), &info_);
  for (std::uint32_t bar = 0; bar < WEFT_ABI_BARS; ++bar) {
    if (info_.bar[bar].kind != WEFT_ABI_BAR_RAM) continue;
    // Sparse: pages exist once they are touched.
    void* base =
        mmap(nullptr, info_.bar[bar].size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "memory for a simulated BAR");
    ram_[bar] = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(base), Unmap{info_.bar[bar].size});
    model_.attach_ram(instance_.get(), bar, base, info_.bar[bar].size);
  }
  for (std::uint32_t port = 0; port < info_.links; ++port) ports_.push_back(std::make_unique<Port>(*this, port));
}

Device::~Device() = default;

void Unmap::operator()(std::byte* base) const { munmap(base, bytes); }

LinkEnd& Device::link(std::uint32_t port) { return ports_.at(port)->end(); }

void Device::plug(std::uint32_t port) { ports_.at(port)->on_state(true); }

std::uint64_t Device::read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) {
  if (bar < WEFT_ABI_BARS && offset >= info_.bar[bar].size - info_.bar[bar].write_only) return 0;
  return model_.region_read(instance_.get(), bar, offset, bytes);
}

void Device::write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes) {
  model_.region_write(instance_.get(), bar, offset, value, bytes);
}

int Device::fault(const char* name, std::span<const std::uint64_t> values) {
  if (model_.fault == nullptr) return -ENOENT;
  return model_.fault(instance_.get(), name, values.data(), static_cast<std::uint32_t>(values.size()));
}

void Device::wake() {
  if (inside_) {
    woken_ = true;
  } else {
    schedule(world_.scheduler.now(), false);
  }
}

// At most one step is scheduled: the earliest asked for.
void Device::schedule(std::uint64_t time, bool timer) {
  if (due_ < time || (due_ == time && (timer || !due_timer_))) return;
  due_ = time;
  due_timer_ = timer;
  world_.scheduler.at(time, number_, *step_task_, ++ticket_, timer);
}

void Device::step(std::uint64_t ticket) {
  if (ticket != ticket_) return;
  due_ = Scheduler::kNever;
  inside_ = true;
  woken_ = false;
  const weft_abi_step left = model_.step(instance_.get(), kBudget);
  inside_ = false;
  // Work takes no time in this version, but a device that always has more must not stop the clock.
  const std::uint64_t soon = world_.scheduler.now() + 1;
  if (left.more != 0 || woken_) {
    schedule(soon, false);
  } else if (left.deadline_ns != 0 && left.deadline_ns != UINT64_MAX) {
    schedule(std::max(left.deadline_ns, soon), true);
  }
}

}  // namespace weft::sim
