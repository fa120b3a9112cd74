// SPDX-License-Identifier: MIT
// Registers, admin queue, events, page lists. Values are those of the interface notes: what the driver checks.
#include <algorithm>

#include "bench.hpp"

namespace weft::efa::test {

using enum hw::AdminStatus;

TEST(EfaRegisters, ReadlessReadsGiveWhatTheDriverChecks) {
  Nic nic(1);
  nic.open();
  EXPECT_EQ(nic.read(hw::kVersion), 0x0001u);
  EXPECT_NE(nic.read(hw::kControllerVersion) & 0xffffff, 0u);
  const std::uint32_t caps = nic.read(hw::kCaps);
  EXPECT_NE(caps >> 1 & 0x1f, 0u);
  EXPECT_EQ(caps >> 8 & 0xff, 64u);
  EXPECT_EQ(nic.read(hw::kDeviceStatus), 1u);
  EXPECT_EQ(nic.read(0x6c), 0u);
  EXPECT_EQ(nic.read(0xfff0), 0u);
}

TEST(EfaRegisters, ResetHandshakeForgetsEverything) {
  Nic nic(1);
  nic.open();
  nic.domain();
  auto cq = nic.create_cq();
  nic.create_qp(hw::QpType::kSrd, cq, cq);
  const auto mr = nic.reg(8192);
  nic.write(hw::kDeviceControl, 1u | 1u << 28);
  nic.reopen();  // the driver sets the response address again: the reset cleared it
  EXPECT_EQ(nic.read(hw::kDeviceStatus), 1u | 8u);
  nic.write(hw::kDeviceControl, 0);
  EXPECT_EQ(nic.read(hw::kDeviceStatus), 1u);
  EXPECT_EQ(nic.dereg(mr.lkey), kIllegalParameter);
  hw::DestroyCqCommand destroy{};
  destroy.index = cq.index;
  EXPECT_EQ(nic.admin(hw::kDestroyCq, destroy).status, kIllegalParameter);
}

TEST(EfaRegisters, WritesAreSeenByReadsAtOnceHoweverMany) {
  Nic nic(1);
  nic.open();
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    nic.write(hw::kAenqDoorbell, i);
    ASSERT_EQ(nic.model->region_read(nic.device(), hw::kRegisterBar, hw::kAenqDoorbell, 4), i);
  }
  nic.write(hw::kDeviceControl, 1);
  EXPECT_EQ(nic.model->region_read(nic.device(), hw::kRegisterBar, hw::kDeviceStatus, 4), 1u | 8u);
  nic.write(hw::kDeviceControl, 0);
  EXPECT_EQ(nic.model->region_read(nic.device(), hw::kRegisterBar, hw::kDeviceStatus, 4), 1u);
  nic.reopen();
  EXPECT_EQ(nic.read(hw::kVersion), hw::kVersionValue);
}

TEST(EfaRegisters, InterruptMaskHoldsTheInterruptBack) {
  Nic nic(1);
  nic.open();
  nic.write(hw::kInterruptMask, 1);
  nic.take(hw::kAllocPd);
  EXPECT_TRUE(nic.host.interrupts.empty());
  nic.write(hw::kInterruptMask, 0);
  nic.step();
  EXPECT_EQ(nic.host.interrupts, std::vector<std::uint32_t>{0});
}

TEST(EfaAdmin, FeaturesSayWhatLibfabricNeeds) {
  Nic nic(7);
  nic.open();
  const auto feature = [&](std::uint8_t id) {
    hw::FeatureCommand command{};
    command.feature = id;
    return nic.admin(hw::kGetFeature, command);
  };
  const auto device = feature(hw::kDeviceAttr).as<hw::DeviceAttrReply>();
  EXPECT_EQ(device.features & 0x3c, 0x3cu);
  EXPECT_EQ(device.caps, 0b11011u);  // read, RNR retry, write, unsolicited write
  EXPECT_EQ(device.doorbell_bar, 4);
  EXPECT_EQ(device.guid, (std::array<std::uint8_t, 8>{0, 0xef, 0xa0, 0xff, 0xfe, 0, 0, 7}));
  const auto queues = feature(hw::kQueueAttr).as<hw::QueueAttrReply>();
  EXPECT_EQ(queues.inline_bytes, 32u);
  EXPECT_EQ(queues.send_buffers, 2);
  EXPECT_EQ(queues.sub_cqs, 1);
  EXPECT_GE(queues.cq_depth, 16384u);
  EXPECT_LE(queues.cq_depth, 32768u);
  EXPECT_EQ(queues.send_queue_bytes, queues.sq_depth * 64);
  const auto network = feature(hw::kNetworkAttr).as<hw::NetworkAttrReply>();
  EXPECT_EQ(network.mtu, 8928u);
  EXPECT_EQ(network.gid, (Gid{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0xef, 0xa0, 0xff, 0xfe, 0, 0, 7}));
  EXPECT_EQ(feature(hw::kAenqConfig).as<hw::AenqConfigReply>().supported & 0x1e, 0x1eu);
  EXPECT_EQ(feature(99).status, kUnsupported);
}

