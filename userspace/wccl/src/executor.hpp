// SPDX-License-Identifier: MIT
// What runs a schedule on this rank. One executor for each way that bytes can go; a communicator has one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "call_book.hpp"
#include "rendezvous.hpp"
#include "sched/lower.hpp"
#include "sched/schedule.hpp"
#include "wccl/wccl.h"
#include "weft/weft.h"

namespace weft::ccl {

// Memory as commands name it, and the caller's buffer that it is a part of.
struct Operand {
  weft_va va = 0;
  std::uint32_t key = 0;
  weft_va buffer = 0;
  std::uint64_t buffer_bytes = 0;
};

// One execution of a schedule on this rank.
struct Work {
  const Source* source = nullptr;
  const Layout* layout = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t element_bytes = 1;
  wcclDataType_t type = wcclUint8;
  wcclRedOp_t op = wcclSum;
  std::function<Operand(const Place&)> resolve;
  Call call;         // all ranks must say the same; of sends and receives, each message has its own count
  std::string name;  // in messages: "all-reduce 12"
};

// Whom this rank waits for, or whose connection is broken.
struct Blame {
  std::uint32_t peer = 0;   // rank; the own one: it knows that it is itself to blame
  std::uint64_t order = 0;  // ticket << 32 | step
  std::string text;
};

// The first message of some work that has not come, or not gone.
Blame silent(std::uint32_t peer, bool receive, std::uint64_t ticket, std::uint32_t step, std::uint32_t steps,
             const std::string& work);

// What all executors are made with.
struct ExecutorSetup {
  weft_device* device = nullptr;
  std::uint32_t rank = 0;
  std::uint32_t slots = 4;        // of a connection
  std::uint32_t entries = 65536;  // of the command queue
  std::int64_t timeout_ns = 0;    // of the communicator
};

class Executor {
 public:
  virtual ~Executor() = default;

  // This end of the connection (peer, lane), made if there is none yet, with slots of `slot_bytes`: what the other end
  // needs to know. Throws Failure.
  virtual Bytes open(std::uint32_t peer, std::uint32_t lane, std::uint32_t slot_bytes) = 0;
  virtual bool opened(std::uint32_t peer, std::uint32_t lane) const = 0;
  virtual bool connected(std::uint32_t peer, std::uint32_t lane) const = 0;
  // Throws Failure when the other end does not fit.
  virtual void connect(std::uint32_t peer, std::uint32_t lane, std::span<const std::byte> offer) = 0;
  // Do the peers of these connections (flow keys) answer? Empty, or why not. Throws Failure when the own device fails.
  virtual std::string probe(const std::vector<std::uint64_t>& keys, std::int64_t limit_ns) = 0;

  enum class Submit { kDone, kNoRoom, kFailed };
  // Takes the work; it runs after all earlier work. Throws Failure for work that does not fit at all. kNoRoom: wait for
  // earlier work; nothing has changed. kFailed: the device's queue is halted.
  virtual Submit submit(const Work& work) = 0;
  virtual std::uint64_t submitted() const = 0;
  // Work 1..completed() is complete.
  virtual std::uint64_t completed() const = 0;
  // Have the peers called the same, in work 1..ticket, whether it is complete or not?
  virtual CallBook::Answer agreement(std::uint64_t ticket) = 0;
  // Without the communicator's lock. 0, -ETIME, -EINTR, or -EIO: broken(), or `failure` of the device. It may fail
  // because of something else in the same context: see concerns().
  virtual int wait(std::uint64_t ticket, std::int64_t timeout_ns, weft_failure* failure) = 0;
  // Is a wait's `error` (not -ETIME, not -EINTR) of this executor? A queue's or a channel's is its owner's; what befell
  // the whole device is everybody's.
  bool concerns(int error, const weft_failure& failure) const;

  // What the oldest incomplete work waits for.
  virtual std::optional<Blame> blame() const = 0;
  // A connection that is broken.
  virtual std::optional<Blame> broken() const = 0;
  virtual std::string oldest_work() const = 0;
  // Grows with each event that a peer caused.
  virtual std::uint64_t progress() const = 0;
  // Fills in what this executor knows of.
  virtual void stats(wcclStats_t& out) const = 0;

  bool complete(std::uint64_t ticket) const { return completed() >= ticket; }

 protected:
  // Is the queue or the channel that failed its own?
  virtual bool owns(const weft_failure& failure) const = 0;
};

}  // namespace weft::ccl
