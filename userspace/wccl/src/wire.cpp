// SPDX-License-Identifier: MIT
#include "wire.hpp"

#include <algorithm>

namespace weft::ccl::wire {

std::vector<std::byte> pack(Type type, std::uint32_t a, std::uint32_t b, std::span<const std::byte> payload,
                            std::uint32_t c) {
  Head head;
  head.type = type;
  head.length = static_cast<std::uint32_t>(payload.size());
  head.a = a;
  head.b = b;
  head.c = c;
  std::vector<std::byte> out(sizeof head + payload.size());
  const auto body = std::ranges::copy(std::as_bytes(std::span(&head, 1)), out.begin()).out;
  std::ranges::copy(payload, body);
  return out;
}

}  // namespace weft::ccl::wire
