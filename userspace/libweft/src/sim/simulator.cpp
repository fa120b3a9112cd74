// SPDX-License-Identifier: MIT
#include "simulator.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace weft::sim {
namespace {

// A wait without limit ends when nothing but the devices' own timers has happened for this long: longer than any
// transport's retries take. Virtual ns.
constexpr std::uint64_t kQuietLimit = 600'000'000'000;
constexpr unsigned kSlice = 64;  // events between two looks at who else wants the lock

// One state a thread; its destruction at the thread's end says so to all that still hold it.
std::shared_ptr<ThreadState>& this_thread() {
  struct Holder {
    std::shared_ptr<ThreadState> state = std::make_shared<ThreadState>();
    ~Holder() { state->alive = false; }
  };
  thread_local Holder holder;
  return holder.state;
}

}  // namespace

// The switch's end of a link: passes on to the port, and logs what the bad wire did.
class Simulator::SwitchPort final : public fabric::LinkOwner {
 public:
  SwitchPort(World& world, fabric::Switch::Port& port, std::uint32_t device, std::uint32_t link)
      : world_(world), port_(port), device_(device), link_(link) {}

  void on_frame(unsigned cls, std::span<const std::byte> frame) override {
    const std::uint64_t lost = port_.counters().lost;
    port_.on_frame(cls, frame);
    if (port_.counters().lost != lost) {
      const std::uint64_t values[] = {device_, link_, frame.size()};
      world_.log.add(world_.scheduler.now(), EventLog::kSwitch, "lost", values);
    }
  }
  void on_ready(unsigned cls) override { port_.on_ready(cls); }
  void on_pause(unsigned cls, bool stop) override { port_.on_pause(cls, stop); }
  void on_state(bool up) override { port_.on_state(up); }

 private:
  World& world_;
  fabric::Switch::Port& port_;
  const std::uint32_t device_, link_;
};

// A device and its cables; made when it is first used.
struct Simulator::Place {
  struct Cable {
    std::unique_ptr<LinkEnd> end;  // at the switch
    std::unique_ptr<SwitchPort> owner;
    fabric::Switch::Port* port;
  };
  std::vector<bool> cut;
  std::unique_ptr<Device> device;
  std::vector<Cable> cables;
  std::unique_ptr<Driver> driver;
  std::string failure;  // why there is a device but no driver
};

Simulator::Simulator(const Config& config, const weft_abi_model& model)
    : config_(config),
      model_(model),
      world_{.scheduler = {}, .frames = {}, .log = EventLog(config.log.empty() ? nullptr : config.log.c_str())} {
  if (!config.firmware.empty()) {
    std::ifstream file(config.firmware, std::ios::binary);
    if (!file) throw std::runtime_error("firmware image " + config.firmware + ": " + std::strerror(errno));
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (bytes.empty()) throw std::runtime_error("firmware image " + config.firmware + " is empty");
    image_.resize(bytes.size());
    std::memcpy(image_.data(), bytes.data(), bytes.size());
  }
  if (!config.capture.empty()) capture_ = std::make_unique<fabric::Capture>(config.capture);
  fabric::SwitchConfig fabric;
  fabric.plan.seed = config.seed;
  fabric.plan.loss = config.loss;
  fabric.capture = capture_.get();
  fabric.now_ns = [this] { return world_.scheduler.now(); };
  switch_ = std::make_unique<fabric::Switch>(std::move(fabric));
  places_.resize(config.devices);
  for (auto& place : places_) {
    place = std::make_unique<Place>();
    place->cut.assign(config.ports, false);
  }
}

Simulator::~Simulator() {
  for (auto& place : places_) place->driver.reset();
  // Frames that wait in the switch give credit back to links: it goes first.
  switch_.reset();
}

std::unique_lock<std::mutex> Simulator::enter() {
  entering_.fetch_add(1);
  std::unique_lock lock(lock_);
  if (entering_.fetch_sub(1) == 1) entered_.notify_all();
  return lock;
}

Driver* Simulator::driver(std::uint32_t number, std::string& why, int& error) {
  error = 0;
  if (number >= places_.size()) {
    why = "the simulator has " + std::to_string(places_.size()) + " devices (see weft_sim_start)";
    error = -ENODEV;
    return nullptr;
  }
  Place& place = *places_[number];
  if (place.driver) return place.driver.get();
  if (place.device) {
    why = place.failure.empty() ? "it failed before" : place.failure;
    error = -EIO;
    return nullptr;
  }
  const std::uint64_t seed = config_.seed * 0x9e3779b97f4a7c15ull + number;
  try {
    const Device::Options options = {
        {"hbm", std::to_string(std::bit_ceil(config_.hbm_bytes))},
        {"ports", std::to_string(config_.ports)},
        {"serial", "SIM" + std::to_string(number)},
        {"firmware", config_.firmware.empty() ? "native" : "image"},
    };
    place.device = std::make_unique<Device>(world_, number, model_, options, seed);
  } catch (const std::exception& exception) {
    why = exception.what();
    error = -EINVAL;
    return nullptr;
  }
  for (std::uint32_t link = 0; link < place.device->links() && link < config_.ports; ++link) {
    Place::Cable cable;
    cable.port = &switch_->add_port({.name = "sim" + std::to_string(number) + "." + std::to_string(link)});
    // At one time devices come first, then the switch.
    cable.end = std::make_unique<LinkEnd>(world_.scheduler, world_.frames, 0x8000u + number, LinkTiming{});
    cable.owner = std::make_unique<SwitchPort>(world_, *cable.port, number, link);
    cable.end->set_owner(*cable.owner);
    cable.port->attach(*cable.end);
    LinkEnd::join(place.device->link(link), *cable.end);
    place.cables.push_back(std::move(cable));
  }
  for (std::uint32_t link = 0; link < place.cables.size(); ++link) {
    place.device->plug(link);
    if (place.cut[link]) place.device->link(link).set_state(false);
  }
  auto driver = std::make_unique<Driver>(
      *place.device,
      [this](const std::function<bool()>& done, std::uint64_t span) { return run_until(done, time() + span); }, seed);
  error = driver->boot(image_, place.failure);
  if (error != 0) {
    why = place.failure;
    return nullptr;
  }
  place.driver = std::move(driver);
  return place.driver.get();
}

