// SPDX-License-Identifier: MIT
#include "queue_pair.hpp"

#include <algorithm>
#include <iterator>

#include "psn.hpp"
#include "weft/hw/regs.h"

namespace weft::model::nic {
namespace {

constexpr std::uint32_t kRemoteRights = WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE | WEFT_RIGHT_REMOTE_ATOMIC;
constexpr std::uint32_t kAllFields = (WEFT_QPM_SYNC << 1) - 1;

// What must be known before a queue pair receives, and before it sends.
constexpr std::uint32_t kNeededRtr = WEFT_QPM_PATH | WEFT_QPM_MTU | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN;
constexpr std::uint32_t kNeededRts = kNeededRtr | WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY;

struct Transition {
  std::uint8_t from;
  std::uint8_t to;
  std::uint32_t allowed;  // fields that may come with it
};

// To RESET and to ERR one may always go, with no fields.
constexpr Transition kTransitions[] = {
    {WEFT_QPS_RESET, WEFT_QPS_INIT, kAllFields},
    {WEFT_QPS_INIT, WEFT_QPS_INIT, kAllFields},
    {WEFT_QPS_INIT, WEFT_QPS_RTR, kAllFields},
    {WEFT_QPS_RTR, WEFT_QPS_RTS,
     WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY | WEFT_QPM_RNR_TIMER | WEFT_QPM_QKEY | WEFT_QPM_ACCESS | WEFT_QPM_RD_ATOMIC |
         WEFT_QPM_SYNC},
    {WEFT_QPS_RTS, WEFT_QPS_RTS, WEFT_QPM_RNR_TIMER | WEFT_QPM_QKEY | WEFT_QPM_ACCESS | WEFT_QPM_SYNC},
};

bool sync_range_valid(const weft_qp_entry& entry) {
  return std::uint64_t{entry.sync_base} + entry.sync_count <= WEFT_SYNCS_PER_CONTEXT;
}

bool all_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

bool path_valid(const weft_qp_entry& entry, std::span<const Port> ports) {
  if (entry.port >= ports.size() || (entry.dmac[0] & 1) != 0 || all_zero(entry.dmac) || all_zero(entry.dgid))
    return false;
  if (entry.flow_label > 0xfffff || (entry.vlan >= 0xfff && entry.vlan != kNoVlan)) return false;
  Gid sgid;
  Gid dgid;
  std::copy(std::begin(entry.sgid), std::end(entry.sgid), sgid.begin());
  std::copy(std::begin(entry.dgid), std::end(entry.dgid), dgid.begin());
  return all_zero(entry.sgid) || (ports[entry.port].owns(sgid) && is_ipv4(sgid) == is_ipv4(dgid));
}

void copy_fields(weft_qp_entry& to, const weft_qp_entry& from, std::uint32_t mask) {
  if (mask & WEFT_QPM_PATH) {
    to.port = from.port;
    std::copy(std::begin(from.dmac), std::end(from.dmac), to.dmac);
    std::copy(std::begin(from.sgid), std::end(from.sgid), to.sgid);
    std::copy(std::begin(from.dgid), std::end(from.dgid), to.dgid);
    to.flow_label = from.flow_label;
    to.traffic_class = from.traffic_class;
    to.hop_limit = from.hop_limit != 0 ? from.hop_limit : 64;
    to.udp_sport = from.udp_sport;
    to.vlan = from.vlan != 0 ? from.vlan : kNoVlan;
  }
  if (mask & WEFT_QPM_MTU) to.path_mtu = from.path_mtu;
  if (mask & WEFT_QPM_DEST) to.dest_qpn = from.dest_qpn;
  if (mask & WEFT_QPM_RQ_PSN) to.rq_psn = from.rq_psn;
  if (mask & WEFT_QPM_SQ_PSN) to.sq_psn = from.sq_psn;
  if (mask & WEFT_QPM_RETRY) {
    to.timeout = from.timeout;
    to.retry_cnt = from.retry_cnt;
    to.rnr_retry = from.rnr_retry;
  }
  if (mask & WEFT_QPM_RNR_TIMER) to.min_rnr_timer = from.min_rnr_timer;
  if (mask & WEFT_QPM_QKEY) to.qkey = from.qkey;
  if (mask & WEFT_QPM_ACCESS) to.access = from.access;
  if (mask & WEFT_QPM_RD_ATOMIC) {
    to.max_rd_atomic = from.max_rd_atomic;
    to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  }
  if (mask & WEFT_QPM_SYNC) {
    to.sync_base = from.sync_base;
    to.sync_count = from.sync_count;
  }
}

bool fields_valid(const weft_qp_entry& entry, std::uint32_t mask, std::span<const Port> ports) {
  if ((mask & WEFT_QPM_PATH) && !path_valid(entry, ports)) return false;
  if ((mask & WEFT_QPM_MTU) && (entry.path_mtu < WEFT_MTU_256 || entry.path_mtu > WEFT_MTU_8192)) return false;
  if ((mask & WEFT_QPM_DEST) && (entry.dest_qpn == 0 || entry.dest_qpn > 0xffffff)) return false;
  if ((mask & WEFT_QPM_RQ_PSN) && entry.rq_psn > kPsnMask) return false;
  if ((mask & WEFT_QPM_SQ_PSN) && entry.sq_psn > kPsnMask) return false;
  if ((mask & WEFT_QPM_RETRY) && (entry.timeout > 31 || entry.retry_cnt > 7 || entry.rnr_retry > 7)) return false;
  if ((mask & WEFT_QPM_RNR_TIMER) && entry.min_rnr_timer > 31) return false;
  if ((mask & WEFT_QPM_ACCESS) && (entry.access & ~kRemoteRights) != 0) return false;
  if ((mask & WEFT_QPM_SYNC) && !sync_range_valid(entry)) return false;
  return true;
}

// Addresses, frame template and link class of a complete path.
void lay_path(QueuePair& qp, const Port& port) {
  weft_qp_entry& entry = qp.entry;
  std::copy(std::begin(entry.dgid), std::end(entry.dgid), qp.dgid.begin());
  std::copy(std::begin(entry.sgid), std::end(entry.sgid), qp.sgid.begin());
  if (all_zero(entry.sgid)) {
    qp.sgid = is_ipv4(qp.dgid) ? gid_of_ipv4(port.ipv4) : port.ipv6;
    std::copy(qp.sgid.begin(), qp.sgid.end(), entry.sgid);
  }
  PathInfo info;
  std::copy(std::begin(entry.dmac), std::end(entry.dmac), info.dmac.begin());
  info.smac = port.mac;
  info.vlan = entry.vlan;
  info.sgid = qp.sgid;
  info.dgid = qp.dgid;
  info.traffic_class = entry.traffic_class;
  info.hop_limit = entry.hop_limit;
  info.flow_label = entry.flow_label;
  info.sport = entry.udp_sport != 0 ? entry.udp_sport : udp_source_port(entry.flow_label, entry.qpn, entry.dest_qpn);
  qp.path = Path(info);
  // Priority follows the class selector of the traffic class (RFC 2474, section 4.2.2).
  qp.cls = info.dmac == port.mac ? kLoopback : entry.traffic_class >> 5;
}

}  // namespace

Error make_queue_pair(const weft_qp_entry& wanted, std::uint32_t ports, QueuePair& qp) {
  if (wanted.type != WEFT_QP_CHANNEL) return WEFT_ERR_BAD_TYPE;
  if (wanted.ctx >= WEFT_CONTEXTS_MAX || wanted.port >= ports || (wanted.access & ~kRemoteRights) != 0 ||
      !sync_range_valid(wanted)) {
    return WEFT_ERR_BAD_FIELD;
  }
  qp.entry = {};
  qp.entry.ctx = wanted.ctx;
  qp.entry.type = wanted.type;
  qp.entry.state = WEFT_QPS_RESET;
  qp.entry.port = wanted.port;
  qp.entry.pkey = kDefaultPkey;
  qp.entry.vlan = kNoVlan;
  qp.entry.access = wanted.access;
  qp.entry.sync_base = wanted.sync_base;
  qp.entry.sync_count = wanted.sync_count;
  return WEFT_ERR_OK;
}

Error apply_modify(QueuePair& qp, const weft_mbox_qp_modify& modify, std::span<const Port> ports) {
  const std::uint8_t from = qp.entry.state;
  const std::uint8_t to = modify.qp.state;
  const std::uint32_t mask = modify.mask;
  if (to == WEFT_QPS_RESET || to == WEFT_QPS_ERR) {
    if (mask != 0) return WEFT_ERR_BAD_FIELD;
    qp.entry.state = to;
    if (to == WEFT_QPS_RESET) qp.given = 0;
    return WEFT_ERR_OK;
  }
  const auto transition = std::find_if(std::begin(kTransitions), std::end(kTransitions),
                                       [&](const Transition& t) { return t.from == from && t.to == to; });
  if (transition == std::end(kTransitions)) return WEFT_ERR_MBOX_STATE;
  if ((mask & ~transition->allowed) != 0 || !fields_valid(modify.qp, mask, ports)) return WEFT_ERR_BAD_FIELD;
  const std::uint32_t given = qp.given | mask;
  const std::uint32_t needed = to == WEFT_QPS_RTR ? kNeededRtr : to == WEFT_QPS_RTS ? kNeededRts : 0;
  if ((needed & ~given) != 0) return WEFT_ERR_BAD_FIELD;

  copy_fields(qp.entry, modify.qp, mask);
  qp.given = given;
  qp.entry.state = to;
  if (from == WEFT_QPS_INIT && to == WEFT_QPS_RTR) lay_path(qp, ports[qp.entry.port]);
  return WEFT_ERR_OK;
}

}  // namespace weft::model::nic
