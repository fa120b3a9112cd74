// SPDX-License-Identifier: MIT
// A port: addresses, state, counters, and frames in transit inside the device.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "packet.hpp"
#include "weft/hw/counters.h"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"
#include "weft/model/memory.hpp"

namespace weft::model::nic {

inline constexpr std::uint32_t kPathMtuMax = 8192;

inline constexpr std::uint32_t kClasses = 8;
// Frames to the port's own address never reach the link; they take this way, which has credit like a link.
inline constexpr std::uint32_t kLoopback = kClasses;
inline constexpr std::size_t kLoopbackFrames = 256;

struct Port {
  // Addresses that every device has before anybody sets any: from a hash of its serial and the port's number.
  void set_defaults(std::string_view serial, std::uint32_t number);

  bool active() const { return admin_up && link_up; }
  void count(weft_port_counter counter, std::uint64_t n = 1) { counters[counter] += n; }

  // A source address, with what goes with it (struct weft_mbox_gid).
  struct Address {
    weft_gid_type type = WEFT_GID_NONE;
    Gid gid{};
    std::uint16_t vlan = kNoVlan;
    Mac mac{};  // all 0: the port's
  };
  // Its own addresses, by index. Frames to others are not the port's.
  const Mac& mac_of(const Address& address) const { return address.mac == Mac{} ? mac : address.mac; }
  bool owns(const Gid& gid) const {
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const Address& address) { return address.type != WEFT_GID_NONE && address.gid == gid; });
  }
  bool owns(const Mac& wanted) const {
    return wanted == mac || std::any_of(addresses.begin(), addresses.end(), [&](const Address& address) {
             return address.type != WEFT_GID_NONE && address.mac == wanted;
           });
  }
  // The entry that `entry` describes, or why it cannot be. WEFT_ERR_BAD_GID, WEFT_ERR_BAD_FIELD.
  static Error make_address(const weft_mbox_gid& entry, Address& out);

  Mac mac{};
  std::vector<Address> addresses;  // up to the last one in use
  bool admin_up = true;
  bool link_up = false;
  std::uint32_t flaps = 0;
  std::uint16_t ip_id = 0;
  std::array<std::uint64_t, WEFT_PCTR_COUNT> counters{};

  // Sending. A class is stalled from -EAGAIN until there is credit again; `parked` are the queue pairs that wait for
  // it.
  std::uint32_t stalled = 0;  // bit a class
  std::array<std::vector<std::uint32_t>, kClasses + 1> parked;
  // Receiving: credit to give back.
  std::array<std::uint32_t, kClasses> owed{};

  std::deque<std::vector<std::byte>> loopback;
  std::vector<std::vector<std::byte>> spare;  // buffers to use again
};

}  // namespace weft::model::nic
