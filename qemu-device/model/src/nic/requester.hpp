// SPDX-License-Identifier: MIT
// The requester of a reliable connection: requests become packets, acknowledgements become completions.
//
// It knows neither where requests come from (a channel's commands, a verbs send queue) nor how a packet looks, and it
// touches no memory: it says which packet is next and is told what happened. IBTA volume 1, section 9.7.5 to 9.7.7.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "packet.hpp"
#include "weft/hw/qp.h"
#include "weft/model/nic.hpp"

namespace weft::model::nic {

inline constexpr std::uint64_t kNever = UINT64_MAX;

// Largest message (IBTA volume 1, section 9.7.3.1: 2^31 bytes).
inline constexpr std::uint64_t kMessageMax = std::uint64_t{1} << 31;

// A request that was posted, and the message that it makes on the wire.
struct SendRequest : WorkRequest {
  std::uint64_t first = 0;    // sequence number of its first packet
  std::uint32_t packets = 0;  // at least 1
  Error error = WEFT_ERR_OK;  // found here before or while sending
  bool forgotten = false;     // nobody waits for it any more
};

// Told of the requests that ended, in order.
class Completions {
 public:
  virtual ~Completions() = default;
  virtual void complete(const WorkRequest& request, Error error) = 0;
};

class Requester {
 public:
  struct Settings {
    std::uint32_t mtu = 1024;    // bytes
    std::uint8_t timeout = 0;    // 4.096 us << timeout, 0: none
    std::uint8_t retry_cnt = 7;  // WEFT_RETRY_UNLIMITED: silence alone is no error
    std::uint8_t rnr_retry = 7;  // 7: without limit
  };

  // The next packet. `request` stays valid until the requester is changed.
  struct Packet {
    SendRequest* request = nullptr;
    std::uint32_t psn = 0;
    Part part = Part::kOnly;
    std::uint64_t offset = 0;  // in the message
    std::uint32_t length = 0;
    bool ack_request = false;
    bool again = false;  // was sent before
  };

  void start(const Settings& settings, std::uint32_t psn);
  void set_retry(const Settings& settings);

  // False: the queue is full.
  bool post(const WorkRequest& request);

  // The packet to send now, if window, waits and errors allow one.
  std::optional<Packet> next();
  bool can_send() const;
  // The packet that next() gave left (or was lost at once).
  void sent(const Packet& packet, std::uint64_t now);
  // The request that next() gave cannot be sent. The error comes out when all before it are acknowledged.
  void local_error(const Packet& packet, Error error);

  // Events. An error other than OK ends the queue pair: the caller fails it with flush(). Anything that does not fit
  // what is outstanding is ignored.
  Error acknowledged(std::uint32_t psn, std::uint64_t now, Completions& done);
  Error refused(std::uint32_t psn, std::uint8_t syndrome, std::uint64_t now, Completions& done);
  Error not_ready(std::uint32_t psn, std::uint8_t timer, std::uint64_t now, Completions& done);
  Error sequence_error(std::uint32_t psn, std::uint64_t now, Completions& done);
  // `port_up`: without limit is meant for a peer that is silent, not for a port that is down.
  Error timer(std::uint64_t now, bool port_up);
  // A local error that is due now: all before it are acknowledged.
  Error due_error() const;

  // Ends all requests: the first with `first`, the others with FLUSHED.
  void flush(Error first, Completions& done);
  // Forget requests by token. True when one of them was under way (then the queue pair cannot go on).
  bool forget(const std::function<bool(std::uint64_t)>& which);

  std::uint64_t deadline() const { return deadline_; }
  std::uint32_t next_psn() const { return static_cast<std::uint32_t>(high_) & 0xffffff; }
  bool idle() const { return queue_.empty(); }
  std::uint64_t timeouts() const { return timeouts_; }

 private:
  bool unlimited() const { return settings_.retry_cnt == WEFT_RETRY_UNLIMITED; }
  std::uint8_t retries() const;
  std::uint64_t timeout_ns() const;
  // The sequence number that an acknowledgement's PSN means, if that packet is outstanding.
  std::optional<std::uint64_t> outstanding(std::uint32_t psn) const;
  void progress(std::uint64_t una, std::uint64_t now, Completions& done);
  void go_back();
  void arm(std::uint64_t now);

  Settings settings_;
  std::deque<SendRequest> queue_;
  std::size_t cursor_ = 0;  // index in queue_ of the request that next_ belongs to
  // Sequence numbers are PSNs without the wrap. una_ <= next_ <= high_ <= tail_.
  std::uint64_t una_ = 0;      // oldest packet not acknowledged
  std::uint64_t next_ = 0;     // to send next; behind high_ after going back
  std::uint64_t high_ = 0;     // never sent so far
  std::uint64_t tail_ = 0;     // first of the next request to be posted
  std::uint32_t window_ = 0;   // packets that may be outstanding
  std::uint32_t unasked_ = 0;  // packets sent since the last AckReq
  std::uint8_t retries_ = 0;   // left
  std::uint8_t backoff_ = 0;   // the time-out is doubled so often
  std::uint8_t rnr_retries_ = 0;
  bool waiting_ = false;  // for the time that a receiver-not-ready NAK named
  std::uint64_t deadline_ = kNever;
  std::uint64_t timeouts_ = 0;
};

// Delay of a receiver-not-ready NAK's timer code (IBTA volume 1, table 46).
std::uint64_t rnr_delay_ns(std::uint8_t timer);

}  // namespace weft::model::nic