int Simulator::set_link(std::uint32_t device, std::uint32_t port, bool up) {
  if (device >= places_.size() || port >= config_.ports) return -EINVAL;
  Place& place = *places_[device];
  place.cut[port] = !up;
  if (place.device && port < place.cables.size()) place.device->link(port).set_state(up);
  return 0;
}

bool Simulator::run_until(const std::function<bool()>& done, std::uint64_t deadline_ns) {
  while (!done()) {
    if (world_.scheduler.next() > deadline_ns) {
      world_.scheduler.advance(deadline_ns);
      return false;
    }
    world_.scheduler.run_one();
  }
  return true;
}

void Simulator::get_on(std::uint32_t events) {
  for (; events > 0 && !world_.scheduler.quiet(); --events) world_.scheduler.run_one();
  if (world_.changes != seen_changes_) check_waiters();
}

void Simulator::check_waiters() {
  seen_changes_ = world_.changes;
  for (Waiter* waiter : waiters_) {
    if (waiter->result == Result::kWaiting && (*waiter->done)()) waiter->finish(Result::kDone);
  }
}

std::uint64_t Simulator::first_deadline() const {
  std::uint64_t first = Scheduler::kNever;
  for (const Waiter* waiter : waiters_)
    if (waiter->result == Result::kWaiting) first = std::min(first, waiter->deadline);
  return first;
}

void Simulator::expire_waiters() {
  for (Waiter* waiter : waiters_) {
    if (waiter->result == Result::kWaiting && waiter->deadline <= time()) waiter->finish(Result::kTimedOut);
  }
}

bool Simulator::everybody_waits() const {
  return std::all_of(users_.begin(), users_.end(),
                     [](const User& user) { return !user->alive || user->waiting.load() > 0; });
}

void Simulator::make_room(std::unique_lock<std::mutex>& lock) {
  if (entering_.load() == 0) return;
  entered_.wait_for(lock, std::chrono::microseconds(200), [this] { return entering_.load() == 0; });
}

bool Simulator::pass(std::unique_lock<std::mutex>& lock) {
  Scheduler& scheduler = world_.scheduler;
  const std::uint64_t next = std::min(scheduler.next(), first_deadline());
  if (scheduler.quiet()) {
    const bool all = everybody_waits();
    if (all && (next == Scheduler::kNever || next > std::max(world_.effect_at, waited_at_) + kQuietLimit)) return false;
    if (!all && next > scheduler.now()) {
      // Somebody may bring work before that time.
      const std::uint64_t span = std::min<std::uint64_t>(next - scheduler.now(), 10'000'000);
      const std::uint64_t events = scheduler.events();
      activity_.wait_for(lock, std::chrono::nanoseconds(span),
                         [&] { return !scheduler.quiet() || scheduler.events() != events || everybody_waits(); });
      if (!scheduler.quiet() || scheduler.events() != events || everybody_waits()) return true;
      scheduler.advance(std::min(scheduler.now() + span, std::min(scheduler.next(), first_deadline())));
      if (scheduler.now() < next) return true;
    }
  }
  if (first_deadline() < scheduler.next()) {
    scheduler.advance(first_deadline());
  } else if (!scheduler.empty()) {
    scheduler.run_one();
    if (world_.changes != seen_changes_) check_waiters();
  }
  expire_waiters();
  return true;
}

bool Simulator::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, std::uint64_t deadline_ns) {
  if (done()) return true;
  waited_at_ = time();
  Waiter me{.done = &done, .deadline = deadline_ns, .thread = this_thread(), .wake = {}};
  waiters_.push_back(&me);
  me.thread->waiting.fetch_add(1);
  activity_.notify_all();
  while (me.result == Result::kWaiting) {
    if (running_) {
      me.wake.wait(lock);
      continue;
    }
    running_ = true;
    for (unsigned i = 0; i < kSlice && me.result == Result::kWaiting; ++i) {
      if (pass(lock)) continue;
      // Nothing can happen any more, and nobody is left to change that: all waits end.
      const std::uint64_t values[] = {waiters_.size()};
      world_.log.add(time(), EventLog::kSwitch, "deadlock", values);
      for (Waiter* waiter : waiters_)
        if (waiter->result == Result::kWaiting) waiter->finish(Result::kTimedOut);
    }
    running_ = false;
    if (me.result == Result::kWaiting) make_room(lock);
  }
  waiters_.remove(&me);
  // Somebody has to go on.
  if (!running_ && !waiters_.empty()) waiters_.front()->wake.notify_one();
  return me.result == Result::kDone;
}

Simulator::User* Simulator::add_user() {
  users_.push_back(this_thread());
  return &users_.back();
}

void Simulator::touch(User* user) {
  if (*user != this_thread()) *user = this_thread();
}

void Simulator::leave() {
  if (waiters_.empty()) return;
  check_waiters();
  activity_.notify_all();
}

void Simulator::remove_user(User* user) {
  users_.remove_if([user](const User& each) { return &each == user; });
}

}  // namespace weft::sim
