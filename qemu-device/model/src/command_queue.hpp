// SPDX-License-Identifier: MIT
// A command queue: its ring in memory, and the scoreboard from which commands start in any order that their waits
// allow.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>

#include "contexts.hpp"
#include "counters.hpp"
#include "data_mover.hpp"
#include "event_queue.hpp"
#include "host_port.hpp"
#include "region_table.hpp"
#include "weft/hw/cmd.h"
#include "weft/model/nic.hpp"

namespace weft::model {

class CommandQueue;

// What a queue needs of the device.
struct QueueServices {
  HostPort& host;
  Counters& counters;
  Contexts& contexts;
  RegionTable& memory;
  DataMover& mover;
  EventQueue& events;
  Nic* nic = nullptr;
};

class QueueOwner {
 public:
  // The queue has something to do: give it a turn.
  virtual void activate(CommandQueue& queue) = 0;
  // Its head in memory is out of date.
  virtual void head_changed(CommandQueue& queue) = 0;

 protected:
  ~QueueOwner() = default;
};

template <class Tag>
using QueueHook = boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                                   boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;
struct ActiveTag;
struct HeadTag;

class CommandQueue : public QueueHook<ActiveTag>, public QueueHook<HeadTag> {
 public:
  static constexpr std::uint32_t kWindow = 256;  // WEFT_REG_WINDOW

  // `entry` has been checked. RDMA tokens of this queue are token_base + window index.
  CommandQueue(QueueOwner& owner, QueueServices& services, const weft_queue_entry& entry, std::uint64_t token_base);
  CommandQueue(const CommandQueue&) = delete;
  CommandQueue& operator=(const CommandQueue&) = delete;

  // Doorbell: producer index, free-running. Takes a note.
  void ring(std::uint64_t producer);
  // Works about `budget` bytes; a command counts as some bytes by itself. Returns what it spent; still_busy() tells
  // whether another turn would do more.
  std::uint64_t turn(std::uint64_t budget);
  bool still_busy() const { return !halted() && (!ready_.empty() || decode_more_); }

  // An RDMA command ended. Ignored when the queue was halted in between.
  void rdma_completed(std::uint32_t index, Error error);
  // As a failed command, at the oldest one that is not complete.
  void abort(Error error);
  // RDMA commands that the NIC still has.
  std::uint32_t rdma_in_flight() const { return rdma_in_flight_; }
  std::uint64_t token_base() const { return token_base_; }

  // Writes the head, at the end of a step; a ring that is not there any more halts the queue.
  void write_head();

 private:
  static constexpr std::uint32_t kStage = 64;         // slots that one read of the ring fetches
  static constexpr std::uint64_t kCommandCost = 512;  // bytes that a command counts for at least
  static constexpr std::uint64_t kFetchCost = 64;

  struct Command;
  struct Wait final : Waiter {
    void reached() override;
    Command* command = nullptr;
  };
  struct Command {
    CommandQueue* queue = nullptr;
    weft_cmd cmd{};
    std::uint16_t arg16 = 0;
    bool with_nic = false;
    std::uint32_t unmet = 0;  // waits
    std::uint64_t slot = 0;   // free-running
    std::uint64_t done = 0;   // bytes of the result
    bool live = false;
    std::array<Wait, 3> wait;
    Hook list;  // ready or free
  };
  union Slot {
    weft_cmd cmd;
    weft_cmd_ext ext;
  };

  bool halted() const { return state_ == WEFT_QUEUE_HALTED; }
  std::uint64_t staged() const { return stage_end_ - stage_begin_; }
  std::uint64_t decode();
  bool stage_next(std::uint64_t& cost);
  Error check_fields(const weft_cmd& cmd, const weft_cmd_ext* ext) const;
  void accept(const weft_cmd& cmd, const weft_cmd_ext* ext, std::uint64_t slot);
  std::uint64_t execute(Command& command, std::uint64_t budget);
  Error start_rdma(Command& command);
  Error timestamp(const weft_cmd& cmd);
  void complete(Command& command);
  void halt(Error error, std::uint64_t slot);
  std::uint64_t oldest_slot() const;

  QueueOwner& owner_;
  QueueServices& services_;
  const std::uint32_t context_;
  const std::uint32_t number_;
  const std::uint32_t ring_key_;
  const std::uint32_t entries_;
  const std::uint64_t ring_address_;
  const std::uint64_t token_base_;

  std::uint64_t producer_ = 0;
  std::uint64_t fetched_ = 0;  // slots read into the stage
  std::uint64_t completed_ = 0;
  weft_queue_state state_ = WEFT_QUEUE_RUNNING;
  Error error_ = WEFT_ERR_OK;
  std::uint64_t error_slot_ = 0;
  bool overrun_ = false;

  std::array<Slot, kStage> stage_;
  std::uint32_t stage_begin_ = 0;
  std::uint32_t stage_end_ = 0;
  bool decode_more_ = false;  // decode() has not seen yet what changed, or stopped for its budget
  bool fenced_ = false;       // a FENCE is in the scoreboard
  std::uint32_t in_flight_ = 0;
  std::uint32_t rdma_in_flight_ = 0;

  std::array<Command, kWindow> window_;
  LinkedList<Command, &Command::list> free_;
  LinkedList<Command, &Command::list> ready_;
};

}  // namespace weft::model