TEST(EfaAdmin, UnknownCommandsAndStatistics) {
  Nic nic(1);
  nic.open();
  EXPECT_EQ(nic.admin(20, hw::IndexCommand{}).status, kUnsupported);
  EXPECT_EQ(nic.admin(0, hw::IndexCommand{}).status, kUnsupported);
  for (std::uint8_t type = 0; type < 6; ++type) {
    hw::GetStatsCommand command{};
    command.type = type;
    EXPECT_EQ(nic.admin(hw::kGetStats, command).status, type < 4 ? kSuccess : kUnsupported);
  }
}

TEST(EfaAdmin, RingsWrapWithTheirPhase) {
  Nic nic(1);
  nic.open();
  for (std::uint32_t i = 0; i < 5 * Nic::kDepth; ++i) {
    const std::uint16_t pd = nic.take(hw::kAllocPd);  // checks the phase
    hw::IndexCommand back{};
    back.index = pd;
    EXPECT_EQ(nic.admin(hw::kDeallocPd, back).status, kSuccess);
    EXPECT_EQ(nic.admin(hw::kDeallocPd, back).status, kIllegalParameter);
  }
}

TEST(EfaAdmin, ResourcesEndAndAreBusyWhileUsed) {
  Nic nic(1);
  nic.open();
  nic.domain();
  auto cq = nic.create_cq(16);
  const auto qp = nic.create_qp(hw::QpType::kSrd, cq, cq);
  hw::IndexCommand pd{};
  pd.index = nic.pd;
  EXPECT_EQ(nic.admin(hw::kDeallocPd, pd).status, kBusy);
  hw::DestroyCqCommand destroy_cq{};
  destroy_cq.index = cq.index;
  EXPECT_EQ(nic.admin(hw::kDestroyCq, destroy_cq).status, kBusy);
  hw::DestroyQpCommand destroy_qp{};
  destroy_qp.handle = qp.handle;
  EXPECT_EQ(nic.admin(hw::kDestroyQp, destroy_qp).status, kSuccess);
  EXPECT_EQ(nic.admin(hw::kDestroyQp, destroy_qp).status, kIllegalParameter);
  EXPECT_EQ(nic.admin(hw::kDestroyCq, destroy_cq).status, kSuccess);
  EXPECT_EQ(nic.admin(hw::kDeallocPd, pd).status, kSuccess);
  unsigned taken = 0;
  while (nic.admin(hw::kAllocPd, hw::IndexCommand{}).status == kSuccess) ++taken;
  EXPECT_EQ(taken, hw::kProtectionDomains);
}

TEST(EfaAdmin, QueuePairStatesFollowTheVerbs) {
  Nic nic(1);
  nic.open();
  nic.domain();
  auto cq = nic.create_cq();
  const auto qp = nic.create_qp(hw::QpType::kSrd, cq, cq, 16, 16, 0, false);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kRts), kIllegalParameter);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kInit), kSuccess);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kRtr), kSuccess);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kRts, 77, 3), kSuccess);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kRts, 77, 8), kIllegalParameter);
  hw::QueryQpCommand query{};
  query.handle = qp.handle;
  const auto reply = nic.admin(hw::kQueryQp, query).as<hw::QueryQpReply>();
  EXPECT_EQ(reply.state, static_cast<std::uint32_t>(hw::QpState::kRts));
  EXPECT_EQ(reply.qkey, 77u);
  EXPECT_EQ(reply.rnr_retry, 3);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kError), kSuccess);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kRts), kIllegalParameter);
  EXPECT_EQ(nic.modify(qp, hw::QpState::kReset), kSuccess);
}

