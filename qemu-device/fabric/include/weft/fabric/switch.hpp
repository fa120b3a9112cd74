// SPDX-License-Identifier: MIT
// A learning Ethernet switch (IEEE 802.1Q clause 8.7 in the small) over Links. No threads, no sockets, no clock:
// whoever drives the links drives it, the switch program with sockets and the simulator in one process.
//
// A frame that finds no credit at its way out waits in that port's queue, and the credit of the frame is given back to
// its sender only when it has left: so ports with credits never lose a frame. A port without flow control (a netdev)
// loses what goes beyond `queue_frames`.
//
// Stations: an address belongs to the port where it was learned for as long as that port is up; frames of another port
// that claim it are dropped. When the port goes or its link goes down, every other port is told that the station is
// gone (Link::station), and told again when it is back. A netdev port, whose guest cannot be told so, gets an ICMP
// "host unreachable" for what it sends to such a station.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/fabric/capture.hpp"
#include "weft/fabric/impairment.hpp"
#include "weft/fabric/link.hpp"

namespace weft::fabric {

struct PortCounters {
  std::uint64_t rx_frames = 0, rx_bytes = 0;
  std::uint64_t tx_frames = 0, tx_bytes = 0;
  std::uint64_t flooded = 0;         // copies sent because the destination was not known, or broadcast
  std::uint64_t waited = 0;          // frames that found no credit at their way out
  std::uint64_t dropped_queue = 0;   // at the way out: queue full
  std::uint64_t dropped_down = 0;    // at the way out: link down
  std::uint64_t dropped_short = 0;   // shorter than an Ethernet header
  std::uint64_t dropped_source = 0;  // came in with the address of another port's station
  std::uint64_t unreachable = 0;     // came in for a station that is gone, answered or dropped
  std::uint64_t lost = 0, duplicated = 0, reordered = 0, corrupted = 0;  // by plan
};

struct PortOptions {
  std::string name;
  bool impaired = true;                 // the plan applies to frames that come in here
  std::size_t queue_frames = SIZE_MAX;  // frames that may wait to go out here
  bool answers_unreachable = false;     // ICMP for frames that come in here for a station that is gone
};

struct SwitchConfig {
  ImpairmentPlan plan;
  Capture* capture = nullptr;
  std::function<std::uint64_t()> now_ns;  // for the capture's time stamps
  std::size_t addresses = 8192;           // of the table; beyond that frames are flooded
  std::size_t port_addresses = 256;       // of one port, so that none fills the table
};

class Switch {
 public:
  class Port;

  explicit Switch(SwitchConfig config);
  ~Switch();
  Switch(const Switch&) = delete;
  Switch& operator=(const Switch&) = delete;

  // The port is the owner of the link that is attached to it next.
  Port& add_port(PortOptions options);
  void remove_port(Port& port);
  std::vector<const Port*> ports() const;

  // From the next frame on; each port's fates start anew.
  void set_plan(const ImpairmentPlan& plan);
  // Frames that wait for the next one of their port to pass them; whoever has a clock lets them go when none comes.
  bool holds_reordered() const;
  void release_reordered();
  // Capture into `capture` (nullptr: stop), with an interface for each port that is or will be there.
  void set_capture(Capture* capture);

 private:
  using Address = std::uint64_t;  // 48 bits
  // A frame and the credit that goes back when its last copy has left.
  struct Held;
  struct Station {
    Port* port;  // where it was learned; nullptr: that port is no more
    bool gone;   // its port is no more, or its link is down
  };

  void forward_reordered(Port& from);
  void receive(Port& from, unsigned cls, std::span<const std::byte> frame);
  void forward(Port& from, unsigned cls, std::span<const std::byte> frame, bool owes_credit);
  bool learn(Port& from, Address source);  // false: it is another port's
  bool room_for_station();
  void set_stations(Port& port, bool up);
  void tell(const Port& except, Address address, bool up);
  bool unreachable(Port& from, std::span<const std::byte> frame);        // true: not to be forwarded
  bool offer(Port& to, unsigned cls, std::span<const std::byte> frame);  // false: has to wait
  void drain(Port& to, unsigned cls);

  SwitchConfig config_;
  std::map<unsigned, std::unique_ptr<Port>> ports_;
  std::unordered_map<Address, Station> table_;
  unsigned next_number_ = 0;
};

class Switch::Port final : public LinkOwner {
 public:
  Port(Switch& owner, unsigned number, PortOptions options);

  // Frames go out through `link` until detach(); the link's events come to this object.
  void attach(Link& link);
  void detach();

  const std::string& name() const { return options_.name; }
  const PortCounters& counters() const { return counters_; }
  std::size_t waiting() const;

  void on_frame(unsigned cls, std::span<const std::byte> frame) override;
  void on_ready(unsigned cls) override;
  void on_pause(unsigned cls, bool stop) override;
  void on_state(bool up) override;

 private:
  friend class Switch;

  Switch& switch_;
  unsigned number_;
  PortOptions options_;
  Impairment impairment_;
  Link* link_ = nullptr;
  std::optional<unsigned> interface_;  // of the capture
  std::array<std::deque<std::shared_ptr<Held>>, kClasses> queue_;
  std::array<bool, kClasses> paused_{};
  std::shared_ptr<Held> reordered_;
  std::size_t stations_ = 0;       // in the table
  std::uint64_t answer_time_ = 0;  // of the last answers "unreachable", in tenths of a second
  unsigned answers_ = 0;           // in that time
  PortCounters counters_;
};

}  // namespace weft::fabric
