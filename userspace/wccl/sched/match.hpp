// SPDX-License-Identifier: MIT
// Which SEND meets which receive: first in, first out for each (source, destination, lane).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sched/schedule.hpp"

namespace weft::ccl {

struct Message {
  std::uint32_t source = 0;
  std::uint32_t destination = 0;
  std::uint32_t lane = 0;
  std::uint32_t send = 0;     // op of the source
  std::uint32_t receive = 0;  // op of the destination

  bool same_flow(const Message& other) const {
    return source == other.source && destination == other.destination && lane == other.lane;
  }
};

// All messages, sorted by (source, destination, lane), then in order. False: the first flow whose ends differ in
// number. The ops must have passed op_fault().
bool match_messages(const Source& source, std::vector<Message>& out, std::string& error);

}  // namespace weft::ccl
