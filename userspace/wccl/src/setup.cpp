// SPDX-License-Identifier: MIT
// How a communicator comes about: what ranks say of themselves, the search for a path, the schedules.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "bytes.hpp"
#include "communicator.hpp"
#include "host.hpp"
#include "hub_wire.hpp"
#include "onchip.hpp"
#include "sched/algorithms.hpp"
#include "sched/check.hpp"
#include "sched/file.hpp"
#include "weft/hw/regs.h"

namespace weft::ccl {
namespace {

constexpr std::uint32_t kArrivalsMax = 16384;  // immediates of peers that a NIC's queue is asked to hold

std::string host_name() {
  char name[64] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace

std::shared_ptr<Family> Family::find(const std::string& key) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<Family>> families;
  const std::lock_guard lock(mutex);
  std::erase_if(families, [](const auto& entry) { return entry.second.expired(); });
  auto family = families[key].lock();
  if (!family) families[key] = family = std::make_shared<Family>();
  return family;
}

// What each rank says of itself first.
struct Communicator::Hello {
  std::uint32_t size = 0;
  std::uint32_t version = 0;
  std::uint32_t asked = 0;  // wcclPath_t
  std::uint32_t ports = 0;  // that are up
  std::uint32_t lanes = 0;
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t entries = 0;
  std::uint32_t tag = 0;
  char algorithm[32] = {};
  char host[64] = {};
  char staged_over[8] = {};
};

Communicator::Communicator(const Options& options, std::uint32_t rank, std::uint32_t ranks,
                           std::shared_ptr<Family> family)
    : options_(options), rank_(rank), ranks_(ranks), family_(std::move(family)), mutex_(family_->mutex) {
  struct weft_device_info info{};
  info.size = sizeof info;
  if (weft_device_info(options_.device, &info) != 0) throw device_failure("rank " + std::to_string(rank));
  for (std::uint32_t port = 0; port < info.ports; ++port) {
    weft_mbox_port state{};
    if (weft_port(options_.device, port, &state) == 0 && state.state == WEFT_PORT_ACTIVE) ports_up_.push_back(port);
  }
}

Communicator::~Communicator() {
  executor_.reset();
  scratch_.reset();
  if (owns_device_) weft_device_close(options_.device);
}

Bytes Communicator::hello() const {
  Hello hello;
  const Settings& s = options_.settings;
  hello.size = sizeof hello;
  hello.version = WCCL_VERSION_CODE;
  hello.asked = s.path;
  hello.ports = static_cast<std::uint32_t>(ports_up_.size());
  hello.lanes = s.lanes ? s.lanes : std::min(hello.ports, 4u);
  hello.slots = s.slots;
  hello.slot_bytes = s.slot_bytes;
  hello.entries = s.queue_entries;
  const auto text = [](auto& field, const std::string& value) {
    std::snprintf(field, sizeof field, "%s", value.c_str());
  };
  text(hello.algorithm, s.algorithm);
  text(hello.host, host_name());
  text(hello.staged_over, s.staged_over);
  hello.tag =
      static_cast<std::uint32_t>(Clock::now().time_since_epoch().count() / 1000) ^ static_cast<std::uint32_t>(getpid());
  Bytes out;
  put(out, hello);
  return out;
}

PathSearch Communicator::settle(const std::vector<Bytes>& hellos) {
  std::vector<Wish> wishes;
  onchip_lanes_ = slots_ = entries_ = UINT32_MAX;
  asked_slot_bytes_ = 0;
  std::string algorithm;
  for (std::uint32_t rank = 0; rank < hellos.size(); ++rank) {
    std::size_t at = 0;
    auto hello = take<Hello>(hellos[rank], at);
    const std::string who = "rank " + std::to_string(rank);
    if (hello.size != sizeof hello || hello.version != WCCL_VERSION_CODE) {
      throw Failure(wcclInvalidUsage, who + " runs another version of wccl", static_cast<int>(rank));
    }
    const auto text = [](auto& field) {
      field[sizeof field - 1] = 0;
      return std::string(field);
    };
    wishes.push_back({static_cast<wcclPath_t>(hello.asked), text(hello.staged_over), text(hello.host)});
    const std::string named = text(hello.algorithm);
    if (rank == 0) algorithm = named, tag_ = hello.tag % 256;
    if (named != algorithm)
      throw Failure(wcclInvalidUsage, who + " has another WCCL_ALGO than rank 0", static_cast<int>(rank));
    onchip_lanes_ = std::min(onchip_lanes_, std::max(hello.lanes, 1u));
    slots_ = std::min(slots_, hello.slots);
    if (hello.slot_bytes && (!asked_slot_bytes_ || hello.slot_bytes < asked_slot_bytes_)) {
      asked_slot_bytes_ = hello.slot_bytes;
    }
    entries_ = std::min(entries_, hello.entries);
  }
  return PathSearch(std::move(wishes));
}

std::string Communicator::prepare(const Way& way) {
  executor_.reset();
  try {
    if (std::string obstacle = make_executor(way); !obstacle.empty()) return obstacle;
    (void)make_offers(first_connections());
  } catch (const Failure& failure) {
    // No queue, memory or other things that this way needs and another may not.
    executor_.reset();
    return failure.what();
  }
  load_schedules();
  return "";
}

std::string Communicator::make_executor(const Way& way) {
  const Settings& s = options_.settings;
  const Slicing slicing = way.path == wcclPathPeer ? kPeerSlicing : Slicing();
  slot_bytes_ = asked_slot_bytes_ ? asked_slot_bytes_ : slicing.slot_bytes;
  least_slice_ = slicing.least;
  const ExecutorSetup common{options_.device, rank_, slots_, entries_, std::chrono::nanoseconds(s.timeout).count()};
  if (way.path == wcclPathOnchip) {
    lanes_ = onchip_lanes_;
    if (ports_up_.empty() && ranks_ > 1) return "on-chip needs a port that is up: none is";
    executor_ = std::make_unique<OnchipExecutor>(OnchipExecutor::Setup{common, ports_up_, s.rc_timeout, s.rc_retries});
    return "";
  }
  lanes_ = std::max(s.lanes, 1u);
  HostNic::Options nic;
  nic.transport = way.transport;
  nic.hbm = way.path == wcclPathPeer;
  // A ring has two neighbours; any rank may become one. The queue of a NIC has its limits.
  nic.arrivals = std::min(2 * slots_ * lanes_ * std::max(ranks_ - 1, 2u), kArrivalsMax);
  nic.timeout_ms = static_cast<std::uint32_t>(s.timeout.count());
  nic.cache.entries = s.mr_cache_entries;
  nic.cache.bytes = s.mr_cache_bytes;
  try {
    executor_ = std::make_unique<HostExecutor>(HostExecutor::Setup{common, way.path == wcclPathStaged, tag_},
                                               std::make_unique<HostNic>(options_.device, nic));
  } catch (const Failure& failure) {
    return (nic.hbm ? "peer-direct needs a host NIC that can register HBM through DMA-BUF: " : "") +
           std::string(failure.what());
  }
  return "";
}

void Communicator::load_schedules() {
  const auto make = [&](wccl_sched_collective collective, const std::string& name) {
    const Algorithm* algorithm = find_algorithm(collective, name);
    if (!algorithm) {
      std::string known;
      for (const Algorithm& a : algorithms()) {
        if (a.collective == collective) known += (known.empty() ? "" : ", ") + std::string(a.name);
      }
      throw Failure(wcclInvalidArgument, "no algorithm " + name + " for " + std::string(collective_name(collective)) +
                                             "; there are: " + known);
    }
    return algorithm->make({ranks_, lanes_, 0});
  };
  all_reduce_ = make(WCCL_COLL_ALLREDUCE, options_.settings.algorithm);
  barrier_ = make(WCCL_COLL_BARRIER, "");
  if (options_.settings.schedule_file.empty()) return;

  std::string error;
  auto loaded = load_schedule(options_.settings.schedule_file, error);
  if (!loaded) throw Failure(wcclInvalidArgument, "WCCL_SCHED_FILE: " + error);
  const Report report = ccl::check(*loaded, 1);
  const std::string file = "WCCL_SCHED_FILE: " + options_.settings.schedule_file;
  if (!report.ok()) {
    const Finding& f = report.findings[0];
    throw Failure(wcclInvalidArgument,
                  file + ": rank " + std::to_string(f.rank) + ": " + std::string(fault_name(f.fault)) + ": " + f.text);
  }
  const Shape& shape = loaded->shape();
  if (shape.ranks != ranks_) {
    throw Failure(wcclInvalidUsage,
                  file + ": is for " + std::to_string(shape.ranks) + " ranks, not " + std::to_string(ranks_));
  }
  if (shape.collective == WCCL_COLL_ALLREDUCE) {
    all_reduce_ = std::make_unique<Schedule>(std::move(*loaded));
  } else if (shape.collective == WCCL_COLL_BARRIER) {
    barrier_ = std::make_unique<Schedule>(std::move(*loaded));
  } else {
    throw Failure(wcclInvalidUsage,
                  file + ": would not be used: wccl runs no " + std::string(collective_name(shape.collective)));
  }
}

// Half of the time that is left: another path may have to be looked at after this one.
std::string Communicator::probe(const Patience& patience) {
  return executor_->probe(first_connections(), std::max<std::int64_t>(patience.left().count() / 2, 1'000'000));
}

void Communicator::set_path(const PathChoice& choice) {
  path_ = choice;
  if (options_.settings.verbosity < 2) return;
  std::fprintf(
      stderr,
      "wccl: rank %u of %u: %s over %s (%s); all-reduce by %s, %u lanes, %u slots of %u bytes, %u queue entries\n",
      rank_, ranks_, path_name(choice.path), choice.transport.c_str(), choice.reason.c_str(),
      all_reduce_->shape().name.c_str(), lanes_, slots_, slot_bytes_, entries_);
}

std::vector<Bytes> Communicator::all_gather(std::span<const std::byte> mine, Lock& lock, Patience& patience) {
  std::optional<std::vector<Bytes>> all;
  rendezvous_->gather(mine);
  // The hub's own limit names who is missing, so let it speak first.
  Patience longer(patience.left() + std::chrono::seconds(2));
  meet(lock, longer, [&] { return (all = rendezvous_->gathered()).has_value(); }, "the other ranks");
  patience.pass();
  return std::move(*all);
}

std::shared_ptr<Communicator> Communicator::join(const Options& options, std::uint32_t rank, std::uint32_t ranks,
                                                 std::unique_ptr<Rendezvous> rendezvous,
                                                 std::shared_ptr<Family> family) {
  std::shared_ptr<Communicator> comm(new Communicator(options, rank, ranks, std::move(family)));
  comm->rendezvous_ = std::move(rendezvous);
  Patience patience(options.settings.timeout);
  std::mutex alone;  // nobody else knows of it yet
  Lock lock(alone);
  const auto gather = [&](std::span<const std::byte> mine) { return comm->all_gather(mine, lock, patience); };
  const auto answers = [&](PathSearch& search, const std::string& obstacle) {
    std::vector<std::string> all;
    for (const Bytes& bytes : gather(wire::as_bytes(obstacle))) all.push_back(wire::as_text(bytes));
    return search.answers(all);
  };
  try {
    PathSearch search = comm->settle(gather(comm->hello()));
    for (;;) {
      if (!answers(search, comm->prepare(search.way()))) continue;
      const auto offers = gather(comm->make_offers(comm->first_connections()));
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer != rank) comm->accept_offers(peer, offers[peer]);
      }
      gather({});  // everybody can receive
      if (answers(search, comm->probe(patience))) break;
    }
    comm->set_path(search.choice());
  } catch (const Failure& failure) {
    comm->rendezvous_->report({failure.culprit() >= 0 ? static_cast<std::uint32_t>(failure.culprit()) : rank,
                               "rank " + std::to_string(rank) + ": " + failure.what()});
    // All ranks come to the same decision about paths and settings: then it is each one's own error.
    throw;
  }
  const std::lock_guard known(comm->mutex_);
  std::erase_if(comm->family_->members, [](const auto& member) { return member.expired(); });
  comm->family_->members.push_back(comm);
  return comm;
}

