// SPDX-License-Identifier: MIT
// The on-chip NIC: ports and queue pairs. The command processor posts to channels; the device hosts frames and time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "weft/hw/cmd.h"
#include "weft/hw/counters.h"
#include "weft/hw/mbox.h"
#include "weft/hw/qp.h"
#include "weft/model/memory.hpp"

namespace weft::model {

// One RDMA command on a channel (enum weft_rdma_op). `token` comes back in NicHost::completed.
struct WorkRequest {
  std::uint64_t token = 0;
  std::uint32_t context = 0;
  weft_rdma_op op = WEFT_RDMA_WRITE;
  Range local;
  std::uint32_t remote_key = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t immediate = 0;
};

// What the NIC needs of the device around it.
class NicHost {
 public:
  virtual ~NicHost() = default;
  virtual Memory& memory() = 0;
  virtual std::uint64_t now_ns() = 0;
  // As weft_abi_host.link_send: 0, -EAGAIN, -ENETDOWN.
  virtual int link_send(std::uint32_t port, std::uint32_t cls,
                        std::span<const std::span<const std::byte>> segments) = 0;
  virtual void link_credit(std::uint32_t port, std::uint32_t cls, std::uint32_t frames) = 0;
  // An RDMA command ended. Never called from inside Nic::post.
  virtual void completed(std::uint64_t token, Error error) = 0;
  // A queue pair went to the error state (after its requests were completed).
  virtual void qp_failed(std::uint32_t context, std::uint32_t qpn, Error error) = 0;
  virtual void port_changed(std::uint32_t port, weft_port_state state) = 0;
};

class Nic {
 public:
  virtual ~Nic() = default;

  // Ports. Addresses start as: MAC 02:57:xx:xx:xx:pp, IPv4 169.254.x.y, from a hash of the serial and the port number.
  virtual Error port_get(weft_mbox_port& port) = 0;
  virtual Error port_set(const weft_mbox_port_set& port) = 0;
  // Its GID table. WEFT_ERR_MBOX_NOT_FOUND: port or index; WEFT_ERR_BAD_GID: not an address of its type.
  virtual Error gid_get(weft_mbox_gid& gid) = 0;
  virtual Error gid_set(const weft_mbox_gid& gid) = 0;
  virtual std::span<const std::uint64_t> counters(std::uint32_t port) const = 0;  // order of weft/hw/counters.h

  // Queue pairs, as the mailbox has them.
  virtual Error qp_create(weft_qp_entry& qp) = 0;
  virtual Error qp_modify(const weft_mbox_qp_modify& modify) = 0;
  virtual Error qp_query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out) = 0;
  virtual Error qp_destroy(std::uint32_t context, std::uint32_t qpn) = 0;
  virtual void destroy_context(std::uint32_t context) = 0;

  // Post to a channel of the context that is in RTS. An error is returned at once and `completed` is not called for it.
  virtual Error post(std::uint32_t qpn, const WorkRequest& request) = 0;
  // Forget every request whose token satisfies the predicate: `completed` is not called for them any more. The channel
  // goes to the error state when one of them was under way.
  virtual void cancel(const std::function<bool(std::uint64_t token)>& which) = 0;

  // Links, as weft_abi_model has them.
  virtual int link_receive(std::uint32_t port, std::uint32_t cls, std::span<const std::byte> frame) = 0;
  virtual void link_ready(std::uint32_t port, std::uint32_t cls) = 0;
  virtual void link_state(std::uint32_t port, bool up) = 0;
  // The station `mac` was cut off the port's network, or is back. The connected queue pairs that talk to one that is
  // gone fail with WEFT_ERR_PEER_GONE.
  virtual void link_station(std::uint32_t port, std::span<const std::uint8_t, 6> mac, bool up) = 0;

  struct Progress {
    std::uint64_t spent = 0;        // bytes that the work counts for
    bool more = false;              // work is left that needs no event
    std::uint64_t deadline_ns = 0;  // next timer, UINT64_MAX: none
  };
  virtual Progress step(std::uint32_t budget) = 0;
  virtual void reset() = 0;
};

struct NicConfig {
  std::uint32_t ports = 1;
  std::uint32_t queue_pairs = 4096;
  std::uint32_t speed_mbps = 100000;
  std::string_view serial;
};

std::unique_ptr<Nic> make_nic(NicHost& host, const NicConfig& config);

}  // namespace weft::model
