// SPDX-License-Identifier: MIT
// The device's interface: registers, rings and their entries, as the upstream `efa` driver and rdma-core's provider use
// them. All fields are little-endian unless said otherwise; the layouts are natural, so plain structures serve.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace weft::efa::hw {

static_assert(std::endian::native == std::endian::little,
              "the structures below are the wire format of a little-endian device");

inline constexpr std::uint16_t kVendor = 0x1d0f;
inline constexpr std::uint16_t kDevice = 0xefa2;

// ---- BARs

inline constexpr unsigned kRegisterBar = 0;
inline constexpr unsigned kMsixBar = 1;
inline constexpr unsigned kSendQueueBar = 2;  // RAM: send queue q starts at q * kSendQueueStride
inline constexpr unsigned kDoorbellBar = 4;   // a page a queue pair, then a page a completion queue

inline constexpr std::uint64_t kRegisterBytes = 16 * 1024;
inline constexpr std::uint64_t kPage = 4096;

// ---- Sizes that the device tells the driver

inline constexpr std::uint32_t kQueuePairs = 256;  // the provider indexes a table of this size by QP number
inline constexpr std::uint32_t kCompletionQueues = 512;
inline constexpr std::uint32_t kEventQueues = 32;
inline constexpr std::uint32_t kVectors = 1 + kEventQueues;  // 0: admin queue and AENQ
inline constexpr std::uint32_t kProtectionDomains = 256;
inline constexpr std::uint32_t kUars = 256;
inline constexpr std::uint32_t kAddressHandles = 1024;
inline constexpr std::uint32_t kRegions = 65536;
inline constexpr std::uint32_t kRegionPages = 1u << 22;   // of one region
inline constexpr std::uint64_t kTotalPages = 1ull << 24;  // of all: what a guest may make us remember, 128 MiB
inline constexpr std::uint32_t kSendDepth = 1024;
inline constexpr std::uint32_t kReceiveDepth = 4096;
inline constexpr std::uint32_t kReceiveEntriesMax = 32768;  // of a ring; its counters have 16 bits
inline constexpr std::uint32_t kCompletionDepth = 32768;    // CREATE_CQ has 16 bits for it
inline constexpr std::uint32_t kEventDepth = 4096;
inline constexpr std::uint32_t kInlineBytes = 32;
inline constexpr std::uint32_t kSendBuffers = 2;
inline constexpr std::uint32_t kReceiveBuffers = 4;
inline constexpr std::uint32_t kRdmaBytes = 1u << 30;
inline constexpr std::uint64_t kPageSizes = 0xfffff000;  // 4 KiB to 2 GiB
inline constexpr std::uint32_t kWqeBytes = 64;
inline constexpr std::uint32_t kSendQueueStride = kSendDepth * kWqeBytes;
inline constexpr std::uint64_t kSendQueueBarBytes = std::uint64_t{kQueuePairs} * kSendQueueStride;
inline constexpr std::uint64_t kDoorbellBytes = std::bit_ceil((kQueuePairs + kCompletionQueues) * kPage);
inline constexpr std::uint32_t kSendDoorbell = 0;  // in a queue pair's page
inline constexpr std::uint32_t kReceiveDoorbell = 8;
inline constexpr std::uint32_t kGrhBytes = 40;  // left free before the payload of a UD message (IBTA 11.4.1.2)

// ---- Registers

enum Register : std::uint32_t {
  kVersion = 0x00,
  kControllerVersion = 0x04,
  kCaps = 0x08,
  kAqBaseLow = 0x10,
  kAqBaseHigh = 0x14,
  kAqCaps = 0x18,
  kAcqBaseLow = 0x20,
  kAcqBaseHigh = 0x24,
  kAcqCaps = 0x28,
  kAqDoorbell = 0x2c,
  kAenqCaps = 0x34,
  kAenqBaseLow = 0x38,
  kAenqBaseHigh = 0x3c,
  kAenqDoorbell = 0x40,
  kInterruptMask = 0x4c,
  kDeviceControl = 0x54,
  kDeviceStatus = 0x58,
  kRegisterRead = 0x5c,
  kResponseLow = 0x60,
  kResponseHigh = 0x64,
  kEventDoorbell = 0x68,
  kRegistersEnd = 0x6c,
};

