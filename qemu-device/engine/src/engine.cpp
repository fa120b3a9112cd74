// SPDX-License-Identifier: MIT
#include "engine.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

namespace weft::engine {

namespace {

constexpr std::uint32_t kBudget = 128 * 1024;
constexpr std::uint32_t kLinksMax = 64;
constexpr std::uint32_t kVectorsMax = 2048;  // of MSI-X (PCIe base specification, message control)
constexpr std::uint64_t kPage = 4096;

bool access_is_sane(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) {
  return bar < WEFT_ABI_BARS && std::has_single_bit(bytes) && bytes <= 8 && offset % bytes == 0;
}

const weft_abi_model& checked(const weft_abi_model* model) {
  if (model == nullptr || model->version != WEFT_ABI_VERSION || model->size != sizeof(weft_abi_model)) {
    throw Engine::Refusal{EPROTO,
                          "the model does not speak version " + std::to_string(WEFT_ABI_VERSION) + " of the model ABI"};
  }
  if (!model->create || !model->destroy || !model->info || !model->region_read || !model->region_write ||
      !model->reset || !model->quiesce || !model->resume || !model->step) {
    throw Engine::Refusal{EPROTO, "the model lacks a function of the model ABI"};
  }
  return *model;
}

// The number stays whole whatever the device's name is: ports of one device must differ.
std::string port_name(std::string_view device, std::uint32_t number) {
  constexpr std::size_t kName = sizeof(fabric::HelloPayload{}.name) - 1;
  const std::string suffix = "p" + std::to_string(number);
  return std::string(device.substr(0, kName - suffix.size())) + suffix;
}

}  // namespace

// ---- Life

Engine::Engine(const weft_engine_config& config)
    : host_(*config.host),
      model_(checked(config.model)),
      budget_(config.budget != 0 ? config.budget : kBudget),
      dma_(host_),
      log_(host_, config.name != nullptr ? config.name : "model"),
      wake_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_fd_) throw Refusal{errno, "no eventfd"};
  fill_abi_host();

  const weft_abi_config options{sizeof(weft_abi_config), config.options, config.option};
  char message[256] = "";
  if (const int rc = model_.create(&abi_, &options, &device_, message, sizeof(message)); rc < 0) {
    message[sizeof(message) - 1] = 0;
    throw Refusal{-rc, message[0] != 0 ? message : "the model refused its options"};
  }
  try {
    info_.size = sizeof(info_);
    model_.info(device_, &info_);
    check_info();
    const std::string_view name = config.name != nullptr ? config.name : info_.name != nullptr ? info_.name : "model";
    for (std::uint32_t i = 0; i < info_.links; ++i) {
      ports_.push_back(std::make_unique<Port>(Port::Config{
          .index = i,
          .name = port_name(name, i),
          .path = config.fabric != nullptr ? config.fabric : "",
          .frame_max = info_.frame_max,
          .model = &model_,
          .device = device_,
      }));
    }
    poll_.assign(1 + ports_.size(), pollfd{-1, 0, 0});
    poll_[0] = {wake_fd_.get(), POLLIN, 0};
  } catch (...) {
    model_.destroy(device_);
    throw;
  }
}

Engine::~Engine() {
  stop();
  ports_.clear();
  model_.destroy(device_);
  dma_.unmap_leaked();
}

void Engine::check_info() const {
  const auto refuse = [](const std::string& what) { throw Refusal{EINVAL, "the model's " + what}; };
  if (info_.links > kLinksMax) refuse("number of links is above " + std::to_string(kLinksMax));
  if (info_.vectors > kVectorsMax) refuse("number of vectors is above " + std::to_string(kVectorsMax));
  if (info_.links > 0) {
    if (!model_.link_receive || !model_.link_ready || !model_.link_state) {
      refuse("link functions are missing");
    }
    if (info_.frame_max > fabric::kFrameMax) refuse("frames are above " + std::to_string(fabric::kFrameMax) + " bytes");
  }
  for (unsigned i = 0; i < WEFT_ABI_BARS; ++i) {
    const weft_abi_bar& bar = info_.bar[i];
    if (bar.kind == WEFT_ABI_BAR_NONE) continue;
    const std::string name = "BAR" + std::to_string(i);
    if (bar.kind > WEFT_ABI_BAR_MSIX) refuse(name + " is of no known kind");
    if (!std::has_single_bit(bar.size) || bar.size < kPage) refuse(name + " is not a power of two from 4096 up");
    if (bar.kind == WEFT_ABI_BAR_RAM && !model_.attach_ram) refuse("attach_ram is missing");
    if (bar.write_only > bar.size) refuse(name + " has a write-only end that is larger than itself");
    // A 64-bit BAR takes two registers (PCI local bus specification 6.2.5.1).
    if (bar.prefetch != 0 && (i + 1 == WEFT_ABI_BARS || info_.bar[i + 1].kind != WEFT_ABI_BAR_NONE)) {
      refuse(name + " is 64-bit, but the BAR after it is not free");
    }
    if (bar.prefetch == 0 && bar.size > UINT64_C(0x80000000)) refuse(name + " is too large for 32 bits");
  }
}