TEST(EfaAdmin, RingSizesThatAreNoPowerOfTwoAreRefused) {
  Nic nic(1);
  nic.open();
  nic.domain();
  auto cq = nic.create_cq();
  hw::CreateQpCommand command{};
  command.pd = nic.pd;
  command.uar = nic.uar;
  command.type = hw::QpType::kSrd;
  command.send_cq = command.receive_cq = cq.index;
  const auto status = [&](std::uint32_t sq, std::uint32_t rq, std::uint64_t base = 0x100000000) {
    command.sq_bytes = sq;
    command.rq_bytes = rq;
    command.rq_base = base;
    return nic.admin(hw::kCreateQp, command).status;
  };
  EXPECT_EQ(status(3 * 64, 16 * 16), kIllegalParameter);
  EXPECT_EQ(status(63, 16 * 16), kIllegalParameter);
  EXPECT_EQ(status(2048 * 64, 16 * 16), kIllegalParameter);
  EXPECT_EQ(status(64 * 64, 3 * 16), kIllegalParameter);
  EXPECT_EQ(status(64 * 64, 0xfffffff0), kIllegalParameter);
  EXPECT_EQ(status(64 * 64, 16 * 16, 8), kIllegalParameter);
  EXPECT_EQ(status(64 * 64, 16 * 16, UINT64_MAX - 15), kIllegalParameter);
  EXPECT_EQ(status(0, 0), kSuccess);
}

TEST(EfaAdmin, AddressHandlesAreCountedPerDomain) {
  Nic nic(1), other(2);
  nic.open();
  nic.domain();
  const std::uint16_t first = nic.create_ah(other);
  EXPECT_EQ(nic.create_ah(other), first);
  const std::uint16_t pd = nic.pd;
  nic.pd = nic.take(hw::kAllocPd);
  EXPECT_NE(nic.create_ah(other), first);
  hw::DestroyAhCommand destroy{};
  destroy.ah = first;
  destroy.pd = nic.pd;
  EXPECT_EQ(nic.admin(hw::kDestroyAh, destroy).status, kIllegalParameter);
  destroy.pd = pd;
  EXPECT_EQ(nic.admin(hw::kDestroyAh, destroy).status, kSuccess);
  EXPECT_EQ(nic.admin(hw::kDestroyAh, destroy).status, kSuccess);
  EXPECT_EQ(nic.admin(hw::kDestroyAh, destroy).status, kIllegalParameter);
}

TEST(EfaAdmin, AenqReportsFaultsAndKeepsAlive) {
  Nic nic(1);
  nic.open();
  hw::FeatureCommand enable{};
  enable.feature = hw::kAenqConfig;
  enable.enabled_groups = 1u << hw::kGroupWarning | 1u << hw::kGroupKeepAlive;
  ASSERT_EQ(nic.admin(hw::kSetFeature, enable).status, kSuccess);
  nic.host.interrupts.clear();
  const std::array<std::uint64_t, 2> warning = {hw::kGroupWarning, 5};
  const std::array<std::uint64_t, 2> fatal = {hw::kGroupFatal, 5};
  EXPECT_EQ(nic.model->fault(nic.device(), "aenq", warning.data(), 2), 0);
  EXPECT_EQ(nic.model->fault(nic.device(), "aenq", fatal.data(), 2), -EAGAIN);  // not enabled
  EXPECT_EQ(nic.model->fault(nic.device(), "nothing", nullptr, 0), -ENOENT);
  const auto& entry = *nic.host.at<hw::AenqEntry>(nic.aenq());
  EXPECT_EQ(entry.group, hw::kGroupWarning);
  EXPECT_EQ(entry.syndrome, 5);
  EXPECT_EQ(entry.flags & 1, 1);
  EXPECT_EQ(nic.host.interrupts.size(), 1u);
  const auto deadline = nic.step().deadline_ns;
  ASSERT_NE(deadline, UINT64_MAX);
  nic.host.now = deadline;
  nic.step();
  EXPECT_EQ(nic.host.at<hw::AenqEntry>(nic.aenq() + 64)->group, hw::kGroupKeepAlive);
  for (int i = 0; i < 14; ++i) EXPECT_EQ(nic.model->fault(nic.device(), "aenq", warning.data(), 2), 0);
  EXPECT_EQ(nic.model->fault(nic.device(), "aenq", warning.data(), 2), -EAGAIN);  // 16 entries, none seen
  nic.write(hw::kAenqDoorbell, 1);
  nic.step();
  EXPECT_EQ(nic.model->fault(nic.device(), "aenq", warning.data(), 2), 0);
  EXPECT_EQ(nic.host.at<hw::AenqEntry>(nic.aenq())->flags & 1, 0);  // second round
}