std::vector<std::shared_ptr<Communicator>> Communicator::make_all(const std::vector<Options>& options) {
  const auto ranks = static_cast<std::uint32_t>(options.size());
  const auto family = std::make_shared<Family>();
  family->members.resize(ranks);
  std::vector<std::shared_ptr<Communicator>> comms;
  std::vector<Bytes> hellos;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    comms.emplace_back(new Communicator(options[rank], rank, ranks, family));
    family->members[rank] = comms[rank];
    hellos.push_back(comms[rank]->hello());
  }
  Patience patience(options[0].settings.timeout);
  std::optional<PathSearch> search;
  for (const auto& comm : comms) search.emplace(comm->settle(hellos));
  const auto all = [&](auto ask) {
    std::vector<std::string> obstacles;
    for (const auto& comm : comms) obstacles.push_back(ask(*comm));
    return search->answers(obstacles);
  };
  for (;;) {
    if (!all([&](Communicator& comm) { return comm.prepare(search->way()); })) continue;
    std::vector<Bytes> offers;
    for (const auto& comm : comms) offers.push_back(comm->make_offers(comm->first_connections()));
    for (const auto& comm : comms) {
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer != comm->rank_) comm->accept_offers(peer, offers[peer]);
      }
    }
    patience.pass();
    if (all([&](Communicator& comm) { return comm.probe(patience); })) break;
  }
  for (const auto& comm : comms) comm->set_path(search->choice());
  return comms;
}

}  // namespace weft::ccl