void Engine::fill_abi_host() {
  abi_.size = sizeof(abi_);
  abi_.version = WEFT_ABI_VERSION;
  abi_.opaque = this;
  abi_.clock_ns = [](void* o) {
    return static_cast<Engine*>(o)->host_.clock_ns(static_cast<Engine*>(o)->host_.opaque);
  };
  abi_.random = [](void*, void* buffer, size_t bytes) {
    auto* out = static_cast<std::byte*>(buffer);
    while (bytes > 0) {
      const ssize_t n = ::getrandom(out, bytes, 0);
      if (n < 0) continue;  // a signal: nothing else can go wrong with a valid buffer
      out += n;
      bytes -= static_cast<size_t>(n);
    }
  };
  abi_.wake = [](void* o) { static_cast<Engine*>(o)->kick(); };
  abi_.dma_read = [](void* o, uint64_t iova, void* buffer, size_t bytes, weft_abi_dma_class what) {
    return static_cast<Engine*>(o)->dma_.read(iova, buffer, bytes, what);
  };
  abi_.dma_write = [](void* o, uint64_t iova, const void* buffer, size_t bytes, weft_abi_dma_class what) {
    return static_cast<Engine*>(o)->dma_.write(iova, buffer, bytes, what);
  };
  abi_.dma_map = [](void* o, uint64_t iova, size_t* bytes, weft_abi_dir dir) {
    return static_cast<Engine*>(o)->dma_.map(iova, *bytes, dir);
  };
  abi_.dma_unmap = [](void* o, void* pointer, size_t bytes, weft_abi_dir dir, size_t done, weft_abi_dma_class what) {
    static_cast<Engine*>(o)->dma_.unmap(pointer, bytes, dir, done, what);
  };
  abi_.dma_counters = [](void* o, weft_abi_dma_counters* out) { *out = static_cast<Engine*>(o)->dma_.counters(); };
  abi_.irq = [](void* o, uint32_t vector) {
    auto& e = *static_cast<Engine*>(o);
    if (vector >= e.info_.vectors) {
      ++e.counters_.irqs_refused;
      return;
    }
    ++e.counters_.irqs;
    e.host_.irq(e.host_.opaque, vector);
  };
  abi_.link_send = [](void* o, uint32_t link, uint32_t cls, const weft_abi_segment* segment, uint32_t segments) {
    auto& e = *static_cast<Engine*>(o);
    if (link >= e.ports_.size()) return -EINVAL;
    if (!e.in_pass_) e.kick();  // which flushes
    return e.ports_[link]->send(cls, std::span(segment, segments));
  };
  abi_.link_credit = [](void* o, uint32_t link, uint32_t cls, uint32_t frames) {
    auto& e = *static_cast<Engine*>(o);
    if (link >= e.ports_.size()) return;
    if (!e.in_pass_) e.kick();
    e.ports_[link]->credit(cls, frames);
  };
  abi_.link_pause = [](void* o, uint32_t link, uint32_t cls, int stop) {
    auto& e = *static_cast<Engine*>(o);
    if (link >= e.ports_.size()) return;
    if (!e.in_pass_) e.kick();
    e.ports_[link]->pause(cls, stop != 0);
  };
  // No way between two devices carries payload by reference yet; a model copies.
  abi_.link_send_ref = [](void*, uint32_t, uint32_t, const weft_abi_segment*, uint32_t, const weft_abi_ref*) {
    return -EOPNOTSUPP;
  };
  abi_.link_ref_done = [](void*, uint32_t, uint64_t) {};
  abi_.ram_discard = [](void* o, uint32_t bar, uint64_t offset, uint64_t bytes) {
    return static_cast<Engine*>(o)->ram_discard(bar, offset, bytes);
  };
  abi_.log = [](void* o, weft_abi_log_level level, const char* event, const uint64_t* value, uint32_t values) {
    static_cast<Engine*>(o)->log_.event(level, event, std::span(value, value != nullptr ? values : 0));
  };
  abi_.dma_target = [](void* o, uint64_t iova) { return static_cast<Engine*>(o)->dma_.target(iova); };
}