TEST(EfaEvents, ArmingAfterAnUnseenEntryFiresAtOnce) {
  Nic nic(1);
  nic.open();
  nic.domain();
  hw::CreateEqCommand command{};
  const std::uint64_t ring = nic.host.alloc(64 * 16);
  command.depth = 64;
  command.vector = 3;
  command.caps = 4;
  command.base = {static_cast<std::uint32_t>(ring), static_cast<std::uint32_t>(ring >> 32)};
  command.events = 1;
  const auto answer = nic.admin(hw::kCreateEq, command);
  ASSERT_EQ(answer.status, kSuccess);
  const std::uint16_t eq = answer.as<hw::IndexReply>().index;
  auto cq = nic.create_cq(16, eq);
  auto qp = nic.create_qp(hw::QpType::kSrd, cq, cq);
  const std::uint16_t self = nic.create_ah(nic);
  const auto mr = nic.reg(4096);
  nic.host.interrupts.clear();
  const auto complete_one = [&] {
    nic.post(qp, Nic::send(1, 0, self, mr, 8));  // no such queue pair: completes with an error
    nic.settle();
    EXPECT_TRUE(nic.poll(cq).has_value());
  };
  const auto arm_cq = [&](std::uint16_t consumed) { nic.write(cq.doorbell, 1u << 31 | consumed, hw::kDoorbellBar); };
  const auto arm_eq = [&] {
    nic.write(hw::kEventDoorbell, 1u << 31 | eq);
    nic.step();
  };

  complete_one();
  EXPECT_TRUE(nic.host.interrupts.empty());  // nothing armed
  arm_cq(0);                                 // behind: an entry at once, but the queue is not armed
  EXPECT_TRUE(nic.host.interrupts.empty());
  const auto& entry = *nic.host.at<hw::EventEntry>(ring);
  EXPECT_EQ(entry.common, 1u);
  EXPECT_EQ(entry.cqn, cq.index);
  arm_eq();  // it has not seen that one
  EXPECT_EQ(nic.host.interrupts, std::vector<std::uint32_t>{3});
  arm_eq();
  arm_cq(1);
  EXPECT_EQ(nic.host.interrupts.size(), 1u);
  complete_one();
  EXPECT_EQ(nic.host.interrupts.size(), 2u);
  complete_one();  // armed once, fired once
  EXPECT_EQ(nic.host.interrupts.size(), 2u);
  hw::IndexCommand destroy{};
  destroy.index = eq;
  EXPECT_EQ(nic.admin(hw::kDestroyEq, destroy).status, kBusy);
}

// ---- Page lists: each is checked by a write through it to itself.

class EfaRegions : public ::testing::Test {
 protected:
  EfaRegions() {
    nic.open();
    nic.domain();
    cq = nic.create_cq();
    qp = nic.create_qp(hw::QpType::kSrd, cq, cq);
    self = nic.create_ah(nic);
  }
  hw::Status copy(const Nic::Mr& from, const Nic::Mr& to, std::uint32_t bytes, std::uint64_t at) {
    nic.post(qp, Nic::rdma(hw::SendOp::kWrite, 1, qp.number, self, from, to, bytes, 0, at));
    nic.settle();
    const auto cqe = nic.poll(cq);
    EXPECT_TRUE(cqe);
    return cqe ? cqe->status : hw::Status::kInternalError;
  }
  Nic nic{1};
  Nic::Cq cq{};
  Nic::Qp qp{};
  std::uint16_t self = 0;
};

