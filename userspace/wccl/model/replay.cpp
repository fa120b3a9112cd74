// SPDX-License-Identifier: MIT
#include "model/replay.hpp"

#include <algorithm>
#include <boost/container/flat_map.hpp>
#include <boost/container/small_vector.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <queue>
#include <stdexcept>
#include <vector>

#include "model/overlap.hpp"
#include "sched/lower.hpp"

namespace weft::ccl::model {
namespace {

using Time = std::uint64_t;  // ps

Time from_ns(double ns) { return static_cast<Time>(std::llround(ns * 1000)); }
// Time of `bytes` at `GBps` (1e9 bytes a second).
Time from_bytes(std::uint64_t bytes, double GBps) {
  return static_cast<Time>(std::llround(static_cast<double>(bytes) * 1000 / GBps));
}

// One server with a queue.
struct Server {
  Time free = 0;
  Time busy = 0;
  // Serves for `duration`, not before `at`; returns when it starts.
  Time serve(Time at, Time duration) {
    const Time start = std::max(at, free);
    free = start + duration;
    busy += duration;
    return start;
  }
};

class Replay {
 public:
  Replay(const Source& source, const Request& request, const Profile& profile)
      : source_(source),
        shape_(source.shape()),
        request_(request),
        profile_(profile),
        path_(request.path),
        slots_(request.slots ? request.slots : profile.slots),
        links_(hosted() ? 1 : profile.links),
        link_GBps_(hosted() ? profile.host_nic_gbps / 8 / profile.host_nic_sharers : profile.link_gbps / 8),
        command_(from_ns(profile.command_ns)),
        wire_(from_ns(hosted() ? profile.host_wire_ns : profile.wire_ns)) {
    if (request.count > (std::uint64_t{1} << 42) / std::max(request.element_bytes, 1u)) {
      throw std::invalid_argument("count is too large");
    }
    Slicing slicing{profile.slot_bytes, Slicing().least};
    if (path_ == Path::kPeer) slicing = {std::max(profile.slot_bytes, kPeerSlicing.slot_bytes), kPeerSlicing.least};
    slice_ = request.slice_bytes ? request.slice_bytes
                                 : choose_slice(shape_, request.count, request.element_bytes, slicing.slot_bytes,
                                                request.entries, slicing.least);
    if (slice_ == 0) throw std::invalid_argument("the collective does not fit the command queue");
  }

  Result run() {
    ranks_.resize(shape_.ranks);
    const Time begin = from_ns(profile_.doorbell_ns);
    for (std::uint32_t r = 0; r < shape_.ranks; ++r) {
      Rank& rank = ranks_[r];
      rank.tx.resize(links_);
      rank.rx.resize(links_);
      rank.layout =
          std::make_unique<PartLayout>(shape_, r, request_.count, request_.element_bytes, request_.in_place, slice_);
      rank.lowering = std::make_unique<Lowering>(source_, r, *rank.layout, slots_, rank.flows);
      rank.local = new_counters(kLocalObjects);
      rank.window.resize(profile_.window);
      for (std::uint32_t i = profile_.window; i-- > 0;) rank.free.push_back(i);
    }
    for (std::uint32_t r = 0; r < shape_.ranks; ++r) fetch(r, begin);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      handle(event);
    }
    Result result;
    for (std::uint32_t r = 0; r < shape_.ranks; ++r) {
      const Rank& rank = ranks_[r];
      if (rank.held || rank.free.size() != profile_.window) {
        throw std::runtime_error("rank " + std::to_string(r) + " is blocked: run wccl-sched check");
      }
      Usage& u = usage_;
      for (const auto* servers : {&rank.tx, &rank.rx}) {
        for (const Server& server : *servers) u.link_ns = std::max(u.link_ns, static_cast<double>(server.busy) / 1000);
      }
      u.hbm_ns = std::max(u.hbm_ns, static_cast<double>(rank.hbm.busy) / 1000);
      u.copy_ns = std::max(u.copy_ns, static_cast<double>(rank.copy.busy) / 1000);
      u.reduce_ns = std::max(u.reduce_ns, static_cast<double>(rank.reduce.busy) / 1000);
      u.processor_ns = std::max(u.processor_ns, static_cast<double>(rank.processor.busy) / 1000);
      u.pcie_ns = std::max(u.pcie_ns, static_cast<double>(std::max(rank.up.busy, rank.down.busy)) / 1000);
      u.host_ns = std::max(u.host_ns, static_cast<double>(rank.host.busy) / 1000);
      u.cpu_ns = std::max(u.cpu_ns, static_cast<double>(rank.cpu.busy) / 1000);
      u.host_copy_ns += static_cast<double>(rank.overlap.copied()) / 1000;
      u.host_copy_exposed_ns += static_cast<double>(rank.overlap.exposed()) / 1000;
    }
    result.modelled_us = static_cast<double>(std::max(end_, begin) + from_ns(profile_.completion_ns)) / 1e6;
    result.usage = usage_;
    result.slice_bytes = slice_;
    result.slots = slots_;
    result.steps = steps_;
    return result;
  }

