// SPDX-License-Identifier: MIT
#include "communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "host.hpp"
#include "onchip.hpp"
#include "sched/algorithms.hpp"
#include "sched/check.hpp"
#include "sched/file.hpp"
#include "verdict.hpp"
#include "weft/hw/regs.h"
#include "wire.hpp"

namespace weft::ccl {
namespace {

// A wait is cut into pieces between which we look whether somebody else reported a failure.
constexpr std::int64_t kWaitPiece = 100'000'000;  // ns
constexpr std::uint32_t kFullSlotRanks = 8;       // more ranks: smaller slots for peers that are not neighbours
constexpr std::uint32_t kArrivalsMax = 16384;     // immediates of peers that a NIC's queue is asked to hold

// Before each offer of a connection's end.
struct OfferHead {
  std::uint32_t to = 0;  // rank
  std::uint32_t lane = 0;
  std::uint32_t bytes = 0;
};

template <class T>
void put(Bytes& out, const T& value) {
  const auto* at = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), at, at + sizeof value);
}

template <class T>
T take(const Bytes& in, std::size_t& at) {
  T value;
  if (in.size() - at < sizeof value) throw Failure(wcclInternalError, "a rank sent too little");
  std::memcpy(&value, in.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

std::string host_name() {
  char name[64] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Ops of a group of sends and receives, of this rank alone; chunk i of INPUT and OUTPUT is the memory of op i.
class GroupSource final : public Source, public Layout {
 public:
  GroupSource(const std::vector<PointToPoint>& ops, std::uint32_t rank, std::uint32_t ranks) : rank_(rank) {
    shape_.collective = WCCL_COLL_SENDRECV;
    shape_.name = "group";
    shape_.ranks = ranks;
    std::map<std::pair<std::uint32_t, bool>, std::uint32_t> nth;  // of the messages with a peer, in a direction
    std::vector<std::uint32_t> self[2];
    for (std::uint32_t i = 0; i < ops.size(); ++i) {
      const PointToPoint& p = ops[i];
      places_.push_back(
          {p.send ? static_cast<std::uint8_t>(WCCL_BUF_INPUT) : static_cast<std::uint8_t>(WCCL_BUF_OUTPUT), p.address,
           p.bytes});
      if (p.peer == rank) {
        self[p.send].push_back(i);
        continue;
      }
      wccl_sched_op op{};
      op.code = p.send ? WCCL_OP_SEND : WCCL_OP_RECV;
      op.peer = p.peer;
      op.chunks = 1;
      op.step = nth[{p.peer, p.send}]++;
      if (p.send) {
        op.src_chunk = i;
      } else {
        op.dst_buffer = WCCL_BUF_OUTPUT;
        op.dst_chunk = i;
      }
      ops_.push_back(op);
    }
    if (self[0].size() != self[1].size()) {
      throw Failure(wcclInvalidUsage, "sends to the own rank and receives from it differ in number");
    }
    for (std::size_t i = 0; i < self[0].size(); ++i) {
      if (ops[self[0][i]].bytes != ops[self[1][i]].bytes) {
        throw Failure(wcclInvalidUsage, "a send to the own rank and its receive differ in size");
      }
      wccl_sched_op op{};
      op.code = WCCL_OP_COPY;
      op.dst_buffer = WCCL_BUF_OUTPUT;
      op.dst_chunk = self[0][i];
      op.src_chunk = self[1][i];
      op.chunks = 1;
      ops_.push_back(op);
    }
    std::stable_sort(ops_.begin(), ops_.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
    shape_.steps = ops_.empty() ? 0 : ops_.back().step + 1;
  }

  const Shape& shape() const override { return shape_; }
  std::uint32_t ops(std::uint32_t rank) const override {
    return rank == rank_ ? static_cast<std::uint32_t>(ops_.size()) : 0;
  }
  void op(std::uint32_t, std::uint32_t index, OpView& out) const override {
    out.op = ops_[index];
    out.deps.clear();
  }
  Place place(std::uint8_t, std::uint32_t chunk, std::uint32_t) const override { return places_[chunk]; }
  std::uint32_t slice_bytes(std::uint32_t peer) const override { return slot_bytes_(peer); }

  void set_slot_bytes(std::function<std::uint32_t(std::uint32_t)> slot_bytes) { slot_bytes_ = std::move(slot_bytes); }

 private:
  Shape shape_;
  std::uint32_t rank_;
  std::vector<wccl_sched_op> ops_;
  std::vector<Place> places_;
  std::function<std::uint32_t(std::uint32_t)> slot_bytes_;
};

}  // namespace

std::uint32_t type_bytes(wcclDataType_t type) {
  static constexpr std::uint32_t kBytes[wcclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < wcclNumTypes ? kBytes[type] : 0;
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
                           std::shared_ptr<LocalGroup> group)
    : options_(options),
      rank_(rank),
      ranks_(ranks),
      group_(std::move(group)),
      mutex_(group_ ? group_->mutex : own_mutex_) {
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
  const Settings& s = options_.settings;
  const Slicing slicing = way.path == wcclPathPeer ? kPeerSlicing : Slicing();
  slot_bytes_ = asked_slot_bytes_ ? asked_slot_bytes_ : slicing.slot_bytes;
  least_slice_ = slicing.least;
  const ExecutorSetup common{options_.device, rank_, slots_, entries_, std::chrono::nanoseconds(s.timeout).count()};
  if (way.path == wcclPathOnchip) {
    lanes_ = onchip_lanes_;
    if (ports_up_.empty() && ranks_ > 1) return "on-chip needs a port that is up: none is";
    executor_ = std::make_unique<OnchipExecutor>(OnchipExecutor::Setup{common, ports_up_, s.rc_timeout, s.rc_retries});
  } else {
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
  }
  load_schedules();
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
  const Report report = check(*loaded, 1);
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

std::uint32_t Communicator::slot_bytes_for(std::uint32_t peer) const {
  const std::uint32_t distance = (peer + ranks_ - rank_) % ranks_;
  if (ranks_ <= kFullSlotRanks || distance == 1 || distance + 1 == ranks_) return slot_bytes_;
  const std::uint64_t share = static_cast<std::uint64_t>(slot_bytes_) * kFullSlotRanks / ranks_ / 4096 * 4096;
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(share, std::min(slot_bytes_, 32u * 1024)));
}

std::vector<std::uint64_t> Communicator::first_connections() const {
  std::set<std::uint64_t> keys;
  for (std::uint32_t lane = 0; lane < lanes_ && ranks_ > 1; ++lane) {
    keys.insert(flow_key((rank_ + 1) % ranks_, lane));
    keys.insert(flow_key((rank_ + ranks_ - 1) % ranks_, lane));
  }
  return {keys.begin(), keys.end()};
}

Bytes Communicator::make_offers(const std::vector<std::uint64_t>& keys) {
  Bytes out;
  for (const std::uint64_t key : keys) {
    const auto peer = static_cast<std::uint32_t>(key >> 32), lane = static_cast<std::uint32_t>(key);
    const Bytes offer = executor_->open(peer, lane, slot_bytes_for(peer));
    put(out, OfferHead{peer, lane, static_cast<std::uint32_t>(offer.size())});
    out.insert(out.end(), offer.begin(), offer.end());
  }
  return out;
}

// Takes those offers of `peer` that are meant for this rank.
void Communicator::accept_offers(std::uint32_t peer, const Bytes& offers) {
  for (std::size_t at = 0; at < offers.size();) {
    const auto head = take<OfferHead>(offers, at);
    if (offers.size() - at < head.bytes) throw Failure(wcclInternalError, "a rank sent too little");
    const std::span offer(offers.data() + at, head.bytes);
    at += head.bytes;
    if (head.to != rank_) continue;
    if (!executor_->opened(peer, head.lane)) {
      throw Failure(
          wcclInvalidUsage,
          "rank " + std::to_string(peer) + " wants to connect where this rank does not: the ranks' calls differ",
          static_cast<int>(peer));
    }
    if (!executor_->connected(peer, head.lane)) executor_->connect(peer, head.lane, offer);
  }
}

// Half of the time that is left: another path may have to be looked at after this one.
std::string Communicator::probe(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
  return executor_->probe(first_connections(), std::max<std::int64_t>(left / 2, 1'000'000));
}

std::shared_ptr<Communicator> Communicator::join(const Options& options, std::uint32_t rank, std::uint32_t ranks,
                                                 std::unique_ptr<Rendezvous> rendezvous) {
  std::shared_ptr<Communicator> comm(new Communicator(options, rank, ranks, nullptr));
  comm->rendezvous_ = std::move(rendezvous);
  const Clock::time_point deadline = Clock::now() + options.settings.timeout;
  Rendezvous& meet = *comm->rendezvous_;
  const auto answers = [&](PathSearch& search, const std::string& obstacle) {
    std::vector<std::string> all;
    for (const Bytes& bytes : meet.all_gather(wire::as_bytes(obstacle), deadline)) all.push_back(wire::as_text(bytes));
    return search.answers(all);
  };
  try {
    PathSearch search = comm->settle(meet.all_gather(comm->hello(), deadline));
    for (;;) {
      if (!answers(search, comm->prepare(search.way()))) continue;
      const auto offers = meet.all_gather(comm->make_offers(comm->first_connections()), deadline);
      for (std::uint32_t peer = 0; peer < ranks; ++peer) {
        if (peer != rank) comm->accept_offers(peer, offers[peer]);
      }
      meet.all_gather({}, deadline);  // everybody can receive
      if (answers(search, comm->probe(deadline))) break;
    }
    comm->path_ = search.choice();
  } catch (const Failure& failure) {
    meet.report({failure.culprit() >= 0 ? static_cast<std::uint32_t>(failure.culprit()) : rank,
                 "rank " + std::to_string(rank) + ": " + failure.what()});
    // All ranks come to the same decision about paths and settings: then it is each one's own error.
    throw;
  }
  return comm;
}

std::vector<std::shared_ptr<Communicator>> Communicator::make_all(const std::vector<Options>& options) {
  const auto ranks = static_cast<std::uint32_t>(options.size());
  const auto group = std::make_shared<LocalGroup>();
  group->members.resize(ranks);
  std::vector<std::shared_ptr<Communicator>> comms;
  std::vector<Bytes> hellos;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    comms.emplace_back(new Communicator(options[rank], rank, ranks, group));
    group->members[rank] = comms[rank];
    hellos.push_back(comms[rank]->hello());
  }
  const Clock::time_point deadline = Clock::now() + options[0].settings.timeout;
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
    if (all([&](Communicator& comm) { return comm.probe(deadline); })) break;
  }
  for (const auto& comm : comms) comm->path_ = search->choice();
  return comms;
}

void Communicator::ensure(const Source& source) {
  std::set<std::uint64_t> missing;
  OpView view;
  const std::uint32_t count = source.ops(rank_);
  for (std::uint32_t index = 0; index < count; ++index) {
    source.op(rank_, index, view);
    if (view.op.code > WCCL_OP_RECV_REDUCE) continue;
    if (!executor_->connected(view.op.peer, view.op.lane)) missing.insert(flow_key(view.op.peer, view.op.lane));
  }
  if (missing.empty()) return;
  if (group_) {
    for (const std::uint64_t key : missing) {
      const auto peer = static_cast<std::uint32_t>(key >> 32);
      const auto other = group_->members[peer].lock();
      if (!other || !other->executor_) {
        throw Failure(wcclInvalidUsage, "rank " + std::to_string(peer) + " has ended", static_cast<int>(peer));
      }
      const std::uint64_t back = flow_key(rank_, static_cast<std::uint32_t>(key));
      const Bytes mine = make_offers({key}), theirs = other->make_offers({back});
      accept_offers(peer, theirs);
      other->accept_offers(rank_, mine);
    }
    return;
  }
  // Both ends are at the same point of their programs, so each waits for the other's offer, and then until it can
  // receive.
  const Clock::time_point deadline = Clock::now() + options_.settings.timeout;
  std::map<std::uint32_t, std::vector<std::uint64_t>> by_peer;
  for (const std::uint64_t key : missing) by_peer[static_cast<std::uint32_t>(key >> 32)].push_back(key);
  std::map<std::uint32_t, Bytes> offers, ready;
  for (const auto& [peer, keys] : by_peer) {
    offers[peer] = make_offers(keys);
    ready[peer] = {};
  }
  for (const auto& [peer, bytes] : rendezvous_->exchange(offers, deadline)) accept_offers(peer, bytes);
  rendezvous_->exchange(ready, deadline);
}

Operand Communicator::memory(weft_va address, std::uint64_t bytes, const char* what) const {
  const weft_mem* mem = weft_mem_find(options_.device, address, bytes);
  if (!mem) {
    throw Failure(wcclInvalidArgument,
                  std::string(what) + " is not memory of this communicator's device, or ends too early");
  }
  return {address, weft_mem_key(mem), address, bytes};
}

void Communicator::check_usable() {
  if (finalized_ || !executor_) throw Failure(wcclInvalidUsage, "the communicator is finalized");
  poll_rendezvous();
  if (failed_ != wcclSuccess) throw_failure();
}

void Communicator::execute(Work& work, Lock& lock) {
  work.rank = rank_;
  for (;;) {
    switch (executor_->submit(work)) {
      case Executor::Submit::kDone:
        return;
      case Executor::Submit::kNoRoom:
        wait_for(executor_->completed() + 1, lock);
        break;
      case Executor::Submit::kFailed: {
        weft_failure failure{};
        const int error = executor_->wait(executor_->submitted() + 1, 0, &failure);
        look_for_failure(error == 0 || error == -ETIME ? -EIO : error, failure);
        if (failed_ == wcclSuccess) fail({rank_, "the command queue is halted"}, wcclUnhandledDeviceError);
        throw_failure();
      }
    }
  }
}

void Communicator::all_reduce(weft_va send, weft_va receive, std::uint64_t count, wcclDataType_t type, wcclRedOp_t op) {
  Lock lock(mutex_);
  check_usable();
  const std::uint32_t element = type_bytes(type);
  if (!element) throw Failure(wcclInvalidArgument, "unknown data type " + std::to_string(type));
  if (type > wcclBfloat16) throw Failure(wcclInvalidArgument, "the device does not reduce 8-bit floats");
  if (op < 0 || op >= wcclNumOps) throw Failure(wcclInvalidArgument, "unknown reduction " + std::to_string(op));
  if (count > (std::uint64_t{1} << 42) / element) throw Failure(wcclInvalidArgument, "count is too large");
  if (count == 0) return;
  const std::uint64_t bytes = count * element;
  if (send != receive && send < receive + bytes && receive < send + bytes) {
    throw Failure(wcclInvalidArgument, "send and receive buffer overlap in part");
  }
  const Operand input = memory(send, bytes, "sendbuff"), output = memory(receive, bytes, "recvbuff");
  const bool in_place = send == receive;
  const Shape& shape = all_reduce_->shape();
  if (in_place && !(shape.flags & WCCL_SCHED_IN_PLACE)) {
    throw Failure(wcclInvalidUsage, "schedule " + shape.name + " does not run in place");
  }
  ensure(*all_reduce_);
  const std::uint32_t slot =
      ranks_ <= kFullSlotRanks || shape.neighbours_only ? slot_bytes_ : slot_bytes_for((rank_ + ranks_ / 2) % ranks_);
  const std::uint32_t slice = choose_slice(shape, count, element, slot, entries_, least_slice_);
  if (!slice) {
    throw Failure(wcclInvalidUsage, "all-reduce of " + std::to_string(bytes) +
                                        " bytes does not fit the command queue of " + std::to_string(entries_) +
                                        " slots: raise WCCL_BUFFSIZE, or reduce in parts");
  }
  Operand scratch;
  if (shape.scratch_chunks) {
    const std::uint64_t need = PartLayout::scratch_bytes(shape, count, element);
    if (!scratch_ || weft_mem_bytes(scratch_.get()) < need) {
      wait_for(executor_->submitted(), lock);
      scratch_.reset();
      scratch_ = allocate(options_.device, need, 0, ("scratch of schedule " + shape.name).c_str());
    }
    scratch = memory(weft_mem_va(scratch_.get()), need, "scratch");
  }
  const PartLayout layout(shape, rank_, count, element, in_place, slice);
  Work work;
  work.source = all_reduce_.get();
  work.layout = &layout;
  work.element_bytes = element;
  work.type = type;
  work.op = op;
  work.resolve = [&](const Place& place) {
    const Operand& base = place.buffer == WCCL_BUF_INPUT ? input : place.buffer == WCCL_BUF_OUTPUT ? output : scratch;
    return Operand{base.va + place.offset, base.key, base.buffer, base.buffer_bytes};
  };
  work.name = "all-reduce " + std::to_string(++collectives_);
  execute(work, lock);
}

void Communicator::barrier() {
  Lock lock(mutex_);
  check_usable();
  ensure(*barrier_);
  const PartLayout layout(barrier_->shape(), rank_, 0, 1, false, slot_bytes_);
  Work work;
  work.source = barrier_.get();
  work.layout = &layout;
  work.resolve = [](const Place&) { return Operand{}; };
  work.name = "barrier " + std::to_string(++barriers_);
  execute(work, lock);
}

void Communicator::point_to_point(const std::vector<PointToPoint>& ops) {
  Lock lock(mutex_);
  check_usable();
  std::vector<PointToPoint> real;
  for (const PointToPoint& op : ops) {
    if (op.peer >= ranks_) throw Failure(wcclInvalidArgument, "peer " + std::to_string(op.peer) + " is not a rank");
    if (op.bytes == 0) continue;
    memory(op.address, op.bytes, op.send ? "sendbuff" : "recvbuff");
    real.push_back(op);
  }
  if (real.empty()) return;
  GroupSource source(real, rank_, ranks_);
  source.set_slot_bytes([this](std::uint32_t peer) { return slot_bytes_for(peer); });
  ensure(source);
  Work work;
  work.source = &source;
  work.layout = &source;
  work.resolve = [this](const Place& place) { return memory(place.offset, place.bytes, "buffer"); };
  work.name = "send/receive group " + std::to_string(++groups_);
  execute(work, lock);
}

void Communicator::fail(const Note& note, wcclResult_t result) {
  if (failed_ != wcclSuccess) return;
  failed_ = result;
  failure_text_ = (options_.name.empty() ? "" : options_.name + ": ") + note.text;
  if (options_.settings.verbosity >= 1) std::fprintf(stderr, "wccl: rank %u: %s\n", rank_, failure_text_.c_str());
}

void Communicator::throw_failure() { throw Failure(failed_, failure_text_); }

// True when somebody else's failure has become ours.
bool Communicator::poll_rendezvous() {
  if (failed_ != wcclSuccess) return true;
  const std::optional<Note> note = group_ ? group_->note : rendezvous_ ? rendezvous_->poll() : std::nullopt;
  if (!note) return false;
  fail(*note, wcclRemoteError);
  return true;
}

// Whom this rank waits for, or whose connection is broken; or nothing.
std::optional<Suspicion> Communicator::suspicion() const {
  if (!executor_) return std::nullopt;
  if (auto broken = executor_->broken()) return Suspicion{rank_, broken->peer, 1, 0, std::move(broken->text)};
  const auto blame = executor_->blame();
  if (!blame) return std::nullopt;
  return Suspicion{rank_, blame->peer, 0, blame->order, blame->text};
}

// Something is wrong, or takes too long: the ranks' suspicions together say who it is. True when the communicator has
// failed.
bool Communicator::suspect(wcclResult_t result, bool definite_only) {
  std::vector<Suspicion> all;
  if (group_) {
    for (const auto& weak : group_->members) {
      const auto member = weak.lock();
      auto one = member ? member->suspicion() : std::nullopt;
      if (one && (one->definite || !definite_only)) all.push_back(std::move(*one));
    }
  } else if (auto mine = suspicion(); mine && (mine->definite || !definite_only)) {
    all.push_back(std::move(*mine));
    if (rendezvous_) {
      // Others have, or will soon have, theirs: the hub decides.
      rendezvous_->suspect(all.back());
      const Clock::time_point deadline = Clock::now() + 4 * wire::kGrace;
      while (Clock::now() < deadline) {
        if (poll_rendezvous()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }
  const auto note = decide(all);
  if (!note) return false;
  fail(*note, result);
  tell(*note);
  return true;
}

// The wait ended with `wait_error`: finds out whose fault it is, and tells the others. Leaves failed_ alone when it is
// not of this communicator.
void Communicator::look_for_failure(int wait_error, const weft_failure& failure) {
  if (failed_ != wcclSuccess || suspect(wcclRemoteError, true)) return;
  Note note{rank_, ""};
  if (!executor_->concerns(wait_error, failure)) return;
  const std::string rank = "rank " + std::to_string(rank_);
  if (wait_error == -EIO && failure.type == WEFT_EVENT_QUEUE_ERROR) {
    note.text =
        "a command of " + executor_->oldest_work() + " failed on " + rank + ": " + weft_error_text(failure.error);
  } else if (wait_error == -EIO && failure.type == WEFT_EVENT_QP_ERROR) {
    note.text =
        "channel " + std::to_string(failure.object) + " of " + rank + " failed: " + weft_error_text(failure.error);
  } else if (wait_error == -EIO && failure.type == WEFT_EVENT_FATAL) {
    note.text = "the device of " + rank + " failed or was reset: what was open on it is lost";
  } else {
    note.text = "the device of " + rank + " failed: " + std::strerror(-wait_error);
  }
  fail(note, wcclUnhandledDeviceError);
  tell(note);
}

void Communicator::tell(const Note& note) noexcept {
  if (group_) {
    if (!group_->note) group_->note = note;
  } else if (rendezvous_) {
    rendezvous_->report(note);
  }
}

void Communicator::wait_for(std::uint64_t ticket, Lock& lock) {
  // The executor stays while somebody waits, also without the lock.
  struct Counted {
    std::atomic<int>& n;
    explicit Counted(std::atomic<int>& counter) : n(counter) { ++n; }
    ~Counted() { --n; }
  } counted(waiters_);
  const std::int64_t limit = std::chrono::duration_cast<std::chrono::nanoseconds>(options_.settings.timeout).count();
  std::int64_t silent = 0;
  std::uint64_t progress = 0;
  while (!executor_->complete(ticket)) {
    if (aborted_) throw Failure(wcclRemoteError, "aborted");
    if (poll_rendezvous()) throw_failure();
    weft_failure failure{};
    lock.unlock();
    const int error = executor_->wait(ticket, std::min(kWaitPiece, limit), &failure);
    // Something else in this context may have failed, for instance another communicator: that makes the wait return at
    // once.
    if (error == -EIO) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
    if (error == 0) return;
    if (error == -EINTR) throw Failure(wcclSystemError, "interrupted by a signal");
    if (error != -ETIME) {
      look_for_failure(error, failure);
      if (failed_ != wcclSuccess) throw_failure();
      silent += 1'000'000;
    } else {
      silent += std::min(kWaitPiece, limit);
    }
    // In this process the others' devices can be looked at too: they may have nobody who waits.
    if (group_ && suspect(wcclRemoteError, true)) throw_failure();
    const std::uint64_t now = executor_->progress();
    if (now != progress) silent = 0;
    progress = now;
    if (silent < limit) continue;
    if (suspect(wcclTimeout, false)) throw_failure();
    const Note note{rank_, executor_->oldest_work() + " does not end on rank " + std::to_string(rank_)};
    fail(note, wcclTimeout);
    tell(note);
    throw_failure();
  }
}

void Communicator::wait() {
  Lock lock(mutex_);
  if (failed_ != wcclSuccess) throw_failure();
  if (executor_) wait_for(executor_->submitted(), lock);
}

wcclResult_t Communicator::async_error() {
  const std::lock_guard lock(mutex_);
  if (poll_rendezvous()) return failed_;
  if (!executor_ || executor_->complete(executor_->submitted())) return wcclSuccess;
  weft_failure failure{};
  const int error = executor_->wait(executor_->submitted(), 0, &failure);
  if (error == 0) return wcclSuccess;
  if (error != -ETIME && error != -EINTR) look_for_failure(error, failure);
  return failed_ != wcclSuccess ? failed_ : wcclInProgress;
}

std::string Communicator::last_error() const {
  const std::lock_guard lock(mutex_);
  return failure_text_;
}

// Waits until the peers have acknowledged the last credits, which no collective waits for: work without ops ends behind
// them.
void Communicator::flush(Lock& lock) {
  if (!executor_ || failed_ != wcclSuccess) return;
  if (flushed_ != executor_->submitted()) {
    const GroupSource nothing({}, rank_, ranks_);
    Work work;
    work.source = &nothing;
    work.layout = &nothing;
    work.name = "end";
    execute(work, lock);
    flushed_ = executor_->submitted();
  }
  wait_for(flushed_, lock);
}

void Communicator::finalize() {
  Lock lock(mutex_);
  if (finalized_) return;
  if (failed_ != wcclSuccess) throw_failure();
  flush(lock);
  // Our channels must not go before everybody's last message is acknowledged.
  if (group_) {
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      const auto member = group_->members[rank].lock();
      if (!member || rank == rank_) continue;
      try {
        member->flush(lock);
      } catch (const Failure&) {
        // It is that rank's to tell.
      }
    }
  } else if (rendezvous_) {
    rendezvous_->all_gather({}, Clock::now() + options_.settings.timeout);
    rendezvous_->leave();
  }
  finalized_ = true;
}

void Communicator::shut_down() noexcept {
  aborted_ = true;
  while (waiters_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Lock lock(mutex_);
  if (!finalized_) {
    tell({rank_, "rank " + std::to_string(rank_) + " aborted" + (failure_text_.empty() ? "" : ": " + failure_text_)});
    if (rendezvous_) rendezvous_->leave();
  }
  finalized_ = true;
  executor_.reset();
}

PathChoice Communicator::path(std::uint32_t peer) const {
  if (peer == rank_) return {wcclPathOnchip, "copy", "the same device"};
  return path_;
}

void Communicator::stats(wcclStats_t& out) const {
  const std::lock_guard lock(mutex_);
  if (!executor_) return;
  executor_->stats(out);
  out.collectives = executor_->submitted();
  std::snprintf(out.transport, sizeof out.transport, "%s", path_.transport.c_str());
  out.slots = slots_;
  out.slotBytes = slot_bytes_;
}

}  // namespace weft::ccl
