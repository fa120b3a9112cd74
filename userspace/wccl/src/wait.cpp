// SPDX-License-Identifier: MIT
// Waits of a communicator, what it fails with, whose fault it is, and its end.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "communicator.hpp"
#include "hub_wire.hpp"
#include "verdict.hpp"

namespace weft::ccl {
namespace {

// A wait is cut into pieces between which we look whether somebody else reported a failure.
constexpr std::chrono::nanoseconds kWaitPiece = std::chrono::milliseconds(100);
constexpr std::chrono::nanoseconds kRecordPiece = std::chrono::microseconds(50);

}  // namespace

void Communicator::fail(const Note& note, wcclResult_t result) {
  if (failed_ != wcclSuccess) return;
  const std::lock_guard lock(text_mutex_);
  failure_text_ = (options_.name.empty() ? "" : options_.name + ": ") + note.text;
  failed_ = result;
  if (options_.settings.verbosity >= 1) std::fprintf(stderr, "wccl: rank %u: %s\n", rank_, failure_text_.c_str());
}

void Communicator::throw_failure() const { throw Failure(failed_, last_error()); }

std::string Communicator::last_error() const {
  const std::lock_guard lock(text_mutex_);
  return failure_text_;
}

// True when somebody else's failure has become ours.
bool Communicator::poll_rendezvous() {
  if (failed_ != wcclSuccess) return true;
  std::optional<Note> note = rendezvous_ ? rendezvous_->poll() : family_->note;
  if (!note) {
    serve();
    return failed_ != wcclSuccess;
  }
  if (note->culprit == rank_) note->text = "the other ranks have given this one up: " + note->text;
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

// Something is wrong, or takes too long: the ranks' suspicions together say who it is. Pending: the hub collects them,
// ask again.
Communicator::Verdict Communicator::suspect(wcclResult_t result, bool definite_only) {
  std::vector<Suspicion> all;
  const auto add = [&](std::optional<Suspicion> one) {
    if (one && (one->definite || !definite_only)) all.push_back(std::move(*one));
  };
  if (!rendezvous_) {
    for (const auto& weak : family_->members) {
      if (const auto member = weak.lock()) add(member->suspicion());
    }
  } else {
    add(suspicion());
    if (!all.empty()) {
      // Others have, or will soon have, theirs.
      if (!suspected_) {
        rendezvous_->suspect(all.back());
        suspected_ = Clock::now();
      }
      if (poll_rendezvous()) return Verdict::kFailed;
      if (Clock::now() - *suspected_ < 4 * wire::kGrace) return Verdict::kPending;
    }
  }
  const auto note = decide(all);
  if (!note) return Verdict::kNone;
  fail(*note, result);
  tell(*note);
  return Verdict::kFailed;
}

// A wait ended with `wait_error`: finds out whose fault it is, and tells the others. None: it is not of this
// communicator.
Communicator::Verdict Communicator::look_for_failure(int wait_error, const weft_failure& failure) {
  if (failed_ != wcclSuccess) return Verdict::kFailed;
  if (const Verdict verdict = suspect(wcclRemoteError, true); verdict != Verdict::kNone) return verdict;
  Note note{rank_, ""};
  if (!executor_->concerns(wait_error, failure)) return Verdict::kNone;
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
  return Verdict::kFailed;
}

// Until something may have changed; the lock is given up.
void Communicator::pause(Lock& lock) {
  const Counted counted(waiters_);
  lock.unlock();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  lock.lock();
}

void Communicator::tell(const Note& note) noexcept {
  if (rendezvous_) {
    rendezvous_->report(note);
  } else if (!family_->note) {
    family_->note = note;
  }
}

// Do the peers say the same of their calls, as far as work up to `ticket` shows it? If not, the communicator has
// failed.
CallBook::State Communicator::agreement(std::uint64_t ticket) {
  const CallBook::Answer found = executor_->agreement(ticket);
  if (found.state != CallBook::State::kDisagreed || failed_ != wcclSuccess) return found.state;
  const Note note{kNobody, std::string(found.earlier ? "an earlier call differed between ranks; now " : "") + "rank " +
                               std::to_string(found.peer) + " calls " + found.theirs.text() + ", rank " +
                               std::to_string(rank_) + " calls " + found.ours.text()};
  fail(note, wcclInvalidUsage);
  tell(note);
  return found.state;
}

// Has another rank of this process found that calls differ?
bool Communicator::others_disagree() {
  for (const auto& weak : family_->members) {
    const auto member = weak.lock();
    if (member && member.get() != this && member->executor_) member->agreement(member->executor_->submitted());
  }
  return poll_rendezvous();
}

// For `caller`, which may be another rank of this process.
void Communicator::wait_for(std::uint64_t ticket, Lock& lock, const Communicator& caller) {
  const Counted counted(waiters_);
  const auto limit = std::chrono::duration_cast<std::chrono::nanoseconds>(options_.settings.timeout);
  Patience patience(limit);
  std::uint64_t progress = 0;
  for (;;) {
    const bool complete = executor_->complete(ticket);
    const CallBook::State agreed = agreement(ticket);
    if (complete && agreed == CallBook::State::kAgreed) return;
    if (aborted_ || caller.aborted_) throw Failure(wcclRemoteError, "aborted");
    if (agreed == CallBook::State::kDisagreed || poll_rendezvous()) throw_failure();
    // Complete, but a record has yet to come: nothing is left to wait for but time.
    const std::uint64_t awaited = complete ? executor_->submitted() + 1 : ticket;
    const std::chrono::nanoseconds piece = std::min(complete ? kRecordPiece : kWaitPiece, limit);
    weft_failure failure{};
    lock.unlock();
    const int error = executor_->wait(awaited, piece.count(), &failure);
    // Something else in this context may have failed, for instance another communicator: that makes the wait return at
    // once.
    if (error == -EIO) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
    if (error == 0 && !complete) continue;  // the work has ended
    patience.pass(error == -ETIME ? piece : std::chrono::nanoseconds{});
    if (error != 0 && error != -ETIME && error != -EINTR && look_for_failure(error, failure) == Verdict::kFailed) {
      throw_failure();
    }
    // In this process the others' devices can be looked at too: they may have nobody who waits.
    if (!rendezvous_ && (others_disagree() || suspect(wcclRemoteError, true) == Verdict::kFailed)) throw_failure();
    const std::uint64_t now = executor_->progress();
    if (now != progress) patience = Patience(limit);
    progress = now;
    if (!patience.over()) continue;
    const Verdict verdict = suspect(wcclTimeout, false);
    if (verdict == Verdict::kFailed) throw_failure();
    if (verdict == Verdict::kPending) {
      pause(lock);
      continue;
    }
    const Note note{rank_, executor_->oldest_work() + " does not end on rank " + std::to_string(rank_)};
    fail(note, wcclTimeout);
    tell(note);
    throw_failure();
  }
}

void Communicator::wait() {
  Lock lock(mutex_);
  if (aborted_) throw Failure(wcclRemoteError, "aborted");
  if (failed_ != wcclSuccess) throw_failure();
  if (executor_) wait_for(executor_->submitted(), lock, *this);
}

wcclResult_t Communicator::async_error() {
  if (failed_ != wcclSuccess) return failed_;
  const Lock lock(mutex_, std::try_to_lock);
  if (!lock) return wcclInProgress;  // another thread is at it just now
  if (poll_rendezvous()) return failed_;
  if (!executor_) return wcclSuccess;
  const std::uint64_t last = executor_->submitted();
  const bool complete = executor_->complete(last);
  const CallBook::State agreed = agreement(last);
  if (agreed == CallBook::State::kDisagreed) return failed_;
  if (complete && agreed == CallBook::State::kAgreed) return wcclSuccess;
  weft_failure failure{};
  const int error = executor_->wait(last, 0, &failure);
  if (error != 0 && error != -ETIME && error != -EINTR) look_for_failure(error, failure);
  return failed_ != wcclSuccess ? failed_.load() : wcclInProgress;
}

// Waits until the peers have acknowledged the last credits, which no collective waits for: work without ops ends behind
// them.
void Communicator::flush(Lock& lock, const Communicator& caller) {
  if (flushed_ != executor_->submitted()) {
    const GroupSource nothing({}, rank_, ranks_);
    Work work;
    work.source = &nothing;
    work.layout = &nothing;
    work.name = "end";
    execute(work, lock);
    flushed_ = executor_->submitted();
  }
  wait_for(flushed_, lock, caller);
}

// Nothing of this rank is under way any more, and the other processes know it.
void Communicator::quiesce(Lock& lock, const Communicator& caller) {
  if (!executor_ || failed_ != wcclSuccess || finalized_ || aborted_) return;
  flush(lock, caller);
  if (!rendezvous_ || announced_) return;
  rendezvous_->gather({});
  announced_ = true;
}

// Our channels must not go before everybody's last message is acknowledged. This rank speaks for the others of this
// process too: their turn may come after ours, in this very thread.
void Communicator::finalize() {
  Lock lock(mutex_);
  if (aborted_) throw Failure(wcclRemoteError, "aborted");
  if (finalized_) return;
  if (failed_ != wcclSuccess) throw_failure();
  const Counted counted(waiters_);
  quiesce(lock, *this);
  const auto members = family_->members;
  for (const auto& weak : members) {
    const auto member = weak.lock();
    if (!member || member.get() == this) continue;
    try {
      member->quiesce(lock, *this);
    } catch (const Failure&) {
      // It is that rank's to tell.
    }
    if (aborted_) throw Failure(wcclRemoteError, "aborted");
  }
  if (rendezvous_) {
    Patience patience(options_.settings.timeout);
    meet(lock, patience, [&] { return rendezvous_->gathered().has_value(); }, "the other ranks");
    rendezvous_->leave();
  }
  finalized_ = true;
}

void Communicator::shut_down() noexcept {
  aborted_ = true;
  Lock lock(mutex_);
  while (waiters_ > 0) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.lock();
  }
  if (!finalized_) {
    const std::string why = last_error();
    tell({rank_, "rank " + std::to_string(rank_) + " aborted" + (why.empty() ? "" : ": " + why)});
    if (rendezvous_) rendezvous_->leave();
  }
  finalized_ = true;
  // What takes its time need not hold up the others.
  const auto scratch = std::move(scratch_);
  const auto rendezvous = std::move(rendezvous_);
  const auto executor = std::move(executor_);
  lock.unlock();
}

}  // namespace weft::ccl
