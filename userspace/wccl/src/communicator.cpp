// SPDX-License-Identifier: MIT
// Work on a communicator: what a call asks for is looked at, becomes a schedule with places, and is enqueued.
#include "communicator.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace weft::ccl {
namespace {

// Work between looks at what the peers say of theirs while nobody waits: what is expected of them must not pile up.
constexpr std::uint64_t kLookEvery = 64;

Call call_of(const Collective& call) {
  Call out;
  out.collective = call.barrier ? WCCL_COLL_BARRIER : WCCL_COLL_ALLREDUCE;
  if (call.barrier) return out;
  out.type = static_cast<std::uint8_t>(call.type);
  out.op = static_cast<std::uint8_t>(call.op);
  out.count = call.count;
  return out;
}

}  // namespace

std::uint32_t type_bytes(wcclDataType_t type) {
  static constexpr std::uint32_t kBytes[wcclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < wcclNumTypes ? kBytes[type] : 0;
}

Operand Communicator::memory(weft_va address, std::uint64_t bytes, const char* what) const {
  weft_mem_info mem{};
  mem.size = sizeof mem;
  if (weft_mem_find(options_.device, address, bytes, &mem) != 0) {
    throw Failure(wcclInvalidArgument,
                  std::string(what) + " is not memory of this communicator's device, or ends too early");
  }
  return {address, mem.key, address, bytes};
}

void Communicator::check_buffer(weft_va address, std::uint64_t bytes, std::uint32_t element, const char* what) const {
  if (!address) throw Failure(wcclInvalidArgument, std::string(what) + " is NULL");
  if (address % element) {
    throw Failure(wcclInvalidArgument,
                  std::string(what) + " is not aligned to its elements of " + std::to_string(element) + " bytes");
  }
  memory(address, bytes, what);
}

void Communicator::check_usable() {
  if (aborted_) throw Failure(wcclRemoteError, "aborted");
  if (finalized_ || !executor_) throw Failure(wcclInvalidUsage, "the communicator is finalized");
  poll_rendezvous();
  if (failed_ != wcclSuccess) throw_failure();
}

void Communicator::check(const Collective& call) const {
  if (call.barrier) return;
  const std::uint32_t element = type_bytes(call.type);
  if (!element) throw Failure(wcclInvalidArgument, "unknown data type " + std::to_string(call.type));
  if (call.type > wcclBfloat16) throw Failure(wcclInvalidArgument, "the device does not reduce 8-bit floats");
  if (call.op < 0 || call.op >= wcclNumOps) {
    throw Failure(wcclInvalidArgument, "unknown reduction " + std::to_string(call.op));
  }
  if (call.count > (std::uint64_t{1} << 42) / element) throw Failure(wcclInvalidArgument, "count is too large");
  if (call.count == 0) return;
  const std::uint64_t bytes = call.count * element;
  check_buffer(call.send, bytes, element, "sendbuff");
  check_buffer(call.receive, bytes, element, "recvbuff");
  if (call.send != call.receive && call.send < call.receive + bytes && call.receive < call.send + bytes) {
    throw Failure(wcclInvalidArgument, "send and receive buffer overlap in part");
  }
  const Shape& shape = all_reduce_->shape();
  if (call.send == call.receive && !(shape.flags & WCCL_SCHED_IN_PLACE)) {
    throw Failure(wcclInvalidUsage, "schedule " + shape.name + " does not run in place");
  }
}

void Communicator::check(const std::vector<PointToPoint>& ops) const {
  for (const PointToPoint& op : ops) {
    if (op.peer >= ranks_) throw Failure(wcclInvalidArgument, "peer " + std::to_string(op.peer) + " is not a rank");
    if (op.bytes) check_buffer(op.address, op.bytes, op.element_bytes, op.send ? "sendbuff" : "recvbuff");
  }
  const GroupSource matches(ops, rank_, ranks_);
}

void Communicator::validate(const Collective& call) {
  const Lock lock(mutex_);
  check_usable();
  check(call);
}

void Communicator::validate(const std::vector<PointToPoint>& ops) {
  const Lock lock(mutex_);
  check_usable();
  check(ops);
}

void Communicator::execute(Work& work, Lock& lock) {
  work.rank = rank_;
  const std::uint64_t before = executor_->submitted();
  if (before % kLookEvery == 0 && agreement(before) == CallBook::State::kDisagreed) throw_failure();
  for (;;) {
    switch (executor_->submit(work)) {
      case Executor::Submit::kDone:
        return;
      case Executor::Submit::kNoRoom:
        wait_for(executor_->completed() + 1, lock, *this);
        break;
      case Executor::Submit::kFailed: {
        weft_failure failure{};
        const int error = executor_->wait(executor_->submitted() + 1, 0, &failure);
        const int cause = error == 0 || error == -ETIME || error == -EINTR ? -EIO : error;
        while (look_for_failure(cause, failure) == Verdict::kPending && !aborted_) pause(lock);
        if (failed_ == wcclSuccess) fail({rank_, "the command queue is halted"}, wcclUnhandledDeviceError);
        throw_failure();
      }
    }
  }
}

void Communicator::run(const Collective& call) {
  Lock lock(mutex_);
  check_usable();
  check(call);
  if (call.barrier || call.count == 0) {
    barrier(call_of(call), lock);  // an all-reduce of nothing too: all must say so
  } else {
    all_reduce(call, lock);
  }
}

void Communicator::all_reduce(const Collective& call, Lock& lock) {
  const std::uint32_t element = type_bytes(call.type);
  const std::uint64_t bytes = call.count * element;
  const Operand input = memory(call.send, bytes, "sendbuff"), output = memory(call.receive, bytes, "recvbuff");
  const bool in_place = call.send == call.receive;
  const Shape& shape = all_reduce_->shape();
  const std::uint32_t slot =
      shape.neighbours_only ? slot_bytes_ : slot_bytes_for((rank_ + ranks_ / 2) % ranks_);  // the smallest in use
  const std::uint32_t slice = choose_slice(shape, call.count, element, slot, entries_, least_slice_);
  if (!slice) {
    const bool at_all = choose_slice(shape, 1, element, slot, entries_, least_slice_) != 0;
    throw Failure(wcclInvalidUsage, "all-reduce of " + std::to_string(bytes) + " bytes by " + shape.name + " over " +
                                        std::to_string(lanes_) + " lanes does not fit the command queue of " +
                                        std::to_string(entries_) + " slots: " +
                                        (at_all ? "raise WCCL_BUFFSIZE or WCCL_QUEUE_ENTRIES, or reduce in parts"
                                                : "raise WCCL_QUEUE_ENTRIES, or lower WCCL_LANES"));
  }
  ensure(*all_reduce_, lock);
  Operand scratch;
  if (shape.scratch_chunks) {
    const std::uint64_t need = PartLayout::scratch_bytes(shape, call.count, element);
    if (!scratch_ || weft_mem_bytes(scratch_.get()) < need) {
      wait_for(executor_->submitted(), lock, *this);
      scratch_.reset();
      scratch_ = allocate(options_.device, need, 0, ("scratch of schedule " + shape.name).c_str());
    }
    scratch = memory(weft_mem_va(scratch_.get()), need, "scratch");
  }
  const PartLayout layout(shape, rank_, call.count, element, in_place, slice);
  Work work;
  work.source = all_reduce_.get();
  work.layout = &layout;
  work.element_bytes = element;
  work.type = call.type;
  work.op = call.op;
  work.resolve = [&](const Place& place) {
    const Operand& base = place.buffer == WCCL_BUF_INPUT ? input : place.buffer == WCCL_BUF_OUTPUT ? output : scratch;
    return Operand{base.va + place.offset, base.key, base.buffer, base.buffer_bytes};
  };
  work.call = call_of(call);
  work.name = "all-reduce " + std::to_string(++collectives_);
  execute(work, lock);
}

void Communicator::barrier(const Call& call, Lock& lock) {
  ensure(*barrier_, lock);
  const PartLayout layout(barrier_->shape(), rank_, 0, 1, false, slot_bytes_);
  Work work;
  work.source = barrier_.get();
  work.layout = &layout;
  work.resolve = [](const Place&) { return Operand{}; };
  work.call = call;
  work.name = "barrier " + std::to_string(++barriers_);
  execute(work, lock);
}

void Communicator::run(const std::vector<PointToPoint>& ops) {
  Lock lock(mutex_);
  check_usable();
  check(ops);
  GroupSource source(ops, rank_, ranks_);
  if (source.ops(rank_) == 0) return;
  source.set_slot_bytes([this](std::uint32_t peer) { return slot_bytes_for(peer); });
  ensure(source, lock);
  Work work;
  work.source = &source;
  work.layout = &source;
  work.resolve = [this](const Place& place) { return memory(place.offset, place.bytes, "buffer"); };
  work.call.collective = WCCL_COLL_SENDRECV;
  work.name = "send/receive group " + std::to_string(++groups_);
  execute(work, lock);
}

PathChoice Communicator::path(std::uint32_t peer) const {
  if (peer == rank_) return {wcclPathOnchip, "copy", "the same device"};
  return path_;
}

void Communicator::stats(wcclStats_t& out) const {
  const Lock lock(mutex_);
  if (!executor_) return;
  executor_->stats(out);
  out.collectives = executor_->submitted();
  std::snprintf(out.transport, sizeof out.transport, "%s", path_.transport.c_str());
  out.slots = slots_;
  out.slotBytes = slot_bytes_;
}

}  // namespace weft::ccl