// 0.1: later drivers speak longer admin entries with checksums to devices from 0.2 up.
inline constexpr std::uint32_t kVersionValue = 0x0001;
inline constexpr std::uint32_t kControllerVersionValue = 0x00000001;
// Rings are contiguous; a reset takes at most 10 x 100 ms; 64-bit DMA addresses; admin commands: the driver's own
// limit.
inline constexpr std::uint32_t kCapsValue = 1u | 10u << 1 | 64u << 8;
inline constexpr std::uint32_t kControlReset = 1u << 0;
inline constexpr std::uint32_t kStatusReady = 1u << 0;
inline constexpr std::uint32_t kStatusResetting = 1u << 3;
inline constexpr std::uint32_t kStatusFatal = 1u << 5;
inline constexpr std::uint32_t kMaskInterrupts = 1u << 0;
inline constexpr std::uint32_t kArm = 1u << 31;

// Every register read of the driver: it writes {offset, request} to kRegisterRead, this comes by DMA.
struct RegisterResponse {
  std::uint16_t request;
  std::uint16_t offset;
  std::uint32_t value;
};
static_assert(sizeof(RegisterResponse) == 8);

// ---- Admin queue

inline constexpr std::uint32_t kAdminEntryBytes = 64;
using AdminEntry = std::array<std::byte, kAdminEntryBytes>;

enum Opcode : std::uint8_t {
  kCreateQp = 1,
  kModifyQp = 2,
  kQueryQp = 3,
  kDestroyQp = 4,
  kCreateAh = 5,
  kDestroyAh = 6,
  kRegMr = 7,
  kDeregMr = 8,
  kCreateCq = 9,
  kDestroyCq = 10,
  kGetFeature = 11,
  kSetFeature = 12,
  kGetStats = 13,
  kAllocPd = 14,
  kDeallocPd = 15,
  kAllocUar = 16,
  kDeallocUar = 17,
  kCreateEq = 18,
  kDestroyEq = 19,
};

enum class AdminStatus : std::uint8_t {
  kSuccess = 0,
  kNoResource = 1,
  kBadOpcode = 2,
  kUnsupported = 3,
  kMalformed = 4,
  kIllegalParameter = 5,
  kUnknownError = 6,
  kBusy = 7,
};

enum AdminFlag : std::uint8_t {
  kPhase = 1u << 0,
  kControlData = 1u << 1,
  kControlIndirect = 1u << 2,  // page lists set both; this one rules
};

struct AdminHead {
  std::uint16_t command;  // echoed whole
  std::uint8_t opcode;
  std::uint8_t flags;
};

struct AdminReplyHead {
  std::uint16_t command;
  std::uint8_t status;
  std::uint8_t flags;
  std::uint16_t extended_status;
  std::uint16_t queue_head;
};
inline constexpr std::size_t kReplyBytes = kAdminEntryBytes - sizeof(AdminReplyHead);

struct Address {
  std::uint32_t low, high;
  constexpr std::uint64_t value() const { return low | std::uint64_t{high} << 32; }
};

struct ControlBuffer {
  std::uint32_t length;
  Address address;
};
static_assert(sizeof(ControlBuffer) == 12);

enum class QpType : std::uint8_t { kUd = 1, kSrd = 2 };
enum class QpState : std::uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kError };  // of verbs

enum CreateQpFlag : std::uint8_t { kSqVirtual = 1u << 0, kRqVirtual = 1u << 1, kUnsolicitedWrite = 1u << 2 };

struct CreateQpCommand {
  AdminHead head;
  std::uint16_t pd;
  QpType type;
  std::uint8_t flags;
  std::uint64_t sq_base;  // unused: send queues lie in BAR 2
  std::uint64_t rq_base;
  std::uint32_t send_cq, receive_cq;
  std::uint32_t sq_key, rq_key;
  std::uint32_t sq_bytes, sq_depth;
  std::uint32_t rq_bytes, rq_depth;
  std::uint16_t uar, reserved;
  std::uint32_t reserved2;
};
static_assert(sizeof(CreateQpCommand) == kAdminEntryBytes);

