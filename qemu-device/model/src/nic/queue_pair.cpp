// SPDX-License-Identifier: MIT
#include "queue_pair.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "psn.hpp"
#include "weft/hw/regs.h"

namespace weft::model::nic {
namespace {

constexpr std::uint32_t kRemoteRights = WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE | WEFT_RIGHT_REMOTE_ATOMIC;
// Transitions that a user asks for, with the attributes of each service: required, and allowed beside them.
struct Rule {
  std::uint8_t from;
  std::uint8_t to;
  struct {
    std::uint32_t required;
    std::uint32_t allowed;
  } rc, uc, ud;
};
constexpr std::uint32_t kInit = WEFT_QPM_PKEY | WEFT_QPM_PORT | WEFT_QPM_ACCESS;
constexpr std::uint32_t kInitUd = WEFT_QPM_PKEY | WEFT_QPM_PORT | WEFT_QPM_QKEY;
constexpr std::uint32_t kPeer = WEFT_QPM_PATH | WEFT_QPM_MTU | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN;
constexpr Rule kRules[] = {
    {WEFT_QPS_RESET, WEFT_QPS_INIT, {kInit, 0}, {kInit, 0}, {kInitUd, 0}},
    {WEFT_QPS_INIT, WEFT_QPS_INIT, {0, kInit}, {0, kInit}, {0, kInitUd}},
    {WEFT_QPS_INIT,
     WEFT_QPS_RTR,
     {kPeer | WEFT_QPM_DEST_RD_ATOMIC | WEFT_QPM_RNR_TIMER, WEFT_QPM_ACCESS | WEFT_QPM_PKEY},
     {kPeer, WEFT_QPM_ACCESS | WEFT_QPM_PKEY},
     {0, WEFT_QPM_QKEY | WEFT_QPM_PKEY}},
    {WEFT_QPS_RTR,
     WEFT_QPS_RTS,
     {WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY | WEFT_QPM_RD_ATOMIC, WEFT_QPM_ACCESS | WEFT_QPM_RNR_TIMER},
     {WEFT_QPM_SQ_PSN, WEFT_QPM_ACCESS},
     {WEFT_QPM_SQ_PSN, WEFT_QPM_QKEY}},
    {WEFT_QPS_RTS, WEFT_QPS_RTS, {0, WEFT_QPM_ACCESS | WEFT_QPM_RNR_TIMER}, {0, WEFT_QPM_ACCESS}, {0, WEFT_QPM_QKEY}},
    {WEFT_QPS_RTS, WEFT_QPS_SQD, {0, WEFT_QPM_SQD_EVENT}, {0, WEFT_QPM_SQD_EVENT}, {0, WEFT_QPM_SQD_EVENT}},
    {WEFT_QPS_SQD, WEFT_QPS_RTS, {0, WEFT_QPM_ACCESS | WEFT_QPM_RNR_TIMER}, {0, WEFT_QPM_ACCESS}, {0, WEFT_QPM_QKEY}},
    {WEFT_QPS_SQD,
     WEFT_QPS_SQD,
     {0, kInit | WEFT_QPM_PATH | WEFT_QPM_RETRY | WEFT_QPM_RNR_TIMER | WEFT_QPM_RD_ATOMIC | WEFT_QPM_DEST_RD_ATOMIC},
     {0, WEFT_QPM_PATH | WEFT_QPM_ACCESS | WEFT_QPM_PKEY},
     {0, WEFT_QPM_PKEY | WEFT_QPM_QKEY}},
    // A reliable connection has no SQE state (section 10.3.1).
    {WEFT_QPS_SQE, WEFT_QPS_RTS, {0, 0}, {0, WEFT_QPM_ACCESS}, {0, WEFT_QPM_QKEY}},
};

bool sync_range_valid(const weft_qp_entry& entry) {
  return std::uint64_t{entry.sync_base} + entry.sync_count <= WEFT_SYNCS_PER_CONTEXT;
}

bool all_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t b) { return b == 0; });
}