TEST_F(EfaRegions, InlineListWithAnUnalignedStart) {
  hw::RegMrCommand command{};
  command.pd = nic.pd;
  const std::uint64_t pages = nic.host.alloc(8 * 4096);
  for (int i = 0; i < 4; ++i) command.page[i] = pages + 4096 * (2 * (3 - i));  // backwards, with gaps
  command.length = 3 * 4096 + 100;
  command.flags = 12;
  command.rights = Nic::kAllRights;
  command.iova = 0x10000 + 3000;
  const auto answer = nic.admin(hw::kRegMr, command);
  ASSERT_EQ(answer.status, kSuccess);
  const auto keys = answer.as<hw::RegMrReply>();
  EXPECT_LT(keys.lkey, 1u << 24);
  const Nic::Mr to{command.iova, keys.lkey, keys.rkey, 0};
  const auto from = nic.reg(16384);
  fill_pattern(nic.memory(from, 16384), 3);
  ASSERT_EQ(copy(from, to, 3 * 4096 + 100, 0), hw::Status::kOk);
  std::vector<std::byte> got;
  for (std::size_t i = 0; i < command.length; ++i) {
    const std::size_t at = 3000 + i;
    got.push_back(*nic.host.find(command.page[at / 4096] + at % 4096, 1));
  }
  EXPECT_TRUE(std::ranges::equal(got, nic.memory(from, got.size())));
  EXPECT_EQ(copy(from, to, 2, 3 * 4096 + 99), hw::Status::kRemoteBadAddress);
  EXPECT_EQ(copy(from, to, 1, std::uint64_t(-1)), hw::Status::kRemoteBadAddress);
  EXPECT_EQ(nic.dereg(keys.lkey), kSuccess);
  EXPECT_EQ(copy(from, to, 1, 0), hw::Status::kRemoteBadAddress);
  EXPECT_EQ(nic.dereg(keys.lkey), kIllegalParameter);
}

TEST_F(EfaRegions, TheCountFollowsFromTheRest) {
  hw::RegMrCommand command{};
  command.pd = nic.pd;
  command.page[0] = nic.host.alloc(4096);
  command.length = 4096;
  command.flags = 12;
  command.pages = 2;
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kIllegalParameter);
  command.pages = 1;
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kSuccess);
  command.pages = 0;
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kSuccess);
  command.length = 5 * 4096;  // five pages inline
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kIllegalParameter);
  command.length = 0;
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kIllegalParameter);
  command.length = UINT64_MAX;
  EXPECT_NE(nic.admin(hw::kRegMr, command).status, kSuccess);
  command.length = 4096;
  command.flags = 11;
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kIllegalParameter);
  command.flags = 12;
  command.pd = 200;
  EXPECT_EQ(nic.admin(hw::kRegMr, command).status, kIllegalParameter);
}

TEST_F(EfaRegions, APageMayBeginBelowTheRegion) {
  // 64 KiB page, region in its middle: only iova and length bound it.
  const std::uint64_t memory = nic.host.alloc(3 * 65536);
  const std::uint64_t page = (memory + 65535) & ~std::uint64_t{65535};
  hw::RegMrCommand command{};
  command.pd = nic.pd;
  command.page[0] = page;
  command.length = 8192;
  command.flags = 16;
  command.rights = Nic::kAllRights;
  command.iova = 0x40000 + 0x8000;
  const auto keys = nic.admin(hw::kRegMr, command).as<hw::RegMrReply>();
  const Nic::Mr to{command.iova, keys.lkey, keys.rkey, page + 0x8000};
  const auto from = nic.reg(8192);
  fill_pattern(nic.memory(from, 8192), 4);
  ASSERT_EQ(copy(from, to, 8192, 0), hw::Status::kOk);
  EXPECT_TRUE(std::ranges::equal(nic.memory(to, 8192), nic.memory(from, 8192)));
  EXPECT_EQ(copy(from, to, 4, std::uint64_t(-4)), hw::Status::kRemoteBadAddress);
}

