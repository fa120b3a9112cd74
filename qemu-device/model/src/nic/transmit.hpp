// SPDX-License-Identifier: MIT
// Sending: which queue pair has its turn, its packets and answers as frames, time-outs, credit, and the end of a queue
// pair, which takes it out of all lists here.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>

#include "channel.hpp"
#include "ports.hpp"
#include "qp_table.hpp"
#include "timers.hpp"
#include "weft/model/nic.hpp"

namespace weft::model::nic {

class Transmitter {
 public:
  // What a packet without payload counts of a step's budget.
  static constexpr std::uint64_t kPacketCost = 64;

  Transmitter(NicHost& host, Ports& ports, QpTable& queue_pairs, Notices& notices)
      : host_(host), ports_(ports), queue_pairs_(queue_pairs), notices_(notices) {}

  Channel owner_of(QueuePair& qp) { return {qp.entry, host_.memory(), notices_}; }
  Port& port_of(const QueuePair& qp) { return ports_[qp.entry.av.port]; }

  // Something of the queue pair has changed: it may have something to send, and another deadline.
  void schedule(QueuePair& qp);
  // To the error state: the oldest request ends with `oldest`, the others are flushed.
  void fail(QueuePair& qp, Error error, Error oldest);
  // Out of all lists.
  void detach(QueuePair& qp);
  // There is credit of the class again.
  void unpark(Port& port, std::uint32_t cls);

  // Work of about `budget` bytes, at least one packet; each returns what it counts for.
  void run_timers();
  std::uint64_t send_answers(std::uint64_t budget);
  std::uint64_t send_data(std::uint64_t budget);
  bool busy() const { return !data_.empty() || !answers_.empty(); }
  std::uint64_t deadline();

  void reset();

 private:
  enum class Sent : std::uint8_t {
    kSent,
    kLost,     // the port is down: gone, as on a cable that is not there
    kStalled,  // nothing taken; the queue pair is parked
  };

  Sent transmit(QueuePair& qp, std::span<const std::span<const std::byte>> segments);
  void send_answer(QueuePair& qp);
  std::uint64_t send_packet(QueuePair& qp);
  Error gather(const QueuePair& qp, const Requester::Packet& packet, std::span<std::byte> payload);
  void park(QueuePair& qp);
  auto timed() {
    return [this](std::uint32_t qpn) -> std::pair<Timers::Hook*, std::uint64_t> {
      QueuePair* qp = queue_pairs_.find(qpn);
      if (qp == nullptr) return {nullptr, kNever};
      return {&qp->timer, qp->requester.deadline()};
    };
  }

  NicHost& host_;
  Ports& ports_;
  QpTable& queue_pairs_;
  Notices& notices_;
  std::deque<std::uint32_t> data_;     // queue pairs with data to send, a packet a turn
  std::deque<std::uint32_t> answers_;  // queue pairs with an answer to send
  Timers timers_;
  std::array<std::byte, kPathMtuMax> payload_;  // of the packet that is being sent
};

}  // namespace weft::model::nic
