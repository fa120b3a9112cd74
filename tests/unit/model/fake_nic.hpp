// SPDX-License-Identifier: MIT
// A NIC that only notes what the device asks of it; the test decides how requests end.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "weft/model/nic.hpp"

namespace weft::test {

class FakeNic final : public model::Nic {
 public:
  explicit FakeNic(model::NicHost& host) : host(host) {}

  model::Error port_get(weft_mbox_port& port) override {
    if (port.port != 0) return WEFT_ERR_MBOX_NOT_FOUND;
    port.state = WEFT_PORT_ACTIVE;
    port.speed_mbps = 100000;
    return WEFT_ERR_OK;
  }
  model::Error port_set(const weft_mbox_port_set& port) override {
    return port.port == 0 ? WEFT_ERR_OK : WEFT_ERR_MBOX_NOT_FOUND;
  }
  model::Error gid_get(weft_mbox_gid&) override { return WEFT_ERR_OK; }
  model::Error gid_set(const weft_mbox_gid&) override { return WEFT_ERR_OK; }
  std::span<const std::uint64_t> counters(std::uint32_t) const override { return port_counters; }

  model::Error qp_create(weft_qp_entry& qp) override {
    qp.qpn = 0x40;
    return WEFT_ERR_OK;
  }
  model::Error qp_modify(const weft_mbox_qp_modify&) override { return WEFT_ERR_OK; }
  model::Error qp_query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out) override {
    out.ctx = context;
    out.qpn = qpn;
    return WEFT_ERR_OK;
  }
  model::Error qp_destroy(std::uint32_t, std::uint32_t) override { return WEFT_ERR_OK; }
  void destroy_context(std::uint32_t context) override { destroyed.push_back(context); }

  model::Error post(std::uint32_t qpn, const model::WorkRequest& request) override {
    if (qpn != 0x40) return WEFT_ERR_BAD_CHANNEL;
    posted.push_back(request);
    return WEFT_ERR_OK;
  }
  void cancel(const std::function<bool(std::uint64_t)>& which) override {
    std::erase_if(posted, [&](const model::WorkRequest& request) { return which(request.token); });
    ++cancels;
  }

  int link_receive(std::uint32_t, std::uint32_t, std::span<const std::byte>) override { return 0; }
  void link_ready(std::uint32_t, std::uint32_t) override {}
  void link_state(std::uint32_t port, bool up) override {
    states.emplace_back(port, up ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN);
  }

  void link_station(std::uint32_t port, std::span<const std::uint8_t, 6> mac, bool up) override {
    std::array<std::uint8_t, 6> copy;
    std::copy(mac.begin(), mac.end(), copy.begin());
    stations.push_back({port, copy, up});
  }

  Progress step(std::uint32_t) override {
    Progress progress{.deadline_ns = UINT64_MAX};
    for (const auto& [port, state] : std::exchange(states, {})) host.port_changed(port, state);
    for (const auto& [token, error] : std::exchange(ends, {})) host.completed(token, error);
    return progress;
  }
  void reset() override {
    posted.clear();
    ends.clear();
  }

  // The oldest posted request ends so, in the next step.
  void end(model::Error error) {
    ends.emplace_back(posted.front().token, error);
    posted.erase(posted.begin());
  }

  model::NicHost& host;
  std::vector<model::WorkRequest> posted;
  std::vector<std::pair<std::uint64_t, model::Error>> ends;
  std::vector<std::pair<std::uint32_t, weft_port_state>> states;
  struct Station {
    std::uint32_t port;
    std::array<std::uint8_t, 6> mac;
    bool up;
  };
  std::vector<Station> stations;
  std::vector<std::uint32_t> destroyed;
  unsigned cancels = 0;
  std::array<std::uint64_t, WEFT_PCTR_COUNT> port_counters{7, 8, 9};
};

}  // namespace weft::test
