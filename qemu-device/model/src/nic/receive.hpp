// SPDX-License-Identifier: MIT
// Receiving: a frame is checked, its queue pair found, its payload placed and its acknowledgement used.
#pragma once

#include <cstdint>
#include <span>

#include "transmit.hpp"

namespace weft::model::nic {

class Receiver {
 public:
  Receiver(NicHost& host, Ports& ports, QpTable& queue_pairs, Transmitter& transmitter)
      : host_(host), ports_(ports), queue_pairs_(queue_pairs), transmitter_(transmitter) {}

  // A frame for the port, which is active. Returns the payload bytes that it placed.
  std::uint64_t receive(std::uint32_t port, std::span<const std::byte> frame);
  // Frames that the port sent to itself, about `budget` bytes; returns what they count for.
  std::uint64_t receive_loopback(std::uint64_t budget);
  bool loopback_waits() const;

 private:
  std::uint64_t receive_request(QueuePair& qp, const Packet& packet);
  void receive_response(QueuePair& qp, const Packet& packet);

  NicHost& host_;
  Ports& ports_;
  QpTable& queue_pairs_;
  Transmitter& transmitter_;
};

}  // namespace weft::model::nic
