// SPDX-License-Identifier: MIT
#include "process.hpp"

#include <cerrno>
#include <exception>
#include <mutex>

#include "../error.hpp"
#include "weft/sized.hpp"

namespace weft::sim {
namespace {

// The C interface speaks of "the" simulator, so the process has to hold it somewhere.
struct Process {
  std::mutex lock;
  std::shared_ptr<Simulator> simulator;
};

Process& process() {
  static Process instance;
  return instance;
}

std::shared_ptr<Simulator> make(const Config& config) {
  const weft_abi_model* model = weft_model_entry(WEFT_ABI_VERSION);
  if (model == nullptr) throw std::runtime_error("the built-in model speaks another version of the model interface");
  return std::make_shared<Simulator>(config, *model);
}

}  // namespace

std::shared_ptr<Simulator> running_simulator() {
  std::lock_guard guard(process().lock);
  return process().simulator;
}

std::shared_ptr<Simulator> process_simulator(std::string& why) {
  std::lock_guard guard(process().lock);
  if (!process().simulator) {
    try {
      process().simulator = make(Config{});
    } catch (const std::exception& exception) {
      why = exception.what();
    }
  }
  return process().simulator;
}

std::uint32_t process_devices() {
  const auto simulator = running_simulator();
  return simulator ? simulator->config().devices : Config{}.devices;
}

}  // namespace weft::sim

using weft::front::fail;
using weft::front::guarded;

int weft_sim_start(const weft_sim_config* asked) {
  weft_sim_config config;
  if (const int error = weft::read_sized(asked, &config); error != 0)
    return fail(-error, error == -E2BIG ? "weft_sim_start: a field is set that this library does not know"
                                        : "weft_sim_start: size is not set");
  if (config.devices < 1 || config.devices > 256)
    return fail(EINVAL, "weft_sim_start: %u devices; 1 to 256 are possible", config.devices);
  if (config.ports < 1 || config.ports > WEFT_PORTS_MAX)
    return fail(EINVAL, "weft_sim_start: %u ports; 1 to %u are possible", config.ports, WEFT_PORTS_MAX);
  if (!(config.loss >= 0 && config.loss <= 1))
    return fail(EINVAL, "weft_sim_start: loss %g is no probability", config.loss);
  return guarded("weft_sim_start", [&] {
    const auto text = [](const char* value) { return value != nullptr ? std::string(value) : std::string(); };
    weft::sim::Config wanted;
    wanted.devices = config.devices;
    wanted.ports = config.ports;
    if (config.hbm_bytes != 0) wanted.hbm_bytes = config.hbm_bytes;
    wanted.seed = config.seed;
    wanted.loss = config.loss;
    wanted.log = text(config.log);
    wanted.capture = text(config.capture);
    wanted.firmware = text(config.firmware);
    std::lock_guard guard(weft::sim::process().lock);
    if (weft::sim::process().simulator) return fail(EEXIST, "weft_sim_start: this process has a simulator already");
    try {
      weft::sim::process().simulator = weft::sim::make(wanted);
    } catch (const std::runtime_error& exception) {
      return fail(EINVAL, "weft_sim_start: %s", exception.what());
    }
    return 0;
  });
}

int weft_sim_stop(void) {
  std::lock_guard guard(weft::sim::process().lock);
  auto& simulator = weft::sim::process().simulator;
  if (!simulator) return 0;
  {
    const auto lock = simulator->enter();
    if (simulator->users() != 0) return fail(EBUSY, "weft_sim_stop: %zu devices are open", simulator->users());
  }
  simulator.reset();
  return 0;
}

int weft_sim_link(uint32_t device, uint32_t port, int up) {
  std::string why;
  const auto simulator = weft::sim::process_simulator(why);
  if (!simulator) return fail(ENODEV, "weft_sim_link: %s", why.c_str());
  const auto lock = simulator->enter();
  const int error = simulator->set_link(device, port, up != 0);
  simulator->leave();
  return error != 0 ? fail(-error, "weft_sim_link: there is no port %u of device %u", port, device) : 0;
}

uint64_t weft_sim_hash(void) {
  const auto simulator = weft::sim::running_simulator();
  if (!simulator) return 0;
  const auto lock = simulator->enter();
  simulator->world().log.flush();
  return simulator->hash();
}

uint64_t weft_sim_time(void) {
  const auto simulator = weft::sim::running_simulator();
  if (!simulator) return 0;
  const auto lock = simulator->enter();
  return simulator->time();
}

int weft_sim_run(uint64_t ns) {
  const auto simulator = weft::sim::running_simulator();
  if (!simulator) return fail(ENODEV, "weft_sim_run: there is no simulator");
  const auto lock = simulator->enter();
  const std::uint64_t now = simulator->time();
  simulator->run_until([] { return false; }, ns < UINT64_MAX - now ? now + ns : UINT64_MAX);
  simulator->leave();
  return 0;
}