struct CreateQpReply {
  std::uint32_t handle;
  std::uint16_t number, reserved;
  std::uint16_t send_sub_cq, receive_sub_cq;
  std::uint32_t send_doorbell, receive_doorbell;  // offsets in the doorbell BAR
  std::uint32_t send_queue;                       // offset in the send queue BAR
};

enum ModifyMask : std::uint32_t {
  kModifyState = 1u << 0,
  kModifyCurrentState = 1u << 1,
  kModifyQkey = 1u << 2,
  kModifyPsn = 1u << 3,
  kModifySqdNotify = 1u << 4,
  kModifyRnrRetry = 1u << 5,
  kModifyAll = 0x3f,
};

struct ModifyQpCommand {
  AdminHead head;
  std::uint32_t mask;
  std::uint32_t handle;
  std::uint32_t state, current_state;
  std::uint32_t qkey, psn;
  std::uint8_t sqd_notify, rnr_retry;
  std::uint16_t reserved;
};

struct QueryQpCommand {
  AdminHead head;
  std::uint32_t handle;
};
using DestroyQpCommand = QueryQpCommand;

struct QueryQpReply {
  std::uint32_t state, qkey, psn;
  std::uint8_t draining, rnr_retry;
  std::uint16_t reserved;
};

struct CreateAhCommand {
  AdminHead head;
  std::array<std::uint8_t, 16> gid;  // network byte order
  std::uint16_t pd, reserved;
};

struct DestroyAhCommand {
  AdminHead head;
  std::uint16_t ah, pd;
};

enum Right : std::uint8_t { kLocalWrite = 1u << 0, kRemoteWrite = 1u << 1, kRemoteRead = 1u << 2 };

inline constexpr unsigned kInlinePages = 4;
inline constexpr std::uint8_t kPageShiftMask = 0x1f;
inline constexpr std::uint8_t kPhysicalMode = 1u << 7;

struct RegMrCommand {
  AdminHead head;
  std::uint16_t pd, reserved;
  union {
    std::uint64_t page[kInlinePages];
    ControlBuffer list;
  };
  std::uint64_t length;
  std::uint8_t flags;
  std::uint8_t rights;
  std::uint16_t reserved2;
  std::uint32_t pages;  // 0 from efa.ko 6.12: the count follows from the rest
  std::uint64_t iova;
};
static_assert(sizeof(RegMrCommand) == kAdminEntryBytes);

// A page of an indirect list: addresses of pages full of page addresses, then where the next such page is.
struct PageListChunk {
  std::uint64_t list[510];
  ControlBuffer next;
  std::uint32_t reserved;
};
static_assert(sizeof(PageListChunk) == kPage && offsetof(PageListChunk, next) == 4080);
inline constexpr std::uint32_t kPagesPerList = kPage / 8;

struct RegMrReply {
  std::uint32_t lkey;  // 24 bits
  std::uint32_t rkey;
  std::uint8_t interconnects_valid, receive_interconnect, read_interconnect, write_interconnect;
};

struct DeregMrCommand {
  AdminHead head;
  std::uint32_t lkey;
};

enum CreateCqCaps : std::uint8_t { kCqInterrupt = 1u << 5, kCqVirtual = 1u << 6, kCqSourceAddress = 1u << 5 };

struct CreateCqCommand {
  AdminHead head;
  std::uint8_t caps1;  // kCqInterrupt, kCqVirtual
  std::uint8_t caps2;  // 4:0 entry size in words, kCqSourceAddress
  std::uint16_t depth;
  std::uint16_t eqn, reserved;
  Address base;
  std::uint32_t key;
  std::uint16_t sub_cqs, uar;
};

struct CreateCqReply {
  std::uint16_t index, depth;
  std::uint32_t doorbell;
  std::uint32_t flags;  // 0: doorbell valid
};