 private:
  // What is needed of a step in the scoreboard: kept small, since a thousand ranks have many.
  struct Active {
    std::uint64_t seq = 0, bytes = 0;
    Time begin = 0, duration = 0;  // of service by the link or engine
    Time read = 0;                 // of a message: its source is read
    std::uint32_t peer = 0, lane = 0, local = 0;
    StepKind kind = StepKind::kEnd;
    std::uint8_t unmet = 0;
    bool copied = false;  // of a staged message: its copy in host DRAM is complete
  };
  struct Waiter {
    std::uint64_t target;
    std::uint32_t rank, slot;
  };
  // A sync object.
  struct Counter {
    std::uint64_t value = 0;
    boost::container::small_vector<Waiter, 2> waiters;
  };
  struct Rank {
    std::unique_ptr<PartLayout> layout;
    Flows flows;
    std::unique_ptr<Lowering> lowering;
    std::optional<Step> held;  // fetched, but fenced off or without room
    bool ending = false;       // kEnd is under way: nothing starts before it is complete
    std::vector<Active> window;
    std::vector<std::uint32_t> free;
    boost::container::flat_map<std::uint64_t, std::size_t> counters;  // of a connection, by flow_key()
    std::size_t local = 0;
    std::vector<Server> tx, rx;
    Server processor, hbm, copy, reduce;
    // Of the paths over a host NIC: the host's thread, PCIe from and to the accelerator, copies by the CPU.
    Server host, up, down, cpu;
    Overlap overlap;
  };
  enum class What : std::uint8_t { kIssue, kBegin, kCopied, kHead, kArrive, kComplete };
  struct Event {
    Time time;
    std::uint64_t order;
    What what;
    std::uint32_t rank, slot;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;  // the queue gives the largest first
    }
  };

  bool hosted() const { return path_ != Path::kOnchip; }
  bool staged() const { return path_ == Path::kStagedEfa || path_ == Path::kStagedTcp; }
  static bool is_message(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kCredit; }
  static bool is_receive(StepKind kind) { return kind == StepKind::kRecvCopy || kind == StepKind::kRecvReduce; }

  // Counters of a connection: those of EventKind but kLocal, and in its place, staged, that the slot of host DRAM from
  // which a slice was sent is free again.
  static constexpr std::size_t kFlowKinds = 5;
  static constexpr EventKind kGone = EventKind::kLocal;
  static_assert(static_cast<std::size_t>(kGone) == kFlowKinds - 1);

  std::size_t new_counters(std::size_t count) {
    counters_.resize(counters_.size() + count);
    return counters_.size() - count;
  }

  Counter& counter(std::uint32_t rank, EventKind kind, std::uint32_t peer, std::uint32_t lane, std::uint64_t seq) {
    Rank& r = ranks_[rank];
    const auto [it, added] = r.counters.try_emplace(flow_key(peer, lane), 0);
    if (added) it->second = new_counters(std::size_t{kFlowKinds} * slots_);
    return counters_[it->second + static_cast<std::size_t>(kind) * slots_ + seq % slots_];
  }

  void at(Time time, What what, std::uint32_t rank, std::uint32_t slot) {
    events_.push({time, order_++, what, rank, slot});
  }