int Engine::attach_ram(std::uint32_t bar, void* base, std::uint64_t bytes, int fd) {
  if (bar >= WEFT_ABI_BARS || info_.bar[bar].kind != WEFT_ABI_BAR_RAM || info_.bar[bar].size != bytes || !base) {
    return -EINVAL;
  }
  std::lock_guard guard(lock_);
  ram_[bar] = {static_cast<std::byte*>(base), bytes, fd};
  return model_.attach_ram(device_, bar, base, bytes);
}

int Engine::start() {
  if (thread_.joinable()) return -EALREADY;
  stop_ = false;
  work_ = true;
  // Signals are the program's affair: its other threads take them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = 0;
  try {
    thread_ = std::thread([this] { thread_main(); });
    pthread_setname_np(thread_.native_handle(), "weft-engine");
  } catch (const std::system_error& e) {
    rc = -e.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return rc;
}

void Engine::stop() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard guard(hand_mutex_);
    stop_ = true;
    handed_ = false;
  }
  hand_back_.notify_all();
  kick();
  thread_.join();
}

// ---- The thread

// Tell the thread that there is something to do. Cheap while it is awake.
void Engine::kick() {
  work_.store(true);
  if (sleeping_.exchange(false)) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_fd_.get(), &one, sizeof(one));
  }
}

void Engine::thread_main() {
  if (host_.thread_begin != nullptr) host_.thread_begin(host_.opaque);
  while (!stop_) {
    bool here = true;
    if (host_.hand_over != nullptr) {
      {
        std::lock_guard guard(hand_mutex_);
        if (stop_) break;
        handed_ = true;  // before the host can come back with it
      }
      here = host_.hand_over(host_.opaque) == 0;
      std::unique_lock guard(hand_mutex_);
      if (here) {
        handed_ = false;
      } else {
        hand_back_.wait(guard, [&] { return !handed_; });
      }
    }
    if (here) pass();
    wait();
  }
  if (host_.thread_end != nullptr) host_.thread_end(host_.opaque);
}

void Engine::handed_over_pass() {
  std::lock_guard guard(hand_mutex_);
  if (!handed_) return;
  pass();
  handed_ = false;
  hand_back_.notify_all();
}

// Sleep until there is work, a frame, room in a socket, or the time that the model or a port waits for.
void Engine::wait() {
  constexpr std::int64_t kNever = INT64_MAX;
  std::int64_t ns = kNever;
  if (more_) {
    ns = 0;
  } else {
    if (deadline_ns_ != 0 && deadline_ns_ != UINT64_MAX) {
      const std::uint64_t now = host_.clock_ns(host_.opaque);
      ns = deadline_ns_ > now ? static_cast<std::int64_t>(std::min<std::uint64_t>(deadline_ns_ - now, kNever)) : 0;
    }
    if (attempt_ != Port::Clock::time_point::max()) {
      const auto now = Port::Clock::now();
      ns = std::min<std::int64_t>(ns, attempt_ > now ? std::chrono::nanoseconds(attempt_ - now).count() : 0);
    }
  }
  sleeping_.store(true);
  if (work_.load() || stop_) ns = 0;
  if (ns > 0) sleeps_.fetch_add(1, std::memory_order_relaxed);
  const timespec timeout{static_cast<time_t>(ns / 1000000000), static_cast<long>(ns % 1000000000)};
  const int n = ::ppoll(poll_.data(), poll_.size(), ns == kNever ? nullptr : &timeout, nullptr);
  sleeping_.store(false);
  work_.exchange(false);
  if (n <= 0) {
    for (pollfd& p : poll_) p.revents = 0;
  } else if (poll_[0].revents != 0) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof(count));
  }
}

// One round: input, a step, output. The lock is given up between its parts, so that a register read waits for one of
// them only.
void Engine::pass() {
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    std::lock_guard guard(lock_);
    if (!running_) break;
    in_pass_ = true;
    ports_[i]->tend(poll_[1 + i].fd, poll_[1 + i].revents);
    end_of_call();
    in_pass_ = false;
  }
  std::lock_guard guard(lock_);
  more_ = false;
  deadline_ns_ = 0;
  attempt_ = Port::Clock::time_point::max();
  for (pollfd& p : std::span(poll_).subspan(1)) p.fd = -1;
  if (!running_) return;  // frames stay in the sockets; credits hold the peers back

  in_pass_ = true;
  drain();
  const weft_abi_step step = model_.step(device_, budget_);
  ++counters_.steps;
  more_ = step.more != 0;
  deadline_ns_ = step.deadline_ns;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    Port& port = *ports_[i];
    port.flush();
    attempt_ = std::min(attempt_, port.next_attempt());
    poll_[1 + i] = {port.fd(), port.events(), 0};
  }
  end_of_call();
  in_pass_ = false;
}

// ---- The model, under its lock

void Engine::drain() {
  for (const Write& w : queue_.take()) {
    model_.region_write(device_, w.bar, w.offset, w.value, w.bytes);
  }
  end_of_call();
}

