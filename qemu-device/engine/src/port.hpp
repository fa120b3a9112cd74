// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "weft/abi/model.h"
#include "weft/engine/engine.h"
#include "weft/fabric/socket_link.hpp"

namespace weft::engine {

// One Ethernet link of the model: its connection to the switch, made again when it breaks. Under the model's lock.
class Port final : public fabric::LinkOwner {
 public:
  using Clock = std::chrono::steady_clock;

  struct Config {
    std::uint32_t index = 0;
    std::string name;  // in HELLO
    std::string path;  // of the switch's socket; empty: only what adopt() brings
    std::uint32_t frame_max = fabric::kFrameMax;
    const weft_abi_model* model = nullptr;
    void* device = nullptr;
  };
  explicit Port(Config config) : config_(std::move(config)) {}

  // The thread's side. tend() connects when it is time to and takes input when `revents` of poll() say so.
  int fd() const { return link_ ? link_->fd() : -1; }
  short events() const;
  Clock::time_point next_attempt() const;  // max(): none
  void tend(int polled_fd, short revents);
  void flush();
  // Replace the connection by this socket; takes effect with tend().
  void adopt(fabric::Fd fd) { adopted_ = std::move(fd); }
  bool adopted() const { return static_cast<bool>(adopted_); }

  // The model's side, as in weft_abi_host.
  int send(std::uint32_t cls, std::span<const weft_abi_segment> segments);
  void credit(std::uint32_t cls, std::uint32_t frames);
  void pause(std::uint32_t cls, bool stop);

  // The model forgot every frame that it had.
  void model_was_reset();

  weft_engine_link_counters counters() const;

  void on_frame(unsigned cls, std::span<const std::byte> frame) override;
  void on_ready(unsigned cls) override;
  void on_pause(unsigned cls, bool stop) override;
  void on_state(bool up) override;
  void on_station(const fabric::Mac& mac, bool up) override;

 private:
  void open(fabric::Fd fd);
  void reap();

  const Config config_;
  std::unique_ptr<fabric::SocketLink> link_;
  fabric::Fd adopted_;
  Clock::time_point attempt_{};  // next, while there is no link
  std::chrono::milliseconds backoff_{0};
  std::array<std::uint32_t, fabric::kClasses> stale_{};  // frames of earlier connections that the model still has
  weft_engine_link_counters counters_{};                 // of earlier connections
};

}  // namespace weft::engine