TEST_F(EfaRegions, IndirectListsCrossTheirChunks) {
  // 510 lists of 512 pages fill a chunk; a few pages more need a second one. All pages are one and the same but the
  // two at the border, so that a small memory serves 1 GiB.
  const std::uint64_t count = 510 * 512 + 3;
  const std::uint64_t common = nic.host.alloc(4096);
  const std::uint64_t before = nic.host.alloc(4096), after = nic.host.alloc(4096);
  const std::uint64_t full = nic.host.alloc(4096), last = nic.host.alloc(4096), next = nic.host.alloc(4096);
  for (int i = 0; i < 512; ++i) {
    *nic.host.at<std::uint64_t>(full + 8 * i) = common;
    *nic.host.at<std::uint64_t>(last + 8 * i) = i == 511 ? before : common;
    *nic.host.at<std::uint64_t>(next + 8 * i) = i == 0 ? after : common;
  }
  const std::uint64_t chunk = nic.host.alloc(4096), chunk2 = nic.host.alloc(4096);
  auto& first = *nic.host.at<hw::PageListChunk>(chunk);
  for (int i = 0; i < 510; ++i) first.list[i] = i == 509 ? last : full;
  first.next = {4096, {static_cast<std::uint32_t>(chunk2), static_cast<std::uint32_t>(chunk2 >> 32)}};
  nic.host.at<hw::PageListChunk>(chunk2)->list[0] = next;

  hw::RegMrCommand command{};
  command.pd = nic.pd;
  command.list = {4096, {static_cast<std::uint32_t>(chunk), static_cast<std::uint32_t>(chunk >> 32)}};
  command.length = count * 4096;
  command.flags = 12;
  command.rights = Nic::kAllRights;
  command.iova = 1ull << 40;
  const auto answer = nic.admin(hw::kRegMr, command, hw::kControlData | hw::kControlIndirect);
  ASSERT_EQ(answer.status, kSuccess);
  const auto keys = answer.as<hw::RegMrReply>();
  const Nic::Mr to{command.iova, keys.lkey, keys.rkey, 0};
  const auto from = nic.reg(8192);
  fill_pattern(nic.memory(from, 8192), 5);
  ASSERT_EQ(copy(from, to, 8192, (510ull * 512 - 1) * 4096), hw::Status::kOk);
  EXPECT_EQ(std::memcmp(nic.host.find(before, 4096), nic.host.find(from.bus, 4096), 4096), 0);
  EXPECT_EQ(std::memcmp(nic.host.find(after, 4096), nic.host.find(from.bus + 4096, 4096), 4096), 0);
  EXPECT_EQ(*nic.host.at<std::uint64_t>(common), 0u);

  first.next = {4096, {0, 0}};  // the chain leads nowhere
  EXPECT_EQ(nic.admin(hw::kRegMr, command, hw::kControlData | hw::kControlIndirect).status, kIllegalParameter);
  command.length = std::uint64_t{hw::kRegionPages} * 4096 + 1;
  EXPECT_EQ(nic.admin(hw::kRegMr, command, hw::kControlData | hw::kControlIndirect).status, kNoResource);
}

TEST_F(EfaRegions, KeysOfTheDeadStayDead) {
  const auto first = nic.reg(4096);
  ASSERT_EQ(nic.dereg(first.lkey), kSuccess);
  const auto second = nic.reg(4096);
  EXPECT_NE(first.lkey, second.lkey);
  EXPECT_NE(first.rkey, second.rkey);
  const auto from = nic.reg(4096);
  EXPECT_EQ(copy(from, Nic::Mr{second.iova, first.lkey, first.rkey, 0}, 1, 0), hw::Status::kRemoteBadAddress);
}

TEST(EfaOptions, AreCheckedAndNamed) {
  const auto refused = [](const char* key, const char* value) {
    FakeHost host;
    const weft_abi_host abi = host.abi();
    const weft_abi_option option{key, value};
    const weft_abi_config config{sizeof(config), 1, &option};
    void* model = nullptr;
    char message[128] = "";
    const int result = weft_efa_model_entry(WEFT_ABI_VERSION)->create(&abi, &config, &model, message, sizeof(message));
    if (result == 0) weft_efa_model_entry(WEFT_ABI_VERSION)->destroy(model);
    return result != 0 && std::string(message).find(key) == 0;
  };
  EXPECT_TRUE(refused("mtu", "100"));
  EXPECT_TRUE(refused("mtu", "9999"));
  EXPECT_TRUE(refused("mac", "01:00:00:00:00:01"));
  EXPECT_TRUE(refused("mac", "02:00:00:00:00:0"));
  EXPECT_TRUE(refused("spray", "1"));
  EXPECT_TRUE(refused("color", "red"));
  EXPECT_FALSE(refused("posted", "on"));
  EXPECT_EQ(weft_efa_model_entry(WEFT_ABI_VERSION + 1), nullptr);
}

}  // namespace weft::efa::test
