// SPDX-License-Identifier: MIT
#include "ports.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "weft/hw/regs.h"

namespace weft::model::nic {
namespace {

bool unicast(const std::uint8_t (&mac)[6]) {
  return (mac[0] & 1) == 0 && std::any_of(std::begin(mac), std::end(mac), [](std::uint8_t b) { return b != 0; });
}

}  // namespace

Ports::Ports(const NicConfig& config)
    : serial_(config.serial),
      speed_mbps_(config.speed_mbps),
      ports_(std::clamp<std::uint32_t>(config.ports, 1, WEFT_PORTS_MAX)) {
  for (std::uint32_t number = 0; number < size(); ++number) ports_[number].set_defaults(serial_, number);
}

Error Ports::get(weft_mbox_port& out) const {
  const std::uint32_t number = out.port;
  if (!exists(number)) return WEFT_ERR_MBOX_NOT_FOUND;
  const Port& port = ports_[number];
  out = {};
  out.port = number;
  out.state = port.active() ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN;
  out.admin_up = port.admin_up ? 1 : 0;
  std::copy(port.mac.begin(), port.mac.end(), out.mac);
  for (std::size_t i = port.addresses.size(); i-- > 0;) {  // the first of each kind is written last
    const Gid& gid = port.addresses[i].gid;
    if (port.addresses[i].type == WEFT_GID_NONE) continue;
    ++out.gids;
    if (is_ipv4(gid)) {
      std::copy(gid.begin() + 12, gid.end(), out.ipv4);
    } else {
      std::copy(gid.begin(), gid.end(), out.ipv6);
    }
  }
  out.mtu = kPathMtuMax;
  out.speed_mbps = speed_mbps_;
  out.flaps = port.flaps;
  return WEFT_ERR_OK;
}

Error Ports::set(const weft_mbox_port_set& wanted) {
  if (!exists(wanted.port)) return WEFT_ERR_MBOX_NOT_FOUND;
  const bool admin = (wanted.set & WEFT_PORT_SET_ADMIN) != 0;
  const bool mac = (wanted.set & WEFT_PORT_SET_MAC) != 0;
  const bool no_mac = std::all_of(std::begin(wanted.mac), std::end(wanted.mac), [](std::uint8_t b) { return b == 0; });
  if ((wanted.set & ~(WEFT_PORT_SET_ADMIN | WEFT_PORT_SET_MAC)) != 0 || wanted.admin_up > (admin ? 1 : 0) ||
      (mac ? !unicast(wanted.mac) : !no_mac)) {
    return WEFT_ERR_BAD_FIELD;
  }
  Port& port = ports_[wanted.port];
  if (mac) std::copy(std::begin(wanted.mac), std::end(wanted.mac), port.mac.begin());
  if (admin) port.admin_up = wanted.admin_up == 1;
  return WEFT_ERR_OK;
}

Error Ports::get_gid(weft_mbox_gid& out) const {
  if (!exists(out.port) || out.index >= WEFT_GIDS_PER_PORT) return WEFT_ERR_MBOX_NOT_FOUND;
  const Port& port = ports_[out.port];
  const weft_mbox_gid asked = out;
  out = {};
  out.port = asked.port;
  out.index = asked.index;
  if (out.index >= port.addresses.size() || port.addresses[out.index].type == WEFT_GID_NONE) return WEFT_ERR_OK;
  const Port::Address& address = port.addresses[out.index];
  out.type = static_cast<std::uint8_t>(address.type);
  out.vlan = address.vlan;
  std::copy(address.mac.begin(), address.mac.end(), out.mac);
  std::copy(address.gid.begin(), address.gid.end(), out.gid);
  return WEFT_ERR_OK;
}

Error Ports::set_gid(const weft_mbox_gid& wanted) {
  if (!exists(wanted.port) || wanted.index >= WEFT_GIDS_PER_PORT) return WEFT_ERR_MBOX_NOT_FOUND;
  Port::Address address;
  if (const Error error = Port::make_address(wanted, address); error != WEFT_ERR_OK) return error;
  std::vector<Port::Address>& addresses = ports_[wanted.port].addresses;
  if (wanted.index >= addresses.size()) addresses.resize(wanted.index + 1);
  addresses[wanted.index] = address;
  while (!addresses.empty() && addresses.back().type == WEFT_GID_NONE) addresses.pop_back();
  return WEFT_ERR_OK;
}

void Ports::return_credit(NicHost& host) {
  for (std::uint32_t number = 0; number < size(); ++number) {
    for (std::uint32_t cls = 0; cls < kClasses; ++cls) {
      if (const std::uint32_t frames = std::exchange(ports_[number].owed[cls], 0))
        host.link_credit(number, cls, frames);
    }
  }
}

void Ports::reset() {
  for (std::uint32_t number = 0; number < size(); ++number) {
    Port fresh;
    fresh.set_defaults(serial_, number);
    fresh.link_up = ports_[number].link_up;
    fresh.owed = ports_[number].owed;  // the sender's, whatever happens here
    ports_[number] = std::move(fresh);
  }
}

}  // namespace weft::model::nic
