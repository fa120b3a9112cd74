// SPDX-License-Identifier: MIT
// The host-NIC paths: connections, and steps made into actions. host_progress.cpp carries these out.
#include "host.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "error.hpp"
#include "masked_thread.hpp"

namespace weft::ccl {
namespace {

constexpr unsigned kProbes = 3;                  // of a peer, until one is answered
constexpr std::int64_t kWaitPiece = 10'000'000;  // ns

}  // namespace

HostExecutor::HostExecutor(Setup setup, std::unique_ptr<HostNic> nic)
    : setup_(std::move(setup)), nic_(std::move(nic)), done_(setup_.device, kInFlight) {
  flush_.kind = Context::Kind::kFlush;
  weft_queue* queue = nullptr;
  if (weft_queue_create(setup_.device, 4 * kInFlight, 0, &queue) != 0) throw device_failure("no command queue");
  queue_.reset(queue);
  completion_event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (completion_event_ < 0) throw Failure(wcclSystemError, "no eventfd");
  thread_ = masked_thread([this] { run(); });
}

HostExecutor::~HostExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  thread_.join();
  // First the NIC, then the device: after that nobody touches the memory.
  nic_->close();
  queue_.reset();
  jobs_.clear();
  connections_.clear();
  ::close(completion_event_);
}

// ---- connections --------------------------------------------------------------------------------------------------

HostConnection* HostExecutor::find(std::uint32_t peer, std::uint32_t lane) const {
  const auto it = by_key_.find(flow_key(peer, lane));
  return it == by_key_.end() ? nullptr : it->second;
}

bool HostExecutor::connected(std::uint32_t peer, std::uint32_t lane) const {
  const HostConnection* connection = find(peer, lane);
  return connection && connection->connected();
}

Bytes HostExecutor::open(std::uint32_t peer, std::uint32_t lane, std::uint32_t slot_bytes) {
  if (const HostConnection* connection = find(peer, lane)) return connection->offer();
  // Each peer may have its slots' arrivals and their credits under way; the completion queue must hold them all.
  const std::size_t after = connections_.size() + 1;
  if (after > Immediate::kConnections || after * 2 * setup_.slots > nic_->info().arrivals) {
    throw Failure(wcclSystemError, "the host NIC's completion queue holds no more than " +
                                       std::to_string(nic_->info().arrivals) +
                                       " arrivals: fewer WCCL_SLOTS or WCCL_LANES");
  }
  if (slot_bytes > nic_->info().max_rma) {
    throw Failure(wcclInvalidUsage, "the host NIC writes at most " + std::to_string(nic_->info().max_rma) +
                                        " bytes at once: a smaller WCCL_BUFFSIZE");
  }
  auto made = std::make_unique<HostConnection>(setup_.device, *nic_, setup_.staged,
                                               static_cast<std::uint32_t>(connections_.size()), peer, lane,
                                               setup_.slots, slot_bytes);
  const Bytes offer = made->offer();
  const std::lock_guard lock(mutex_);
  by_key_[flow_key(peer, lane)] = made.get();
  connections_.push_back(std::move(made));
  return offer;
}

void HostExecutor::connect(std::uint32_t peer, std::uint32_t lane, std::span<const std::byte> offer) {
  const std::lock_guard lock(mutex_);
  by_key_.at(flow_key(peer, lane))->connect(offer);
}

std::string HostExecutor::probe(const std::vector<std::uint64_t>& keys, std::int64_t limit_ns) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(limit_ns);
  std::unique_lock lock(mutex_);
  const auto post = [&](std::uint64_t key) {
    const HostConnection& connection = *by_key_.at(key);
    Probe& probe = probes_.emplace_back();
    probe.kind = Context::Kind::kProbe;
    const int error =
        nic_->api().write(nic_->endpoint(), connection.nic_peer(), connection.region(), 0, 0, connection.remote_slot(0),
                          connection.remote_key(), static_cast<Context*>(&probe));
    if (error != 0) throw Failure(wcclSystemError, nic_->api().error());
    ++on_nic_;
    work_.notify_all();
    return &probe;
  };
  std::vector<const Probe*> first;
  for (const std::uint64_t key : keys) first.push_back(post(key));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const Probe* probe = first[i];
    for (unsigned attempt = 1;; ++attempt, probe = post(keys[i])) {
      while (!probe->done && std::chrono::steady_clock::now() < deadline) {
        work_.wait_for(lock, std::chrono::milliseconds(1));
      }
      if (probe->done && probe->problem.empty()) break;
      // A NIC says once that its peer's was reset since they last spoke.
      if (probe->done && attempt < kProbes) continue;
      return "host NICs do not reach each other: rank " + std::to_string(keys[i] >> 32) + " does not answer over " +
             nic_->info().provider + (probe->done ? ": " + probe->problem : " in time");
    }
  }
  return "";
}

// ---- from schedule to actions --------------------------------------------------------------------------------------

