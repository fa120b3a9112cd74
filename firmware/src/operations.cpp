// SPDX-License-Identifier: MIT
#include "operations.hpp"

#include <stddef.h>

#include "weft/hw/regs.h"

namespace weft::fw {
namespace {

#define ZERO(type, field) {offsetof(type, field), sizeof(type::field)}
// All fields from `first` to the one before `last`.
#define ZERO_UNTIL(type, first, last) {offsetof(type, first), offsetof(type, last) - offsetof(type, first)}

using Index = weft_mbox_index;
using Port = weft_mbox_port_set;
using Gid = weft_mbox_gid;
using Context = weft_mbox_ctx;
using Region = weft_region_entry;
using Queue = weft_queue_entry;
using Qp = weft_qp_entry;
using Modify = weft_mbox_qp_modify;
using Cq = weft_cq_entry;
using Srq = weft_srq_entry;
using Fifo = weft_fifo_entry;

constexpr Operation kOperations[] = {
    {WEFT_MBOX_IDENTIFY, 0, sizeof(weft_mbox_identity), false, {}},
    {WEFT_MBOX_ECHO, kAnyLength, 0, false, {}},
    {WEFT_MBOX_PORT_GET, sizeof(Index), sizeof(weft_mbox_port), true, {ZERO(Index, reserved)}},
    {WEFT_MBOX_PORT_SET, sizeof(Port), 0, true, {ZERO(Port, reserved)}},
    {WEFT_MBOX_SENSORS, 0, sizeof(weft_mbox_sensors), false, {}},
    {WEFT_MBOX_LOG_READ, sizeof(Index), sizeof(weft_mbox_log), false, {ZERO(Index, reserved)}},
    {WEFT_MBOX_EVENT_QUEUE, sizeof(weft_mbox_event_queue), 0, true, {}},
    {WEFT_MBOX_HBM_ZERO, sizeof(weft_mbox_range), 0, true, {}},
    {WEFT_MBOX_CTX_CREATE, sizeof(Context), 0, true, {ZERO(Context, flags), ZERO(Context, reserved)}},
    {WEFT_MBOX_CTX_DESTROY, sizeof(Index), 0, true, {ZERO(Index, reserved)}},
    {WEFT_MBOX_REGION_CREATE, sizeof(Region), 0, true, {ZERO(Region, reserved)}},
    {WEFT_MBOX_REGION_DESTROY, sizeof(Index), 0, true, {ZERO(Index, reserved)}},
    {WEFT_MBOX_QUEUE_CREATE,
     sizeof(Queue),
     0,
     true,
     {ZERO(Queue, priority), ZERO(Queue, flags), ZERO(Queue, reserved)}},
    {WEFT_MBOX_QUEUE_DESTROY, sizeof(weft_mbox_pair), 0, true, {}},
    {WEFT_MBOX_QUEUE_ABORT, sizeof(weft_mbox_pair), 0, true, {}},
    {WEFT_MBOX_SYNC_CONFIG, sizeof(weft_mbox_sync), 0, true, {}},
    {WEFT_MBOX_QP_CREATE,
     sizeof(Qp),
     sizeof(Qp),
     true,
     {ZERO(Qp, qpn), ZERO(Qp, state), ZERO(Qp, reserved0), ZERO(Qp, av.reserved), ZERO(Qp, error),
      ZERO_UNTIL(Qp, sgid, reserved1), ZERO(Qp, reserved1)}},
    {WEFT_MBOX_QP_MODIFY,
     sizeof(Modify),
     0,
     true,
     {ZERO(Modify, reserved), ZERO(Modify, qp.reserved0), ZERO(Modify, qp.av.reserved), ZERO(Modify, qp.reserved1)}},
    {WEFT_MBOX_QP_QUERY, sizeof(weft_mbox_pair), sizeof(Qp), true, {}},
    {WEFT_MBOX_QP_DESTROY, sizeof(weft_mbox_pair), 0, true, {}},
    {WEFT_MBOX_GID_SET, sizeof(Gid), 0, true, {ZERO(Gid, reserved0), ZERO(Gid, reserved1), ZERO(Gid, reserved2)}},
    {WEFT_MBOX_GID_GET, sizeof(Gid), sizeof(Gid), true, {ZERO_UNTIL(Gid, type, reserved2), ZERO(Gid, reserved2)}},
    {WEFT_MBOX_CQ_CREATE,
     sizeof(Cq),
     sizeof(Cq),
     true,
     {ZERO(Cq, cqn), ZERO(Cq, flags), ZERO(Cq, producer), ZERO(Cq, reserved)}},
    {WEFT_MBOX_CQ_RESIZE,
     sizeof(Cq),
     sizeof(Cq),
     true,
     {ZERO(Cq, vector), ZERO(Cq, flags), ZERO(Cq, producer), ZERO(Cq, reserved)}},
    {WEFT_MBOX_CQ_DESTROY, sizeof(weft_mbox_pair), 0, true, {}},
    {WEFT_MBOX_SRQ_CREATE,
     sizeof(Srq),
     sizeof(Srq),
     true,
     {ZERO(Srq, srqn), ZERO(Srq, flags), ZERO(Srq, error), ZERO(Srq, reserved)}},
    {WEFT_MBOX_SRQ_MODIFY,
     sizeof(Srq),
     0,
     true,
     {ZERO_UNTIL(Srq, pd, limit), ZERO_UNTIL(Srq, flags, reserved), ZERO(Srq, reserved)}},
    {WEFT_MBOX_SRQ_QUERY, sizeof(weft_mbox_pair), sizeof(Srq), true, {}},
    {WEFT_MBOX_SRQ_DESTROY, sizeof(weft_mbox_pair), 0, true, {}},
    {WEFT_MBOX_FIFO_CREATE, sizeof(Fifo), 0, true, {ZERO(Fifo, flags), ZERO(Fifo, reserved0), ZERO(Fifo, reserved)}},
    {WEFT_MBOX_FIFO_DESTROY, sizeof(weft_mbox_pair), 0, true, {}},
};

}  // namespace

const Operation* find_operation(uint16_t op) {
  for (const Operation& operation : kOperations) {
    if (operation.op == op) return &operation;
  }
  return nullptr;
}

Error check_zero(const Operation& operation, const uint8_t* payload) {
  for (const ZeroBytes& zero : operation.zero) {
    for (uint32_t i = 0; i < zero.bytes; ++i) WEFT_REQUIRE(payload[zero.offset + i] == 0, WEFT_ERR_BAD_FIELD);
  }
  return WEFT_ERR_OK;
}

}  // namespace weft::fw
