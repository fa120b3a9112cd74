// SPDX-License-Identifier: MIT
// Queue pairs as the mailbox has them: made, modified, asked about, destroyed.
#pragma once

#include <cstdint>

#include "transmit.hpp"

namespace weft::model::nic {

class Control {
 public:
  Control(Ports& ports, QpTable& queue_pairs, Transmitter& transmitter, Notices& notices)
      : ports_(ports), queue_pairs_(queue_pairs), transmitter_(transmitter), notices_(notices) {}

  Error create(weft_qp_entry& entry);
  Error modify(const weft_mbox_qp_modify& modify);
  Error query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out);
  Error destroy(std::uint32_t context, std::uint32_t qpn);
  // All of the context, and what was noted for it.
  void destroy_context(std::uint32_t context);

 private:
  Ports& ports_;
  QpTable& queue_pairs_;
  Transmitter& transmitter_;
  Notices& notices_;
};

}  // namespace weft::model::nic
