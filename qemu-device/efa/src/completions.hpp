// SPDX-License-Identifier: MIT
// Completion queues and event queues, both rings in guest memory.
#pragma once

#include <array>
#include <cstdint>

#include "host.hpp"
#include "hw.hpp"

namespace weft::efa {

struct CompletionQueue {
  bool used = false;
  bool interrupts = false;
  bool source_address = false;
  bool armed = false;
  std::uint32_t entry_bytes = 0;  // 16 or 32
  std::uint32_t depth = 0;        // power of two
  std::uint32_t produced = 0;     // free running
  std::uint16_t eq = 0;
  std::uint32_t users = 0;  // queue pair ends
  std::uint64_t base = 0;
};

struct EventQueue {
  bool used = false;
  bool armed = false;
  bool unseen = false;  // an entry was written since the last interrupt: arming fires at once
  std::uint32_t vector = 0;
  std::uint32_t depth = 0;  // power of two
  std::uint32_t produced = 0;
  std::uint32_t users = 0;  // completion queues
  std::uint64_t base = 0;
};

class Completions {
 public:
  explicit Completions(Host& host) : host_(host) {}

  // CREATE and DESTROY, after everything else of the command was checked.
  hw::AdminStatus create_cq(const hw::CreateCqCommand& command, hw::CreateCqReply& reply);
  hw::AdminStatus destroy_cq(std::uint16_t index);
  hw::AdminStatus create_eq(const hw::CreateEqCommand& command, std::uint16_t& index);
  hw::AdminStatus destroy_eq(std::uint16_t index);
  void clear();

  CompletionQueue* cq(std::uint32_t index) { return index < cqs_.size() && cqs_[index].used ? &cqs_[index] : nullptr; }

  // Write a completion (its phase is ours) and raise the event that the queue was armed for.
  void post(std::uint32_t index, hw::Cqe cqe);
  // The guest rang: tell it about completions after `consumed` (16 bits, free running).
  void arm_cq(std::uint32_t index, std::uint16_t consumed);
  void arm_eq(std::uint32_t index);

 private:
  void post_event(std::uint16_t cq);

  Host& host_;
  std::array<CompletionQueue, hw::kCompletionQueues> cqs_{};
  std::array<EventQueue, hw::kEventQueues> eqs_{};
};

}  // namespace weft::efa
