// SPDX-License-Identifier: MIT
#include "table_port.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "region_table.hpp"

namespace weft::model {

namespace {

// Bytes that a look at a busy table operation moves it on, so that a firmware that only looks gets its answer.
constexpr std::uint64_t kLookBytes = 64 * 1024;

// Word `offset` of a structure or array; 4-aligned offset inside of it.
template <class T>
std::uint32_t word_of(const T& value, std::uint32_t offset) {
  std::uint32_t word;
  std::memcpy(&word, reinterpret_cast<const std::byte*>(&value) + offset, sizeof(word));
  return word;
}

constexpr bool inside(std::uint32_t offset, std::uint32_t start, std::uint32_t bytes) {
  return offset >= start && offset - start < bytes;
}

}  // namespace

TablePort::TablePort(HostPort& host, Counters& counters, EventQueue& events, Mailbox& mailbox, Tables& tables,
                     const DeviceFacts& facts)
    : host_(host), counters_(counters), events_(events), mailbox_(mailbox), tables_(tables), facts_(facts) {}

std::uint32_t TablePort::io_read(std::uint32_t offset) {
  if (inside(offset, WEFT_FWIO_MBOX_REQUEST, WEFT_MBOX_BYTES)) return mailbox_.latched_word(offset / 4);
  if (inside(offset, WEFT_FWIO_MBOX_RESPONSE, WEFT_MBOX_BYTES)) {
    return mailbox_.answer_word((offset - WEFT_FWIO_MBOX_RESPONSE) / 4);
  }
  if (inside(offset, WEFT_FWIO_SERIAL, sizeof(facts_.serial))) return word_of(facts_.serial, offset - WEFT_FWIO_SERIAL);
  if (inside(offset, WEFT_FWIO_SENSORS, sizeof(reading_))) return sensor_word(offset - WEFT_FWIO_SENSORS);
  if (inside(offset, WEFT_FWIO_TABLE_DATA, sizeof(operand_))) return word_of(operand_, offset - WEFT_FWIO_TABLE_DATA);
  switch (offset) {
    case WEFT_FWIO_MBOX_PENDING:
      return mailbox_.pending();
    case WEFT_FWIO_HEARTBEAT:
      return heartbeat_;
    case WEFT_FWIO_TIME_LO: {
      const std::uint64_t ms = host_.now_ns() / 1'000'000;
      time_high_ = static_cast<std::uint32_t>(ms >> 32);
      return static_cast<std::uint32_t>(ms);
    }
    case WEFT_FWIO_TIME_HI:
      return time_high_;
    case WEFT_FWIO_HW_VERSION:
      return WEFT_HW_MAJOR << 16 | WEFT_HW_MINOR;
    case WEFT_FWIO_PORTS:
      return facts_.ports;
    case WEFT_FWIO_CONTEXTS:
      return WEFT_CONTEXTS_MAX;
    case WEFT_FWIO_REGIONS:
      return RegionTable::kRegions;
    case WEFT_FWIO_QPS:
      return facts_.queue_pairs;
    case WEFT_FWIO_HBM_LO:
      return static_cast<std::uint32_t>(facts_.hbm_bytes);
    case WEFT_FWIO_HBM_HI:
      return static_cast<std::uint32_t>(facts_.hbm_bytes >> 32);
    case WEFT_FWIO_IMAGE_CRC:
      return image_crc_;
    case WEFT_FWIO_VECTORS:
      return WEFT_VECTORS;
    case WEFT_FWIO_CAPS:
      return facts_.caps;
    case WEFT_FWIO_TABLE_STATUS:
      if (tables_.busy()) advance(std::min(kLookBytes, bytes_left_));
      return status_;
    default:
      return 0;
  }
}

void TablePort::io_write(std::uint32_t offset, std::uint32_t value) {
  if (inside(offset, WEFT_FWIO_MBOX_RESPONSE, WEFT_MBOX_BYTES)) {
    return mailbox_.set_answer_word((offset - WEFT_FWIO_MBOX_RESPONSE) / 4, value);
  }
  if (inside(offset, WEFT_FWIO_TABLE_DATA, sizeof(operand_))) {
    std::memcpy(operand_.data() + (offset - WEFT_FWIO_TABLE_DATA), &value, sizeof(value));
    return;
  }
  switch (offset) {
    case WEFT_FWIO_MBOX_ANSWER:
      return mailbox_.answer(value);
    case WEFT_FWIO_READY:
      ready_ = true;
      version_ = value;
      return;
    case WEFT_FWIO_HEARTBEAT:
      heartbeat_ = value;
      return;
    case WEFT_FWIO_FATAL:
      fatal_ = true;
      fatal_code_ = value;
      return;
    case WEFT_FWIO_IDLE:
      sleeping_ = !woken_;
      woken_ = false;
      return;
    case WEFT_FWIO_EVENT_LOG:
      return events_.post(WEFT_EVENT_LOG, 0, 0, WEFT_ERR_OK, value);
    case WEFT_FWIO_CONSOLE: {
      const std::uint64_t character = value & 0xff;
      return host_.log(WEFT_ABI_LOG_TRACE, "fw_console", std::span(&character, 1));
    }
    case WEFT_FWIO_TABLE_OP:
      return execute(value);
    default:
      return;
  }
}

std::uint32_t TablePort::sensor_word(std::size_t offset) {
  if (offset == 0) {
    const std::uint64_t moved = counters_.get(WEFT_CTR_copy_bytes) + counters_.get(WEFT_CTR_fill_bytes) +
                                counters_.get(WEFT_CTR_reduce_bytes) + counters_.get(WEFT_CTR_rdma_bytes);
    reading_ = sensors_.read(host_.now_ns(), moved);
  }
  return word_of(reading_, static_cast<std::uint32_t>(offset));
}

void TablePort::execute(std::uint32_t op) {
  if (table_busy()) return;  // one at a time; the status stays busy
  if (operations_left_ == 0) {
    waiting_op_ = op;
    status_ = WEFT_FW_TABLE_BUSY;
    return;
  }
  --operations_left_;
  const std::optional<Error> result = tables_.execute(op, operand_);
  status_ = result ? static_cast<std::uint32_t>(*result) : WEFT_FW_TABLE_BUSY;
  if (result) wake();
}

void TablePort::begin_step() {
  operations_left_ = kStepOperations;
  bytes_left_ = kStepBytes;
  if (waiting_op_ != 0) {
    execute(std::exchange(waiting_op_, 0));
  } else if (tables_.busy()) {
    advance(kStepBytes);
  }
}

void TablePort::advance(std::uint64_t budget) {
  if (budget == 0) return;
  bytes_left_ -= budget;
  if (const std::optional<Error> result = tables_.advance(budget)) {
    status_ = static_cast<std::uint32_t>(*result);
    wake();
  }
}

void TablePort::reset() {
  sensors_.reset();
  reading_ = {};
  time_high_ = image_crc_ = version_ = heartbeat_ = fatal_code_ = status_ = waiting_op_ = 0;
  sleeping_ = woken_ = ready_ = fatal_ = false;
  operand_ = {};
  tables_.reset();
}

}  // namespace weft::model
