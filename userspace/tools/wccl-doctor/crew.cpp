// SPDX-License-Identifier: MIT
#include "crew.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <stdexcept>

#include "control.hpp"
#include "interrupt.hpp"
#include "weft/sim.h"
#include "wire.hpp"

namespace weft::doctor {
namespace {

constexpr int kProtocol = 1;
using Clock = std::chrono::steady_clock;

Deadline in(double seconds) { return Clock::now() + std::chrono::milliseconds(static_cast<long long>(seconds * 1000)); }

// How long a trial may take: its transfers at a few MB/s, and three waits that end in time-outs.
double trial_limit(const Options& options) { return 120 + 3 * options.timeout_s; }

struct CloseDevice {
  void operator()(weft_device* device) const { weft_device_close(device); }
};
using DevicePtr = std::unique_ptr<weft_device, CloseDevice>;

DevicePtr open_device(const std::string& spec) {
  weft_device* device = nullptr;
  if (weft_device_open(spec.c_str(), &device) != 0)
    throw std::runtime_error("device " + spec + ": " + weft_last_error());
  return DevicePtr(device);
}

Node describe(weft_device* device, const std::string& name) {
  struct weft_device_info info{};
  info.size = sizeof info;
  if (weft_device_info(device, &info) != 0) throw std::runtime_error(std::string("device: ") + weft_last_error());
  return {name, info.ports, std::string(info.backend) + (*info.bdf ? ' ' + std::string(info.bdf) : ""), ""};
}

class SimulatedCrew final : public Crew {
 public:
  explicit SimulatedCrew(const Options& options) {
    weft_sim_config config{};
    config.size = sizeof config;
    config.devices = options.ranks;
    config.ports = options.ports;
    config.seed = options.seed;
    // Two buffers, staging for a ring and a barrier, and some room.
    config.hbm_bytes = std::max<std::uint64_t>(
        std::bit_ceil(2 * options.sizes.back() + (2ull * options.ports + 16) * (4u << 20)), 128u << 20);
    if (weft_sim_start(&config) != 0) throw std::runtime_error(std::string("simulator: ") + weft_last_error());
    try {
      for (std::uint32_t rank = 0; rank < options.ranks; ++rank) {
        devices_.push_back(open_device("sim:" + std::to_string(rank)));
        members_.push_back({rank, devices_.back().get()});
        nodes_.push_back(describe(devices_.back().get(), "sim" + std::to_string(rank)));
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~SimulatedCrew() override { stop(); }
  std::vector<Node>& nodes() override { return nodes_; }
  Trial run(Order order) override { return run_trial(order, members_, true); }

 private:
  void stop() {
    devices_.clear();
    weft_sim_stop();
  }
  std::vector<DevicePtr> devices_;
  std::vector<Member> members_;
  std::vector<Node> nodes_;
};

// Where the ranks meet. wccl must not take the address for its own: each communicator has an id of its own here.
std::string meeting(const tools::Launch& launch) {
  const char* agreed = std::getenv("WCCL_COMM_ID");
  std::string address = agreed && *agreed ? agreed : launch.root;
  unsetenv("WCCL_COMM_ID");
  return address;
}

DevicePtr own_device(const Options& options, const tools::Launch& launch) {
  std::string spec = options.device;
  const char* chosen = std::getenv("WEFT_DEVICE");
  if (spec.empty()) spec = chosen && *chosen ? chosen : "kernel:" + std::to_string(launch.local_rank);
  return open_device(spec);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

class ProcessCrew final : public Crew {
 public:
  ProcessCrew(const Options& options, const tools::Launch& launch)
      : options_(options), device_(own_device(options, launch)), lines_(launch.ranks), nodes_(launch.ranks) {
    for (std::uint32_t rank = 0; rank < launch.ranks; ++rank)
      nodes_[rank] = {"rank " + std::to_string(rank), 0, "", "did not come"};
    nodes_[0] = describe(device_.get(), host_name());
    Lobby lobby(meeting(launch));
    gather(lobby);
    // Several ranks of one host get their number too.
    const std::vector<Node> hosts = nodes_;
    for (std::uint32_t rank = 0; rank < launch.ranks; ++rank) {
      const auto same = [&](const Node& n) { return n.name == hosts[rank].name; };
      if (std::count_if(hosts.begin(), hosts.end(), same) > 1) nodes_[rank].name += '/' + std::to_string(rank);
    }
  }

  std::vector<Node>& nodes() override { return nodes_; }

  Trial run(Order order) override {
    Trial out;
    for (const std::uint32_t rank : order.ranks) {
      if (nodes_[rank].error.empty()) continue;
      out.error = nodes_[rank].name + ": " + nodes_[rank].error;
      return out;
    }
    out.outcome = Outcome::kFailed;
    const Deadline deadline = in(trial_limit(options_));
    std::vector<Trial> parts;
    // Whoever was told is listened to, whatever becomes of the others: the next order finds all of them idle.
    const auto attempt = [&](auto&& body) {
      try {
        body();
        return true;
      } catch (const tools::Interrupted&) {
        throw;
      } catch (const std::exception& error) {
        if (out.error.empty()) out.error = error.what();
        return false;
      }
    };
    // The first member's process is the meeting point.
    const std::uint32_t first = order.ranks[0];
    const bool met = attempt(
        [&] { order.id = first == 0 ? make_id() : ask(first, {{"do", "id"}}, deadline).at("id").get<std::string>(); });
    if (!met) return out;
    std::vector<std::uint32_t> told;
    for (const std::uint32_t rank : order.ranks) {
      if (rank == 0 || attempt([&] { say(rank, {{"do", "trial"}, {"order", order}}, deadline); })) told.push_back(rank);
    }
    for (const std::uint32_t rank : told) {
      attempt([&] {
        parts.push_back(rank == 0 ? run_trial(order, {{0, device_.get()}}, false) : hear(rank, deadline).get<Trial>());
      });
    }
    return out.error.empty() ? merge(parts) : out;
  }

  void end() override {
    for (std::uint32_t rank = 1; rank < lines_.size(); ++rank) {
      try {
        if (lines_[rank]) say(rank, {{"do", "end"}}, in(2));
      } catch (const Gone&) {  // it is gone, and noted
      }
    }
  }

 private:
  void gather(Lobby& lobby) {
    const Deadline deadline = in(options_.timeout_s);
    std::size_t missing = lines_.size() - 1;
    while (missing > 0) {
      auto line = lobby.next(deadline);
      if (!line) return;
      try {
        const auto hello = nlohmann::json::parse(line->hear(std::min(deadline, in(5))));
        const auto rank = hello.at("rank").get<std::uint32_t>();
        if (hello.at("wccl-doctor") != kProtocol || rank == 0 || rank >= lines_.size() || lines_[rank]) continue;
        nodes_[rank] = hello.at("node").get<Node>();
        lines_[rank] = std::move(line);
        --missing;
      } catch (const nlohmann::json::exception&) {  // a stranger
      } catch (const Gone&) {
      }
    }
  }

  // What does not work makes the rank gone.
  template <class F>
  auto with(std::uint32_t rank, F&& body) {
    try {
      if (!lines_[rank]) throw Gone("left");
      return body(*lines_[rank]);
    } catch (const Gone& gone) {
      lines_[rank].reset();
      nodes_[rank].error = gone.what();
      throw Gone(nodes_[rank].name + ": " + gone.what());
    }
  }
  void say(std::uint32_t rank, const nlohmann::json& what, Deadline deadline) {
    with(rank, [&](Line& l) { l.say(line(what), deadline); });
  }
  nlohmann::json hear(std::uint32_t rank, Deadline deadline) {
    return with(rank, [&](Line& l) {
      try {
        auto answer = nlohmann::json::parse(l.hear(deadline));
        if (answer.contains("error") && answer.size() == 1)
          throw std::runtime_error(answer["error"].get<std::string>());
        return answer;
      } catch (const nlohmann::json::exception&) {
        throw Gone("sends what is no message");
      }
    });
  }
  nlohmann::json ask(std::uint32_t rank, const nlohmann::json& what, Deadline deadline) {
    say(rank, what, deadline);
    return hear(rank, deadline);
  }

  const Options& options_;
  DevicePtr device_;
  std::vector<std::unique_ptr<Line>> lines_;  // by rank; none for 0
  std::vector<Node> nodes_;
};

}  // namespace

std::unique_ptr<Crew> make_simulated_crew(const Options& options) { return std::make_unique<SimulatedCrew>(options); }

std::unique_ptr<Crew> make_crew(const Options& options, const tools::Launch& launch) {
  return std::make_unique<ProcessCrew>(options, launch);
}

int follow(const Options& options, const tools::Launch& launch) {
  const std::string address = meeting(launch);
  const DevicePtr device = own_device(options, launch);
  const auto line_to_0 = call(address, in(options.timeout_s));
  const Deadline end = in(options.limit_s + trial_limit(options));
  const auto say = [&](const nlohmann::json& what) { line_to_0->say(line(what), in(options.timeout_s)); };
  try {
    say({{"wccl-doctor", kProtocol}, {"rank", launch.rank}, {"node", describe(device.get(), host_name())}});
    for (;;) {
      const auto order = nlohmann::json::parse(line_to_0->hear(end));
      const auto what = order.at("do").get<std::string>();
      if (what == "end") return 0;
      if (what == "id") {
        try {
          say({{"id", make_id()}});
        } catch (const Gone&) {
          throw;
        } catch (const std::runtime_error& error) {
          say({{"error", error.what()}});
        }
      } else {
        say(run_trial(order.at("order").get<Order>(), {{launch.rank, device.get()}}, false));
      }
    }
  } catch (const Gone& gone) {
    throw std::runtime_error(std::string("rank 0 ") + gone.what());
  }
}

}  // namespace weft::doctor
