// SPDX-License-Identifier: MIT
#include "control.hpp"

#include <memory>
#include <utility>

namespace weft::model::nic {

Error Control::create(weft_qp_entry& entry) {
  auto made = std::make_unique<QueuePair>();
  QueuePair& qp = *made;
  if (const Error error = make_queue_pair(entry, ports_.size(), qp); error != WEFT_ERR_OK) return error;
  if (!queue_pairs_.insert(std::move(made))) return WEFT_ERR_MBOX_NO_ROOM;
  entry = qp.entry;
  return WEFT_ERR_OK;
}

Error Control::modify(const weft_mbox_qp_modify& modify) {
  QueuePair* found = queue_pairs_.find(modify.qp.ctx, modify.qp.qpn);
  if (found == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  QueuePair& qp = *found;
  const std::uint8_t from = qp.entry.state;
  if (const Error error = apply_modify(qp, modify, ports_.all()); error != WEFT_ERR_OK) return error;
  qp.responder.set_access(qp.entry.access);
  if (qp.entry.state == from) return WEFT_ERR_OK;
  switch (qp.entry.state) {
    case WEFT_QPS_RTR:
      qp.responder.start({qp.entry.ctx, qp.mtu(), qp.entry.access, qp.entry.pd}, qp.entry.rq_psn);
      break;
    case WEFT_QPS_RTS:
      qp.requester.start({qp.mtu(), qp.entry.timeout, qp.entry.retry_cnt, qp.entry.rnr_retry}, qp.entry.sq_psn);
      break;
    case WEFT_QPS_RESET:
    case WEFT_QPS_ERR: {
      Channel owner = transmitter_.owner_of(qp);
      qp.requester.flush(WEFT_ERR_FLUSHED, owner);
      qp.responder.answered();
      transmitter_.detach(qp);
      qp.entry.error = qp.entry.state == WEFT_QPS_ERR ? WEFT_ERR_ABORTED : WEFT_ERR_OK;
      break;
    }
    default:
      break;
  }
  return WEFT_ERR_OK;
}

Error Control::query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out) {
  const QueuePair* qp = queue_pairs_.find(context, qpn);
  if (qp == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  out = qp->entry;
  if (qp->receives()) out.rq_psn = qp->responder.expected_psn();
  if (qp->sends()) out.sq_psn = qp->requester.next_psn();
  return WEFT_ERR_OK;
}

Error Control::destroy(std::uint32_t context, std::uint32_t qpn) {
  QueuePair* qp = queue_pairs_.find(context, qpn);
  if (qp == nullptr) return WEFT_ERR_MBOX_NOT_FOUND;
  Channel owner = transmitter_.owner_of(*qp);
  qp->requester.flush(WEFT_ERR_FLUSHED, owner);
  std::erase_if(notices_, [&](const Notice& notice) {
    return notice.kind == Notice::Kind::kQueuePairFailed && notice.number == qpn;
  });
  transmitter_.detach(*qp);
  queue_pairs_.erase(qpn);
  return WEFT_ERR_OK;
}

void Control::destroy_context(std::uint32_t context) {
  queue_pairs_.for_each([&](QueuePair& qp) {
    if (qp.entry.ctx != context) return;
    transmitter_.detach(qp);
    queue_pairs_.erase(qp.entry.qpn);
  });
  std::erase_if(notices_, [&](const Notice& notice) {
    return notice.kind != Notice::Kind::kPortChanged && notice.context == context;
  });
}

}  // namespace weft::model::nic
