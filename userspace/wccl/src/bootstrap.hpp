// SPDX-License-Identifier: MIT
// The meeting point over TCP: a hub in one process, to which every rank holds one connection for the communicator's
// life.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous.hpp"
#include "wccl/wccl.h"

namespace weft::ccl {

// What a wcclUniqueId holds.
struct Meeting {
  boost::asio::ip::tcp::endpoint address;
  std::array<std::uint8_t, 16> nonce{};
  bool rank0_listens = false;  // WCCL_COMM_ID: the address was agreed on, nobody listens yet
};
wcclUniqueId encode(const Meeting& meeting);
// Throws Failure(wcclInvalidArgument) for bytes that no wcclGetUniqueId made.
Meeting decode(const wcclUniqueId& id);

// The meeting that WCCL_COMM_ID names, or a new hub in this process on the interface that WCCL_SOCKET_IFNAME allows.
Meeting make_meeting(std::chrono::milliseconds timeout);

// The IPv4 address of the first interface that is up and that WCCL_SOCKET_IFNAME allows, loopback last. Throws Failure.
boost::asio::ip::address local_address();

// Joins as `rank` of `ranks`; rank 0 of an agreed address starts the hub. Throws Failure.
std::unique_ptr<Rendezvous> join_meeting(const Meeting& meeting, std::uint32_t rank, std::uint32_t ranks,
                                         std::chrono::milliseconds timeout);

}  // namespace weft::ccl