void Engine::end_of_call() { counters_.maps_leaked += dma_.unmap_leaked(); }

std::uint64_t Engine::read(std::uint32_t bar, std::uint64_t offset, std::uint32_t bytes) {
  if (!access_is_sane(bar, offset, bytes)) return 0;
  if (offset >= info_.bar[bar].size - info_.bar[bar].write_only) return 0;
  std::lock_guard guard(lock_);
  ++counters_.reads;
  drain();
  const std::uint64_t value = model_.region_read(device_, bar, offset, bytes);
  end_of_call();
  return value;
}

void Engine::write(std::uint32_t bar, std::uint64_t offset, std::uint64_t value, std::uint32_t bytes) {
  if (!access_is_sane(bar, offset, bytes)) return;
  const Write w{offset, value, bar, bytes};
  writes_.fetch_add(1, std::memory_order_relaxed);
  if (!queue_.push(w)) {
    // The queue is longer than any burst of a sane driver. Its writer pays.
    std::lock_guard guard(lock_);
    drain();
    model_.region_write(device_, bar, offset, value, bytes);
    ++counters_.writes_inline;
    end_of_call();
  }
  kick();
}

int Engine::reset(weft_abi_reset kind) {
  std::lock_guard guard(lock_);
  queue_.take();
  if (kind == WEFT_ABI_RESET_COLD) {
    for (std::uint32_t bar = 0; bar < WEFT_ABI_BARS; ++bar) {
      if (ram_[bar].base == nullptr || ram_discard(bar, 0, ram_[bar].bytes) == 0) continue;
      std::memset(ram_[bar].base, 0, ram_[bar].bytes);
    }
  }
  if (host_.irq_clear != nullptr) host_.irq_clear(host_.opaque);
  const int rc = model_.reset(device_, kind);
  for (const auto& port : ports_) port->model_was_reset();
  end_of_call();
  kick();
  return rc;
}

int Engine::quiesce() {
  std::lock_guard guard(lock_);
  if (!running_) return 0;
  drain();
  const int rc = model_.quiesce(device_);
  end_of_call();
  if (rc == 0) {
    running_ = false;
    kick();  // the thread forgets its deadline
  }
  return rc;
}

int Engine::resume() {
  std::lock_guard guard(lock_);
  if (running_) return 0;
  const int rc = model_.resume(device_);
  end_of_call();
  if (rc == 0) {
    running_ = true;
    kick();
  }
  return rc;
}

int Engine::fault(const char* name, std::span<const std::uint64_t> values) {
  if (model_.fault == nullptr) return -ENOENT;
  std::lock_guard guard(lock_);
  const int rc = model_.fault(device_, name, values.data(), static_cast<std::uint32_t>(values.size()));
  end_of_call();
  kick();
  return rc;
}

int Engine::link_fd(std::uint32_t link, fabric::Fd fd) {
  if (link >= ports_.size() || !fd) return -EINVAL;
  std::lock_guard guard(lock_);
  ports_[link]->adopt(std::move(fd));
  kick();
  return 0;
}

int Engine::ram_discard(std::uint32_t bar, std::uint64_t offset, std::uint64_t bytes) {
  if (bar >= WEFT_ABI_BARS || ram_[bar].base == nullptr) return -EINVAL;
  const RamBar& ram = ram_[bar];
  if (offset > ram.bytes || bytes > ram.bytes - offset) return -EINVAL;
  if (ram.fd < 0) return -ENOTSUP;
  // Whole pages go back to the system, what is left at both ends is cleared.
  const std::uint64_t end = offset + bytes;
  const std::uint64_t first = std::min((offset + kPage - 1) & ~(kPage - 1), end);
  const std::uint64_t last = std::max(end & ~(kPage - 1), first);
  if (last > first && ::fallocate(ram.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                                  static_cast<off_t>(last - first)) != 0) {
    return -ENOTSUP;
  }
  std::memset(ram.base + offset, 0, first - offset);
  std::memset(ram.base + last, 0, end - last);
  return 0;
}

weft_engine_counters Engine::counters() {
  std::lock_guard guard(lock_);
  weft_engine_counters c = counters_;
  c.writes = writes_.load(std::memory_order_relaxed);
  c.sleeps = sleeps_.load(std::memory_order_relaxed);
  c.dma = dma_.counters();
  c.log_suppressed = log_.suppressed();
  return c;
}

int Engine::link_counters(std::uint32_t link, weft_engine_link_counters& counters) {
  if (link >= ports_.size()) return -EINVAL;
  std::lock_guard guard(lock_);
  counters = ports_[link]->counters();
  return 0;
}

}  // namespace weft::engine
