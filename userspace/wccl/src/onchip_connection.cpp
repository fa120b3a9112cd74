// SPDX-License-Identifier: MIT
#include "onchip_connection.hpp"

#include "error.hpp"
#include "weft/hw/qp.h"

namespace weft::ccl {

Connection::Connection(weft_device* device, std::uint32_t port, std::uint32_t peer, std::uint32_t lane,
                       std::uint32_t slots, std::uint32_t slot_bytes)
    : peer_(peer), lane_(lane), slots_(slots), slot_bytes_(slot_bytes), syncs_(device, 4 * slots) {
  const std::string whom = "connection to rank " + std::to_string(peer);
  for (std::uint32_t i = 0; i < syncs_.count(); ++i) base_.push_back(syncs_.value(i));
  staging_ = allocate(device, std::uint64_t{slots} * slot_bytes, WEFT_MEM_REMOTE_WRITE,
                      (whom + ": staging (a smaller WCCL_BUFFSIZE needs less)").c_str());
  records_ = allocate(device, CallBook::ring_bytes(slots), WEFT_MEM_REMOTE_WRITE, (whom + ": records").c_str());
  records_base_ = map(records_.get());
  weft_channel* channel = nullptr;
  if (weft_channel_create(device, port, syncs_.first(), 2 * slots, &channel, &local_) != 0) throw device_failure(whom);
  channel_.reset(channel);
}

Offer Connection::offer() const {
  Offer offer;
  offer.size = sizeof offer;
  offer.slots = slots_;
  offer.slot_bytes = slot_bytes_;
  offer.staging_key = staging_key();
  offer.staging_va = weft_mem_va(staging_.get());
  offer.records_va = weft_mem_va(records_.get());
  offer.records_key = weft_mem_key(records_.get());
  offer.endpoint = local_;
  return offer;
}

void Connection::connect(const Offer& remote, std::uint8_t rc_timeout, std::uint8_t rc_retries) {
  const std::string whom = "connection to rank " + std::to_string(peer_);
  if (remote.size != sizeof remote || remote.slots != slots_ || remote.slot_bytes != slot_bytes_) {
    throw Failure(wcclInternalError, whom + ": its end is of another shape", static_cast<int>(peer_));
  }
  remote_ = remote;
  if (weft_channel_connect(channel_.get(), &remote.endpoint, rc_timeout, rc_retries) != 0) throw device_failure(whom);
  connected_ = true;
}

bool Connection::failed(std::uint32_t& error) const {
  std::uint32_t state = 0;
  return connected_ && weft_channel_state(channel_.get(), &state, &error) == 0 && state == WEFT_QPS_ERR;
}

std::uint64_t Connection::progress() const {
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < 2 * slots_; ++i) sum += syncs_.value(i);
  return sum;
}

}  // namespace weft::ccl
