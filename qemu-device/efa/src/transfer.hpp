// SPDX-License-Identifier: MIT
// A transfer: a work request of ours until its completion, or our answer to a peer's read until it has all of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "hw.hpp"

namespace weft::efa {

struct Peer;

// An order of 0..count-1: the natural one, or with spray one by lot (index -> index * factor + shift mod count).
struct Order {
  std::uint32_t count = 1, factor = 1, shift = 0;

  static Order natural(std::uint32_t count) { return {std::max(count, 1u), 1, 0}; }
  static Order drawn(std::uint32_t count, std::uint64_t lot) {
    if (count < 2) return natural(count);
    auto factor = static_cast<std::uint32_t>(lot % count);
    while (std::gcd(factor, count) != 1) factor = (factor + 1) % count;
    return {count, factor, static_cast<std::uint32_t>((lot >> 32) % count)};
  }
  std::uint32_t operator()(std::uint32_t index) const {
    return static_cast<std::uint32_t>((std::uint64_t{index} * factor + shift) % count);
  }
};

enum class TransferKind : std::uint8_t { kDatagram, kSend, kWrite, kRead, kAnswer };

struct LocalBuffer {
  std::uint64_t address = 0;
  std::uint32_t lkey = 0;
  std::uint32_t length = 0;
};

struct Transfer {
  std::uint32_t id = 0;
  TransferKind kind = TransferKind::kSend;
  Peer* peer = nullptr;
  std::uint16_t qp = 0;
  std::uint16_t destination_qp = 0;

  // A work request.
  std::uint16_t request = 0;
  bool has_immediate = false;
  bool has_inline = false;
  std::uint8_t buffers = 0;
  std::uint32_t immediate = 0;
  std::uint32_t qkey = 0;
  std::array<LocalBuffer, hw::kSendBuffers> local{};
  std::array<std::byte, hw::kInlineBytes> inline_data{};
  // Both: the memory that is not the requester's.
  std::uint32_t rkey = 0;
  std::uint64_t remote = 0;
  std::uint32_t remote_op = 0;  // an answer: the requester's number

  std::uint32_t length = 0;
  std::uint32_t segment_bytes = 1;
  std::uint32_t segments = 1;
  Order order{};
  std::uint32_t next = 0;      // segments handed out
  std::uint32_t done = 0;      // segments that arrived
  std::uint32_t received = 0;  // bytes, of a read
  std::uint8_t retries = 0;    // after RNR
  std::uint8_t backoff = 0;
  bool cancelled = false;        // an answer whose queue pair is gone
  bool waiting = false;          // a read that the peer has taken on, or a retry that is due later
  std::uint64_t touched_ns = 0;  // last progress

  // Segments that may go out now. The one that carries the immediate is the last, and goes when the rest has arrived.
  std::uint32_t ready() const {
    const bool gated = has_immediate && kind == TransferKind::kWrite && segments > 1;
    return gated && done < segments - 1 ? segments - 1 : segments;
  }
  std::uint32_t segment(std::uint32_t index) const { return index < order.count ? order(index) : index; }
  std::uint64_t offset(std::uint32_t segment) const { return std::uint64_t{segment} * segment_bytes; }
  std::uint32_t bytes(std::uint32_t segment) const {
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(segment_bytes, length - offset(segment)));
  }
};

}  // namespace weft::efa