// The buffer that `source` belongs to is registered as a whole, and stays so until the job ends.
const Registered& HostExecutor::registered(const Operand& source, std::uint64_t bytes, Job& job) {
  for (const Registered& have : job.sources) {
    if (have.holds(source.va, bytes)) return have;
  }
  return job.sources.emplace_back(nic_->lease(source.buffer, source.buffer_bytes));
}

HostExecutor::Wait HostExecutor::wait_of(const WaitFor& wait) const {
  if (wait.kind == EventKind::kLocal) return {nullptr, wait.kind, local_target_[wait.peer] + wait.seq, wait.peer};
  return {find(wait.peer, wait.lane), wait.kind, wait.seq, 0};
}

HostExecutor::Action HostExecutor::action_of(const Work& work, const Step& step, Job& job) {
  Action action;
  action.kind = Context::Kind::kStep;
  action.step = step.kind;
  action.fenced = step.fenced;
  action.seq = step.seq;
  action.bytes = step.bytes;
  action.local = step.local;
  action.job = &job;
  action.waits = step.waits;
  for (std::uint8_t i = 0; i < step.waits; ++i) action.wait[i] = wait_of(step.wait[i]);
  switch (step.kind) {
    case StepKind::kSend: {
      action.connection = find(step.peer, step.lane);
      if (step.bytes == 0) break;
      const Operand source = work.resolve(step.src);
      if (setup_.staged) {
        action.command.cmd = empty_command(WEFT_OP_COPY);
        action.command.cmd.length = static_cast<std::uint32_t>(step.bytes);
        const Operand slot = action.connection->outgoing(step.seq);
        set_operand(action.command.cmd, 0, slot.va, slot.key);
        set_operand(action.command.cmd, 1, source.va, source.key);
        action.region = action.connection->region();
        action.offset = action.connection->outgoing_offset(step.seq);
      } else {
        const Registered& from = registered(source, step.bytes, job);
        action.region = from.region();
        action.offset = source.va - from.begin;
      }
      break;
    }
    case StepKind::kRecvCopy:
    case StepKind::kRecvReduce:
      action.connection = find(step.peer, step.lane);
      action.command = local_command(work, step, action.connection->incoming(step.seq));
      break;
    case StepKind::kCredit:
      action.connection = find(step.peer, step.lane);
      break;
    case StepKind::kCopy:
    case StepKind::kReduce:
      action.command = local_command(work, step, {});
      break;
    case StepKind::kEnd:
      break;
  }
  return action;
}

// Goes ahead of its message, but waits for the same credit.
HostExecutor::Action HostExecutor::record_of(const Step& step, const CallRecord& record, Job& job) const {
  Action action;
  action.kind = Context::Kind::kStep;
  action.step = StepKind::kSend;
  action.record = &record;
  action.connection = find(step.peer, step.lane);
  action.job = &job;
  for (std::uint8_t i = 0; i < step.waits; ++i) {
    if (step.wait[i].kind == EventKind::kCredit) action.wait[action.waits++] = wait_of(step.wait[i]);
  }
  return action;
}

void HostExecutor::lower(const Work& work, Flows& flows, Job& job, std::vector<Action>& actions, Totals& totals,
                         CallBook::Draft& draft) {
  Lowering lowering(*work.source, work.rank, *work.layout, setup_.slots, flows);
  Step step;
  std::uint32_t op = UINT32_MAX;
  OpView view;
  while (lowering.next(step)) {
    if (book_.note(draft, work.call, step)) actions.push_back(record_of(step, draft.sent.back(), job));
    actions.push_back(action_of(work, step, job));
    if (actions.size() > setup_.entries) {
      throw Failure(wcclInvalidUsage, work.name + " needs more than " + std::to_string(setup_.entries) +
                                          " steps: raise WCCL_QUEUE_ENTRIES or WCCL_BUFFSIZE, or move less at once");
    }
    if (step.kind != StepKind::kEnd && step.op != op) work.source->op(work.rank, op = step.op, view);
    actions.back().order = view.op.step;
    if (step.kind != StepKind::kSend) continue;
    totals.bytes += step.bytes;
    totals.messages += step.slice == 0;
  }
}

