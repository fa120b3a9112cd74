// SPDX-License-Identifier: MIT
// Each table operation: a right payload reaches the tables as it is, and with each field wrong in turn it does not.
#include <limits>

#include "harness.hpp"

namespace weft::model::test {
namespace {

constexpr std::uint64_t kTop = std::numeric_limits<std::uint64_t>::max();

template <class T>
struct Change {
  const char* what;
  void (*apply)(T&);
  weft_error error;  // WEFT_ERR_OK: at the bound, still right
};

class Check : public FirmwareTest {
 protected:
  template <class T>
  void expect_checked(std::uint16_t op, const T& good, const std::vector<Change<T>>& changes) {
    expect_one(op, good, WEFT_ERR_OK, "good");
    for (const Change<T>& change : changes) {
      T changed = good;
      change.apply(changed);
      expect_one(op, changed, change.error, change.what);
    }
  }

 private:
  template <class T>
  void expect_one(std::uint16_t op, const T& operand, weft_error error, const char* what) {
    SCOPED_TRACE(what);
    hardware().tables.clear();
    EXPECT_EQ(device->call(op, payload_of(operand)).status, error);
    if (error != WEFT_ERR_OK) {
      EXPECT_TRUE(hardware().tables.empty());
      return;
    }
    ASSERT_EQ(hardware().tables.size(), 1u);
    EXPECT_EQ(hardware().tables[0].op, op);
    EXPECT_EQ(std::memcmp(hardware().tables[0].data.data(), &operand, sizeof(operand)), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Firmware, Check, testing::Values(Build::kNative, Build::kImage), build_name);

TEST_P(Check, PortGet) {
  const auto status = [this](weft_mbox_index index) {
    return device->call(WEFT_MBOX_PORT_GET, payload_of(index)).status;
  };
  EXPECT_EQ(status({kPorts - 1, 0}), WEFT_ERR_OK);
  EXPECT_EQ(status({kPorts, 0}), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(status({0xffffffff, 0}), WEFT_ERR_BAD_FIELD);
  EXPECT_EQ(status({0, 1}), WEFT_ERR_BAD_FIELD);
}

TEST_P(Check, PortSet) {
  using T = weft_mbox_port;
  T good{};
  good.port = kPorts - 1;
  good.set = 15;
  good.admin_up = 1;
  good.mac[0] = 0x02;
  good.ipv4[0] = 10;
  good.ipv6[0] = 0xfe;
  expect_checked<T>(WEFT_MBOX_PORT_SET, good,
                    {{"port", [](T& p) { p.port = kPorts; }, WEFT_ERR_BAD_FIELD},
                     {"set", [](T& p) { p.set = 16; }, WEFT_ERR_BAD_FIELD},
                     {"admin_up", [](T& p) { p.admin_up = 2; }, WEFT_ERR_BAD_FIELD},
                     {"admin_up not set", [](T& p) { p.admin_up = 2, p.set = 14; }, WEFT_ERR_OK},
                     {"mac multicast", [](T& p) { p.mac[0] = 0x03; }, WEFT_ERR_BAD_FIELD},
                     {"mac zero", [](T& p) { p.mac[0] = 0; }, WEFT_ERR_BAD_FIELD},
                     {"mac not set", [](T& p) { p.mac[0] = 0x03, p.set = 13; }, WEFT_ERR_OK},
                     {"ipv4 multicast", [](T& p) { p.ipv4[0] = 224; }, WEFT_ERR_BAD_FIELD},
                     {"ipv4 broadcast", [](T& p) { std::memset(p.ipv4, 255, 4); }, WEFT_ERR_BAD_FIELD},
                     {"ipv4 none", [](T& p) { p.ipv4[0] = 0; }, WEFT_ERR_OK},
                     {"ipv6 multicast", [](T& p) { p.ipv6[0] = 0xff; }, WEFT_ERR_BAD_FIELD},
                     {"what the hardware reports",
                      [](T& p) { p.state = 4, p.mtu = 4096, p.speed_mbps = 1, p.flaps = 9; }, WEFT_ERR_OK},
                     {"reserved[0]", [](T& p) { p.reserved[0] = 1; }, WEFT_ERR_BAD_FIELD},
                     {"reserved[1]", [](T& p) { p.reserved[1] = 1ull << 63; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, LogRead) {
  EXPECT_EQ(device->call(WEFT_MBOX_LOG_READ, payload_of(weft_mbox_index{1, 1})).status, WEFT_ERR_BAD_FIELD);
}

TEST_P(Check, EventQueue) {
  using T = weft_mbox_event_queue;
  expect_checked<T>(WEFT_MBOX_EVENT_QUEUE, {0x1'0000'0040, 1024, 0},
                    {{"addr", [](T& q) { q.addr += 32; }, WEFT_ERR_BAD_ALIGN},
                     {"addr odd", [](T& q) { q.addr += 1; }, WEFT_ERR_BAD_ALIGN},
                     {"addr wraps", [](T& q) { q.addr = kTop - 63; }, WEFT_ERR_BAD_RANGE},
                     {"addr last", [](T& q) { q.addr = kTop - 65535; }, WEFT_ERR_OK},
                     {"entries 0", [](T& q) { q.entries = 0; }, WEFT_ERR_BAD_FIELD},
                     {"entries 8", [](T& q) { q.entries = 8; }, WEFT_ERR_BAD_FIELD},
                     {"entries 16", [](T& q) { q.entries = 16; }, WEFT_ERR_OK},
                     {"entries 2048", [](T& q) { q.entries = 2048; }, WEFT_ERR_BAD_FIELD},
                     {"entries 24", [](T& q) { q.entries = 24; }, WEFT_ERR_BAD_FIELD},
                     {"vector", [](T& q) { q.vector = 1; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, HbmZero) {
  using T = weft_mbox_range;
  expect_checked<T>(WEFT_MBOX_HBM_ZERO, {kHbm - 4096, 4096},
                    {{"whole", [](T& r) { r = {0, kHbm}; }, WEFT_ERR_OK},
                     {"one byte more", [](T& r) { r.length += 1; }, WEFT_ERR_BAD_RANGE},
                     {"one byte on", [](T& r) { r.offset += 1; }, WEFT_ERR_BAD_RANGE},
                     {"nothing", [](T& r) { r.length = 0; }, WEFT_ERR_BAD_RANGE},
                     {"behind", [](T& r) { r = {kHbm, 1}; }, WEFT_ERR_BAD_RANGE},
                     {"far behind", [](T& r) { r.offset = kTop; }, WEFT_ERR_BAD_RANGE},
                     {"overflow", [](T& r) { r = {4096, kTop - 4095}; }, WEFT_ERR_BAD_RANGE}});
}

TEST_P(Check, CtxCreate) {
  using T = weft_mbox_ctx;
  expect_checked<T>(WEFT_MBOX_CTX_CREATE, {kContexts - 1, kVectors - 1, 0x1000, WEFT_SYNCS_PER_CONTEXT, 0, 0},
                    {{"ctx", [](T& c) { c.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                     {"ctx 0", [](T& c) { c.ctx = 0; }, WEFT_ERR_OK},
                     {"vector", [](T& c) { c.vector = kVectors; }, WEFT_ERR_BAD_FIELD},
                     {"shadow none", [](T& c) { c.shadow = 0; }, WEFT_ERR_OK},
                     {"shadow alignment", [](T& c) { c.shadow += 4; }, WEFT_ERR_BAD_ALIGN},
                     {"shadow wraps", [](T& c) { c.shadow = kTop - 7; }, WEFT_ERR_BAD_RANGE},
                     {"syncs 0", [](T& c) { c.syncs = 0; }, WEFT_ERR_BAD_FIELD},
                     {"syncs 1", [](T& c) { c.syncs = 1; }, WEFT_ERR_OK},
                     {"syncs", [](T& c) { c.syncs = WEFT_SYNCS_PER_CONTEXT + 1; }, WEFT_ERR_BAD_FIELD},
                     {"flags", [](T& c) { c.flags = 1; }, WEFT_ERR_BAD_FIELD},
                     {"reserved", [](T& c) { c.reserved = 1; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, CtxDestroy) {
  using T = weft_mbox_index;
  expect_checked<T>(WEFT_MBOX_CTX_DESTROY, {kContexts - 1, 0},
                    {{"index", [](T& i) { i.index = kContexts; }, WEFT_ERR_BAD_FIELD},
                     {"reserved", [](T& i) { i.reserved = 1; }, WEFT_ERR_BAD_FIELD}});
}

weft_region_entry host_region() {
  weft_region_entry region{};
  region.key = WEFT_KEY(kRegions - 1, 0xff);
  region.type = WEFT_REGION_HOST;
  region.rights = 0x1f;
  region.page_shift = 12;
  region.levels = 1;
  region.ctx = kContexts - 1;
  region.va = 0x5000'0000'0000'0010;
  region.length = 8192;  // touches three pages, since va is not aligned
  region.base = 0x10'0000'0008;
  region.pages = 3;
  region.object = 77;
  return region;
}

TEST_P(Check, RegionOfPages) {
  using T = weft_region_entry;
  for (const std::uint8_t type : {WEFT_REGION_HOST, WEFT_REGION_PEER}) {
    T good = host_region();
    good.type = type;
    expect_checked<T>(
        WEFT_MBOX_REGION_CREATE, good,
        {{"key 0", [](T& r) { r.key = 0; }, WEFT_ERR_BAD_KEY},
         {"key of entry 0", [](T& r) { r.key = WEFT_KEY(0, 5); }, WEFT_ERR_BAD_KEY},
         {"key of entry 1", [](T& r) { r.key = WEFT_KEY(1, 0); }, WEFT_ERR_OK},
         {"key behind the table", [](T& r) { r.key = WEFT_KEY(kRegions, 0); }, WEFT_ERR_BAD_KEY},
         {"key all ones", [](T& r) { r.key = 0xffffffff; }, WEFT_ERR_BAD_KEY},
         {"type none", [](T& r) { r.type = WEFT_REGION_NONE; }, WEFT_ERR_BAD_FIELD},
         {"type unknown", [](T& r) { r.type = 5; }, WEFT_ERR_BAD_FIELD},
         {"rights unknown", [](T& r) { r.rights = 0x20; }, WEFT_ERR_BAD_FIELD},
         {"page_shift 11", [](T& r) { r.page_shift = 11; }, WEFT_ERR_BAD_FIELD},
         {"page_shift 31", [](T& r) { r.page_shift = 31; }, WEFT_ERR_BAD_FIELD},
         {"page_shift 64", [](T& r) { r.page_shift = 64; }, WEFT_ERR_BAD_FIELD},
         {"page_shift 30", [](T& r) { r.page_shift = 30; }, WEFT_ERR_OK},
         {"levels", [](T& r) { r.levels = 3; }, WEFT_ERR_BAD_FIELD},
         {"two levels", [](T& r) { r.levels = 2; }, WEFT_ERR_OK},
         {"ctx", [](T& r) { r.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
         {"flags", [](T& r) { r.flags = 1; }, WEFT_ERR_BAD_FIELD},
         {"length 0", [](T& r) { r.length = 0; }, WEFT_ERR_BAD_RANGE},
         {"va wraps", [](T& r) { r.va = kTop - 8190; }, WEFT_ERR_BAD_RANGE},
         {"va last", [](T& r) { r.va = kTop - 8191; }, WEFT_ERR_OK},
         {"length wraps", [](T& r) { r.length = kTop; }, WEFT_ERR_BAD_RANGE},
         {"base alignment", [](T& r) { r.base += 4; }, WEFT_ERR_BAD_ALIGN},
         {"base wraps", [](T& r) { r.base = kTop - 15; }, WEFT_ERR_BAD_RANGE},
         {"pages too few", [](T& r) { r.pages = 2; }, WEFT_ERR_BAD_RANGE},
         {"pages 0", [](T& r) { r.pages = 0; }, WEFT_ERR_BAD_RANGE},
         {"pages wrap", [](T& r) { r.pages = kTop; }, WEFT_ERR_BAD_RANGE},
         {"pages aligned", [](T& r) { r.va = 0x5000'0000'0000'0000, r.pages = 2; }, WEFT_ERR_OK},
         {"all of the address space, too few", [](T& r) { r.va = 0, r.length = kTop; }, WEFT_ERR_BAD_RANGE},
         {"reserved", [](T& r) { r.reserved = 1; }, WEFT_ERR_BAD_FIELD}});
  }
}

TEST_P(Check, RegionOfContiguousHostMemory) {
  using T = weft_region_entry;
  T good = host_region();
  good.levels = 0;
  good.base = 0x1234'5678'9abc'def1;  // any address
  expect_checked<T>(WEFT_MBOX_REGION_CREATE, good,
                    {{"base wraps", [](T& r) { r.base = kTop - 8190; }, WEFT_ERR_BAD_RANGE},
                     {"base last", [](T& r) { r.base = kTop - 8191; }, WEFT_ERR_OK},
                     {"unused fields", [](T& r) { r.pages = 0, r.page_shift = 0; }, WEFT_ERR_OK}});
}

TEST_P(Check, RegionOfHbm) {
  using T = weft_region_entry;
  T good{};
  good.key = WEFT_KEY(3, 1);
  good.type = WEFT_REGION_HBM;
  good.rights = WEFT_RIGHT_READ;
  good.va = WEFT_VA_HBM + kHbm - 4096;
  good.length = 4096;
  good.base = kHbm - 4096;
  expect_checked<T>(WEFT_MBOX_REGION_CREATE, good,
                    {{"levels", [](T& r) { r.levels = 1; }, WEFT_ERR_BAD_FIELD},
                     {"one byte more", [](T& r) { ++r.length; }, WEFT_ERR_BAD_RANGE},
                     {"one byte on", [](T& r) { ++r.base; }, WEFT_ERR_BAD_RANGE},
                     {"far behind", [](T& r) { r.base = kTop; }, WEFT_ERR_BAD_RANGE},
                     {"whole", [](T& r) { r.va = WEFT_VA_HBM, r.base = 0, r.length = kHbm; }, WEFT_ERR_OK},
                     {"any va", [](T& r) { r.va = 0x7f00'0000'0123; }, WEFT_ERR_OK}});
}

TEST_P(Check, RegionOfSyncObjects) {
  using T = weft_region_entry;
  constexpr std::uint64_t kAperture = WEFT_SYNCS_PER_CONTEXT * 8;
  T good{};
  good.key = WEFT_KEY(3, 1);
  good.type = WEFT_REGION_SYNC;
  good.rights = WEFT_RIGHT_REMOTE_ATOMIC;
  good.va = WEFT_VA_SYNC;
  good.length = kAperture;
  expect_checked<T>(WEFT_MBOX_REGION_CREATE, good,
                    {{"levels", [](T& r) { r.levels = 1; }, WEFT_ERR_BAD_FIELD},
                     {"one word more", [](T& r) { r.length += 8; }, WEFT_ERR_BAD_RANGE},
                     {"one word on", [](T& r) { r.base += 8; }, WEFT_ERR_BAD_RANGE},
                     {"length alignment", [](T& r) { r.length -= 4; }, WEFT_ERR_BAD_ALIGN},
                     {"va alignment", [](T& r) { r.va += 4; }, WEFT_ERR_BAD_ALIGN},
                     {"base alignment", [](T& r) { r.base = 4, r.length = 8; }, WEFT_ERR_BAD_ALIGN},
                     {"last", [](T& r) { r.base = kAperture - 8, r.length = 8; }, WEFT_ERR_OK}});
}

TEST_P(Check, RegionDestroy) {
  using T = weft_mbox_index;
  expect_checked<T>(WEFT_MBOX_REGION_DESTROY, {WEFT_KEY(kRegions - 1, 7), 0},
                    {{"key 0", [](T& i) { i.index = 0; }, WEFT_ERR_BAD_KEY},
                     {"key behind the table", [](T& i) { i.index = WEFT_KEY(kRegions, 7); }, WEFT_ERR_BAD_KEY},
                     {"reserved", [](T& i) { i.reserved = 1; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, QueueCreate) {
  using T = weft_queue_entry;
  expect_checked<T>(WEFT_MBOX_QUEUE_CREATE,
                    {kContexts - 1, WEFT_QUEUES_PER_CONTEXT - 1, WEFT_KEY(kRegions - 1, 1), 65536, 0x4000, 0, 0, {}},
                    {{"ctx", [](T& q) { q.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                     {"queue", [](T& q) { q.queue = WEFT_QUEUES_PER_CONTEXT; }, WEFT_ERR_BAD_FIELD},
                     {"ring_key 0", [](T& q) { q.ring_key = 0; }, WEFT_ERR_BAD_KEY},
                     {"ring_key", [](T& q) { q.ring_key = WEFT_KEY(kRegions, 1); }, WEFT_ERR_BAD_KEY},
                     {"entries 0", [](T& q) { q.entries = 0; }, WEFT_ERR_BAD_FIELD},
                     {"entries 8", [](T& q) { q.entries = 8; }, WEFT_ERR_BAD_FIELD},
                     {"entries 16", [](T& q) { q.entries = 16; }, WEFT_ERR_OK},
                     {"entries 17", [](T& q) { q.entries = 17; }, WEFT_ERR_BAD_FIELD},
                     {"entries", [](T& q) { q.entries = 131072; }, WEFT_ERR_BAD_FIELD},
                     {"ring_addr alignment", [](T& q) { q.ring_addr += 8; }, WEFT_ERR_BAD_ALIGN},
                     {"ring_addr wraps", [](T& q) { q.ring_addr = kTop - 63; }, WEFT_ERR_BAD_RANGE},
                     {"priority", [](T& q) { q.priority = 1; }, WEFT_ERR_BAD_FIELD},
                     {"flags", [](T& q) { q.flags = 1; }, WEFT_ERR_BAD_FIELD},
                     {"reserved[0]", [](T& q) { q.reserved[0] = 1; }, WEFT_ERR_BAD_FIELD},
                     {"reserved[3]", [](T& q) { q.reserved[3] = 1; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, QueueDestroyAndAbort) {
  using T = weft_mbox_pair;
  for (const std::uint16_t op : {WEFT_MBOX_QUEUE_DESTROY, WEFT_MBOX_QUEUE_ABORT}) {
    expect_checked<T>(op, {kContexts - 1, WEFT_QUEUES_PER_CONTEXT - 1},
                      {{"ctx", [](T& p) { p.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                       {"queue", [](T& p) { p.index = WEFT_QUEUES_PER_CONTEXT; }, WEFT_ERR_BAD_FIELD}});
  }
}

TEST_P(Check, SyncConfig) {
  using T = weft_mbox_sync;
  expect_checked<T>(WEFT_MBOX_SYNC_CONFIG, {kContexts - 1, WEFT_SYNCS_PER_CONTEXT - 1, 1, WEFT_SYNC_NOTIFY},
                    {{"ctx", [](T& s) { s.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                     {"all", [](T& s) { s.first = 0, s.count = WEFT_SYNCS_PER_CONTEXT; }, WEFT_ERR_OK},
                     {"one more", [](T& s) { s.count = 2; }, WEFT_ERR_BAD_SYNC},
                     {"first", [](T& s) { s.first = WEFT_SYNCS_PER_CONTEXT; }, WEFT_ERR_BAD_SYNC},
                     {"overflow", [](T& s) { s.first = 8, s.count = 0xffffffff; }, WEFT_ERR_BAD_SYNC},
                     {"none", [](T& s) { s.count = 0; }, WEFT_ERR_BAD_SYNC},
                     {"flags", [](T& s) { s.flags = 2; }, WEFT_ERR_BAD_FIELD}});
}

weft_qp_entry channel() {
  weft_qp_entry qp{};
  qp.ctx = kContexts - 1;
  qp.type = WEFT_QP_CHANNEL;
  qp.port = kPorts - 1;
  qp.path_mtu = WEFT_MTU_4096;
  qp.timeout = 31;
  qp.retry_cnt = 7;
  qp.rnr_retry = 7;
  qp.min_rnr_timer = 31;
  qp.dest_qpn = 0xffffff;
  qp.sq_psn = 0xffffff;
  qp.rq_psn = 0xffffff;
  qp.flow_label = 0xfffff;
  qp.dmac[0] = 0x02;
  qp.vlan = 0xffff;
  qp.pkey = 0xffff;
  qp.access = 0x1c;
  qp.sync_base = WEFT_SYNCS_PER_CONTEXT - 1;
  qp.sync_count = 1;
  return qp;
}

TEST_P(Check, QpCreate) {
  using T = weft_qp_entry;
  expect_checked<T>(
      WEFT_MBOX_QP_CREATE, channel(),
      {{"ctx", [](T& q) { q.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
       {"type 0", [](T& q) { q.type = 0; }, WEFT_ERR_BAD_FIELD},
       {"type 5", [](T& q) { q.type = 5; }, WEFT_ERR_BAD_FIELD},
       {"type 9", [](T& q) { q.type = 9; }, WEFT_ERR_BAD_FIELD},
       {"RC is for the NIC to take or refuse", [](T& q) { q.type = WEFT_QP_RC; }, WEFT_ERR_OK},
       {"state", [](T& q) { q.state = 7; }, WEFT_ERR_BAD_FIELD},
       {"port", [](T& q) { q.port = kPorts; }, WEFT_ERR_BAD_FIELD},
       {"path_mtu", [](T& q) { q.path_mtu = 7; }, WEFT_ERR_BAD_FIELD},
       {"path_mtu later", [](T& q) { q.path_mtu = 0; }, WEFT_ERR_OK},
       {"timeout", [](T& q) { q.timeout = 32; }, WEFT_ERR_BAD_FIELD},
       {"retry_cnt", [](T& q) { q.retry_cnt = 8; }, WEFT_ERR_BAD_FIELD},
       {"rnr_retry", [](T& q) { q.rnr_retry = 8; }, WEFT_ERR_BAD_FIELD},
       {"min_rnr_timer", [](T& q) { q.min_rnr_timer = 32; }, WEFT_ERR_BAD_FIELD},
       {"dest_qpn", [](T& q) { q.dest_qpn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
       {"sq_psn", [](T& q) { q.sq_psn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
       {"rq_psn", [](T& q) { q.rq_psn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
       {"flow_label", [](T& q) { q.flow_label = 0x100000; }, WEFT_ERR_BAD_FIELD},
       {"dmac", [](T& q) { q.dmac[0] = 1; }, WEFT_ERR_BAD_FIELD},
       {"access local", [](T& q) { q.access = WEFT_RIGHT_WRITE; }, WEFT_ERR_BAD_FIELD},
       {"access unknown", [](T& q) { q.access = 0x20; }, WEFT_ERR_BAD_FIELD},
       {"sync_base", [](T& q) { q.sync_base += 1; }, WEFT_ERR_BAD_SYNC},
       {"sync_count", [](T& q) { q.sync_count = 0xffffffff; }, WEFT_ERR_BAD_SYNC},
       {"no syncs", [](T& q) { q.sync_base = q.sync_count = 0; }, WEFT_ERR_OK},
       {"sq_entries", [](T& q) { q.sq_entries = 24, q.sq_key = 0x100; }, WEFT_ERR_BAD_FIELD},
       {"sq_key", [](T& q) { q.sq_entries = 16; }, WEFT_ERR_BAD_KEY},
       {"sq_addr", [](T& q) { q.sq_entries = 16, q.sq_key = 0x100, q.sq_addr = 8; }, WEFT_ERR_BAD_ALIGN},
       {"sq_addr without entries", [](T& q) { q.sq_addr = 64; }, WEFT_ERR_BAD_FIELD},
       {"send ring", [](T& q) { q.sq_entries = 16, q.sq_key = 0x100, q.sq_addr = 64; }, WEFT_ERR_OK},
       {"rq_entries", [](T& q) { q.rq_entries = 131072, q.rq_key = 0x100; }, WEFT_ERR_BAD_FIELD},
       {"rq_key", [](T& q) { q.rq_entries = 16, q.rq_key = 0xffffff00; }, WEFT_ERR_BAD_KEY},
       {"rq_addr", [](T& q) { q.rq_entries = 16, q.rq_key = 0x100, q.rq_addr = kTop - 63; }, WEFT_ERR_BAD_RANGE},
       {"flags", [](T& q) { q.flags = 2; }, WEFT_ERR_BAD_FIELD},
       {"reserved[0]", [](T& q) { q.reserved[0] = 1; }, WEFT_ERR_BAD_FIELD},
       {"reserved[2]", [](T& q) { q.reserved[2] = 1; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, QpModify) {
  using T = weft_mbox_qp_modify;
  T good{};
  good.mask = 0x7ff;
  good.qp = channel();
  good.qp.qpn = 0xffffff;
  good.qp.state = WEFT_QPS_RTR;
  expect_checked<T>(WEFT_MBOX_QP_MODIFY, good,
                    {{"mask", [](T& m) { m.mask = 0x800; }, WEFT_ERR_BAD_FIELD},
                     {"reserved", [](T& m) { m.reserved = 1; }, WEFT_ERR_BAD_FIELD},
                     {"qpn", [](T& m) { m.qp.qpn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
                     {"ctx", [](T& m) { m.qp.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                     {"state", [](T& m) { m.qp.state = 7; }, WEFT_ERR_BAD_FIELD},
                     {"port", [](T& m) { m.qp.port = kPorts; }, WEFT_ERR_BAD_FIELD},
                     {"path_mtu 0", [](T& m) { m.qp.path_mtu = 0; }, WEFT_ERR_BAD_FIELD},
                     {"path_mtu 7", [](T& m) { m.qp.path_mtu = 7; }, WEFT_ERR_BAD_FIELD},
                     {"dest_qpn", [](T& m) { m.qp.dest_qpn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
                     {"rq_psn", [](T& m) { m.qp.rq_psn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
                     {"sq_psn", [](T& m) { m.qp.sq_psn = 0x1000000; }, WEFT_ERR_BAD_FIELD},
                     {"timeout", [](T& m) { m.qp.timeout = 32; }, WEFT_ERR_BAD_FIELD},
                     {"min_rnr_timer", [](T& m) { m.qp.min_rnr_timer = 32; }, WEFT_ERR_BAD_FIELD},
                     {"access", [](T& m) { m.qp.access = 1; }, WEFT_ERR_BAD_FIELD},
                     {"syncs", [](T& m) { m.qp.sync_count = 2; }, WEFT_ERR_BAD_SYNC},
                     {"qp.reserved", [](T& m) { m.qp.reserved[1] = 1; }, WEFT_ERR_BAD_FIELD},
                     {"what the mask does not name is not looked at",
                      [](T& m) {
                        m.mask = 0;
                        m.qp.port = 99;
                        m.qp.path_mtu = 99;
                        m.qp.dest_qpn = m.qp.sq_psn = m.qp.rq_psn = 0xffffffff;
                        m.qp.timeout = m.qp.min_rnr_timer = 99;
                        m.qp.access = m.qp.sync_count = 0xffffffff;
                      },
                      WEFT_ERR_OK}});
}

TEST_P(Check, QpQueryAndDestroy) {
  using T = weft_mbox_pair;
  for (const std::uint16_t op : {WEFT_MBOX_QP_QUERY, WEFT_MBOX_QP_DESTROY}) {
    expect_checked<T>(op, {kContexts - 1, 0xffffff},
                      {{"ctx", [](T& p) { p.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                       {"qpn", [](T& p) { p.index = 0x1000000; }, WEFT_ERR_BAD_FIELD}});
  }
}

TEST_P(Check, CqCreate) {
  using T = weft_cq_entry;
  expect_checked<T>(WEFT_MBOX_CQ_CREATE, {0, kContexts - 1, WEFT_KEY(1, 1), 16, 0x40, kVectors - 1, 0, {}},
                    {{"ctx", [](T& c) { c.ctx = kContexts; }, WEFT_ERR_BAD_FIELD},
                     {"key", [](T& c) { c.key = 0; }, WEFT_ERR_BAD_KEY},
                     {"entries 0", [](T& c) { c.entries = 0; }, WEFT_ERR_BAD_FIELD},
                     {"entries 24", [](T& c) { c.entries = 24; }, WEFT_ERR_BAD_FIELD},
                     {"entries", [](T& c) { c.entries = 131072; }, WEFT_ERR_BAD_FIELD},
                     {"addr", [](T& c) { c.addr = 32; }, WEFT_ERR_BAD_ALIGN},
                     {"addr wraps", [](T& c) { c.addr = kTop - 63; }, WEFT_ERR_BAD_RANGE},
                     {"vector", [](T& c) { c.vector = kVectors; }, WEFT_ERR_BAD_FIELD},
                     {"flags", [](T& c) { c.flags = 1; }, WEFT_ERR_BAD_FIELD},
                     {"reserved", [](T& c) { c.reserved[2] = 1; }, WEFT_ERR_BAD_FIELD}});
}

TEST_P(Check, CqDestroy) {
  using T = weft_mbox_pair;
  expect_checked<T>(WEFT_MBOX_CQ_DESTROY, {kContexts - 1, 3},
                    {{"ctx", [](T& p) { p.ctx = kContexts; }, WEFT_ERR_BAD_FIELD}});
}

}  // namespace
}  // namespace weft::model::test
