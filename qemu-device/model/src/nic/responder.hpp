// SPDX-License-Identifier: MIT
// The responder of a reliable connection: checks requests in order, places their payload, keeps the answer that is due.
// IBTA volume 1, section 9.7.4 and 9.7.5.
#pragma once

#include <cstdint>

#include "packet.hpp"
#include "weft/model/memory.hpp"

namespace weft::model::nic {

// What the owner of a queue pair does with arrivals.
class Arrivals {
 public:
  virtual ~Arrivals() = default;
  // May a message with this immediate be taken? Asked before the packet that carries it is placed.
  virtual Error immediate_check(std::uint32_t immediate) = 0;
  // All data of the message was written.
  virtual Error immediate_arrived(std::uint32_t immediate) = 0;
};

class Responder {
 public:
  struct Settings {
    std::uint32_t context = 0;
    std::uint32_t mtu = 1024;  // bytes
    std::uint32_t access = 0;  // WEFT_RIGHT_REMOTE_* granted to the peer
    std::uint32_t pd = 0;
  };

  struct Answer {
    std::uint8_t syndrome = 0;
    std::uint32_t psn = 0;
    std::uint32_t msn = 0;
  };

  enum class Event : std::uint8_t { kAccepted, kDuplicate, kOutOfOrder, kRefused };
  struct Outcome {
    Event event = Event::kAccepted;
    Error error = WEFT_ERR_OK;  // kRefused: moves the queue pair to the error state, after the NAK was sent
  };

  void start(const Settings& settings, std::uint32_t psn);
  void set_access(std::uint32_t access) { settings_.access = access; }

  Outcome request(const Packet& packet, Memory& memory, Arrivals& arrivals);

  bool answer_due() const { return due_ != Due::kNothing; }
  // The answer as it would be sent now; answered() once it was.
  Answer answer() const;
  void answered() { due_ = Due::kNothing; }

  std::uint32_t expected_psn() const { return expected_; }

 private:
  enum class Due : std::uint8_t { kNothing, kAck, kNak };

  Outcome refuse(std::uint8_t syndrome, Error error);
  Outcome write(const Packet& packet, Memory& memory, Arrivals& arrivals);

  Settings settings_;
  std::uint32_t expected_ = 0;  // ePSN
  std::uint32_t msn_ = 0;
  bool gap_ = false;  // a sequence NAK was made for the present gap
  // The WRITE that is being received.
  bool in_message_ = false;
  std::uint32_t key_ = 0;
  std::uint64_t address_ = 0;
  std::uint64_t length_ = 0;
  std::uint64_t received_ = 0;

  Due due_ = Due::kNothing;
  std::uint8_t syndrome_ = 0;  // of the NAK that is due
};

}  // namespace weft::model::nic
