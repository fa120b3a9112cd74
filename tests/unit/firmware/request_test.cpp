// SPDX-License-Identifier: MIT
// The mailbox: envelope, the firmware's own operations, and table operations under way.
#include "harness.hpp"

namespace weft::model::test {
namespace {

class Request : public FirmwareTest {};
INSTANTIATE_TEST_SUITE_P(Firmware, Request, testing::Values(Build::kNative, Build::kImage), build_name);

// The payload length of each operation, as weft/hw/mbox.h has it.
struct Length {
  std::uint16_t op;
  std::size_t bytes;
};
constexpr Length kLengths[] = {
    {WEFT_MBOX_IDENTIFY, 0},       {WEFT_MBOX_PORT_GET, 8},       {WEFT_MBOX_PORT_SET, 16},
    {WEFT_MBOX_SENSORS, 0},        {WEFT_MBOX_LOG_READ, 8},       {WEFT_MBOX_EVENT_QUEUE, 16},
    {WEFT_MBOX_HBM_ZERO, 16},      {WEFT_MBOX_CTX_CREATE, 32},    {WEFT_MBOX_CTX_DESTROY, 8},
    {WEFT_MBOX_REGION_CREATE, 64}, {WEFT_MBOX_REGION_DESTROY, 8}, {WEFT_MBOX_QUEUE_CREATE, 64},
    {WEFT_MBOX_QUEUE_DESTROY, 8},  {WEFT_MBOX_QUEUE_ABORT, 8},    {WEFT_MBOX_SYNC_CONFIG, 16},
    {WEFT_MBOX_QP_CREATE, 176},    {WEFT_MBOX_QP_MODIFY, 184},    {WEFT_MBOX_QP_QUERY, 8},
    {WEFT_MBOX_QP_DESTROY, 8},     {WEFT_MBOX_GID_SET, 40},       {WEFT_MBOX_GID_GET, 40},
    {WEFT_MBOX_CQ_CREATE, 64},     {WEFT_MBOX_CQ_RESIZE, 64},     {WEFT_MBOX_CQ_DESTROY, 8},
    {WEFT_MBOX_SRQ_CREATE, 64},    {WEFT_MBOX_SRQ_MODIFY, 64},    {WEFT_MBOX_SRQ_QUERY, 8},
    {WEFT_MBOX_SRQ_DESTROY, 8},    {WEFT_MBOX_FIFO_CREATE, 64},   {WEFT_MBOX_FIFO_DESTROY, 8},
};

TEST_P(Request, Identify) {
  device->pass_ms(1234);
  const auto identity = as<weft_mbox_identity>(device->call(WEFT_MBOX_IDENTIFY).payload);
  EXPECT_EQ(identity.fw_version, 0x00020000u);
  EXPECT_EQ(identity.fw_build, kImageCrc);
  EXPECT_EQ(identity.hw_version, hardware().hw_version);
  EXPECT_EQ(identity.ports, kPorts);
  EXPECT_EQ(identity.uptime_ms, 1234u);
  EXPECT_STREQ(reinterpret_cast<const char*>(identity.serial), "WEFT-TEST-0001");
  EXPECT_STREQ(reinterpret_cast<const char*>(identity.board), "Weft emulated NIC");  // kCaps has no command queues
  EXPECT_EQ(identity.caps, kCaps);
  EXPECT_EQ(identity.contexts, kContexts);
  EXPECT_EQ(identity.regions, kRegions);
  EXPECT_EQ(identity.qps, 100u);
  EXPECT_EQ(identity.gids_per_port, WEFT_GIDS_PER_PORT);
  for (const std::uint32_t word : identity.reserved) EXPECT_EQ(word, 0u);
}

TEST_P(Request, EchoOfEveryLength) {
  for (std::size_t length = 0; length <= WEFT_MBOX_PAYLOAD; ++length) {
    Payload payload(length);
    for (std::size_t i = 0; i < length; ++i) payload[i] = static_cast<std::uint8_t>(i * 7 + length);
    const Answer answer = device->call(WEFT_MBOX_ECHO, payload);
    EXPECT_EQ(answer.status, WEFT_ERR_OK);
    EXPECT_EQ(answer.payload, payload);
  }
}

TEST_P(Request, Sensors) {
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t value = 1000 + i;
    std::memcpy(reinterpret_cast<std::uint8_t*>(&hardware().sensors) + 4 * i, &value, 4);
  }
  EXPECT_EQ(device->call(WEFT_MBOX_SENSORS).payload, payload_of(hardware().sensors));
}

TEST_P(Request, PortGet) {
  hardware().ports[2].mtu = 4096;
  hardware().ports[2].mac[5] = 9;
  const Answer answer = device->call(WEFT_MBOX_PORT_GET, payload_of(weft_mbox_index{2, 0}));
  EXPECT_EQ(answer.payload, payload_of(hardware().ports[2]));
}

TEST_P(Request, EnvelopeIsChecked) {
  const auto refused = [this](void (*change)(weft_mbox_header&), weft_error error) {
    ++device->seq;
    hardware().request = {};
    hardware().request.head = {device->seq, WEFT_MBOX_ECHO, 0, 0, WEFT_MBOX_VERSION, {}};
    change(hardware().request.head);
    device->post();
    device->run();
    EXPECT_EQ(device->answer().status, error);
  };
  refused([](weft_mbox_header&) {}, WEFT_ERR_OK);
  refused([](weft_mbox_header& head) { head.version = 0; }, WEFT_ERR_BAD_VERSION);
  refused([](weft_mbox_header& head) { head.version = WEFT_MBOX_VERSION + 1; }, WEFT_ERR_BAD_VERSION);
  refused([](weft_mbox_header& head) { ++head.seq; }, WEFT_ERR_BAD_FIELD);
  refused([](weft_mbox_header& head) { head.status = 1; }, WEFT_ERR_BAD_FIELD);
  refused([](weft_mbox_header& head) { head.reserved[0] = 1; }, WEFT_ERR_BAD_FIELD);
  refused([](weft_mbox_header& head) { head.reserved[4] = 1; }, WEFT_ERR_BAD_FIELD);
  refused([](weft_mbox_header& head) { head.length = WEFT_MBOX_PAYLOAD + 1; }, WEFT_ERR_MBOX_LENGTH);
  refused([](weft_mbox_header& head) { head.length = 0xffff; }, WEFT_ERR_MBOX_LENGTH);
}

TEST_P(Request, UnknownOperations) {
  for (std::uint32_t op = 0; op < 0x10000; op = op < 300 ? op + 1 : op * 2 + 1) {
    const bool known = (op >= WEFT_MBOX_IDENTIFY && op <= WEFT_MBOX_HBM_ZERO) ||
                       (op >= WEFT_MBOX_CTX_CREATE && op <= WEFT_MBOX_FIFO_DESTROY);
    if (known) continue;
    EXPECT_EQ(device->call(static_cast<std::uint16_t>(op)).status, WEFT_ERR_MBOX_OP) << op;
  }
  EXPECT_TRUE(hardware().tables.empty());
}

TEST_P(Request, EveryWrongLength) {
  for (const Length& right : kLengths) {
    for (std::size_t length = 0; length <= WEFT_MBOX_PAYLOAD + 8; ++length) {
      if (length == right.bytes) continue;
      EXPECT_EQ(device->call(right.op, Payload(length)).status, WEFT_ERR_MBOX_LENGTH) << right.op << " " << length;
    }
  }
  EXPECT_TRUE(hardware().tables.empty());
}

TEST_P(Request, HardwareErrorsComeBack) {
  for (const weft_error error :
       {WEFT_ERR_MBOX_NOT_FOUND, WEFT_ERR_MBOX_NO_ROOM, WEFT_ERR_BAD_OP, WEFT_ERR_MBOX_STATE}) {
    hardware().next_status = error;
    EXPECT_EQ(device->call(WEFT_MBOX_CTX_DESTROY, payload_of(weft_mbox_index{1, 0})).status, error);
  }
}

TEST_P(Request, ResultsComeBack) {
  weft_qp_entry qp{};
  qp.ctx = 1;
  qp.type = WEFT_QP_CHANNEL;
  const Answer created = device->call(WEFT_MBOX_QP_CREATE, payload_of(qp));
  ASSERT_EQ(created.status, WEFT_ERR_OK);
  Payload expected = payload_of(qp);  // the hardware here inverts its operand
  for (std::uint8_t& byte : expected) byte = static_cast<std::uint8_t>(~byte);
  EXPECT_EQ(created.payload, expected);
  EXPECT_EQ(device->call(WEFT_MBOX_QP_QUERY, payload_of(weft_mbox_pair{1, 5})).payload.size(), sizeof(weft_qp_entry));
  EXPECT_TRUE(device->call(WEFT_MBOX_QP_DESTROY, payload_of(weft_mbox_pair{1, 5})).payload.empty());
}

TEST_P(Request, HeartGoesOnDuringALongOperation) {
  hardware().hold = true;
  device->send(WEFT_MBOX_HBM_ZERO, payload_of(weft_mbox_range{0, kHbm}));
  device->run();  // it sleeps although the request is open: the end of the operation wakes it
  const std::size_t beats = hardware().heartbeats.size();
  const unsigned gets = hardware().port_gets;
  device->pass_ms(3000);
  EXPECT_EQ(hardware().heartbeats.size() - beats, 30u);
  EXPECT_EQ(hardware().port_gets, gets);  // the table port is taken
  EXPECT_EQ(hardware().answers, 0u);
  hardware().finish_table(WEFT_ERR_OK);
  device->run();
  EXPECT_EQ(device->answer().status, WEFT_ERR_OK);
  EXPECT_EQ(hardware().port_gets, gets + kPorts);  // made up for once, not for each tick
}

TEST_P(Request, LongOperationThatFails) {
  hardware().hold = true;
  device->send(WEFT_MBOX_QUEUE_DESTROY, payload_of(weft_mbox_pair{1, 2}));
  device->run();
  hardware().finish_table(WEFT_ERR_MBOX_BUSY);
  device->run();
  EXPECT_EQ(device->answer().status, WEFT_ERR_MBOX_BUSY);
}

TEST_P(Request, SlowOperationIsLoggedOnce) {
  hardware().hold = true;
  device->send(WEFT_MBOX_QUEUE_DESTROY, payload_of(weft_mbox_pair{1, 2}));
  device->pass_ms(20000);
  EXPECT_EQ(hardware().log_events, (std::vector<std::uint32_t>{1, 2}));
  hardware().finish_table(WEFT_ERR_OK);
  device->run();
  EXPECT_EQ(text_of(device->whole_log().at(1)), "op 21 not finished after 5 s");
}

TEST_P(Request, WaitsForTheFirmwaresOwnTableOperation) {
  hardware().hold_ports = true;
  device->pass_ms(100);
  EXPECT_EQ(hardware().table_status, WEFT_FW_TABLE_BUSY);
  device->send(WEFT_MBOX_CTX_DESTROY, payload_of(weft_mbox_index{1, 0}));
  device->run();
  EXPECT_EQ(hardware().answers, 0u);
  hardware().hold_ports = false;
  hardware().finish_table(WEFT_ERR_OK);
  device->run();
  EXPECT_EQ(device->answer().status, WEFT_ERR_OK);
  EXPECT_EQ(hardware().tables.size(), 1u);
}

}  // namespace
}  // namespace weft::model::test
