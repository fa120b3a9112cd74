// SPDX-License-Identifier: MIT
// Frames between this device and others: reliable, each carried out once, in no promised order (SRD), or just sent
// (UD). A peer that is this device itself is served without frames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "host.hpp"
#include "hw.hpp"
#include "options.hpp"
#include "transfer.hpp"
#include "wire.hpp"

namespace weft::efa {

struct Peer {
  Mac mac{};
  bool self = false;

  // Sending.
  struct Sent {
    std::uint32_t transfer;
    std::uint32_t segment;
    std::uint64_t first_ns, last_ns;
    std::uint64_t turn;  // order of transmissions: what was sent well before an acknowledged one is lost
    bool done, again;
  };
  std::uint64_t base = 0;  // number of the first in `sent`
  std::deque<Sent> sent;
  std::deque<std::uint64_t> again;  // numbers to send again
  std::deque<std::uint32_t> work;   // transfers with segments that may go out
  std::uint64_t round_trip_ns = 0;  // smoothed, 0: not measured yet
  unsigned backoff = 0;
  bool listed = false;  // in the transport's round

  // Receiving.
  std::uint32_t epoch = 0;  // of its life that we know, 0: none
  std::uint32_t former_epoch = 0;
  std::uint64_t window = 0;  // first number that we remember a status for
  std::uint64_t beyond = 0;  // last number that came, plus 1
  std::array<std::uint8_t, wire::kWindow> status{};
  bool ack_due = false;
  bool heard = false;
  std::uint32_t answers = 0;  // reads of it under way
};

class Transport {
 public:
  static constexpr std::uint64_t kTimeoutNs = 5'000'000'000;  // without an acknowledgement
  static constexpr std::uint64_t kResendMinNs = 10'000'000;
  static constexpr std::uint64_t kResendMaxNs = 500'000'000;
  static constexpr std::uint64_t kReorder = 24;  // transmissions that may overtake one
  static constexpr std::size_t kPeersMax = 4096;
  static constexpr std::uint32_t kLocalSegment = 64 * 1024;

  // What the transport asks of the device's data path.
  struct Client {
    virtual ~Client() = default;
    virtual Transfer* find(std::uint32_t id) = 0;
    // Head (without the flow's fields) and payload of a segment. False: the transfer has failed and is gone.
    virtual bool fill(Transfer& transfer, std::uint32_t segment, wire::Head& head, std::vector<std::byte>& payload) = 0;
    // A segment arrived, with this result (hw::Status or wire::kBusy); a datagram: it was sent.
    virtual void arrived(Transfer& transfer, std::uint32_t segment, std::uint8_t status) = 0;
    virtual void fail(Transfer& transfer, hw::Status status) = 0;
    // Fail all transfers with a peer.
    virtual void fail_all(Peer& peer, hw::Status status) = 0;
    // Carry out what a frame asks for; returns the result for its sender.
    virtual std::uint8_t receive(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) = 0;
    virtual void sent(std::size_t bytes) = 0;
    virtual void received(std::size_t bytes) = 0;
    virtual void dropped() = 0;
  };

  Transport(Host& host, Client& client, const Mac& mac, bool spray);

  // The peer with this address; null when there are too many.
  Peer* peer(const Mac& mac);
  // A transfer has segments that may go out. `first`: before what waits already.
  void submit(Transfer& transfer, bool first = false);
  // Largest piece of RDMA payload in a frame to this peer.
  std::uint32_t segment_bytes(const Peer& peer, std::uint32_t mtu) const;

  void receive(unsigned cls, std::span<const std::byte> frame);
  void link_ready(unsigned cls);
  void link_state(bool up);

  // Send about `budget` bytes. True: there is more that could go now.
  bool run(std::uint64_t budget, std::uint64_t now_ns);
  // Resend and give up; call before run().
  void tick(std::uint64_t now_ns);
  std::uint64_t deadline(std::uint64_t now_ns) const;

  // A new life: everything is forgotten.
  void reset();

  std::uint32_t epoch() const { return epoch_; }
  // Pretend that this many acknowledgements are lost (fault "lose_acks").
  void lose_acks(std::uint64_t count) { lose_acks_ = count; }

 private:
  enum class Outcome { kSent, kNothing, kBlocked };

  void list(Peer& peer);
  std::uint32_t choose(Peer& peer);
  Transfer* take(Peer& peer, std::uint32_t rotate, std::uint32_t& segment, wire::Head& head);
  Outcome send_next(Peer& peer, std::uint64_t now_ns, std::size_t& bytes);
  Outcome serve_self(Peer& peer, std::size_t& bytes);
  void prepare(const Peer& peer, wire::Head& head);
  bool push(const Peer& peer, const wire::Head& head, std::span<const std::byte> payload, unsigned cls);
  bool flush_pending();
  void send_acks();
  void handle_ack(Peer& peer, const wire::Head& head, std::span<const std::byte> payload);
  void handle_forgot(Peer& peer, const wire::Head& head);
  void handle_sequenced(Peer& peer, const wire::Head& head, std::span<const std::byte> payload);
  bool accept_epoch(Peer& peer, const wire::Head& head);
  void forget(Peer& peer, hw::Status status);
  void settle(Peer& peer);
  void resend(Peer& peer, std::uint64_t number);
  std::uint64_t resend_after(const Peer& peer) const;
  void stalled(std::uint64_t now_ns);

  Host& host_;
  Client& client_;
  const Mac mac_;
  const bool spray_;
  std::uint32_t epoch_ = 0;
  std::map<Mac, std::unique_ptr<Peer>> peers_;
  std::deque<Peer*> round_;  // peers with something to send
  std::vector<Peer*> ack_due_;
  std::uint64_t turns_ = 0;

  // One frame that had no credit.
  struct Pending {
    bool used = false;
    std::array<std::byte, wire::kHeadBytes> head{};
    std::vector<std::byte> payload;
  } pending_;
  std::array<bool, 2> blocked_{};
  bool down_ = false;
  std::uint64_t stalled_since_ns_ = UINT64_MAX;
  std::vector<std::byte> buffer_;
  std::uint64_t lose_acks_ = 0;
};

}  // namespace weft::efa
