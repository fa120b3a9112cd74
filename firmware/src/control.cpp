// SPDX-License-Identifier: MIT
#include "control.hpp"

#include "block.hpp"
#include "version.hpp"

namespace weft::fw {
namespace {

constexpr char kAccelerator[sizeof(weft_mbox_identity::board)] = "Weft emulated accelerator";
constexpr char kNic[sizeof(weft_mbox_identity::board)] = "Weft emulated NIC";

}  // namespace

void Control::pass() {
  if (state_ == State::kStart) start();
  if (state_ == State::kFailed) {
    io_.write(WEFT_FWIO_IDLE, 1);
    return;
  }
  now_ms_ = read_time();
  if (now_ms_ >= next_tick_ms_) tick();
  bool worked = serve_mailbox();
  if (!worked) worked = watch_ports();
  worked |= serve_table();  // last: what the hardware does at once is answered in the same pass
  // The end of a table operation wakes the core too, so a long one does not keep it spinning.
  if (!worked) io_.write(WEFT_FWIO_IDLE, 1);
}

uint64_t Control::read_time() const {
  const uint64_t low = io_.read(WEFT_FWIO_TIME_LO);
  return low | static_cast<uint64_t>(io_.read(WEFT_FWIO_TIME_HI)) << 32;
}

void Control::start() {
  start_ms_ = now_ms_ = read_time();
  next_tick_ms_ = start_ms_ + kTickMs;
  refused_window_ms_ = start_ms_;

  const uint32_t hw_version = io_.read(WEFT_FWIO_HW_VERSION);
  if (hw_version >> 16 != WEFT_HW_MAJOR) {
    fail(Fatal::kHwVersion, hw_version);
    return;
  }
  ports_ = io_.read(WEFT_FWIO_PORTS);
  if (ports_ > WEFT_PORTS_MAX) {
    fail(Fatal::kGeometry, ports_);
    return;
  }
  for (uint32_t& state : port_state_) state = WEFT_PORT_DOWN;

  state_ = State::kRunning;
  log(Severity::kInfo, LogCode::kBoot,
      Text()
          .add("firmware ")
          .add(kVersionMajor)
          .add(".")
          .add(kVersionMinor)
          .add(", image ")
          .add_hex(io_.read(WEFT_FWIO_IMAGE_CRC)));
  io_.write(WEFT_FWIO_HEARTBEAT, ++beats_);
  io_.write(WEFT_FWIO_READY, kVersion);
}

void Control::fail(Fatal code, uint32_t found) {
  state_ = State::kFailed;
  log(Severity::kError, LogCode::kFatal,
      Text().add("fatal ").add(static_cast<uint32_t>(code)).add(", found ").add_hex(found));
  io_.write(WEFT_FWIO_FATAL, static_cast<uint32_t>(code));
}

void Control::tick() {
  // On the grid of the first tick; after a long stop of the machine the missed ones are not made up for.
  next_tick_ms_ += kTickMs;
  if (next_tick_ms_ <= now_ms_) next_tick_ms_ = now_ms_ + kTickMs;
  io_.write(WEFT_FWIO_HEARTBEAT, ++beats_);
  watch_sensors();
  watched_port_ = 0;
  if (now_ms_ - refused_window_ms_ >= kRefusedWindowMs) {
    if (refused_ > kRefusedPerWindow) {
      log(Severity::kWarning, LogCode::kRefusedMore,
          Text().add(refused_ - kRefusedPerWindow).add(" more requests refused"));
    }
    refused_ = 0;
    refused_window_ms_ = now_ms_;
  }
  if (table_user_ == TableUser::kMailbox && !table_slow_ && now_ms_ - table_start_ms_ >= kSlowMs) {
    table_slow_ = true;
    log(Severity::kWarning, LogCode::kSlow, Text().add("op ").add(op_).add(" not finished after 5 s"));
  }
}

void Control::watch_sensors() {
  weft_mbox_sensors sensors;
  read_words(io_, WEFT_FWIO_SENSORS, &sensors, sizeof(sensors));
  const uint32_t hottest =
      sensors.temperature_mc > sensors.hbm_temperature_mc ? sensors.temperature_mc : sensors.hbm_temperature_mc;
  if (!hot_ && hottest > kHotMc) {
    hot_ = true;
    log(Severity::kError, LogCode::kHot, Text().add("over-temperature: ").add(hottest / 1000).add(" C"));
  } else if (hot_ && hottest <= kCoolMc) {
    hot_ = false;
    log(Severity::kInfo, LogCode::kCool, Text().add("temperature normal: ").add(hottest / 1000).add(" C"));
  }
}

bool Control::serve_mailbox() {
  if (seq_ != 0) return false;  // one at a time; its table operation is under way
  const uint32_t seq = io_.read(WEFT_FWIO_MBOX_PENDING);
  // Only the port watch can hold the table here, and it ends by itself.
  if (seq == 0 || table_user_ != TableUser::kNone) return false;
  seq_ = seq;
  Error status = take_request(seq);
  if (status == WEFT_ERR_OK) status = execute();
  if (table_user_ != TableUser::kMailbox) mailbox_done(status);
  return true;
}

Error Control::take_request(uint32_t seq) {
  weft_mbox_header head;
  read_words(io_, WEFT_FWIO_MBOX_REQUEST, &head, sizeof(head));
  op_ = head.op;
  length_ = 0;
  WEFT_REQUIRE(head.version == WEFT_MBOX_VERSION, WEFT_ERR_BAD_VERSION);
  WEFT_REQUIRE(head.seq == seq && head.status == 0, WEFT_ERR_BAD_FIELD);
  for (const uint8_t byte : head.reserved) WEFT_REQUIRE(byte == 0, WEFT_ERR_BAD_FIELD);
  operation_ = find_operation(head.op);
  WEFT_REQUIRE(operation_ != nullptr, WEFT_ERR_MBOX_OP);
  const bool any = operation_->request_bytes == kAnyLength;
  WEFT_REQUIRE(any ? head.length <= WEFT_MBOX_PAYLOAD : head.length == operation_->request_bytes, WEFT_ERR_MBOX_LENGTH);
  length_ = head.length;
  read_words(io_, WEFT_FWIO_MBOX_REQUEST + sizeof(head), payload_, round_up_to_word(length_));
  return check_zero(*operation_, payload_);
}

// Serves it, or hands it to the tables. On success the payload is the answer's.
Error Control::execute() {
  if (operation_->table) {
    start_table(TableUser::kMailbox, op_, payload_, operation_->request_bytes);
    return WEFT_ERR_OK;
  }
  switch (op_) {
    case WEFT_MBOX_IDENTIFY: {
      weft_mbox_identity identity = {};
      identity.fw_version = kVersion;
      identity.fw_build = io_.read(WEFT_FWIO_IMAGE_CRC);
      identity.hw_version = io_.read(WEFT_FWIO_HW_VERSION);
      identity.ports = ports_;
      identity.caps = io_.read(WEFT_FWIO_CAPS);
      identity.contexts = io_.read(WEFT_FWIO_CONTEXTS);
      identity.regions = io_.read(WEFT_FWIO_REGIONS);
      identity.qps = io_.read(WEFT_FWIO_QPS);
      identity.gids_per_port = WEFT_GIDS_PER_PORT;
      identity.uptime_ms = now_ms_ - start_ms_;
      read_words(io_, WEFT_FWIO_SERIAL, identity.serial, sizeof(identity.serial));
      __builtin_memcpy(identity.board, (identity.caps & WEFT_CAP_QUEUES) != 0 ? kAccelerator : kNic,
                       sizeof(identity.board));
      to_payload(payload_, identity);
      return WEFT_ERR_OK;
    }
    case WEFT_MBOX_ECHO:
      return WEFT_ERR_OK;
    case WEFT_MBOX_SENSORS:
      read_words(io_, WEFT_FWIO_SENSORS, payload_, sizeof(weft_mbox_sensors));
      return WEFT_ERR_OK;
    case WEFT_MBOX_LOG_READ:
      to_payload(payload_, log_.read(from_payload<weft_mbox_index>(payload_).index));
      return WEFT_ERR_OK;
    default:
      return WEFT_ERR_MBOX_OP;
  }
}

void Control::mailbox_done(Error status) {
  if (status != WEFT_ERR_OK) {
    log_refused(status);
    answer(status, 0);
  } else {
    answer(status, op_ == WEFT_MBOX_ECHO ? length_ : operation_->response_bytes);
  }
  seq_ = 0;
}

void Control::answer(Error status, uint32_t payload_bytes) {
  weft_mbox_header head = {};
  head.seq = seq_;
  head.op = op_;
  head.length = static_cast<uint16_t>(payload_bytes);
  head.status = static_cast<uint16_t>(status);
  head.version = WEFT_MBOX_VERSION;
  write_words(io_, WEFT_FWIO_MBOX_RESPONSE, &head, sizeof(head));
  for (uint32_t i = payload_bytes; i < round_up_to_word(payload_bytes); ++i) payload_[i] = 0;
  write_words(io_, WEFT_FWIO_MBOX_RESPONSE + sizeof(head), payload_, round_up_to_word(payload_bytes));
  io_.write(WEFT_FWIO_MBOX_ANSWER, seq_);
}

void Control::start_table(TableUser user, uint16_t op, const void* operand, uint32_t bytes) {
  write_words(io_, WEFT_FWIO_TABLE_DATA, operand, bytes);
  io_.write(WEFT_FWIO_TABLE_OP, op);
  table_user_ = user;
  table_start_ms_ = now_ms_;
  table_slow_ = false;
}

bool Control::serve_table() {
  if (table_user_ == TableUser::kNone) return false;
  const uint32_t status = io_.read(WEFT_FWIO_TABLE_STATUS);
  if (status == WEFT_FW_TABLE_BUSY) return false;
  const TableUser user = table_user_;
  table_user_ = TableUser::kNone;
  const auto error = static_cast<Error>(status & 0xffff);  // as wide as the response's status
  if (user == TableUser::kPortWatch) {
    port_read(error);
    return true;
  }
  if (error == WEFT_ERR_OK) {
    read_words(io_, WEFT_FWIO_TABLE_DATA, payload_, operation_->response_bytes);
  }
  mailbox_done(error);
  return true;
}

bool Control::watch_ports() {
  // A request goes first: it waits for an answer, the watch does not.
  if (watched_port_ >= ports_ || table_user_ != TableUser::kNone) return false;
  weft_mbox_index operand = {};
  operand.index = watched_port_;
  start_table(TableUser::kPortWatch, WEFT_MBOX_PORT_GET, &operand, sizeof(operand));
  return true;
}

void Control::port_read(Error status) {
  const uint32_t index = watched_port_++;
  if (status != WEFT_ERR_OK) return;
  weft_mbox_port port;
  read_words(io_, WEFT_FWIO_TABLE_DATA, &port, sizeof(port));
  if (port.state == port_state_[index]) return;
  port_state_[index] = port.state;
  if (port.state == WEFT_PORT_ACTIVE) {
    log(Severity::kInfo, LogCode::kPortChange,
        Text().add("port ").add(index).add(" up, ").add(port.speed_mbps).add(" Mb/s"));
  } else {
    log(Severity::kWarning, LogCode::kPortChange, Text().add("port ").add(index).add(" down"));
  }
}

void Control::log(Severity severity, LogCode code, const Text& text) {
  io_.write(WEFT_FWIO_EVENT_LOG, log_.append(severity, code, now_ms_ - start_ms_, text));
}

void Control::log_refused(Error status) {
  if (++refused_ > kRefusedPerWindow) return;
  log(Severity::kWarning, LogCode::kRefused, Text().add("op ").add(op_).add(" refused: ").add(error_name(status)));
}

}  // namespace weft::fw