  void raise(std::uint32_t rank, EventKind kind, std::uint32_t peer, std::uint32_t lane, std::uint64_t seq) {
    raise(counter(rank, kind, peer, lane, seq));
  }
  void raise(Counter& c) {
    ++c.value;
    // Starting a step touches no counter, so the list stays as it is meanwhile.
    std::size_t kept = 0;
    for (const Waiter& w : c.waiters) {
      if (w.target > c.value) {
        c.waiters[kept++] = w;
      } else if (--ranks_[w.rank].window[w.slot].unmet == 0) {
        dispatch(w.rank, w.slot);
      }
    }
    c.waiters.resize(kept);
  }

  void fetch(std::uint32_t r, Time when) {
    Rank& rank = ranks_[r];
    now_ = std::max(now_, when);
    while (!rank.free.empty()) {
      if (!rank.held) {
        rank.held.emplace();
        if (!rank.lowering->next(*rank.held)) {
          rank.held.reset();
          return;
        }
      }
      if (rank.ending || (rank.held->fenced && rank.free.size() != profile_.window)) return;
      rank.ending = rank.held->kind == StepKind::kEnd;
      const std::uint32_t slot = rank.free.back();
      rank.free.pop_back();
      Active& active = rank.window[slot];
      const Step& step = *rank.held;
      active = Active{step.seq, step.bytes, 0, 0, 0, step.peer, step.lane, step.local, step.kind, 0, false};
      ++steps_;
      for (std::uint8_t i = 0; i < step.waits; ++i) {
        const WaitFor& w = step.wait[i];
        if (w.kind == EventKind::kLocal) {
          await(counters_[rank.local + w.peer], w.seq, r, slot);
        } else if (w.kind != EventKind::kCredit || !copies_out(active)) {
          await(counter(r, w.kind, w.peer, w.lane, w.seq), w.seq / slots_ + (w.kind == EventKind::kCredit ? 0 : 1), r,
                slot);
        }
      }
      // A copy to host DRAM needs a slot there, and no credit yet.
      if (copies_out(active))
        await(counter(r, kGone, active.peer, active.lane, active.seq), active.seq / slots_, r, slot);
      rank.held.reset();
      if (active.unmet == 0) dispatch(r, slot);
    }
  }

  void await(Counter& c, std::uint64_t target, std::uint32_t r, std::uint32_t slot) {
    if (c.value >= target) return;
    c.waiters.push_back({target, r, slot});
    ++ranks_[r].window[slot].unmet;
  }

  // A message that is still to be copied to host DRAM.
  bool copies_out(const Active& s) const { return staged() && s.kind == StepKind::kSend && s.bytes && !s.copied; }

  // Bytes that a message takes on the wire.
  std::uint64_t wire_bytes(std::uint64_t payload) const {
    const std::uint64_t mtu = hosted() ? profile_.host_nic_mtu : profile_.mtu;
    const std::uint64_t packets = std::max<std::uint64_t>(1, (payload + mtu - 1) / mtu);
    return payload + packets * (hosted() ? profile_.host_nic_packet_bytes : profile_.packet_bytes) +
           (hosted() ? profile_.host_nic_message_bytes : profile_.message_bytes);
  }

  // Time of `payload` over the accelerator's PCIe link.
  Time pcie(std::uint64_t payload) const {
    const std::uint64_t packets = (payload + profile_.pcie_payload_bytes - 1) / profile_.pcie_payload_bytes;
    return from_bytes(payload + packets * profile_.pcie_packet_bytes, profile_.pcie_GBps);
  }
  // Time of the accelerator's copy to host DRAM, and from it.
  Time copy_up(std::uint64_t bytes) const { return std::max(pcie(bytes), from_bytes(bytes, profile_.d2h_GBps)); }
  Time copy_down(std::uint64_t bytes) const { return std::max(pcie(bytes), from_bytes(bytes, profile_.h2d_GBps)); }

