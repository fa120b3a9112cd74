// SPDX-License-Identifier: MIT
// Frames between this device and others: reliable, each carried out once, in no promised order (SRD), or just sent
// (UD). A peer that is this device itself is served without frames.
//
// Silence is no failure: what is not acknowledged is sent again, ever more slowly, until the link or the switch says
// that the peer is gone. Only a peer that was never heard is given up after a while.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
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
  bool heard = false;                  // it has shown our epoch
  bool gone = false;                   // the switch says so
  std::uint32_t epoch = 0;             // ours, for this peer
  std::uint32_t peer_epoch = 0;        // its, 0: not known yet
  std::uint32_t former_epoch = 0;      // of its former life
  std::set<std::uint32_t> transfers;   // with it
  unsigned order = 0;                  // which of the transport's orders of use,
  std::list<Peer*>::iterator place{};  // and where in it

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
  std::uint64_t progress_ns = 0;    // last acknowledgement, first transmission, or resending
  unsigned resends = 0;             // rounds of it since the last acknowledgement
  bool listed = false;              // in the transport's round
  bool timed = false;               // `timer` is set
  std::multimap<std::uint64_t, Peer*>::iterator timer{};

  // Receiving.
  std::uint64_t window = 0;  // first number that we remember a status for
  std::uint64_t beyond = 0;  // last number that came, plus 1
  std::array<std::uint8_t, wire::kWindow> status{};
  bool ack_due = false;
  std::uint32_t answers = 0;  // reads of it under way
};

class Transport {
 public:
  static constexpr std::uint64_t kResendMinNs = 10'000'000;
  static constexpr std::uint64_t kResendMaxNs = 1'000'000'000;
  static constexpr unsigned kResendsUnheard = 60;  // rounds; a minute or so
  static constexpr unsigned kResendsGone = 5;      // it may be back and silent; some seconds
  static constexpr std::uint64_t kReorder = 24;    // transmissions that may overtake one
  static constexpr std::size_t kPeersMax = 4096;
  static constexpr std::uint32_t kLocalSegment = 64 * 1024;

  // What the transport asks of the device's data path.
  struct Client {
    virtual ~Client() = default;
    virtual Transfer* find(std::uint32_t id) = 0;
    // Head (without the flow's fields) and payload of a segment; head.length says how much of `payload` was filled.
    // False: the transfer has failed and is gone.
    virtual bool fill(Transfer& transfer, std::uint32_t segment, wire::Head& head, std::span<std::byte> payload) = 0;
    // A segment arrived, with this result (hw::Status or wire::kBusy); a datagram: it was sent.
    virtual void arrived(Transfer& transfer, std::uint32_t segment, std::uint8_t status) = 0;
    // Fail all transfers with a peer.
    virtual void fail_all(Peer& peer, hw::Status status) = 0;
    // Carry out what a frame asks for; returns the result for its sender.
    virtual std::uint8_t receive(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) = 0;
    virtual void receive_datagram(const Mac& from, const wire::Head& head, std::span<const std::byte> payload) = 0;
    // Is the peer's read `op` being answered?
    virtual bool answering(const Peer& peer, std::uint32_t op) = 0;
    // The peer does not answer our read `op` any more.
    virtual void no_answer(Peer& peer, std::uint32_t op) = 0;
    virtual void sent(std::size_t bytes) = 0;
    virtual void received(std::size_t bytes) = 0;
    virtual void dropped() = 0;
  };

  Transport(Host& host, Client& client, const Mac& mac, bool spray);

  // The peer with this address, made if need be; null when there are too many. `traffic`: for a request of ours, which
  // is worth more than one to a peer that was never heard.
  Peer* peer(const Mac& mac, bool traffic);
  // A transfer with its peer begins, ends.
  void attach(const Transfer& transfer);
  void detach(const Transfer& transfer);
  // A transfer has segments that may go out. `first`: before what waits already.
  void submit(Transfer& transfer, bool first = false);
  // Largest piece of RDMA payload in a frame to this peer.
  std::uint32_t segment_bytes(const Peer& peer, std::uint32_t mtu) const;
  // Ask whether our read is still being answered; Client::no_answer when it is not.
  void ask(const Peer& peer, std::uint32_t op);

  void receive(std::span<const std::byte> frame);
  void link_ready(unsigned cls);
  void link_state(bool up);
  // The switch says that the station is gone, or back.
  void link_station(const Mac& mac, bool up);

  // Send about `budget` bytes, and again what is due. True: there is more that could go now.
  bool run(std::uint64_t budget, std::uint64_t now_ns);
  std::uint64_t deadline() const { return timers_.empty() ? UINT64_MAX : timers_.begin()->first; }

  // A new life: everything is forgotten.
  void reset();

  // Pretend that this many acknowledgements are lost (fault "lose_acks").
  void lose_acks(std::uint64_t count) { lose_acks_ = count; }
  std::size_t peers() const { return peers_.size(); }

 private:
  std::uint32_t draw_epoch();
  Peer* find(const Mac& mac);
  bool evict(bool traffic);
  void touch(Peer& peer);
  void list(Peer& peer);
  std::deque<std::uint32_t>::iterator choose(Peer& peer);
  Transfer* take(Peer& peer, std::uint32_t rotate, std::uint32_t& segment, wire::Head& head);
  bool send_again(Peer& peer, std::uint64_t now_ns, std::size_t& bytes);
  bool send_next(Peer& peer, std::uint64_t now_ns, std::size_t& bytes);
  bool serve_self(std::size_t& bytes);
  std::span<const std::byte> payload(const wire::Head& head) const { return {buffer_.get(), head.length}; }
  bool push(const Peer& peer, wire::Head& head, std::span<const std::byte> payload, unsigned cls);
  bool push_control(const Peer& peer, wire::Type type, std::uint32_t op, std::uint32_t destination_epoch = 0);
  bool transmit(unsigned cls, std::span<const std::span<const std::byte>> segments);
  void flush_pending();
  void send_acks();
  Peer* accept(const Mac& mac, const wire::Head& head);
  void handle_hello(const Mac& mac, const wire::Head& head);
  void handle_ack(Peer& peer, const wire::Head& head, std::span<const std::byte> payload);
  void handle_sequenced(Peer& peer, const wire::Head& head, std::span<const std::byte> payload);
  void learn(Peer& peer, std::uint32_t epoch, hw::Status status);
  void hear(Peer& peer);
  void give_up(Peer& peer, hw::Status status);
  void go_down();
  void advance(Peer& peer);
  bool resend(Peer& peer, std::size_t index);
  std::uint64_t resend_after(const Peer& peer) const;
  void set_timer(Peer& peer, std::uint64_t due_ns);
  void stop_timer(Peer& peer);
  void expire(Peer& peer, std::uint64_t now_ns);

  Host& host_;
  Client& client_;
  const Mac mac_;
  const bool spray_;
  std::map<Mac, std::unique_ptr<Peer>> peers_;  // others
  Peer self_;
  // The others by their last use: never heard and idle, never heard and with transfers, heard and idle, the rest.
  std::array<std::list<Peer*>, 4> order_;
  std::multimap<std::uint64_t, Peer*> timers_;  // when to look for what is to be sent again
  std::deque<Peer*> round_;                     // peers with something to send
  std::vector<Peer*> ack_due_;
  std::uint64_t turns_ = 0;
  std::array<bool, 2> blocked_{};
  bool down_ = false;
  std::vector<std::byte> pending_;  // one frame that had no credit
  std::unique_ptr<std::byte[]> buffer_;
  std::uint64_t lose_acks_ = 0;
};

}  // namespace weft::efa
