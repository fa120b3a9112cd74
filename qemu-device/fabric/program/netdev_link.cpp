// SPDX-License-Identifier: MIT
#include "netdev_link.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::fabric {

SendResult NetdevLink::send(unsigned, std::span<const Segment> segments) {
  if (!up()) return SendResult::kDown;
  std::size_t length = 0;
  for (const Segment& s : segments) length += s.size();
  if (length + kHead > room()) {
    starved_ = true;
    return SendResult::kNoCredit;
  }
  if (output_.size() + kHead + length > 2 * kBuffer) {  // then at least half of it was sent
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent_));
    sent_ = 0;
  }
  for (int shift = 24; shift >= 0; shift -= 8) output_.push_back(static_cast<std::byte>(length >> shift));
  for (const Segment& s : segments) output_.insert(output_.end(), s.begin(), s.end());
  return SendResult::kSent;
}

bool NetdevLink::readable() {
  const ssize_t got = ::recv(fd_.get(), input_.get() + filled_, kBuffer, MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
    open_ = false;
    return false;
  }
  std::span<const std::byte> rest(input_.get(), filled_ + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  while (rest.size() >= kHead) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < kHead; i++) length = length << 8 | std::to_integer<std::size_t>(rest[i]);
    if (length > kFrameMax) {
      open_ = false;
      return false;
    }
    if (rest.size() - kHead < length) break;
    if (local_up_) owner_.on_frame(0, rest.subspan(kHead, length));
    rest = rest.subspan(kHead + length);
  }
  std::memmove(input_.get(), rest.data(), rest.size());  // at most a part of one frame
  filled_ = rest.size();
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
    starved_ = false;
    owner_.on_ready(0);
  }
}

}  // namespace weft::fabric