Executor::Submit HostExecutor::submit(const Work& work) {
  // Connections and flows change under the communicator's lock alone, which the caller holds.
  std::list<Job> job(1);
  job.front().ticket = tickets_ + 1;
  job.front().steps = work.source->shape().steps;
  job.front().name = work.name;
  {
    const std::lock_guard lock(mutex_);
    if (device_error_) return Submit::kFailed;
    if (!actions_.empty() && actions_.size() >= setup_.entries) return Submit::kNoRoom;
  }
  Flows flows = flows_;
  std::vector<Action> actions;
  Totals added;
  CallBook::Draft draft;
  lower(work, flows, job.front(), actions, added, draft);

  const std::lock_guard lock(mutex_);
  totals_.records += draft.sent.size();
  job.front().records = std::move(draft.sent);  // the actions point at them: a deque moves none
  book_.commit(job.front().ticket, std::move(draft));
  jobs_.splice(jobs_.end(), job);
  for (const Action& action : actions) {
    if ((action.step == StepKind::kCopy || action.step == StepKind::kReduce) && action.local < kLocalObjects) {
      ++local_target_[action.local];
    }
    actions_.push_back(action);
  }
  flows_ = std::move(flows);
  totals_.bytes += added.bytes;
  totals_.messages += added.messages;
  ++tickets_;
  start_steps();
  work_.notify_all();
  return Submit::kDone;
}

CallBook::Answer HostExecutor::agreement(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  return book_.look(ticket, [this](std::uint64_t key) { return by_key_.at(key)->records(); });
}

// ---- seen from the communicator ------------------------------------------------------------------------------------

int HostExecutor::wait(std::uint64_t ticket, std::int64_t timeout_ns, weft_failure* failure) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
  for (;;) {
    if (completed_ >= ticket) return 0;
    {
      const std::lock_guard lock(mutex_);
      if (device_error_) {
        if (failure) *failure = device_failure_;
        return device_error_;
      }
      if (broken_) return -EIO;
    }
    const std::int64_t left =
        std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return -ETIME;
    // In pieces, since somebody else may wait for the same event.
    const timespec piece{0, static_cast<long>(std::min(left, kWaitPiece))};
    pollfd event{completion_event_, POLLIN, 0};
    (void)ppoll(&event, 1, &piece, nullptr);  // a signal merely makes us look again
    eventfd_t value;
    if (event.revents) (void)eventfd_read(completion_event_, &value);
  }
}

bool HostExecutor::owns(const weft_failure& failure) const {
  return failure.type == WEFT_EVENT_QUEUE_ERROR && failure.object == weft_queue_number(queue_.get());
}

std::optional<Blame> HostExecutor::blame() const {
  const std::lock_guard lock(mutex_);
  const Action* found = nullptr;
  const auto receives = [](const Action& action) { return action.step != StepKind::kSend; };
  for (const Action& action : actions_) {
    if (action.state == Action::State::kDone || action.record || action.job->ticket <= completed_) continue;
    if (found && action.job != found->job) break;
    if (action.step != StepKind::kSend && action.step != StepKind::kRecvCopy && action.step != StepKind::kRecvReduce) {
      continue;
    }
    if (receives(action) && action.connection->happened(EventKind::kArrival, action.seq)) continue;
    // Of the earliest step; there, a message that does not come before one that does not go.
    if (!found || action.order < found->order ||
        (action.order == found->order && receives(action) && !receives(*found))) {
      found = &action;
    }
  }
  if (!found) return std::nullopt;
  return silent(found->connection->peer(), receives(*found), found->job->ticket, found->order, found->job->steps,
                found->job->name);
}

std::optional<Blame> HostExecutor::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

std::string HostExecutor::oldest_work() const {
  const std::lock_guard lock(mutex_);
  for (const Job& job : jobs_) {
    if (job.ticket > completed_) return job.name;
  }
  return "nothing";
}

std::uint64_t HostExecutor::progress() const {
  const std::lock_guard lock(mutex_);
  return completed_ + events_;
}

void HostExecutor::stats(wcclStats_t& out) const {
  const std::lock_guard lock(mutex_);
  const wcclPath_t path = setup_.staged ? wcclPathStaged : wcclPathPeer;
  const bool sockets = (nic_->info().flags & WEFT_OFI_DMABUF) == 0;
  out.bytes[path] = totals_.bytes;
  out.messages[path] = totals_.messages;
  // Staged: written by one device, read by the next, on either side. Over tcp the kernel copies to and from its
  // sockets.
  if (setup_.staged) out.hostDramBytes = 2 * (totals_.bytes + totals_.received);
  if (sockets) out.cpuCopies = totals_.slices;
  out.doorbells = totals_.doorbells;
  out.commands = totals_.commands;
  out.connections = static_cast<std::uint32_t>(connections_.size());
  for (const auto& connection : connections_) out.stagingBytes += connection->staging_bytes();
  out.syncObjects = done_.count();
  out.flushes = totals_.flushes;
  out.callRecords = totals_.records;
  const mr::Counters cache = nic_->counters();
  out.mrHits = cache.hits;
  out.mrMisses = cache.misses;
  out.mrEvictions = cache.evictions;
  out.mrInvalidations = cache.invalidations;
  out.mrRegistrations = cache.registrations;
  out.mrRegistrationNs = cache.registration_ns;
  out.mrTeardowns = cache.teardowns;
  out.mrTeardownNs = cache.teardown_ns;
  out.mrEntries = cache.entries;
  out.mrBytes = cache.bytes;
}

}  // namespace weft::ccl
