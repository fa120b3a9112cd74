// SPDX-License-Identifier: MIT
#include "netdev_link.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace weft::fabric {

SendResult NetdevLink::send(unsigned, std::span<const Segment> segments) {
  if (!up()) return SendResult::kDown;
  std::size_t length = 0;
  for (const Segment& s : segments) length += s.size();
  if (length + kHead > room()) {
    starved_ = true;
    return SendResult::kNoCredit;
  }
  for (int shift = 24; shift >= 0; shift -= 8) output_.push_back(static_cast<std::byte>(length >> shift));
  for (const Segment& s : segments) output_.insert(output_.end(), s.begin(), s.end());
  return SendResult::kSent;
}

bool NetdevLink::readable() {
  const std::size_t filled = input_.size();
  input_.resize(filled + kBuffer);
  const ssize_t got = ::recv(fd_.get(), input_.data() + filled, kBuffer, MSG_DONTWAIT);
  input_.resize(filled + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    open_ = false;
    return false;
  }
  std::size_t at = 0;
  while (input_.size() - at >= kHead) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < kHead; i++) length = length << 8 | std::to_integer<std::size_t>(input_[at + i]);
    if (length > kFrameMax) {
      open_ = false;
      return false;
    }
    if (input_.size() - at - kHead < length) break;
    if (local_up_) owner_.on_frame(0, std::span(input_).subspan(at + kHead, length));
    at += kHead + length;
  }
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(at));
  return got == static_cast<ssize_t>(kBuffer);
}

void NetdevLink::flush() {
  while (wants_write()) {
    const ssize_t sent = ::send(fd_.get(), output_.data() + sent_, output_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) open_ = false;
      break;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  if (sent_ == output_.size()) {
    output_.clear();
    sent_ = 0;
  }
  if (starved_ && room() >= kFrameMax + kHead) {
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
    starved_ = false;
    owner_.on_ready(0);
  }
}

}  // namespace weft::fabric
