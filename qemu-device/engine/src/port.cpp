// SPDX-License-Identifier: MIT
#include "port.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weft::engine {

using fabric::SendResult;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kBackoffFirst{10};
constexpr milliseconds kBackoffLast{1000};
constexpr std::size_t kSegmentsMax = 32;

}  // namespace

short Port::events() const { return link_ && link_->wants_write() ? POLLIN | POLLOUT : POLLIN; }

Port::Clock::time_point Port::next_attempt() const {
  if (adopted()) return Clock::time_point::min();
  return link_ || config_.path.empty() ? Clock::time_point::max() : attempt_;
}

void Port::open(fabric::Fd fd) {
  link_ = std::make_unique<fabric::SocketLink>(std::move(fd), *this,
                                               fabric::SocketLink::Options{.name = config_.name, .stations = true});
}

void Port::tend(int polled_fd, short revents) {
  if (adopted()) {
    if (link_) {
      if (link_->up()) on_state(false);
      reap();
    }
    open(std::exchange(adopted_, {}));
    return;
  }
  if (!link_) {
    if (config_.path.empty() || Clock::now() < attempt_) return;
    int error = 0;
    if (fabric::Fd fd = fabric::connect_unix(config_.path, error)) {
      open(std::move(fd));
    } else {
      backoff_ = std::clamp(backoff_ * 2, kBackoffFirst, kBackoffLast);
      attempt_ = Clock::now() + backoff_;
    }
    return;
  }
  if (polled_fd != link_->fd()) return;  // of an earlier connection
  if (revents & ~POLLOUT) link_->readable();
  if (!link_->open()) reap();
}

void Port::flush() {
  if (!link_) return;
  link_->flush();
  if (!link_->open()) reap();
}

// The connection is over: keep what outlives it.
void Port::reap() {
  const auto& c = link_->counters();
  counters_.tx_frames += c.tx_frames;
  counters_.tx_bytes += c.tx_bytes;
  counters_.rx_frames += c.rx_frames;
  counters_.rx_bytes += c.rx_bytes;
  counters_.rx_dropped += c.rx_while_down;
  for (unsigned cls = 0; cls < fabric::kClasses; ++cls) stale_[cls] += link_->held(cls);
  link_.reset();
  backoff_ = std::clamp(backoff_ * 2, kBackoffFirst, kBackoffLast);
  attempt_ = Clock::now() + backoff_;
}

int Port::send(std::uint32_t cls, std::span<const weft_abi_segment> segments) {
  if (cls >= fabric::kClasses || segments.size() > kSegmentsMax) return -EINVAL;
  std::array<fabric::Segment, kSegmentsMax> parts;
  std::size_t length = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    parts[i] = {static_cast<const std::byte*>(segments[i].base), segments[i].length};
    if (segments[i].length > config_.frame_max - length) return -EMSGSIZE;
    length += segments[i].length;
  }
  if (!link_) return -ENETDOWN;
  switch (link_->send(cls, std::span(parts.data(), segments.size()))) {
    case SendResult::kSent:
      return 0;
    case SendResult::kNoCredit:
      return -EAGAIN;
    case SendResult::kDown:
      break;
  }
  return -ENETDOWN;
}

void Port::credit(std::uint32_t cls, std::uint32_t frames) {
  if (cls >= fabric::kClasses) return;
  // First come, first out: frames of an earlier connection leave the model first, and nobody waits for their credit.
  const std::uint32_t old = std::min(frames, stale_[cls]);
  stale_[cls] -= old;
  if (link_) link_->release(cls, frames - old);
}

void Port::pause(std::uint32_t cls, bool stop) {
  if (link_) link_->pause(cls, stop);
}

void Port::model_was_reset() {
  stale_.fill(0);
  if (!link_) return;
  for (unsigned cls = 0; cls < fabric::kClasses; ++cls) {
    link_->release(cls, link_->held(cls));
    link_->pause(cls, false);
  }
}

weft_engine_link_counters Port::counters() const {
  weft_engine_link_counters sum = counters_;
  if (link_) {
    const auto& c = link_->counters();
    sum.tx_frames += c.tx_frames;
    sum.tx_bytes += c.tx_bytes;
    sum.rx_frames += c.rx_frames;
    sum.rx_bytes += c.rx_bytes;
    sum.rx_dropped += c.rx_while_down;
  }
  return sum;
}

void Port::on_frame(unsigned cls, std::span<const std::byte> frame) {
  if (config_.model->link_receive(config_.device, config_.index, cls, frame.data(), frame.size()) != 0) {
    ++counters_.rx_dropped;
    link_->release(cls, 1);
  }
}

void Port::on_ready(unsigned cls) { config_.model->link_ready(config_.device, config_.index, cls); }

void Port::on_pause(unsigned cls, bool stop) {
  if (config_.model->link_pause == nullptr) return;
  config_.model->link_pause(config_.device, config_.index, cls, stop ? 1 : 0);
}

void Port::on_state(bool up) {
  if (up) {
    ++counters_.connects;
    backoff_ = milliseconds{0};
  }
  config_.model->link_state(config_.device, config_.index, up ? 1 : 0);
}

void Port::on_station(const fabric::Mac& mac, bool up) {
  if (config_.model->link_station == nullptr) return;
  config_.model->link_station(config_.device, config_.index, mac.data(), up ? 1 : 0);
}

}  // namespace weft::engine
