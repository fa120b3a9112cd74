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
constexpr std::uint64_t kDiscardRatio = 16;  // bytes of pages that the host drops while it writes one

}  // namespace

Tables::Tables(HostPort& host, Contexts& contexts, RegionTable& memory, CommandProcessor& processor, EventQueue& events,
               std::uint32_t caps)
    : host_(host), contexts_(contexts), memory_(memory), processor_(processor), events_(events), caps_(caps) {}

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
      return nic_->port_set(get<weft_mbox_port_set>(operand));
    case WEFT_MBOX_GID_SET:
      return nic_->gid_set(get<weft_mbox_gid>(operand));
    case WEFT_MBOX_GID_GET: {
      auto gid = get<weft_mbox_gid>(operand);
      const Error error = nic_->gid_get(gid);
      if (error == WEFT_ERR_OK) put(operand, gid);
      return error;
    }
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
      if ((caps_ & WEFT_CAP_QUEUES) == 0) return WEFT_ERR_UNSUPPORTED;
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
    case WEFT_MBOX_CQ_CREATE:  // these come with WEFT_CAP_VERBS
    case WEFT_MBOX_CQ_RESIZE:
    case WEFT_MBOX_CQ_DESTROY:
    case WEFT_MBOX_SRQ_CREATE:
    case WEFT_MBOX_SRQ_MODIFY:
    case WEFT_MBOX_SRQ_QUERY:
    case WEFT_MBOX_SRQ_DESTROY:
    case WEFT_MBOX_FIFO_CREATE:  // and these with WEFT_CAP_FIFO
    case WEFT_MBOX_FIFO_DESTROY:
      return WEFT_ERR_UNSUPPORTED;
    default:  // the firmware's own
      return WEFT_ERR_BAD_OP;
  }
}

Error Tables::create_queue_pair(weft_qp_entry& entry) {
  if (entry.type == WEFT_QP_CHANNEL && (caps_ & WEFT_CAP_CHANNELS) == 0) return WEFT_ERR_UNSUPPORTED;
  if (!contexts_.exists(entry.ctx)) return WEFT_ERR_MBOX_NOT_FOUND;
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
  if (range.length == 0 || range.offset > size || range.length > size - range.offset) return WEFT_ERR_BAD_RANGE;
  zero_at_ = range.offset;
  zero_left_ = range.length;
  discard_ = true;
  return std::nullopt;
}

// Gives how many bytes it made zero: whole pages by the host, where it can, else by hand.
std::uint64_t Tables::zero_piece(std::uint64_t budget) {
  const std::uint64_t in_page = zero_at_ % kPage;
  const std::uint64_t pages = std::min(zero_left_, std::max(budget * kDiscardRatio, kPage)) / kPage * kPage;
  if (discard_ && in_page == 0 && pages != 0) {
    if (host_.ram_discard(WEFT_BAR_HBM, zero_at_, pages)) return pages;
    discard_ = false;
  }
  const std::uint64_t bytes = std::min({zero_left_, budget, discard_ ? kPage - in_page : budget});
  std::memset(memory_.hbm_memory().data() + zero_at_, 0, bytes);
  return bytes;
}

std::optional<Error> Tables::advance(std::uint64_t budget) {
  const std::uint64_t bytes = zero_piece(budget);
  zero_at_ += bytes;
  zero_left_ -= bytes;
  if (zero_left_ != 0) return std::nullopt;
  return WEFT_ERR_OK;
}

}  // namespace weft::model