  // The step may start: the command processor takes it, or the host's thread, which hands it to the device or the NIC.
  void dispatch(std::uint32_t r, std::uint32_t slot) {
    if (!hosted()) return issue(r, slot);
    const Active& s = ranks_[r].window[slot];
    Time start = host_step(r);
    if (is_receive(s.kind) && s.bytes && path_ == Path::kPeer) {
      ++usage_.flushes;
      start += from_ns(profile_.flush_ns);
    }
    if (for_device(s)) start += from_ns(profile_.host_command_ns);
    at(start, What::kIssue, r, slot);
  }

  Time host_step(std::uint32_t r) {
    ++usage_.host_steps;
    const Time step = from_ns(profile_.host_step_ns);
    return ranks_[r].host.serve(now_, step) + step;
  }

  // What the device's command processor carries out. On-chip that is all; a token moves nothing on the host's paths.
  bool for_device(const Active& s) const {
    if (!hosted()) return true;
    if (s.kind == StepKind::kEnd || s.bytes == 0) return false;
    return !is_message(s.kind) || copies_out(s);
  }

  // Whether the message waits for those before it: a host NIC takes messages in turn packet by packet, so an empty one
  // waits for nobody. On-chip and over tcp, the messages of a connection are in order.
  bool queues(const Active& s) const { return s.bytes || path_ == Path::kOnchip || path_ == Path::kStagedTcp; }

  // An engine or the link serves the step when its turn comes. Servers are asked at the time of service (kBegin), never
  // ahead of it: a reservation in the future would block who comes in between.
  void issue(std::uint32_t r, std::uint32_t slot) {
    Rank& rank = ranks_[r];
    Active& active = rank.window[slot];
    const Active& s = active;
    Time start = now_;
    if (for_device(s)) {
      start = rank.processor.serve(now_, command_) + command_;
      ++usage_.commands;
    }
    switch (s.kind) {
      case StepKind::kSend:
      case StepKind::kCredit:
        if (copies_out(s)) {
          active.duration = copy_up(s.bytes);
          active.begin = rank.up.serve(start, active.duration);
          break;
        }
        active.duration = from_bytes(wire_bytes(s.bytes), link_GBps_);
        active.begin = queues(s) ? rank.tx[s.lane % links_].serve(start, active.duration) : start;
        break;
      case StepKind::kRecvCopy:
        if (staged()) {
          active.duration = copy_down(s.bytes);
          active.begin = rank.down.serve(start, active.duration);
          break;
        }
        [[fallthrough]];
      case StepKind::kCopy:
        active.duration = from_bytes(s.bytes, profile_.copy_GBps);
        active.begin = rank.copy.serve(start, active.duration);
        break;
      case StepKind::kRecvReduce:
      case StepKind::kReduce:
        active.duration = from_bytes(s.bytes, profile_.reduce_GBps);
        if (staged() && s.kind == StepKind::kRecvReduce)
          active.duration = std::max(active.duration, copy_down(s.bytes));
        active.begin = rank.reduce.serve(start, active.duration);
        break;
      case StepKind::kEnd:
        end_ = std::max(end_, start);
        return at(start, What::kComplete, r, slot);
    }
    // Waiting for the command processor is no more than its own time: not worth an event.
    if (active.begin > start) {
      at(active.begin, What::kBegin, r, slot);
    } else {
      begin(r, slot);
    }
  }

