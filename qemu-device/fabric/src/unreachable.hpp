// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::fabric {

// The Ethernet frame that tells the sender of `frame` that its destination cannot be reached: ICMP type 3 code 1
// (RFC 792) or ICMPv6 type 1 code 3 (RFC 4443), from the destination's own addresses. Empty where none may be sent:
// no unicast IP packet, a later fragment, an ICMP error, neighbour discovery, an IPv6 packet with extension headers.
std::vector<std::byte> host_unreachable(std::span<const std::byte> frame);

}  // namespace weft::fabric
