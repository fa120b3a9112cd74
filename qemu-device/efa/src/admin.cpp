// SPDX-License-Identifier: MIT
#include "admin.hpp"

#include <algorithm>
#include <cstring>

namespace weft::efa {

using enum hw::AdminStatus;

namespace {

constexpr std::uint64_t kFeatures = 1u << hw::kDeviceAttr | 1u << hw::kAenqConfig | 1u << hw::kNetworkAttr |
                                    1u << hw::kQueueAttr | 1u << hw::kHwHints | 1u << hw::kHostInfo |
                                    1u << hw::kEventQueueAttr;
constexpr std::uint16_t kRegisterReadMs = 2000;  // an emulator on a busy machine may be slow

template <class T>
void put(Admin::Reply& reply, const T& value) {
  static_assert(sizeof(T) <= sizeof(Admin::Reply));
  std::memcpy(reply.data(), &value, sizeof(value));
}

hw::AdminStatus put_index(Admin::Reply& reply, int index) {
  if (index < 0) return kNoResource;
  put(reply, hw::IndexReply{static_cast<std::uint16_t>(index), 0});
  return kSuccess;
}

}  // namespace

void Admin::clear() {
  domains_.clear();
  uars_.clear();
  enabled_groups_ = 0;
}

hw::AdminStatus Admin::execute(const hw::AdminEntry& entry, Reply& reply) {
  const auto head = hw::from_entry<hw::AdminHead>(entry);
  switch (head.opcode) {
    case hw::kCreateQp:
      return create_qp(entry, reply);
    case hw::kModifyQp:
      return data_path_.modify_qp(hw::from_entry<hw::ModifyQpCommand>(entry));
    case hw::kQueryQp: {
      hw::QueryQpReply answer{};
      const auto status = data_path_.query_qp(hw::from_entry<hw::QueryQpCommand>(entry).handle, answer);
      put(reply, answer);
      return status;
    }
    case hw::kDestroyQp: {
      const int pd = data_path_.destroy_qp(hw::from_entry<hw::DestroyQpCommand>(entry).handle);
      if (pd < 0) return kIllegalParameter;
      domains_.release(static_cast<std::uint32_t>(pd));
      return kSuccess;
    }
    case hw::kCreateAh:
      return create_ah(entry, reply);
    case hw::kDestroyAh: {
      const auto command = hw::from_entry<hw::DestroyAhCommand>(entry);
      if (!addresses_.release(command.ah, command.pd)) return kIllegalParameter;
      domains_.release(command.pd);
      return kSuccess;
    }
    case hw::kRegMr:
      return reg_mr(entry, reply);
    case hw::kDeregMr: {
      const int pd = regions_.remove(hw::from_entry<hw::DeregMrCommand>(entry).lkey);
      if (pd < 0) return kIllegalParameter;
      domains_.release(static_cast<std::uint32_t>(pd));
      return kSuccess;
    }
    case hw::kCreateCq:
      return create_cq(entry, reply);
    case hw::kDestroyCq:
      return completions_.destroy_cq(hw::from_entry<hw::DestroyCqCommand>(entry).index);
    case hw::kGetFeature:
      return get_feature(hw::from_entry<hw::FeatureCommand>(entry).feature, reply);
    case hw::kSetFeature:
      return set_feature(hw::from_entry<hw::FeatureCommand>(entry));
    case hw::kGetStats:
      return get_stats(hw::from_entry<hw::GetStatsCommand>(entry), reply);
    case hw::kAllocPd:
      return put_index(reply, domains_.take());
    case hw::kDeallocPd:
      return domains_.give_back(hw::from_entry<hw::IndexCommand>(entry).index);
    case hw::kAllocUar:
      return put_index(reply, uars_.take());
    case hw::kDeallocUar:
      return uars_.give_back(hw::from_entry<hw::IndexCommand>(entry).index);
    case hw::kCreateEq: {
      std::uint16_t index = 0;
      const auto status = completions_.create_eq(hw::from_entry<hw::CreateEqCommand>(entry), index);
      return status == kSuccess ? put_index(reply, index) : status;
    }
    case hw::kDestroyEq:
      return completions_.destroy_eq(hw::from_entry<hw::IndexCommand>(entry).index);
    default:
      return kUnsupported;
  }
}

hw::AdminStatus Admin::create_qp(const hw::AdminEntry& entry, Reply& reply) {
  const auto command = hw::from_entry<hw::CreateQpCommand>(entry);
  if (!domains_.valid(command.pd) || !uars_.valid(command.uar)) return kIllegalParameter;
  hw::CreateQpReply answer{};
  const auto status = data_path_.create_qp(command, answer);
  if (status != kSuccess) return status;
  domains_.hold(command.pd);
  put(reply, answer);
  return kSuccess;
}

hw::AdminStatus Admin::reg_mr(const hw::AdminEntry& entry, Reply& reply) {
  const auto command = hw::from_entry<hw::RegMrCommand>(entry);
  if (!domains_.valid(command.pd)) return kIllegalParameter;
  hw::RegMrReply answer{};
  const auto status = regions_.add(command, answer);
  if (status != kSuccess) return status;
  domains_.hold(command.pd);
  put(reply, answer);
  return kSuccess;
}

hw::AdminStatus Admin::create_ah(const hw::AdminEntry& entry, Reply& reply) {
  const auto command = hw::from_entry<hw::CreateAhCommand>(entry);
  if (!domains_.valid(command.pd)) return kIllegalParameter;
  const auto ah = addresses_.take(command.pd, command.gid);
  if (!ah) return kNoResource;
  domains_.hold(command.pd);
  return put_index(reply, *ah);
}

hw::AdminStatus Admin::create_cq(const hw::AdminEntry& entry, Reply& reply) {
  const auto command = hw::from_entry<hw::CreateCqCommand>(entry);
  if (!uars_.valid(command.uar)) return kIllegalParameter;
  hw::CreateCqReply answer{};
  const auto status = completions_.create_cq(command, answer);
  put(reply, answer);
  return status;
}

hw::AdminStatus Admin::get_feature(std::uint8_t feature, Reply& reply) {
  switch (feature) {
    case hw::kDeviceAttr: {
      hw::DeviceAttrReply answer{};
      answer.features = kFeatures;
      answer.page_sizes = hw::kPageSizes;
      answer.firmware_version = 1;
      answer.admin_api_version = 1;
      answer.device_version = hw::kDevice;
      answer.doorbell_bar = hw::kDoorbellBar;
      answer.physical_bits = 64;
      answer.virtual_bits = 64;
      answer.caps = hw::kCapRead | hw::kCapRnrRetry | hw::kCapWrite | hw::kCapUnsolicitedWrite;
      answer.rdma_bytes = hw::kRdmaBytes;
      const Gid gid = gid_of(mac_);
      std::copy(gid.begin() + 8, gid.end(), answer.guid.begin());  // its interface id
      put(reply, answer);
      return kSuccess;
    }
    case hw::kAenqConfig:
      put(reply, hw::AenqConfigReply{hw::kAenqGroups, enabled_groups_});
      return kSuccess;
    case hw::kNetworkAttr:
      put(reply, hw::NetworkAttrReply{gid_of(mac_), options_.mtu});
      return kSuccess;
    case hw::kQueueAttr: {
      hw::QueueAttrReply answer{};
      answer.qps = hw::kQueuePairs;
      answer.sq_depth = hw::kSendDepth;
      answer.inline_bytes = hw::kInlineBytes;
      answer.rq_depth = hw::kReceiveDepth;
      answer.cqs = hw::kCompletionQueues;
      answer.cq_depth = hw::kCompletionDepth;
      answer.sub_cqs = 1;
      answer.send_buffers = hw::kSendBuffers;
      answer.receive_buffers = hw::kReceiveBuffers;
      answer.mrs = hw::kRegions - 1;
      answer.mr_pages = hw::kRegionPages;
      answer.pds = hw::kProtectionDomains;
      answer.ahs = hw::kAddressHandles;
      answer.send_queue_bytes = hw::kSendQueueStride;
      answer.rdma_buffers = 1;
      put(reply, answer);
      return kSuccess;
    }
    case hw::kHwHints:
      put(reply,
          hw::HintsReply{.register_read = kRegisterReadMs, .watchdog = 0, .admin_completion = 0, .poll_interval = 0});
      return kSuccess;
    case hw::kEventQueueAttr:
      put(reply, hw::EventQueueAttrReply{hw::kEventQueues, hw::kEventDepth, 1});
      return kSuccess;
    default:
      return kUnsupported;
  }
}

hw::AdminStatus Admin::set_feature(const hw::FeatureCommand& command) {
  switch (command.feature) {
    case hw::kAenqConfig:
      if (command.enabled_groups & ~hw::kAenqGroups) return kIllegalParameter;
      enabled_groups_ = command.enabled_groups;
      return kSuccess;
    case hw::kHostInfo: {
      // What the driver says of itself is logged: kernel version (byte 164), driver version (168).
      std::array<std::byte, hw::kHostInfoBytes> info{};
      if ((command.head.flags & hw::kControlData) == 0 || command.buffer.length < info.size()) return kMalformed;
      if (!host_.read(command.buffer.address.value(), info, WEFT_ABI_DMA_CONTROL)) return kIllegalParameter;
      std::array<std::uint32_t, 2> version;
      std::memcpy(version.data(), info.data() + 164, sizeof(version));
      host_.report(Event::kHostInfo, {version[0], version[1]});
      return kSuccess;
    }
    default:
      return kUnsupported;
  }
}

hw::AdminStatus Admin::get_stats(const hw::GetStatsCommand& command, Reply& reply) {
  const Statistics& statistics = data_path_.statistics();
  switch (command.type) {
    case hw::kStatsBasic:
      put(reply, statistics.basic);
      return kSuccess;
    case hw::kStatsMessages:
      put(reply, statistics.messages);
      return kSuccess;
    case hw::kStatsRead:
      put(reply, statistics.reads);
      return kSuccess;
    case hw::kStatsWrite:
      put(reply, statistics.writes);
      return kSuccess;
    default:
      return kUnsupported;
  }
}

}  // namespace weft::efa