  void begin(std::uint32_t r, std::uint32_t slot) {
    Rank& rank = ranks_[r];
    const Active& s = rank.window[slot];
    const auto memory = [&](std::uint64_t bytes) {
      const Time duration = from_bytes(bytes, profile_.hbm_GBps);
      return bytes ? rank.hbm.serve(s.begin, duration) + duration : s.begin;
    };
    const Time notice = hosted() && s.bytes ? from_ns(profile_.host_notice_ns) : 0;
    switch (s.kind) {
      case StepKind::kSend:
      case StepKind::kCredit:
        if (copies_out(s)) {
          ++usage_.copy_ops;
          usage_.copy_bytes += s.bytes;
          usage_.hbm_read_bytes += s.bytes;
          usage_.host_payload_write_bytes += s.bytes;
          usage_.pcie_up_bytes += s.bytes;
          rank.overlap.copy(s.begin, s.begin + s.duration);
          return at(std::max(s.begin + s.duration, memory(s.bytes)) + from_ns(profile_.copy_ns) + notice, What::kCopied,
                    r, slot);
        }
        begin_message(r, slot);
        break;
      case StepKind::kRecvCopy:
      case StepKind::kCopy: {
        if (s.bytes) ++usage_.copy_ops;
        usage_.copy_bytes += s.bytes;
        usage_.hbm_write_bytes += s.bytes;
        if (staged() && s.kind == StepKind::kRecvCopy) {
          read_host(rank, s, s.begin);
        } else {
          usage_.hbm_read_bytes += s.bytes;
        }
        const Time moved = memory(staged() && s.kind == StepKind::kRecvCopy ? s.bytes : 2 * s.bytes);
        at(std::max(s.begin + s.duration, moved) + (s.bytes ? from_ns(profile_.copy_ns) : 0) + notice, What::kComplete,
           r, slot);
        break;
      }
      case StepKind::kRecvReduce:
      case StepKind::kReduce: {
        ++usage_.reduce_ops;
        usage_.reduce_bytes += s.bytes;
        usage_.hbm_write_bytes += s.bytes;
        usage_.hbm_read_bytes += s.bytes;
        Time end = s.begin + s.duration;
        if (staged() && s.kind == StepKind::kRecvReduce) {
          const Time duration = copy_down(s.bytes), start = rank.down.serve(s.begin, duration);
          read_host(rank, s, start);
          end = std::max({end, start + duration, memory(2 * s.bytes)});
        } else {
          usage_.hbm_read_bytes += s.bytes;
          end = std::max(end, memory(3 * s.bytes));
        }
        at(end + from_ns(profile_.reduce_ns) + notice, What::kComplete, r, slot);
        break;
      }
      case StepKind::kEnd:
        break;
    }
  }

  // The device reads the slice from host DRAM, from `start` on.
  void read_host(Rank& rank, const Active& s, Time start) {
    usage_.host_payload_read_bytes += s.bytes;
    usage_.pcie_down_bytes += s.bytes;
    rank.overlap.copy(start, start + copy_down(s.bytes));
  }

  // The message's first bit leaves.
  void begin_message(std::uint32_t r, std::uint32_t slot) {
    Rank& rank = ranks_[r];
    Active& s = rank.window[slot];
    usage_.wire_bytes += wire_bytes(s.bytes);
    s.read = s.begin;
    const auto also = [&](Server& server, Time duration) {
      if (s.bytes) s.read = std::max(s.read, server.serve(s.begin, duration) + duration);
    };
    if (hosted()) {
      ++usage_.nic_ops;
      usage_.nic_bytes += s.bytes;
      if (staged() && s.bytes) rank.overlap.wire(s.begin, s.begin + s.duration);
    } else {
      ++usage_.rdma_ops;
      usage_.rdma_bytes += s.bytes;
    }
    switch (path_) {
      case Path::kOnchip:
        usage_.hbm_read_bytes += s.bytes;
        also(rank.hbm, from_bytes(s.bytes, profile_.hbm_GBps));
        break;
      case Path::kPeer:
        usage_.peer_payload_read_bytes += s.bytes;
        usage_.pcie_up_bytes += s.bytes;
        also(rank.hbm, from_bytes(s.bytes, profile_.hbm_GBps));
        also(rank.up, pcie(s.bytes));
        break;
      case Path::kStagedEfa:
        usage_.host_payload_read_bytes += s.bytes;
        break;
      case Path::kStagedTcp:
        usage_.cpu_copy_bytes += s.bytes;
        also(rank.cpu, from_bytes(s.bytes, profile_.cpu_copy_GBps));
        break;
    }
    at(s.begin + wire_, What::kHead, r, slot);
  }

