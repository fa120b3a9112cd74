// SPDX-License-Identifier: MIT
// What streams need of a queue beyond weft.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "device.hpp"

namespace weft::front {

// weft_queue_submit of slots that lie in several places. -EAGAIN also when fewer than `spare` slots would stay free.
int submit(weft_queue& queue, std::initializer_list<std::span<const weft_cmd>> parts, std::uint32_t spare = 0);
// 0, or -EIO with the thread's last error set.
int halted(const weft_queue& queue);
// Commands that are complete, after a backend that runs inside calls had its chance.
std::uint64_t completed(const weft_queue& queue);

}  // namespace weft::front
