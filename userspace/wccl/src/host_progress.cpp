// SPDX-License-Identifier: MIT
// The progress thread of the host-NIC paths: posts an action once what it waits for has happened, and takes
// completions.
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "host.hpp"
#include "variants.hpp"

namespace weft::ccl {
namespace {

constexpr std::size_t kWindow = 512;      // incomplete steps that are looked at
constexpr std::size_t kCompletions = 64;  // taken from the NIC at a time
constexpr unsigned kTurnsToLook = 64;     // without anything done, until the device is asked how it is
constexpr unsigned kFlushNap = 60;        // us; a flush is one short read, and what has arrived waits for it

}  // namespace

void HostExecutor::run() {
  prctl(PR_SET_TIMERSLACK, 1000);  // ns: naps are short
  std::unique_lock lock(mutex_);
  for (unsigned turn = 0; !stop_; ++turn) {
    bool moved = poll_nic();
    moved |= poll_device();
    if (moved) {
      flush_arrivals();
      start_steps();
      turn = 0;
    }
    rest(lock, turn);
  }
}

bool HostExecutor::poll_nic() {
  std::array<weft_ofi_completion, kCompletions> completions;
  const int got = nic_->api().poll(nic_->endpoint(), completions.data(), completions.size());
  if (got < 0) {
    if (!broken_) broken_ = Blame{setup_.rank, 0, std::string("the host NIC failed: ") + nic_->api().error()};
    return false;
  }
  for (int i = 0; i < got; ++i) {
    const weft_ofi_completion& completion = completions[static_cast<std::size_t>(i)];
    auto* context = static_cast<Context*>(completion.context);
    if (completion.op == WEFT_OFI_ARRIVAL) {
      arrive(completion);
      continue;
    }
    if (context && context->kind != Context::Kind::kNone) --on_nic_;
    if (completion.status != 0) {
      failed(completion, context);
      continue;
    }
    if (!context) continue;
    switch (context->kind) {
      case Context::Kind::kStep:
        complete(*static_cast<Action*>(context));
        break;
      case Context::Kind::kFlush:
        flush_.under_way = false;
        for (const auto& [connection, seq] : flush_.arrivals) connection->raise(EventKind::kArrival, seq);
        flush_.arrivals.clear();
        break;
      case Context::Kind::kProbe:
        static_cast<Probe*>(context)->done = true;
        work_.notify_all();
        break;
      case Context::Kind::kNone:
        break;
    }
  }
  return got > 0;
}

void HostExecutor::failed(const weft_ofi_completion& completion, Context* context) {
  const std::string text = completion.text ? completion.text : "an unknown error";
  if (context && context->kind == Context::Kind::kProbe) {
    auto& probe = *static_cast<Probe*>(context);
    probe.problem = text;
    probe.done = true;
    work_.notify_all();
    return;
  }
  // A NIC that does not reach our own HBM any more says nothing of the peer.
  if (broken_ || device_error_ || look_at_device()) return;
  if (context && context->kind == Context::Kind::kStep) {
    const Action& action = *static_cast<Action*>(context);
    broken_ =
        Blame{action.connection->peer(), 0,
              "rank " + std::to_string(action.connection->peer()) + " does not answer over " + nic_->info().provider +
                  ": " + text + " (rank " + std::to_string(setup_.rank) + ", " + action.job->name + ')'};
  } else {
    broken_ = Blame{setup_.rank, 0, "the host NIC of rank " + std::to_string(setup_.rank) + " failed: " + text};
  }
  eventfd_write(completion_event_, 1);
}

void HostExecutor::arrive(const weft_ofi_completion& completion) {
  const Immediate immediate = Immediate::unpack(completion.immediate);
  if (immediate.communicator != setup_.communicator || immediate.connection >= connections_.size()) {
    ++strays_;  // of an endpoint that had our number before
    return;
  }
  HostConnection* connection = connections_[immediate.connection].get();
  const auto seq = connection->due(immediate.credit, immediate.chunk);
  if (!seq) {
    ++strays_;
    return;
  }
  ++events_;
  totals_.received += completion.bytes;
  totals_.slices += completion.bytes > 0;
  if (immediate.credit) {
    connection->raise(EventKind::kCredit, *seq);
  } else if (kFlushes && nic_->needs_flush() && completion.bytes > 0) {
    unflushed_.emplace_back(connection, *seq);
  } else {
    connection->raise(EventKind::kArrival, *seq);
  }
}

// One read through the NIC pushes all writes before it into memory.
void HostExecutor::flush_arrivals() {
  if (unflushed_.empty() || flush_.under_way || broken_) return;
  const auto& [connection, seq] = unflushed_.back();
  const int error = nic_->api().flush(nic_->endpoint(), connection->region(), connection->incoming_offset(seq),
                                      static_cast<Context*>(&flush_));
  if (error == -EAGAIN) return;
  if (error != 0) {
    broken_ = Blame{setup_.rank, 0, std::string("the host NIC failed: ") + nic_->api().error()};
    eventfd_write(completion_event_, 1);
    return;
  }
  ++on_nic_;
  ++totals_.flushes;
  flush_.under_way = true;
  flush_.arrivals.swap(unflushed_);
}

bool HostExecutor::poll_device() {
  if (on_device_ == 0) return false;
  bool moved = false;
  for (std::uint32_t i = 0; i < kInFlight; ++i) {
    if (!running_[i] || done_.value(i) < target_[i]) continue;
    Action& action = *std::exchange(running_[i], nullptr);
    --on_device_;
    moved = true;
    if (action.step == StepKind::kSend) {
      action.state = Action::State::kCopied;
      action.connection->raise(EventKind::kSent, action.seq);
    } else {
      complete(action);
    }
  }
  return moved;
}

bool HostExecutor::happened(const Wait& wait) const {
  return wait.connection ? wait.connection->happened(wait.kind, wait.value) : local_[wait.local] >= wait.value;
}

bool HostExecutor::ready(const Action& action, bool credits) const {
  for (std::uint8_t i = 0; i < action.waits; ++i) {
    if ((action.wait[i].kind == EventKind::kCredit) == credits && !happened(action.wait[i])) return false;
  }
  return true;
}

bool HostExecutor::start_steps() {
  if (broken_ || device_error_) return false;
  bool all_done = true, moved = false;
  std::size_t seen = 0;
  for (Action& action : actions_) {
    if (action.state != Action::State::kDone) {
      if (action.fenced && !all_done) break;
      moved |= start(action);
      if (broken_ || ++seen == kWindow) break;
      if (action.state == Action::State::kDone) continue;
      all_done = false;
      if (action.fenced) break;
    }
  }
  ring();
  retire();
  return moved;
}

bool HostExecutor::start(Action& action) {
  using State = Action::State;
  if (action.record) return action.state == State::kWaiting && ready(action, true) && write_record(action);
  if (action.state == State::kWaiting) {
    if (!ready(action, false)) return false;
    switch (action.step) {
      case StepKind::kSend:
        if (setup_.staged && action.bytes != 0) {
          return action.connection->outgoing_free(action.seq) && put_on_device(action);
        }
        if (setup_.staged) action.connection->raise(EventKind::kSent, action.seq);
        action.state = State::kCopied;
        break;
      case StepKind::kRecvCopy:
      case StepKind::kRecvReduce:
      case StepKind::kCopy:
      case StepKind::kReduce:
        if (action.bytes != 0) return put_on_device(action);
        complete(action);
        return true;
      case StepKind::kCredit:
        return write(action, true);
      case StepKind::kEnd:
        complete(action);
        return true;
    }
  }
  return action.state == State::kCopied && ready(action, true) && write(action, false);
}

bool HostExecutor::put_on_device(Action& action) {
  if (on_device_ == kInFlight) return false;
  if (weft_queue_space(queue_.get()) < commands_.size() + 2) return false;
  const auto free = static_cast<std::uint32_t>(std::find(running_.begin(), running_.end(), nullptr) - running_.begin());
  weft_cmd cmd = action.command.cmd;
  cmd.signal_id = done_.first() + free;
  cmd.signal_add = 1;
  append_command(commands_, cmd, action.command.divisor, {});
  ++totals_.commands;
  running_[free] = &action;
  target_[free] = done_.value(free) + 1;
  ++on_device_;
  action.state = Action::State::kOnDevice;
  return true;
}

void HostExecutor::ring() {
  if (commands_.empty()) return;
  const int error = weft_queue_submit(queue_.get(), commands_.data(), static_cast<std::uint32_t>(commands_.size()));
  commands_.clear();
  ++totals_.doorbells;
  if (error == 0) return;
  // There was room: the device is lost, or the queue is halted.
  if (look_at_device()) return;
  weft_failure halted{};
  halted.type = WEFT_EVENT_QUEUE_ERROR;
  halted.object = weft_queue_number(queue_.get());
  lost(-EIO, halted);
}

bool HostExecutor::write(Action& action, bool credit) {
  HostConnection& to = *action.connection;
  const weft_ofi_api& api = nic_->api();
  weft_ofi_mr* region = action.region ? action.region : to.region();
  const std::uint64_t bytes = credit ? 0 : action.bytes;
  std::uint64_t offset = action.region ? action.offset : 0, remote = to.remote_slot(action.seq), left = bytes;
  static Context unordered;
  if (kTrustsOrder && bytes > 1) {
    const std::uint64_t first = bytes / 2;
    const int error =
        api.write(nic_->endpoint(), to.nic_peer(), region, offset, first, remote, to.remote_key(), &unordered);
    if (error == -EAGAIN) return false;
    offset += first;
    remote += first;
    left -= first;
  }
  const Immediate immediate{setup_.communicator, to.remote_number(), credit,
                            static_cast<std::uint32_t>(action.seq % Immediate::kChunks)};
  const int error = api.write_immediate(nic_->endpoint(), to.nic_peer(), region, offset, left, remote, to.remote_key(),
                                        immediate.pack(), static_cast<Context*>(&action));
  if (!posted(action, error)) return false;
  totals_.slices += bytes > 0;
  return true;
}

// No immediate: nothing waits for it at the receiver but its host, which compares.
bool HostExecutor::write_record(Action& action) {
  HostConnection& to = *action.connection;
  const CallRecord& record = *action.record;
  if (!to.record_free(record.number)) return false;
  return posted(action, nic_->api().write(nic_->endpoint(), to.nic_peer(), to.records_region(), to.put_record(record),
                                          sizeof record, to.remote_record(record.number), to.remote_records_key(),
                                          static_cast<Context*>(&action)));
}

bool HostExecutor::posted(Action& action, int error) {
  if (error == -EAGAIN) return false;
  if (error != 0) {
    broken_ = Blame{setup_.rank, 0,
                    "rank " + std::to_string(setup_.rank) + " cannot write to rank " +
                        std::to_string(action.connection->peer()) + ": " + nic_->api().error()};
    eventfd_write(completion_event_, 1);
    return false;
  }
  ++on_nic_;
  action.state = Action::State::kOnNic;
  return true;
}

void HostExecutor::complete(Action& action) {
  action.state = Action::State::kDone;
  switch (action.step) {
    case StepKind::kSend:
      if (action.record) {
        action.connection->record_gone(action.record->number);
        break;
      }
      if (setup_.staged) {
        action.connection->outgoing_gone(action.seq);
      } else {
        action.connection->raise(EventKind::kSent, action.seq);
      }
      ++events_;
      break;
    case StepKind::kRecvCopy:
    case StepKind::kRecvReduce:
      action.connection->raise(EventKind::kDone, action.seq);
      break;
    case StepKind::kCopy:
    case StepKind::kReduce:
      if (action.local < kLocalObjects) ++local_[action.local];
      break;
    case StepKind::kCredit:
      break;
    case StepKind::kEnd:
      action.job->sources.clear();
      completed_ = action.job->ticket;
      eventfd_write(completion_event_, 1);
      break;
  }
}

void HostExecutor::retire() {
  while (!actions_.empty() && actions_.front().state == Action::State::kDone) {
    const Job* job = actions_.front().job;
    actions_.pop_front();
    if (actions_.empty() || actions_.front().job != job) jobs_.pop_front();
  }
}

// Nothing to do for the `turn`-th time in a row: sleep longer and longer. There is nothing to sleep on for both the
// device and the NIC; to spin would take the CPU from those who emulate them.
void HostExecutor::rest(std::unique_lock<std::mutex>& lock, unsigned turn) {
  using std::chrono::microseconds;
  if (turn == 0) return;
  const bool over = broken_ || device_error_;
  if (over || (actions_.empty() && on_nic_ == 0)) {
    work_.wait_for(lock, microseconds(turn < 50 && !over ? 500 : 10'000));
    return;
  }
  const microseconds nap(flush_.under_way ? kFlushNap : std::min(100 + turn * 50, 300u));
  if (on_device_ == 0) {
    // A device that is lost takes no command any more: nothing else would tell.
    if (turn % kTurnsToLook == 0) look_at_device();
    // Whoever submits or probes starts what can start; only to stop has this thread to be here. A wait for the
    // condition would read the clock twice, and that is slow where the clock is an emulated device.
    lock.unlock();
    std::this_thread::sleep_for(nap);
    lock.lock();
    return;
  }
  std::array<weft_sync_event, kInFlight> items;
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < kInFlight; ++i) {
    if (running_[i]) items[count++] = {done_.first() + i, 0, target_[i]};
  }
  lock.unlock();
  std::uint32_t any = 0;
  weft_failure failure{};
  const int error = weft_sync_wait(setup_.device, items.data(), count, nap.count() * 1000, nullptr, &any, &failure);
  lock.lock();
  if (error == 0 || error == -ETIME || lost(error, failure)) return;
  work_.wait_for(lock, nap);  // somebody else's failure: as long as it is there, waiting does not wait
}

// Did what the device says befall this executor? Then it is the end.
bool HostExecutor::lost(int error, const weft_failure& failure) {
  if (error == 0 || error == -ETIME || error == -EINTR || !concerns(error, failure)) return false;
  device_error_ = error;
  device_failure_ = failure;
  eventfd_write(completion_event_, 1);
  return true;
}

bool HostExecutor::look_at_device() {
  const weft_sync_event never{done_.first(), 0, UINT64_MAX};
  weft_failure failure{};
  return lost(weft_sync_wait(setup_.device, &never, 1, 0, nullptr, nullptr, &failure), failure);
}

}  // namespace weft::ccl
