// SPDX-License-Identifier: MIT
// Every byte of every payload: those that must be 0 are refused when they are not, all others reach the hardware.
#include "harness.hpp"

namespace weft::model::test {
namespace {

class Operations : public FirmwareTest {};
INSTANTIATE_TEST_SUITE_P(Firmware, Operations, testing::Values(Build::kNative, Build::kImage), build_name);

struct Span {
  std::size_t first, last;
};
struct Zeros {
  std::uint16_t op;
  std::size_t bytes;
  std::vector<Span> zero;  // first and last byte of reserved fields and of those that only an answer has
};

// Counted out from weft/hw: mbox.h, mem.h, cmd.h, qp.h.
const Zeros kZeros[] = {
    {WEFT_MBOX_PORT_GET, 8, {{4, 7}}},
    {WEFT_MBOX_PORT_SET, 16, {{12, 15}}},
    {WEFT_MBOX_EVENT_QUEUE, 16, {}},
    {WEFT_MBOX_HBM_ZERO, 16, {}},
    {WEFT_MBOX_CTX_CREATE, 32, {{20, 31}}},
    {WEFT_MBOX_CTX_DESTROY, 8, {{4, 7}}},
    {WEFT_MBOX_REGION_CREATE, 64, {{60, 63}}},
    {WEFT_MBOX_REGION_DESTROY, 8, {{4, 7}}},
    {WEFT_MBOX_QUEUE_CREATE, 64, {{24, 63}}},
    {WEFT_MBOX_QUEUE_DESTROY, 8, {}},
    {WEFT_MBOX_QUEUE_ABORT, 8, {}},
    {WEFT_MBOX_SYNC_CONFIG, 16, {}},
    // qpn, state, reserved0, av.reserved, error, sgid to reserved1
    {WEFT_MBOX_QP_CREATE, 176, {{0, 3}, {17, 17}, {23, 23}, {81, 87}, {140, 175}}},
    {WEFT_MBOX_QP_MODIFY, 184, {{4, 7}, {31, 31}, {89, 95}, {176, 183}}},
    {WEFT_MBOX_QP_QUERY, 8, {}},
    {WEFT_MBOX_QP_DESTROY, 8, {}},
    {WEFT_MBOX_GID_SET, 40, {{9, 9}, {18, 19}, {36, 39}}},
    {WEFT_MBOX_GID_GET, 40, {{8, 39}}},
    {WEFT_MBOX_CQ_CREATE, 64, {{0, 3}, {28, 63}}},
    {WEFT_MBOX_CQ_RESIZE, 64, {{24, 63}}},
    {WEFT_MBOX_CQ_DESTROY, 8, {}},
    {WEFT_MBOX_SRQ_CREATE, 64, {{0, 3}, {32, 63}}},
    {WEFT_MBOX_SRQ_MODIFY, 64, {{8, 27}, {32, 63}}},
    {WEFT_MBOX_SRQ_QUERY, 8, {}},
    {WEFT_MBOX_SRQ_DESTROY, 8, {}},
    {WEFT_MBOX_FIFO_CREATE, 64, {{32, 63}}},
    {WEFT_MBOX_FIFO_DESTROY, 8, {}},
};

TEST_P(Operations, EveryByteCountsOrIsZero) {
  for (const Zeros& operation : kZeros) {
    for (std::size_t i = 0; i < operation.bytes; ++i) {
      const bool zero = std::any_of(operation.zero.begin(), operation.zero.end(),
                                    [i](Span s) { return s.first <= i && i <= s.last; });
      Payload payload(operation.bytes);
      payload[i] = 1;
      const auto reached = [&] { return hardware().tables.size() + hardware().port_gets; };
      const std::size_t before = reached();
      const weft_error status = device->call(operation.op, payload).status;
      EXPECT_EQ(reached(), before + (zero ? 0 : 1)) << "op " << operation.op << ", byte " << i;
      if (zero) {
        EXPECT_EQ(status, WEFT_ERR_BAD_FIELD) << "op " << operation.op << ", byte " << i;
      }
    }
  }
}

TEST_P(Operations, LogReadReservedIsZero) {
  for (std::size_t i = 4; i < 8; ++i) {
    Payload payload(8);
    payload[i] = 0x80;
    EXPECT_EQ(device->call(WEFT_MBOX_LOG_READ, payload).status, WEFT_ERR_BAD_FIELD) << i;
  }
}

// What the tables refuse is the answer, unchanged.
TEST_P(Operations, ValuesAreForTheHardwareToJudge) {
  hardware().next_status = WEFT_ERR_UNSUPPORTED;
  for (const Zeros& operation : kZeros) {
    if (operation.op == WEFT_MBOX_PORT_GET) continue;
    EXPECT_EQ(device->call(operation.op, Payload(operation.bytes)).status, WEFT_ERR_UNSUPPORTED) << operation.op;
  }
}

}  // namespace
}  // namespace weft::model::test
