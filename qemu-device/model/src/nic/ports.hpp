// SPDX-License-Identifier: MIT
// All ports of the device: what the mailbox sets and reads of them, their link state, the credit that they owe.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "port.hpp"
#include "weft/model/nic.hpp"

namespace weft::model::nic {

class Ports {
 public:
  explicit Ports(const NicConfig& config);

  std::uint32_t size() const { return static_cast<std::uint32_t>(ports_.size()); }
  bool exists(std::uint32_t number) const { return number < ports_.size(); }
  Port& operator[](std::uint32_t number) { return ports_[number]; }
  const Port& operator[](std::uint32_t number) const { return ports_[number]; }
  std::span<const Port> all() const { return ports_; }

  Error get(weft_mbox_port& out) const;
  Error set(const weft_mbox_port_set& wanted);
  Error get_gid(weft_mbox_gid& out) const;
  Error set_gid(const weft_mbox_gid& wanted);
  // Gives back the credit for what was received since the last time.
  void return_credit(NicHost& host);
  // Everything but the link's state and what is owed to it.
  void reset();

 private:
  std::string serial_;
  std::uint32_t speed_mbps_;
  std::vector<Port> ports_;
};

}  // namespace weft::model::nic
