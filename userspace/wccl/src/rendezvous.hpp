// SPDX-License-Identifier: MIT
// How the ranks of a communicator talk to each other beside the accelerators: at set-up, and about failures later.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft::ccl {

using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

// Something that ended the communicator.
struct Note {
  std::uint32_t culprit = 0;  // rank
  std::string text;
};

// A rank that waits for another.
struct Suspicion {
  std::uint32_t from = 0, peer = 0;  // ranks; equal: it knows that it is itself to blame
  std::uint32_t definite = 0;        // 1: the connection is broken; 0: it merely waits
  std::uint64_t order = 0;           // number of the work << 32 | its step: what is waited for
  std::string text;
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Every rank's bytes, by rank; all ranks call it in the same order. Throws Failure: ranks that did not come, or a
  // Note.
  virtual std::vector<Bytes> all_gather(std::span<const std::byte> mine, Clock::time_point deadline) = 0;
  // Sends each peer its bytes and waits for one message of each of them. Messages of a peer keep their order.
  virtual std::map<std::uint32_t, Bytes> exchange(const std::map<std::uint32_t, Bytes>& out,
                                                  Clock::time_point deadline) = 0;
  // Tells all other ranks; never throws and hardly blocks.
  virtual void report(const Note& note) noexcept = 0;
  // Says whom this rank waits for, after its limit; the ranks' suspicions together give a Note, which poll() finds a
  // little later.
  virtual void suspect(const Suspicion& suspicion) noexcept = 0;
  // What somebody else reported, or that somebody's process is gone. Never blocks; stays set.
  virtual std::optional<Note> poll() = 0;
  // This rank ends in good order: its going is not a failure.
  virtual void leave() noexcept = 0;
};

}  // namespace weft::ccl
