// SPDX-License-Identifier: MIT
#include "posted.hpp"

#include <algorithm>
#include <utility>

namespace weft::efa {

bool PayloadPath::read(std::uint64_t iova, std::span<std::byte> out) {
  if (!held_.empty() && host_.is_device_memory(iova)) flush();
  return host_.read(iova, out, WEFT_ABI_DMA_PAYLOAD);
}

bool PayloadPath::write(std::uint64_t iova, std::span<const std::byte> in) {
  if (!posted_ || in.empty() || !host_.is_device_memory(iova)) return host_.write(iova, in, WEFT_ABI_DMA_PAYLOAD);
  if (!host_.is_device_memory(iova + in.size() - 1)) return false;
  // Never before an earlier one: the delay of the last bounds this one's from below.
  const std::uint64_t due = host_.now_ns() + kDelayMinNs + host_.random() % kDelaySpanNs;
  held_.push_back({iova, held_.empty() ? due : std::max(due, held_.back().due_ns), {in.begin(), in.end()}});
  held_bytes_ += in.size();
  while (held_bytes_ > kHeldMax) release_front();
  return true;
}

void PayloadPath::release_front() {
  const Held held = std::move(held_.front());
  held_.pop_front();
  held_bytes_ -= held.data.size();
  if (!host_.write(held.iova, held.data, WEFT_ABI_DMA_PAYLOAD)) {
    host_.report(Event::kPostedWriteLost, {held.iova, held.data.size()});
  }
}

void PayloadPath::flush() {
  while (!held_.empty()) release_front();
}

void PayloadPath::tick(std::uint64_t now_ns) {
  while (!held_.empty() && held_.front().due_ns <= now_ns) release_front();
}

}  // namespace weft::efa