struct DestroyCqCommand {
  AdminHead head;
  std::uint16_t index, reserved;
};

enum Feature : std::uint8_t {
  kDeviceAttr = 1,
  kAenqConfig = 2,
  kNetworkAttr = 3,
  kQueueAttr = 4,
  kHwHints = 5,
  kHostInfo = 6,
  kEventQueueAttr = 7,
};

struct FeatureCommand {
  AdminHead head;
  ControlBuffer buffer;
  std::uint8_t reserved, feature;
  std::uint16_t reserved2;
  std::uint32_t supported_groups, enabled_groups;  // SET_FEATURE kAenqConfig
};

enum DeviceCaps : std::uint32_t {
  kCapRead = 1u << 0,
  kCapRnrRetry = 1u << 1,
  kCapWrite = 1u << 3,
  kCapUnsolicitedWrite = 1u << 4,
};

struct DeviceAttrReply {
  std::uint64_t features;  // bit per Feature
  std::uint64_t page_sizes;
  std::uint32_t firmware_version, admin_api_version, device_version;
  std::uint16_t doorbell_bar;
  std::uint8_t physical_bits, virtual_bits;
  std::uint32_t caps, rdma_bytes;
  std::array<std::uint8_t, 8> guid;  // network byte order
};

struct QueueAttrReply {
  std::uint32_t qps, sq_depth, inline_bytes, rq_depth, cqs, cq_depth;
  std::uint16_t sub_cqs, sq_depth_min, send_buffers, receive_buffers;
  std::uint32_t mrs, mr_pages, pds, ahs, send_queue_bytes;
  std::uint16_t rdma_buffers, tx_batch;
};
static_assert(sizeof(QueueAttrReply) == kReplyBytes);

struct EventQueueAttrReply {
  std::uint32_t eqs, depth, events;
};

struct AenqConfigReply {
  std::uint32_t supported, enabled;
};

struct NetworkAttrReply {
  std::array<std::uint8_t, 16> gid;
  std::uint32_t mtu;
};

struct HintsReply {  // ms; 0: the driver's own value
  std::uint16_t register_read, watchdog, admin_completion, poll_interval;
};

inline constexpr std::uint32_t kHostInfoBytes = 180;

enum StatsType : std::uint8_t { kStatsBasic = 0, kStatsMessages = 1, kStatsRead = 2, kStatsWrite = 3 };

struct GetStatsCommand {
  AdminHead head;
  ControlBuffer buffer;
  std::uint8_t type, scope;
  std::uint16_t scope_modifier;
};

struct BasicStats {
  std::uint64_t tx_bytes, tx_packets, rx_bytes, rx_packets, rx_drops;
};
struct MessageStats {
  std::uint64_t send_bytes, sends, receive_bytes, receives;
};
struct ReadStats {
  std::uint64_t reads, read_bytes, read_errors, response_bytes;
};
struct WriteStats {
  std::uint64_t writes, write_bytes, write_errors, receive_bytes;
};

struct IndexCommand {  // DEALLOC_PD, DEALLOC_UAR, DESTROY_EQ
  AdminHead head;
  std::uint16_t index, reserved;
};
struct IndexReply {  // ALLOC_PD, ALLOC_UAR, CREATE_EQ, CREATE_AH
  std::uint16_t index, reserved;
};

struct CreateEqCommand {
  AdminHead head;
  std::uint16_t depth;
  std::uint8_t vector;
  std::uint8_t caps;
  Address base;
  std::uint32_t events;
  std::uint32_t reserved;
};

// ---- Events

struct EventEntry {
  std::uint32_t common;  // 0 phase, 8:1 type (0: completion); written last
  std::uint32_t reserved;
  std::uint16_t cqn, reserved2;
  std::uint32_t reserved3;
};
static_assert(sizeof(EventEntry) == 16);

enum AenqGroup : std::uint16_t { kGroupFatal = 1, kGroupWarning = 2, kGroupNotification = 3, kGroupKeepAlive = 4 };
inline constexpr std::uint32_t kAenqGroups =
    1u << kGroupFatal | 1u << kGroupWarning | 1u << kGroupNotification | 1u << kGroupKeepAlive;