// The entry of the port's GID table that an address vector names, for its peer's family; null: none.
const Port::Address* source_of(const weft_av& av, const Port& port) {
  if (av.sgid_index >= port.addresses.size()) return nullptr;
  const Port::Address& address = port.addresses[av.sgid_index];
  Gid dgid;
  std::copy(std::begin(av.dgid), std::end(av.dgid), dgid.begin());
  const bool fits = address.type != WEFT_GID_NONE && is_ipv4(address.gid) == is_ipv4(dgid);
  return fits ? &address : nullptr;
}

Error check_path(const weft_av& av, std::span<const Port> ports) {
  if (av.port >= ports.size() || (av.dmac[0] & 1) != 0 || all_zero(av.dmac) || all_zero(av.dgid) ||
      av.flow_label > 0xfffff || av.sl > 7) {
    return WEFT_ERR_BAD_FIELD;
  }
  return source_of(av, ports[av.port]) != nullptr ? WEFT_ERR_OK : WEFT_ERR_BAD_GID;
}

void copy_fields(weft_qp_entry& to, const weft_qp_entry& from, std::uint32_t mask) {
  if (mask & WEFT_QPM_PATH) {
    to.av = from.av;
    if (to.av.hop_limit == 0) to.av.hop_limit = 64;
  }
  if (mask & WEFT_QPM_PORT) to.av.port = from.av.port;
  if (mask & WEFT_QPM_PKEY) to.pkey = from.pkey;
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
  if (mask & WEFT_QPM_RD_ATOMIC) to.max_rd_atomic = from.max_rd_atomic;
  if (mask & WEFT_QPM_DEST_RD_ATOMIC) to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  if (mask & WEFT_QPM_SYNC) {
    to.sync_base = from.sync_base;
    to.sync_count = from.sync_count;
  }
}

Error check_fields(const weft_qp_entry& entry, std::uint8_t type, std::uint32_t mask, std::span<const Port> ports) {
  // Verbs have IBTA's limit of retries, which is 3 bits.
  const std::uint8_t retries = type == WEFT_QP_CHANNEL ? WEFT_RETRY_UNLIMITED : 7;
  const auto wrong = [mask](std::uint32_t field, bool condition) { return (mask & field) != 0 && condition; };
  if (wrong(WEFT_QPM_MTU, entry.path_mtu < WEFT_MTU_256 || entry.path_mtu > WEFT_MTU_8192) ||
      wrong(WEFT_QPM_DEST, entry.dest_qpn == 0 || entry.dest_qpn > 0xffffff) ||
      wrong(WEFT_QPM_RQ_PSN, entry.rq_psn > kPsnMask) || wrong(WEFT_QPM_SQ_PSN, entry.sq_psn > kPsnMask) ||
      wrong(WEFT_QPM_RETRY, entry.timeout > 31 || entry.retry_cnt > retries || entry.rnr_retry > 7) ||
      wrong(WEFT_QPM_RNR_TIMER, entry.min_rnr_timer > 31) ||
      wrong(WEFT_QPM_ACCESS, (entry.access & ~kRemoteRights) != 0) ||
      // The value 0 of the 15 bits names no partition (section 10.9.1.1).
      wrong(WEFT_QPM_PKEY, (entry.pkey & 0x7fff) == 0) || wrong(WEFT_QPM_PORT, entry.av.port >= ports.size()) ||
      wrong(WEFT_QPM_SYNC, !sync_range_valid(entry))) {
    return WEFT_ERR_BAD_FIELD;
  }
  return (mask & WEFT_QPM_PATH) != 0 ? check_path(entry.av, ports) : WEFT_ERR_OK;
}

// Addresses, frame template and link class of a complete path.
void set_path(QueuePair& qp, const Port& port) {
  weft_qp_entry& entry = qp.entry;
  const weft_av& av = entry.av;
  const Port::Address& source = port.addresses[av.sgid_index];
  std::copy(std::begin(av.dgid), std::end(av.dgid), qp.dgid.begin());
  qp.sgid = source.gid;
  qp.smac = port.mac_of(source);
  std::copy(qp.sgid.begin(), qp.sgid.end(), entry.sgid);
  std::copy(qp.smac.begin(), qp.smac.end(), entry.smac);
  entry.vlan = source.vlan;
  PathInfo info;
  std::copy(std::begin(av.dmac), std::end(av.dmac), info.dmac.begin());
  info.smac = qp.smac;
  info.vlan = source.vlan;
  info.priority = av.sl;
  info.sgid = qp.sgid;
  info.dgid = qp.dgid;
  info.traffic_class = av.traffic_class;
  info.hop_limit = av.hop_limit;
  info.flow_label = av.flow_label;
  info.sport = av.udp_sport != 0 ? av.udp_sport : udp_source_port(av.flow_label, entry.qpn, entry.dest_qpn);
  qp.path = Path(info);
  // Priority follows the class selector of the traffic class (RFC 2474, section 4.2.2).
  qp.cls = port.owns(info.dmac) ? kLoopback : av.traffic_class >> 5;
}

}  // namespace