  // The first bit of a message has come to the peer's link.
  void head(std::uint32_t r, std::uint32_t slot) {
    const Active& s = ranks_[r].window[slot];
    Rank& peer = ranks_[s.peer];
    const Time in = queues(s) ? peer.rx[s.lane % links_].serve(now_, s.duration) : now_;
    Time arrived = std::max(in + s.duration, s.read + wire_);
    const auto also = [&](Server& server, Time duration) {
      if (s.bytes) arrived = std::max(arrived, server.serve(now_, duration) + duration);
    };
    if (staged() && s.bytes) peer.overlap.wire(in, in + s.duration);
    switch (path_) {
      case Path::kOnchip:
        usage_.hbm_write_bytes += s.bytes;
        also(peer.hbm, from_bytes(s.bytes, profile_.hbm_GBps));
        break;
      case Path::kPeer:
        usage_.peer_payload_write_bytes += s.bytes;
        usage_.pcie_down_bytes += s.bytes;
        also(peer.hbm, from_bytes(s.bytes, profile_.hbm_GBps));
        also(peer.down, pcie(s.bytes));
        break;
      case Path::kStagedEfa:
        usage_.host_payload_write_bytes += s.bytes;
        break;
      case Path::kStagedTcp:
        usage_.cpu_copy_bytes += s.bytes;
        also(peer.cpu, from_bytes(s.bytes, profile_.cpu_copy_GBps));
        break;
    }
    at(arrived, What::kArrive, r, slot);
  }

  void handle(const Event& event) {
    if (event.what == What::kIssue) return issue(event.rank, event.slot);
    if (event.what == What::kBegin) return begin(event.rank, event.slot);
    if (event.what == What::kHead) return head(event.rank, event.slot);
    Rank& rank = ranks_[event.rank];
    if (event.what == What::kCopied) {
      Active& s = rank.window[event.slot];
      s.copied = true;
      const std::uint32_t peer = s.peer, lane = s.lane;
      const std::uint64_t seq = s.seq;
      await(counter(event.rank, EventKind::kCredit, peer, lane, seq), seq / slots_, event.rank, event.slot);
      if (s.unmet == 0) dispatch(event.rank, event.slot);
      return raise(event.rank, EventKind::kSent, peer, lane, seq);
    }
    const Active& active = rank.window[event.slot];
    const StepKind kind = active.kind;
    const std::uint32_t peer = active.peer, lane = active.lane, local = active.local;
    const std::uint64_t seq = active.seq, bytes = active.bytes;
    if (event.what == What::kArrive) {
      // The acknowledgement comes back behind nothing; then the command is complete.
      at(now_ + wire_, What::kComplete, event.rank, event.slot);
      raise(peer, kind == StepKind::kSend ? EventKind::kArrival : EventKind::kCredit, event.rank, lane, seq);
      return;
    }
    rank.free.push_back(event.slot);
    switch (kind) {
      case StepKind::kSend:
        if (staged()) raise(event.rank, kGone, peer, lane, seq);
        if (!staged() || bytes == 0) raise(event.rank, EventKind::kSent, peer, lane, seq);
        break;
      case StepKind::kRecvCopy:
      case StepKind::kRecvReduce:
        raise(event.rank, EventKind::kDone, peer, lane, seq);
        break;
      case StepKind::kCredit:
        break;
      case StepKind::kCopy:
      case StepKind::kReduce:
        if (local < kLocalObjects) raise(counters_[rank.local + local]);
        break;
      case StepKind::kEnd:
        rank.ending = false;
        break;
    }
    fetch(event.rank, now_);
  }

  const Source& source_;
  const Shape& shape_;
  const Request& request_;
  const Profile& profile_;
  const Path path_;
  const std::uint32_t slots_;
  const std::uint32_t links_;  // of a rank, one a lane
  const double link_GBps_;
  const Time command_, wire_;
  std::uint32_t slice_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Counter> counters_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0, steps_ = 0;
  Time now_ = 0, end_ = 0;
  Usage usage_;
};

}  // namespace

std::string_view path_name(Path path) {
  switch (path) {
    case Path::kOnchip:
      return "onchip";
    case Path::kPeer:
      return "peer";
    case Path::kStagedEfa:
      return "staged-efa";
    default:
      return "staged-tcp";
  }
}

std::optional<Path> find_path(std::string_view name) {
  for (const Path path : kPaths) {
    if (path_name(path) == name) return path;
  }
  return std::nullopt;
}

Result replay(const Source& source, const Request& request, const Profile& profile) {
  return Replay(source, request, profile).run();
}

}  // namespace weft::ccl::model