struct AenqEntry {
  std::uint16_t group, syndrome;
  std::uint8_t flags;  // 0 phase; its word is written last
  std::uint8_t reserved[3];
  std::uint32_t time_low, time_high;
  std::uint32_t data[12];
};
static_assert(sizeof(AenqEntry) == 64);

// ---- Work queues

enum class SendOp : std::uint8_t { kSend = 0, kRead = 1, kWrite = 2 };

enum SendControl : std::uint8_t {
  kSendOpMask = 0x0f,
  kSendImmediate = 1u << 4,
  kSendInline = 1u << 5,
  kSendMeta = 1u << 7
};

struct SendBuffer {
  std::uint32_t length;
  std::uint32_t lkey;  // 23:0
  Address address;
};

struct RemoteBuffer {
  std::uint32_t length, rkey;
  Address address;
};

struct SendWqe {
  std::uint16_t request;
  std::uint8_t control1, control2;
  std::uint16_t destination_qp;
  std::uint16_t length;  // buffers, or bytes when inline
  std::uint32_t immediate;
  std::uint16_t ah, reserved;
  std::uint32_t qkey;
  std::uint8_t reserved2[12];
  union {
    SendBuffer buffer[2];
    std::array<std::byte, kInlineBytes> inline_data;
    struct {
      RemoteBuffer remote;
      SendBuffer local;
    } rdma;
  };
};
static_assert(sizeof(SendWqe) == kWqeBytes);

inline constexpr std::uint32_t kLkeyMask = 0xffffff;
inline constexpr std::uint32_t kReceiveLast = 1u << 31;

struct ReceiveDescriptor {
  Address address;
  std::uint16_t request;
  std::uint16_t length;
  std::uint32_t lkey_control;  // 23:0 lkey, 30 first, 31 last
};
static_assert(sizeof(ReceiveDescriptor) == 16);

// What becomes of a work request, as a completion says it and as one device tells another.
enum class Status : std::uint8_t {
  kOk = 0,
  kFlushed = 1,
  kInternalError = 2,  // the bus refused the local memory, or a ring is broken
  kInvalidOp = 3,
  kInvalidAh = 4,
  kInvalidLkey = 5,
  kBadLength = 6,
  kRemoteBadAddress = 7,  // rkey, range, rights, or memory that is not there
  kRemoteAbort = 8,       // the peer's device was reset
  kRemoteBadQpn = 9,
  kRemoteRnr = 10,
  kRemoteBadLength = 11,
  kRemoteBadStatus = 12,
  kUnresponsive = 13,  // the peer was heard before
  kUnknownPeer = 14,   // the peer says that it does not know us
  kUnreachable = 15,   // the peer was never heard, or there is no link
};

inline constexpr std::uint8_t kCqePhase = 1u << 0;
inline constexpr std::uint8_t kCqeSend = 1u << 1;
inline constexpr std::uint8_t kCqeReceive = 2u << 1;
inline constexpr std::uint8_t kCqeImmediate = 1u << 3;
inline constexpr unsigned kCqeOpShift = 4;
inline constexpr std::uint8_t kCqeUnsolicited = 1u << 7;
inline constexpr std::uint16_t kNoAh = 0xffff;

struct Cqe {
  std::uint16_t request;
  Status status;
  std::uint8_t flags;  // their word is written last
  std::uint16_t qp;
  std::uint16_t length;  // receive only, as all below
  std::uint16_t ah;
  std::uint16_t source_qp;
  std::uint32_t immediate;
  union {
    std::uint16_t length_high;                    // RDMA write
    std::array<std::uint8_t, 16> source_address;  // of a sender without AH, when the CQ asked for it
  };
};
static_assert(sizeof(Cqe) == 32);

// ---- Helpers

template <class T>
T from_entry(const AdminEntry& entry) {
  static_assert(sizeof(T) <= sizeof(entry));
  T value;
  std::memcpy(&value, entry.data(), sizeof(value));
  return value;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

}  // namespace weft::efa::hw
