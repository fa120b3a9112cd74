// SPDX-License-Identifier: MIT
// Plain structures in and out of messages.
#pragma once

#include <cstring>

#include "error.hpp"
#include "rendezvous.hpp"

namespace weft::ccl {

template <class T>
void put(Bytes& out, const T& value) {
  const auto* at = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), at, at + sizeof value);
}

template <class T>
T take(const Bytes& in, std::size_t& at) {
  T value;
  if (in.size() - at < sizeof value) throw Failure(wcclInternalError, "a rank sent too little");
  std::memcpy(&value, in.data() + at, sizeof value);
  at += sizeof value;
  return value;
}

}  // namespace weft::ccl
