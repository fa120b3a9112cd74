// SPDX-License-Identifier: MIT
#include "executor.hpp"

#include <cerrno>

namespace weft::ccl {

bool Executor::concerns(int error, const weft_failure& failure) const {
  const bool of_one = failure.type == WEFT_EVENT_QUEUE_ERROR || failure.type == WEFT_EVENT_QP_ERROR;
  return error != -EIO || !of_one || owns(failure);
}

Blame silent(std::uint32_t peer, bool receive, std::uint64_t ticket, std::uint32_t step, std::uint32_t steps,
             const std::string& work) {
  return {peer, ticket << 32 | step,
          "rank " + std::to_string(peer) + " is silent: " + work + ", step " + std::to_string(step + 1) + " of " +
              std::to_string(steps) + (receive ? ": its message does not come" : ": it does not take our message")};
}

}  // namespace weft::ccl
