// SPDX-License-Identifier: MIT
// The control program: one cooperative loop that serves the mailbox, beats, and watches ports and sensors.
#pragma once

#include <stdint.h>

#include "io.hpp"
#include "log.hpp"
#include "operations.hpp"
#include "weft/hw/mbox.h"
#include "weft/hw/regs.h"

namespace weft::fw {

inline constexpr uint32_t kTickMs = 100;            // heartbeat, ports, sensors
inline constexpr uint32_t kRefusedWindowMs = 1000;  // at most kRefusedPerWindow records of refused requests in it
inline constexpr uint32_t kRefusedPerWindow = 4;
inline constexpr uint32_t kSlowMs = 5000;   // a table operation that takes longer is logged
inline constexpr uint32_t kHotMc = 95000;   // over-temperature, millidegrees Celsius; logged once,
inline constexpr uint32_t kCoolMc = 90000;  // until both sensors are at or below this

// Codes of WEFT_FWIO_FATAL.
enum class Fatal : uint32_t {
  kHwVersion = 1,  // hardware of another major version
  kGeometry = 2,   // sizes that the interface does not allow
};

class Control {
 public:
  explicit Control(const Io& io) : io_(io) {}

  // One pass of the main loop; bounded. The first one starts up. Writes IDLE when nothing is left to do.
  void pass();

  Io& io() { return io_; }

 private:
  enum class State { kStart, kRunning, kFailed };
  // On whose behalf the table port works.
  enum class TableUser { kNone, kMailbox, kPortWatch };

  void start();
  void fail(Fatal code, uint32_t found);
  uint64_t read_time() const;

  void tick();
  void watch_sensors();
  bool serve_mailbox();
  bool serve_table();
  bool watch_ports();

  // Header and payload of the request `seq`; finds the operation.
  Error take_request(uint32_t seq);
  Error execute();
  void answer(Error status, uint32_t payload_bytes);
  void start_table(TableUser user, uint16_t op, const void* operand, uint32_t bytes);
  void mailbox_done(Error status);
  void port_read(Error status);

  void log(Severity severity, LogCode code, const Text& text);
  void log_refused(Error status);

  Io io_;
  State state_ = State::kStart;
  uint32_t ports_ = 0;
  uint64_t start_ms_ = 0;
  uint64_t now_ms_ = 0;
  uint64_t next_tick_ms_ = 0;
  uint32_t beats_ = 0;
  bool hot_ = false;

  // The request being served.
  uint32_t seq_ = 0;  // 0: none
  const Operation* operation_ = nullptr;
  uint16_t op_ = 0;
  uint32_t length_ = 0;
  alignas(8) uint8_t payload_[WEFT_MBOX_PAYLOAD] = {};

  TableUser table_user_ = TableUser::kNone;
  uint64_t table_start_ms_ = 0;
  bool table_slow_ = false;

  uint32_t watched_port_ = WEFT_PORTS_MAX;  // next to look at; at or above ports_: done until the next tick
  uint32_t port_state_[WEFT_PORTS_MAX] = {};

  uint64_t refused_window_ms_ = 0;  // its start
  uint32_t refused_ = 0;            // in the window
  Log log_;
};

}  // namespace weft::fw
