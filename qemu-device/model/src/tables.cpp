// SPDX-License-Identifier: MIT
#include "tables.hpp"

#include <algorithm>
#include <cstring>

namespace weft::model {

namespace {

template <class T>
T get(const Tables::Operand& operand) {
  static_assert(sizeof(T) <= sizeof(Tables::Operand));
  T value;
  std::memcpy(&value, operand.data(), sizeof(value));
  return value;
}

template <class T>
void put(Tables::Operand& operand, const T& value) {
  std::memcpy(operand.data(), &value, sizeof(value));
}

constexpr std::uint64_t kPage = 4096;

}  // namespace

Tables::Tables(HostPort& host, Contexts& contexts, RegionTable& memory, CommandProcessor& processor, EventQueue& events)
    : host_(host), contexts_(contexts), memory_(memory), processor_(processor), events_(events) {}

std::optional<Error> Tables::execute(std::uint32_t op, Operand& operand) {
  if (busy()) return WEFT_ERR_MBOX_BUSY;
  switch (op) {
    case WEFT_MBOX_PORT_GET: {
      weft_mbox_port port{};
      port.port = get<weft_mbox_index>(operand).index;
      const Error error = nic_->port_get(port);
      if (error == WEFT_ERR_OK) put(operand, port);
      return error;
    }
    case WEFT_MBOX_PORT_SET:
      return nic_->port_set(get<weft_mbox_port>(operand));
    case WEFT_MBOX_EVENT_QUEUE:
      return events_.configure(get<weft_mbox_event_queue>(operand));
    case WEFT_MBOX_HBM_ZERO:
      return zero(get<weft_mbox_range>(operand));
    case WEFT_MBOX_CTX_CREATE:
      return contexts_.create(get<weft_mbox_ctx>(operand));
    case WEFT_MBOX_CTX_DESTROY:
      return destroy_context(get<weft_mbox_index>(operand).index);
    case WEFT_MBOX_REGION_CREATE:
      return memory_.create(get<weft_region_entry>(operand));
    case WEFT_MBOX_REGION_DESTROY:
      return memory_.destroy(get<weft_mbox_index>(operand).index);
    case WEFT_MBOX_QUEUE_CREATE:
      return processor_.create(get<weft_queue_entry>(operand));
    case WEFT_MBOX_QUEUE_DESTROY: {
      const auto pair = get<weft_mbox_pair>(operand);
      return processor_.destroy(pair.ctx, pair.index);
    }
    case WEFT_MBOX_QUEUE_ABORT: {
      const auto pair = get<weft_mbox_pair>(operand);
      return processor_.abort(pair.ctx, pair.index);
    }
    case WEFT_MBOX_SYNC_CONFIG:
      return contexts_.configure(get<weft_mbox_sync>(operand));
    case WEFT_MBOX_QP_CREATE: {
      auto entry = get<weft_qp_entry>(operand);
      const Error error = create_queue_pair(entry);
      if (error == WEFT_ERR_OK) put(operand, entry);
      return error;
    }
    case WEFT_MBOX_QP_MODIFY: {
      const auto modify = get<weft_mbox_qp_modify>(operand);
      if (!contexts_.exists(modify.qp.ctx)) return WEFT_ERR_MBOX_NOT_FOUND;
      return nic_->qp_modify(modify);
    }
    case WEFT_MBOX_QP_QUERY: {
      const auto pair = get<weft_mbox_pair>(operand);
      weft_qp_entry entry{};
      const Error error = nic_->qp_query(pair.ctx, pair.index, entry);
      if (error == WEFT_ERR_OK) put(operand, entry);
      return error;
    }
    case WEFT_MBOX_QP_DESTROY: {
      const auto pair = get<weft_mbox_pair>(operand);
      return nic_->qp_destroy(pair.ctx, pair.index);
    }
    // CQ, SRQ, AH and GID operations come with WEFT_CAP_VERBS; the others are the firmware's own.
    default:
      return WEFT_ERR_BAD_OP;
  }
}

Error Tables::create_queue_pair(weft_qp_entry& entry) {
  if (!contexts_.exists(entry.ctx)) return WEFT_ERR_MBOX_NOT_FOUND;
  if (entry.type != WEFT_QP_CHANNEL) return WEFT_ERR_BAD_OP;  // user-owned ones come with WEFT_CAP_VERBS
  return nic_->qp_create(entry);
}

Error Tables::destroy_context(std::uint32_t context) {
  if (!contexts_.exists(context)) return WEFT_ERR_MBOX_NOT_FOUND;
  processor_.destroy_context(context);
  nic_->destroy_context(context);
  memory_.destroy_context(context);
  return contexts_.destroy(context);
}

std::optional<Error> Tables::zero(const weft_mbox_range& range) {
  const std::uint64_t size = memory_.hbm_memory().size();
  if (range.offset > size || range.length > size - range.offset) return WEFT_ERR_BAD_RANGE;
  if (range.length == 0) return WEFT_ERR_OK;
  if (range.offset % kPage == 0 && range.length % kPage == 0 &&
      host_.ram_discard(WEFT_BAR_HBM, range.offset, range.length)) {
    return WEFT_ERR_OK;
  }
  zero_at_ = range.offset;
  zero_left_ = range.length;
  return std::nullopt;
}

std::optional<Error> Tables::advance(std::uint64_t budget) {
  const std::uint64_t bytes = std::min(zero_left_, budget);
  std::memset(memory_.hbm_memory().data() + zero_at_, 0, bytes);
  zero_at_ += bytes;
  zero_left_ -= bytes;
  if (zero_left_ != 0) return std::nullopt;
  return WEFT_ERR_OK;
}

}  // namespace weft::model
