// SPDX-License-Identifier: MIT
// Errors: BAD_FIELD for reserved and impossible values and numbers outside a table, BAD_ALIGN, BAD_RANGE for address
// ranges, BAD_KEY for keys outside the region table, BAD_SYNC for sync objects outside a context. What a table holds
// (a context that exists, a key that is in use) is for the hardware to say.
#include "check.hpp"

#include "block.hpp"
#include "weft/hw/regs.h"

namespace weft::fw {
namespace {

constexpr uint32_t kAllRights =
    WEFT_RIGHT_READ | WEFT_RIGHT_WRITE | WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE | WEFT_RIGHT_REMOTE_ATOMIC;
constexpr uint32_t kRemoteRights = WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE | WEFT_RIGHT_REMOTE_ATOMIC;
constexpr uint32_t kPsnBits = 24;  // also QPNs
constexpr uint32_t kFlowLabelBits = 20;
constexpr uint32_t kRingAlign = 64;
constexpr uint32_t kEntryBytes = 64;  // of rings, event queues and completion queues

constexpr bool is_power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }
constexpr bool fits(uint32_t value, uint32_t bits) { return value >> bits == 0; }
// [start, start + bytes) ends at or below `end`, without overflow.
constexpr bool inside(uint64_t start, uint64_t bytes, uint64_t end) { return start <= end && bytes <= end - start; }
// [start, start + bytes) does not wrap; its last byte may be the last of the address space.
constexpr bool no_wrap(uint64_t start, uint64_t bytes) { return bytes == 0 || bytes - 1 <= ~start; }

template <class T, uint32_t N>
constexpr bool all_zero(const T (&values)[N]) {
  for (const T& value : values) {
    if (value != 0) return false;
  }
  return true;
}

Error check_context(const Limits& limits, uint32_t ctx) {
  WEFT_REQUIRE(ctx < limits.contexts, WEFT_ERR_BAD_FIELD);
  return WEFT_ERR_OK;
}

Error check_key(const Limits& limits, uint32_t key) {
  const uint32_t index = WEFT_KEY_INDEX(key);
  WEFT_REQUIRE(index != 0 && index < limits.regions, WEFT_ERR_BAD_KEY);  // entry 0 is never valid
  return WEFT_ERR_OK;
}

Error check_syncs(uint32_t first, uint32_t count) {
  WEFT_REQUIRE(inside(first, count, WEFT_SYNCS_PER_CONTEXT), WEFT_ERR_BAD_SYNC);
  return WEFT_ERR_OK;
}

// A ring of 64-byte entries.
Error check_ring(uint64_t addr, uint64_t bytes) {
  WEFT_REQUIRE(addr % kRingAlign == 0, WEFT_ERR_BAD_ALIGN);
  WEFT_REQUIRE(no_wrap(addr, bytes), WEFT_ERR_BAD_RANGE);
  return WEFT_ERR_OK;
}

Error check_port_get(const Limits& limits, const uint8_t* payload) {
  const auto request = from_payload<weft_mbox_index>(payload);
  WEFT_REQUIRE(request.reserved == 0 && request.index < limits.ports, WEFT_ERR_BAD_FIELD);
  return WEFT_ERR_OK;
}

enum PortSet : uint8_t { kSetAdmin = 1, kSetMac = 2, kSetIpv4 = 4, kSetIpv6 = 8, kSetAll = 15 };

// state, mtu, speed_mbps and flaps are the hardware's and ignored, so that a driver may send back what PORT_GET gave.
Error check_port_set(const Limits& limits, const uint8_t* payload) {
  const auto port = from_payload<weft_mbox_port>(payload);
  WEFT_REQUIRE(port.port < limits.ports, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE((port.set & ~kSetAll) == 0 && all_zero(port.reserved), WEFT_ERR_BAD_FIELD);
  if ((port.set & kSetAdmin) != 0) WEFT_REQUIRE(port.admin_up <= 1, WEFT_ERR_BAD_FIELD);
  if ((port.set & kSetMac) != 0) {  // IEEE 802.3, 3.2.3: a station's address is not a group address
    WEFT_REQUIRE((port.mac[0] & 1) == 0 && !all_zero(port.mac), WEFT_ERR_BAD_FIELD);
  }
  // All zeros: no address. RFC 1112 and RFC 4291: 224/4, 240/4 and ff00::/8 are nobody's.
  if ((port.set & kSetIpv4) != 0) WEFT_REQUIRE(port.ipv4[0] < 224, WEFT_ERR_BAD_FIELD);
  if ((port.set & kSetIpv6) != 0) WEFT_REQUIRE(port.ipv6[0] != 0xff, WEFT_ERR_BAD_FIELD);
  return WEFT_ERR_OK;
}

Error check_log_read(const Limits&, const uint8_t* payload) {
  WEFT_REQUIRE(from_payload<weft_mbox_index>(payload).reserved == 0, WEFT_ERR_BAD_FIELD);
  return WEFT_ERR_OK;
}

Error check_event_queue(const Limits&, const uint8_t* payload) {
  const auto queue = from_payload<weft_mbox_event_queue>(payload);
  WEFT_REQUIRE(is_power_of_two(queue.entries) && queue.entries >= 16 && queue.entries <= 1024, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(queue.vector == 0, WEFT_ERR_BAD_FIELD);
  return check_ring(queue.addr, static_cast<uint64_t>(queue.entries) * kEntryBytes);
}

Error check_hbm_zero(const Limits& limits, const uint8_t* payload) {
  const auto range = from_payload<weft_mbox_range>(payload);
  WEFT_REQUIRE(range.length != 0 && inside(range.offset, range.length, limits.hbm_bytes), WEFT_ERR_BAD_RANGE);
  return WEFT_ERR_OK;
}

Error check_ctx_create(const Limits& limits, const uint8_t* payload) {
  const auto ctx = from_payload<weft_mbox_ctx>(payload);
  WEFT_RETURN_IF_ERROR(check_context(limits, ctx.ctx));
  WEFT_REQUIRE(ctx.vector < limits.vectors, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(ctx.syncs >= 1 && ctx.syncs <= WEFT_SYNCS_PER_CONTEXT, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(ctx.flags == 0 && ctx.reserved == 0, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(ctx.shadow % sizeof(uint64_t) == 0, WEFT_ERR_BAD_ALIGN);
  WEFT_REQUIRE(no_wrap(ctx.shadow, WEFT_SYNCS_PER_CONTEXT * sizeof(uint64_t)), WEFT_ERR_BAD_RANGE);
  return WEFT_ERR_OK;
}

Error check_ctx_destroy(const Limits& limits, const uint8_t* payload) {
  const auto request = from_payload<weft_mbox_index>(payload);
  WEFT_REQUIRE(request.reserved == 0, WEFT_ERR_BAD_FIELD);
  return check_context(limits, request.index);
}

// `pages` and `base` of a page list. Fields that a contiguous range does not use are ignored.
Error check_page_list(const weft_region_entry& region) {
  if (region.levels == 0) {
    WEFT_REQUIRE(no_wrap(region.base, region.length), WEFT_ERR_BAD_RANGE);
    return WEFT_ERR_OK;
  }
  WEFT_REQUIRE(region.page_shift >= 12 && region.page_shift <= 30, WEFT_ERR_BAD_FIELD);
  const uint64_t page_mask = (uint64_t{1} << region.page_shift) - 1;
  // va + length does not wrap, so neither does the last byte's distance from its first page.
  const uint64_t last_page = ((region.va & page_mask) + (region.length - 1)) >> region.page_shift;
  WEFT_REQUIRE(region.pages > last_page, WEFT_ERR_BAD_RANGE);
  WEFT_REQUIRE(region.base % sizeof(uint64_t) == 0, WEFT_ERR_BAD_ALIGN);
  constexpr uint64_t kPerPage = 512;
  const uint64_t entries = region.levels == 1 ? region.pages : (region.pages - 1) / kPerPage + 1;
  WEFT_REQUIRE(entries <= (~uint64_t{0} - region.base) / sizeof(uint64_t), WEFT_ERR_BAD_RANGE);
  return WEFT_ERR_OK;
}

Error check_region_create(const Limits& limits, const uint8_t* payload) {
  const auto region = from_payload<weft_region_entry>(payload);
  WEFT_RETURN_IF_ERROR(check_key(limits, region.key));
  WEFT_RETURN_IF_ERROR(check_context(limits, region.ctx));
  WEFT_REQUIRE((region.rights & ~kAllRights) == 0, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(region.flags == 0 && region.reserved == 0 && region.levels <= 2, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(region.length != 0 && no_wrap(region.va, region.length), WEFT_ERR_BAD_RANGE);
  switch (region.type) {
    case WEFT_REGION_HBM:
      WEFT_REQUIRE(region.levels == 0, WEFT_ERR_BAD_FIELD);
      WEFT_REQUIRE(inside(region.base, region.length, limits.hbm_bytes), WEFT_ERR_BAD_RANGE);
      return WEFT_ERR_OK;
    case WEFT_REGION_SYNC:
      WEFT_REQUIRE(region.levels == 0, WEFT_ERR_BAD_FIELD);
      WEFT_REQUIRE((region.va | region.base | region.length) % sizeof(uint64_t) == 0, WEFT_ERR_BAD_ALIGN);
      WEFT_REQUIRE(inside(region.base, region.length, WEFT_SYNCS_PER_CONTEXT * sizeof(uint64_t)), WEFT_ERR_BAD_RANGE);
      return WEFT_ERR_OK;
    case WEFT_REGION_HOST:
    case WEFT_REGION_PEER:
      return check_page_list(region);
    default:
      return WEFT_ERR_BAD_FIELD;
  }
}

Error check_region_destroy(const Limits& limits, const uint8_t* payload) {
  const auto request = from_payload<weft_mbox_index>(payload);
  WEFT_REQUIRE(request.reserved == 0, WEFT_ERR_BAD_FIELD);
  return check_key(limits, request.index);
}

Error check_queue_create(const Limits& limits, const uint8_t* payload) {
  const auto queue = from_payload<weft_queue_entry>(payload);
  WEFT_RETURN_IF_ERROR(check_context(limits, queue.ctx));
  WEFT_REQUIRE(queue.queue < WEFT_QUEUES_PER_CONTEXT, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(is_power_of_two(queue.entries) && queue.entries >= 16 && queue.entries <= 65536, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(queue.priority == 0 && queue.flags == 0 && all_zero(queue.reserved), WEFT_ERR_BAD_FIELD);
  WEFT_RETURN_IF_ERROR(check_key(limits, queue.ring_key));
  return check_ring(queue.ring_addr, sizeof(weft_ring_head) + static_cast<uint64_t>(queue.entries) * kEntryBytes);
}

Error check_queue_pair(const Limits& limits, const uint8_t* payload) {
  const auto pair = from_payload<weft_mbox_pair>(payload);
  WEFT_REQUIRE(pair.index < WEFT_QUEUES_PER_CONTEXT, WEFT_ERR_BAD_FIELD);
  return check_context(limits, pair.ctx);
}

Error check_sync_config(const Limits& limits, const uint8_t* payload) {
  const auto sync = from_payload<weft_mbox_sync>(payload);
  WEFT_RETURN_IF_ERROR(check_context(limits, sync.ctx));
  WEFT_REQUIRE((sync.flags & ~WEFT_SYNC_NOTIFY) == 0, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(sync.count != 0, WEFT_ERR_BAD_SYNC);
  return check_syncs(sync.first, sync.count);
}

// A ring of a verbs queue pair; channels have none and leave it zero.
Error check_work_ring(const Limits& limits, uint32_t entries, uint32_t key, uint64_t addr) {
  if (entries == 0) {
    WEFT_REQUIRE(key == 0 && addr == 0, WEFT_ERR_BAD_FIELD);
    return WEFT_ERR_OK;
  }
  WEFT_REQUIRE(is_power_of_two(entries) && entries <= 65536, WEFT_ERR_BAD_FIELD);
  WEFT_RETURN_IF_ERROR(check_key(limits, key));
  return check_ring(addr, static_cast<uint64_t>(entries) * kEntryBytes);
}

// Attributes that both CREATE and MODIFY carry, those named in `mask` (WEFT_QPM_*).
Error check_qp_attributes(const Limits& limits, const weft_qp_entry& qp, uint32_t mask) {
  if ((mask & WEFT_QPM_PATH) != 0) {
    WEFT_REQUIRE(qp.port < limits.ports, WEFT_ERR_BAD_FIELD);
    WEFT_REQUIRE(fits(qp.flow_label, kFlowLabelBits), WEFT_ERR_BAD_FIELD);
    WEFT_REQUIRE((qp.dmac[0] & 1) == 0, WEFT_ERR_BAD_FIELD);  // connected peers are single stations
  }
  if ((mask & WEFT_QPM_MTU) != 0) {
    WEFT_REQUIRE(qp.path_mtu >= WEFT_MTU_256 && qp.path_mtu <= WEFT_MTU_8192, WEFT_ERR_BAD_FIELD);
  }
  if ((mask & WEFT_QPM_DEST) != 0) WEFT_REQUIRE(fits(qp.dest_qpn, kPsnBits), WEFT_ERR_BAD_FIELD);
  if ((mask & WEFT_QPM_RQ_PSN) != 0) WEFT_REQUIRE(fits(qp.rq_psn, kPsnBits), WEFT_ERR_BAD_FIELD);
  if ((mask & WEFT_QPM_SQ_PSN) != 0) WEFT_REQUIRE(fits(qp.sq_psn, kPsnBits), WEFT_ERR_BAD_FIELD);
  if ((mask & WEFT_QPM_RETRY) != 0) {
    WEFT_REQUIRE(qp.timeout <= 31 && qp.retry_cnt <= 7 && qp.rnr_retry <= 7, WEFT_ERR_BAD_FIELD);
  }
  if ((mask & WEFT_QPM_RNR_TIMER) != 0) WEFT_REQUIRE(qp.min_rnr_timer <= 31, WEFT_ERR_BAD_FIELD);
  if ((mask & WEFT_QPM_ACCESS) != 0) WEFT_REQUIRE((qp.access & ~kRemoteRights) == 0, WEFT_ERR_BAD_FIELD);
  if ((mask & WEFT_QPM_SYNC) != 0) WEFT_RETURN_IF_ERROR(check_syncs(qp.sync_base, qp.sync_count));
  WEFT_REQUIRE(qp.state <= WEFT_QPS_ERR && all_zero(qp.reserved), WEFT_ERR_BAD_FIELD);
  return WEFT_ERR_OK;
}

Error check_qp_create(const Limits& limits, const uint8_t* payload) {
  const auto qp = from_payload<weft_qp_entry>(payload);
  WEFT_RETURN_IF_ERROR(check_context(limits, qp.ctx));
  switch (qp.type) {
    case WEFT_QP_RC:
    case WEFT_QP_UC:
    case WEFT_QP_UD:
    case WEFT_QP_GSI:
    case WEFT_QP_CHANNEL:
      break;
    default:
      return WEFT_ERR_BAD_FIELD;
  }
  WEFT_REQUIRE((qp.flags & ~WEFT_QP_SIGNAL_ALL) == 0, WEFT_ERR_BAD_FIELD);
  // The MTU may be left to MODIFY; everything else that may wait is valid as zero.
  const uint32_t mask = WEFT_QPM_PATH | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN | WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY |
                        WEFT_QPM_RNR_TIMER | WEFT_QPM_ACCESS | WEFT_QPM_SYNC | (qp.path_mtu != 0 ? WEFT_QPM_MTU : 0);
  WEFT_RETURN_IF_ERROR(check_qp_attributes(limits, qp, mask));
  WEFT_RETURN_IF_ERROR(check_work_ring(limits, qp.sq_entries, qp.sq_key, qp.sq_addr));
  return check_work_ring(limits, qp.rq_entries, qp.rq_key, qp.rq_addr);
}

// How numbers are given out is the NIC's affair: only their width is known here.
Error check_qpn(uint32_t qpn) {
  WEFT_REQUIRE(fits(qpn, kPsnBits), WEFT_ERR_BAD_FIELD);
  return WEFT_ERR_OK;
}

Error check_qp_modify(const Limits& limits, const uint8_t* payload) {
  const auto modify = from_payload<weft_mbox_qp_modify>(payload);
  constexpr uint32_t kAllMask = (WEFT_QPM_SYNC << 1) - 1;
  WEFT_REQUIRE((modify.mask & ~kAllMask) == 0 && modify.reserved == 0, WEFT_ERR_BAD_FIELD);
  WEFT_RETURN_IF_ERROR(check_context(limits, modify.qp.ctx));
  WEFT_RETURN_IF_ERROR(check_qpn(modify.qp.qpn));
  return check_qp_attributes(limits, modify.qp, modify.mask);
}

Error check_qp_pair(const Limits& limits, const uint8_t* payload) {
  const auto pair = from_payload<weft_mbox_pair>(payload);
  WEFT_RETURN_IF_ERROR(check_context(limits, pair.ctx));
  return check_qpn(pair.index);
}

Error check_cq_create(const Limits& limits, const uint8_t* payload) {
  const auto cq = from_payload<weft_cq_entry>(payload);
  WEFT_RETURN_IF_ERROR(check_context(limits, cq.ctx));
  WEFT_REQUIRE(is_power_of_two(cq.entries) && cq.entries <= 65536, WEFT_ERR_BAD_FIELD);
  WEFT_REQUIRE(cq.vector < limits.vectors && cq.flags == 0 && all_zero(cq.reserved), WEFT_ERR_BAD_FIELD);
  WEFT_RETURN_IF_ERROR(check_key(limits, cq.key));
  return check_ring(cq.addr, static_cast<uint64_t>(cq.entries) * kEntryBytes);
}

Error check_cq_destroy(const Limits& limits, const uint8_t* payload) {
  return check_context(limits, from_payload<weft_mbox_pair>(payload).ctx);
}

// SRQ_CREATE, AH_CREATE, GID_SET and what belongs to them have no payload in this version of the interface.
constexpr Operation kOperations[] = {
    {WEFT_MBOX_IDENTIFY, 0, sizeof(weft_mbox_identity), nullptr, false},
    {WEFT_MBOX_ECHO, kAnyLength, 0, nullptr, false},
    {WEFT_MBOX_PORT_GET, sizeof(weft_mbox_index), sizeof(weft_mbox_port), check_port_get, true},
    {WEFT_MBOX_PORT_SET, sizeof(weft_mbox_port), 0, check_port_set, true},
    {WEFT_MBOX_SENSORS, 0, sizeof(weft_mbox_sensors), nullptr, false},
    {WEFT_MBOX_LOG_READ, sizeof(weft_mbox_index), sizeof(weft_mbox_log), check_log_read, false},
    {WEFT_MBOX_EVENT_QUEUE, sizeof(weft_mbox_event_queue), 0, check_event_queue, true},
    {WEFT_MBOX_HBM_ZERO, sizeof(weft_mbox_range), 0, check_hbm_zero, true},
    {WEFT_MBOX_CTX_CREATE, sizeof(weft_mbox_ctx), 0, check_ctx_create, true},
    {WEFT_MBOX_CTX_DESTROY, sizeof(weft_mbox_index), 0, check_ctx_destroy, true},
    {WEFT_MBOX_REGION_CREATE, sizeof(weft_region_entry), 0, check_region_create, true},
    {WEFT_MBOX_REGION_DESTROY, sizeof(weft_mbox_index), 0, check_region_destroy, true},
    {WEFT_MBOX_QUEUE_CREATE, sizeof(weft_queue_entry), 0, check_queue_create, true},
    {WEFT_MBOX_QUEUE_DESTROY, sizeof(weft_mbox_pair), 0, check_queue_pair, true},
    {WEFT_MBOX_QUEUE_ABORT, sizeof(weft_mbox_pair), 0, check_queue_pair, true},
    {WEFT_MBOX_SYNC_CONFIG, sizeof(weft_mbox_sync), 0, check_sync_config, true},
    {WEFT_MBOX_QP_CREATE, sizeof(weft_qp_entry), sizeof(weft_qp_entry), check_qp_create, true},
    {WEFT_MBOX_QP_MODIFY, sizeof(weft_mbox_qp_modify), 0, check_qp_modify, true},
    {WEFT_MBOX_QP_QUERY, sizeof(weft_mbox_pair), sizeof(weft_qp_entry), check_qp_pair, true},
    {WEFT_MBOX_QP_DESTROY, sizeof(weft_mbox_pair), 0, check_qp_pair, true},
    {WEFT_MBOX_CQ_CREATE, sizeof(weft_cq_entry), sizeof(weft_cq_entry), check_cq_create, true},
    {WEFT_MBOX_CQ_DESTROY, sizeof(weft_mbox_pair), 0, check_cq_destroy, true},
};

}  // namespace

const Operation* find_operation(uint16_t op) {
  for (const Operation& operation : kOperations) {
    if (operation.op == op) return &operation;
  }
  return nullptr;
}

}  // namespace weft::fw
