// SPDX-License-Identifier: MIT
// How the ranks of a communicator talk to each other beside the accelerators: at set-up, and about failures later.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::ccl {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

inline constexpr std::uint32_t kNobody = UINT32_MAX;  // a culprit that is no rank

// Something that ended the communicator.
struct Note {
  std::uint32_t culprit = 0;  // rank, or kNobody
  std::string text;
  bool refused = false;  // this rank does not belong to those at the meeting point
};

// A rank that waits for another.
struct Suspicion {
  std::uint32_t from = 0, peer = 0;  // ranks; equal: it knows that it is itself to blame
  std::uint32_t definite = 0;        // 1: the connection is broken; 0: it merely waits
  std::uint64_t order = 0;           // number of the work << 32 | its step: what is waited for
  std::string text;
};

// No call blocks, and only one runs at a time: other ranks of the process may call, too.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Hands in this rank's bytes; all ranks do so in the same order. gathered(): every rank's bytes by rank, once for
  // each gather(), when all have come.
  virtual void gather(std::span<const std::byte> mine) = 0;
  virtual std::optional<std::vector<Bytes>> gathered() = 0;
  // Messages between two ranks; those of a peer keep their order. Throws Failure for one that is malformed.
  virtual void send(std::uint32_t peer, std::span<const std::byte> message) = 0;
  virtual std::optional<std::pair<std::uint32_t, Bytes>> receive() = 0;
  // Tells all other ranks.
  virtual void report(const Note& note) noexcept = 0;
  // Says whom this rank waits for, after its limit; the ranks' suspicions together give a Note, which poll() finds a
  // little later.
  virtual void suspect(const Suspicion& suspicion) noexcept = 0;
  // Takes what has come, and returns what somebody else reported, or that somebody is gone. It stays set.
  virtual std::optional<Note> poll() = 0;
  // This rank ends in good order: its going is not a failure.
  virtual void leave() noexcept = 0;
  // What to sleep on, by rest() and without a lock, until something may have come.
  virtual pollfd awaited() noexcept = 0;
};

// Sleeps until what is awaited has come, at most so long. A connection that closes meanwhile does no harm.
inline void rest(pollfd awaited, std::chrono::milliseconds limit) noexcept {
  ::poll(&awaited, 1, static_cast<int>(limit.count()));
}

}  // namespace weft::ccl