Error make_queue_pair(const weft_qp_entry& wanted, std::uint32_t ports, QueuePair& qp) {
  switch (wanted.type) {
    case WEFT_QP_CHANNEL:
      break;
    case WEFT_QP_RC:
    case WEFT_QP_UC:
    case WEFT_QP_UD:
    case WEFT_QP_GSI:
    case WEFT_QP_ETHERNET:
      return WEFT_ERR_UNSUPPORTED;
    default:
      return WEFT_ERR_BAD_TYPE;
  }
  if (wanted.ctx >= WEFT_CONTEXTS_MAX || wanted.pd > WEFT_PD_MAX || wanted.av.port >= ports ||
      (wanted.access & ~kRemoteRights) != 0 || !sync_range_valid(wanted)) {
    return WEFT_ERR_BAD_FIELD;
  }
  weft_qp_entry entry{};
  entry.ctx = wanted.ctx;
  entry.pd = wanted.pd;
  entry.type = wanted.type;
  entry.av.port = wanted.av.port;
  entry.access = wanted.access;
  entry.sync_base = wanted.sync_base;
  entry.sync_count = wanted.sync_count;
  // All else has no meaning here.
  if (std::memcmp(&entry, &wanted, sizeof(entry)) != 0) return WEFT_ERR_BAD_FIELD;
  entry.state = WEFT_QPS_RESET;
  entry.pkey = kDefaultPkey;
  entry.vlan = kNoVlan;
  qp.entry = entry;
  return WEFT_ERR_OK;
}

std::optional<TransitionRule> transition_rule(std::uint8_t type, std::uint8_t from, std::uint8_t to) {
  const bool rc = type == WEFT_QP_RC || type == WEFT_QP_CHANNEL;
  for (const Rule& rule : kRules) {
    if (rule.from != from || rule.to != to) continue;
    if (rc && from == WEFT_QPS_SQE) return {};
    const auto& fields = rc ? rule.rc : type == WEFT_QP_UC ? rule.uc : rule.ud;
    const bool syncs = type == WEFT_QP_CHANNEL && from != WEFT_QPS_SQD && to != WEFT_QPS_SQD;
    return TransitionRule{fields.required, fields.required | fields.allowed | (syncs ? WEFT_QPM_SYNC : 0)};
  }
  return {};
}

Error apply_modify(QueuePair& qp, const weft_mbox_qp_modify& modify, std::span<const Port> ports) {
  const std::uint8_t from = qp.entry.state;
  const std::uint8_t to = modify.qp.state;
  const std::uint32_t mask = modify.mask;
  if (to == WEFT_QPS_RESET || to == WEFT_QPS_ERR) {
    if (mask != 0) return WEFT_ERR_BAD_FIELD;
    qp.entry.state = to;
    return WEFT_ERR_OK;
  }
  const std::optional<TransitionRule> rule = transition_rule(qp.entry.type, from, to);
  if (!rule) return WEFT_ERR_MBOX_STATE;
  if ((mask & ~rule->allowed) != 0 || (rule->required & ~mask) != 0) return WEFT_ERR_BAD_FIELD;
  if (to == WEFT_QPS_SQD) return WEFT_ERR_UNSUPPORTED;  // the requester has no way to drain yet
  if (const Error error = check_fields(modify.qp, qp.entry.type, mask, ports); error != WEFT_ERR_OK) return error;

  copy_fields(qp.entry, modify.qp, mask);
  qp.entry.state = to;
  if (mask & WEFT_QPM_PATH) set_path(qp, ports[qp.entry.av.port]);
  return WEFT_ERR_OK;
}

}  // namespace weft::model::nic
