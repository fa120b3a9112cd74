// SPDX-License-Identifier: MIT
// NICs on fake hosts with what a driver and a provider do, and a wire between them with a seed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "fake_host.hpp"
#include "hw.hpp"
#include "options.hpp"
#include "weft/efa/efa.h"
#include "wire.hpp"

namespace weft::efa::test {

using weft::test::FakeHost;
namespace hw = weft::efa::hw;

// One NIC, brought up as the driver does it.
class Nic {
 public:
  static constexpr std::uint32_t kDepth = 32;

  explicit Nic(std::uint8_t number, std::vector<std::pair<std::string, std::string>> options = {})
      : mac{2, 0xef, 0xa0, 0, 0, number}, ram_(hw::kSendQueueBarBytes) {
    char text[18];
    std::snprintf(text, sizeof(text), "02:ef:a0:00:00:%02x", number);
    options.emplace_back("mac", text);
    std::vector<weft_abi_option> list;
    for (const auto& [key, value] : options) list.push_back({key.c_str(), value.c_str()});
    const weft_abi_config config{sizeof(config), static_cast<std::uint32_t>(list.size()), list.data()};
    abi_ = host.abi();
    abi_.dma_target = [](void*, std::uint64_t iova) -> int {
      return FakeHost::is_peer(iova) ? WEFT_ABI_TARGET_DEVICE : WEFT_ABI_TARGET_RAM;
    };
    char message[256] = "";
    EXPECT_EQ(model->create(&abi_, &config, &device_, message, sizeof(message)), 0) << message;
    EXPECT_EQ(model->attach_ram(device_, hw::kSendQueueBar, ram_.data(), ram_.size()), 0);
  }
  ~Nic() {
    EXPECT_TRUE(host.nothing_mapped());
    EXPECT_EQ(host.bad_unmaps, 0u);
    model->destroy(device_);
  }
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  void write(std::uint32_t offset, std::uint32_t value, std::uint32_t bar = hw::kRegisterBar) {
    model->region_write(device_, bar, offset, value, 4);
  }
  weft_abi_step step(std::uint32_t budget = 128 * 1024) { return model->step(device_, budget); }
  void settle() {
    for (int i = 0; i < 100000 && step().more; ++i) continue;
  }

  // The register as the driver reads it.
  std::uint32_t read(std::uint32_t offset) {
    const std::uint16_t request = ++read_request_;
    write(hw::kRegisterRead, offset << 16 | request);
    step();
    const auto& response = *host.at<hw::RegisterResponse>(response_);
    EXPECT_EQ(response.request, request);
    EXPECT_EQ(response.offset, offset);
    return response.value;
  }

  void open() {
    response_ = host.alloc(4096);
    aq_ = host.alloc(kDepth * 64);
    acq_ = host.alloc(kDepth * 64);
    aenq_ = host.alloc(16 * 64);
    reopen();
  }
  void reopen() {
    std::memset(host.find(acq_, kDepth * 64), 0, kDepth * 64);
    commands_ = 0;
    write_address(hw::kResponseLow, response_);
    write_address(hw::kAqBaseLow, aq_);
    write_address(hw::kAcqBaseLow, acq_);
    write_address(hw::kAenqBaseLow, aenq_);
    write(hw::kAqCaps, 64u << 16 | kDepth);
    write(hw::kAcqCaps, 64u << 16 | kDepth);
    write(hw::kAenqCaps, 64u << 16 | 16);
    write(hw::kAenqDoorbell, 0);
    write(hw::kInterruptMask, 0);
    step();
  }

  // One command: its status and what follows the answer's head.
  struct Answer {
    hw::AdminStatus status;
    std::array<std::byte, hw::kReplyBytes> data;
    template <class T>
    T as() const {
      T value;
      std::memcpy(&value, data.data(), sizeof(value));
      return value;
    }
  };
  template <class Command>
  Answer admin(std::uint8_t opcode, Command command, std::uint8_t flags = 0) {
    static_assert(sizeof(Command) <= 64);
    command.head.opcode = opcode;
    command.head.command = static_cast<std::uint16_t>(0x700 + commands_);
    command.head.flags = flags;
    std::memset(host.find(aq_ + commands_ % kDepth * 64, 64), 0, 64);
    std::memcpy(host.find(aq_ + commands_ % kDepth * 64, 64), &command, sizeof(command));
    write(hw::kAqDoorbell, (commands_ + 1) & 0xffff);
    step();
    const std::byte* at = host.find(acq_ + commands_ % kDepth * 64, 64);
    hw::AdminReplyHead head;
    std::memcpy(&head, at, sizeof(head));
    EXPECT_EQ(head.flags & 1, (commands_ / kDepth) % 2 == 0 ? 1 : 0);
    EXPECT_EQ(head.command, command.head.command);
    ++commands_;
    Answer answer{static_cast<hw::AdminStatus>(head.status), {}};
    std::memcpy(answer.data.data(), at + 8, answer.data.size());
    return answer;
  }
  std::uint16_t take(std::uint8_t opcode) {
    const Answer answer = admin(opcode, hw::IndexCommand{});
    EXPECT_EQ(answer.status, hw::AdminStatus::kSuccess);
    return answer.as<hw::IndexReply>().index;
  }

  struct Cq {
    std::uint16_t index;
    std::uint32_t depth, doorbell, entry_bytes;
    std::uint64_t base;
    std::uint32_t consumed = 0;
  };
  Cq create_cq(std::uint16_t depth = 1024, std::optional<std::uint16_t> eq = {}, bool source_address = true) {
    hw::CreateCqCommand command{};
    const std::uint64_t base = host.alloc(depth * 32u);
    command.caps1 = eq ? hw::kCqInterrupt : 0;
    command.caps2 = static_cast<std::uint8_t>(8 | (source_address ? hw::kCqSourceAddress : 0));
    command.depth = depth;
    command.eqn = eq.value_or(0);
    command.base = {static_cast<std::uint32_t>(base), static_cast<std::uint32_t>(base >> 32)};
    command.sub_cqs = 1;
    command.uar = uar;
    const Answer answer = admin(hw::kCreateCq, command);
    EXPECT_EQ(answer.status, hw::AdminStatus::kSuccess);
    const auto reply = answer.as<hw::CreateCqReply>();
    return {reply.index, reply.depth, reply.doorbell, 32, base};
  }
  std::optional<hw::Cqe> poll(Cq& cq) {
    hw::Cqe cqe;
    std::memcpy(&cqe, host.find(cq.base + cq.consumed % cq.depth * 32, 32), sizeof(cqe));
    const bool phase = (cq.consumed / cq.depth) % 2 == 0;
    if (((cqe.flags & 1) != 0) != phase) return std::nullopt;
    ++cq.consumed;
    return cqe;
  }

  struct Qp {
    std::uint16_t number;
    std::uint32_t send_doorbell, receive_doorbell, queue, handle;
    std::uint32_t sq_entries, rq_entries;
    std::uint64_t rq;
    std::uint16_t sent = 0, received = 0;
  };
  Qp create_qp(hw::QpType type, const Cq& send, const Cq& receive, std::uint32_t sq = 64, std::uint32_t rq = 64,
               std::uint8_t flags = 0, bool ready = true) {
    hw::CreateQpCommand command{};
    command.pd = pd;
    command.type = type;
    command.flags = flags;
    command.rq_base = host.alloc(rq * 16);
    command.send_cq = send.index;
    command.receive_cq = receive.index;
    command.sq_bytes = sq * 64;
    command.rq_bytes = rq * 16;
    command.uar = uar;
    const Answer answer = admin(hw::kCreateQp, command);
    EXPECT_EQ(answer.status, hw::AdminStatus::kSuccess);
    const auto reply = answer.as<hw::CreateQpReply>();
    Qp qp{reply.number, reply.send_doorbell, reply.receive_doorbell, reply.send_queue, reply.handle, sq,
          rq,           command.rq_base};
    if (ready) {
      EXPECT_EQ(modify(qp, hw::QpState::kInit), hw::AdminStatus::kSuccess);
      EXPECT_EQ(modify(qp, hw::QpState::kRtr), hw::AdminStatus::kSuccess);
      EXPECT_EQ(modify(qp, hw::QpState::kRts), hw::AdminStatus::kSuccess);
    }
    return qp;
  }
  hw::AdminStatus modify(const Qp& qp, hw::QpState state, std::uint32_t qkey = kQkey,
                         std::optional<std::uint8_t> rnr = {}) {
    hw::ModifyQpCommand command{};
    command.mask = hw::kModifyState | hw::kModifyQkey | (rnr ? std::uint32_t{hw::kModifyRnrRetry} : 0u);
    command.handle = qp.handle;
    command.state = static_cast<std::uint32_t>(state);
    command.qkey = qkey;
    command.rnr_retry = rnr.value_or(0);
    return admin(hw::kModifyQp, command).status;
  }

  struct Mr {
    std::uint64_t iova;
    std::uint32_t lkey, rkey;
    std::uint64_t bus;
  };
  static constexpr std::uint8_t kAllRights = hw::kLocalWrite | hw::kRemoteWrite | hw::kRemoteRead;
  // Memory of its own, in pages that are not contiguous, registered as an array; with `peer` in another device's
  // memory.
  Mr reg(std::size_t bytes, std::uint8_t rights = kAllRights, bool peer = false) {
    const std::uint64_t bus = peer ? take_peer(bytes) : host.alloc(bytes);
    return reg_at(bus, bytes, next_iova_, rights);
  }
  Mr reg_at(std::uint64_t bus, std::size_t bytes, std::uint64_t iova, std::uint8_t rights = kAllRights) {
    const std::size_t pages = (bytes + 4095) / 4096;
    const std::uint64_t list = host.alloc(pages * 8);
    for (std::size_t i = 0; i < pages; ++i) *host.at<std::uint64_t>(list + 8 * i) = bus + 4096 * i;
    hw::RegMrCommand command{};
    command.pd = pd;
    command.list.address = {static_cast<std::uint32_t>(list), static_cast<std::uint32_t>(list >> 32)};
    command.list.length = static_cast<std::uint32_t>(pages * 8);
    command.length = bytes;
    command.flags = 12;
    command.rights = rights;
    command.iova = iova;
    const Answer answer = admin(hw::kRegMr, command, hw::kControlData);
    EXPECT_EQ(answer.status, hw::AdminStatus::kSuccess);
    const auto reply = answer.as<hw::RegMrReply>();
    next_iova_ += 1ull << 32;
    return {iova, reply.lkey, reply.rkey, bus};
  }
  hw::AdminStatus dereg(std::uint32_t lkey) {
    hw::DeregMrCommand command{};
    command.lkey = lkey;
    return admin(hw::kDeregMr, command).status;
  }
  std::uint64_t take_peer(std::size_t bytes) {
    const std::uint64_t at = FakeHost::kPeerBase + peer_used_;
    peer_used_ += (bytes + 4095) & ~std::size_t{4095};
    return at;
  }
  std::uint16_t create_ah(const Nic& to) { return create_ah(gid_of(to.mac)); }
  std::uint16_t create_ah(const Gid& gid) {
    hw::CreateAhCommand command{};
    command.gid = gid;
    command.pd = pd;
    const Answer answer = admin(hw::kCreateAh, command);
    EXPECT_EQ(answer.status, hw::AdminStatus::kSuccess);
    return answer.as<hw::IndexReply>().index;
  }

  // ---- Work

  static hw::SendWqe wqe(hw::SendOp op, std::uint16_t request, std::uint16_t qp, std::uint16_t ah) {
    hw::SendWqe wqe{};
    wqe.request = request;
    wqe.control1 = static_cast<std::uint8_t>(static_cast<unsigned>(op) | hw::kSendMeta);
    wqe.control2 = 0x1c;
    wqe.destination_qp = qp;
    wqe.ah = ah;
    wqe.qkey = kQkey;
    return wqe;
  }
  static hw::SendBuffer buffer(const Mr& mr, std::uint64_t offset, std::uint32_t bytes) {
    const std::uint64_t at = mr.iova + offset;
    return {bytes, mr.lkey, {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32)}};
  }
  static hw::SendWqe send(std::uint16_t request, std::uint16_t qp, std::uint16_t ah, const Mr& mr, std::uint32_t bytes,
                          std::uint64_t offset = 0) {
    hw::SendWqe w = wqe(hw::SendOp::kSend, request, qp, ah);
    w.length = 1;
    w.buffer[0] = buffer(mr, offset, bytes);
    return w;
  }
  static hw::SendWqe rdma(hw::SendOp op, std::uint16_t request, std::uint16_t qp, std::uint16_t ah, const Mr& local,
                          const Mr& remote, std::uint32_t bytes, std::uint64_t local_offset = 0,
                          std::uint64_t remote_offset = 0) {
    hw::SendWqe w = wqe(op, request, qp, ah);
    w.length = 1;
    w.rdma.local = buffer(local, local_offset, bytes);
    const std::uint64_t at = remote.iova + remote_offset;
    w.rdma.remote = {bytes, remote.rkey, {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32)}};
    return w;
  }
  static hw::SendWqe with_immediate(hw::SendWqe w, std::uint32_t immediate) {
    w.control1 |= hw::kSendImmediate;
    w.immediate = immediate;
    return w;
  }
  void post(Qp& qp, const hw::SendWqe& w, bool ring = true) {
    std::memcpy(ram_.data() + qp.queue + qp.sent % qp.sq_entries * 64, &w, sizeof(w));
    ++qp.sent;
    if (ring) write(qp.send_doorbell, qp.sent, hw::kDoorbellBar);
  }
  void post_receive(Qp& qp, std::uint16_t request, const Mr& mr, std::uint16_t bytes, std::uint64_t offset = 0,
                    bool last = true) {
    const std::uint64_t at = mr.iova + offset;
    const hw::ReceiveDescriptor d{{static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32)},
                                  request,
                                  bytes,
                                  mr.lkey | 1u << 30 | (last ? hw::kReceiveLast : 0)};
    std::memcpy(host.find(qp.rq + qp.received % qp.rq_entries * 16, 16), &d, sizeof(d));
    ++qp.received;
    if (last) write(qp.receive_doorbell, qp.received, hw::kDoorbellBar);
  }

  // How often an event was reported.
  std::size_t count(std::string_view event) const {
    return static_cast<std::size_t>(std::ranges::count(host.log, event, &weft::test::LogLine::event));
  }
  void receive(const std::vector<std::byte>& frame) {
    EXPECT_EQ(model->link_receive(device_, 0, 0, frame.data(), frame.size()), 0);
  }
  std::vector<std::byte> take_frame() {
    std::vector<std::byte> frame = std::move(host.sent[0].front());
    host.sent[0].pop_front();
    return frame;
  }

  std::span<std::byte> memory(const Mr& mr, std::size_t bytes, std::size_t offset = 0) {
    return {host.find(mr.bus + offset, bytes), bytes};
  }

  static constexpr std::uint32_t kQkey = 0x11111111;
  FakeHost host;
  const weft_abi_model* model = weft_efa_model_entry(WEFT_ABI_VERSION);
  Mac mac;
  std::uint16_t pd = 0, uar = 0;
  void* device() { return device_; }
  std::uint64_t acq() const { return acq_; }
  std::uint64_t aenq() const { return aenq_; }
  std::uint64_t aq() const { return aq_; }
  std::span<std::byte> send_queues() { return ram_.span(); }

  void domain() {
    uar = take(hw::kAllocUar);
    pd = take(hw::kAllocPd);
  }

 private:
  void write_address(std::uint32_t low, std::uint64_t address) {
    write(low, static_cast<std::uint32_t>(address));
    write(low + 4, static_cast<std::uint32_t>(address >> 32));
  }

  weft_abi_host abi_{};
  weft::test::Memory ram_;
  void* device_ = nullptr;
  std::uint64_t response_ = 0, aq_ = 0, acq_ = 0, aenq_ = 0;
  std::uint32_t commands_ = 0;
  std::uint16_t read_request_ = 0;
  std::uint64_t next_iova_ = 0x7000'0000'0000;
  std::size_t peer_used_ = 0;
};

// Make a frame's checksum right.
inline void seal(std::vector<std::byte>& frame) {
  const std::span<const std::byte> bytes(frame);
  const std::uint32_t check = wire::checksum(bytes.first<wire::kHeadBytes>(), bytes.subspan(wire::kHeadBytes));
  std::memcpy(frame.data() + wire::kHeadBytes - sizeof(check), &check, sizeof(check));
}

// A frame as a program on the fabric could write it.
inline std::vector<std::byte> make_frame(const Mac& to, const Mac& from, wire::Head head, std::size_t payload = 0) {
  const wire::Ethernet ethernet{to, from, wire::kEthertype};
  head.version = wire::kVersion;
  head.length = static_cast<std::uint32_t>(payload);
  std::vector<std::byte> frame(wire::kHeadBytes + payload);
  std::memcpy(frame.data(), &ethernet, sizeof(ethernet));
  std::memcpy(frame.data() + sizeof(ethernet), &head, sizeof(head));
  seal(frame);
  return frame;
}

inline wire::Head head_of(const std::vector<std::byte>& frame) {
  wire::Head head;
  std::memcpy(&head, frame.data() + sizeof(wire::Ethernet), sizeof(head));
  return head;
}

// Carries frames between NICs by MAC; what it does to them comes from a seed.
class Wire {
 public:
  explicit Wire(std::vector<Nic*> nics, std::uint32_t seed = 1) : random_(seed), nics_(std::move(nics)) {}

  double loss = 0, duplicate = 0, corrupt = 0;
  unsigned reorder = 0;  // a frame may be overtaken by so many
  bool cut = false;
  Nic* stopped = nullptr;  // does nothing; frames wait for it
  std::uint64_t frames = 0, lost = 0, corrupted = 0;

  // One round: every NIC works, its frames travel, time passes.
  void round(std::uint64_t ns = 20'000) {
    for (Nic* nic : nics_) {
      nic->host.now += ns;
      if (nic == stopped) continue;
      nic->step();
      while (!nic->host.sent[0].empty()) {
        ++frames;
        std::vector<std::byte> frame = nic->take_frame();
        if (cut || chance(loss)) {
          ++lost;
          continue;
        }
        if (chance(duplicate)) insert(frame);
        if (chance(corrupt)) {  // as the switch does it: behind the Ethernet header
          ++corrupted;
          frame[14 + random_() % (frame.size() - 14)] ^= static_cast<std::byte>(random_() | 1);
        }
        insert(std::move(frame));
      }
    }
    std::deque<std::vector<std::byte>> waiting;
    while (!travelling_.empty()) {
      std::vector<std::byte> frame = std::move(travelling_.front());
      travelling_.pop_front();
      const auto to = std::ranges::find_if(
          nics_, [&](const Nic* nic) { return std::memcmp(frame.data(), nic->mac.data(), 6) == 0; });
      if (to == nics_.end()) continue;
      if (*to == stopped) {
        waiting.push_back(std::move(frame));
      } else {
        (*to)->receive(frame);
      }
    }
    travelling_ = std::move(waiting);
  }
  void rounds(unsigned count, std::uint64_t ns = 20'000) {
    for (unsigned i = 0; i < count; ++i) round(ns);
  }

  // Rounds until the queue has `count` completions.
  std::vector<hw::Cqe> collect(Nic& nic, Nic::Cq& cq, std::size_t count, unsigned limit = 20000) {
    std::vector<hw::Cqe> got;
    for (unsigned i = 0; i < limit && got.size() < count; ++i) {
      round();
      while (auto cqe = nic.poll(cq)) got.push_back(*cqe);
    }
    EXPECT_EQ(got.size(), count);
    got.resize(count);
    return got;
  }

 private:
  bool chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random_) < p; }
  void insert(std::vector<std::byte> frame) {
    const std::size_t back = reorder ? random_() % (reorder + 1) : 0;
    const std::size_t at = travelling_.size() - std::min(back, travelling_.size());
    travelling_.insert(travelling_.begin() + static_cast<std::ptrdiff_t>(at), std::move(frame));
  }

  std::mt19937 random_;
  std::vector<Nic*> nics_;
  std::deque<std::vector<std::byte>> travelling_;
};

// Bytes that tell their place.
inline void fill_pattern(std::span<std::byte> memory, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(random());
}

using Options = std::vector<std::pair<std::string, std::string>>;

// Two NICs with a domain, a CQ and an SRD queue pair each, that know each other.
struct Pair {
  explicit Pair(const Options& options = {}, std::uint8_t flags = 0, std::uint32_t seed = 1)
      : a(1, options), b(2, options), wire({&a, &b}, seed) {
    for (Nic* nic : {&a, &b}) {
      nic->open();
      nic->domain();
    }
    a_cq = a.create_cq();
    b_cq = b.create_cq();
    a_qp = a.create_qp(hw::QpType::kSrd, a_cq, a_cq, 64, 64, flags);
    b_qp = b.create_qp(hw::QpType::kSrd, b_cq, b_cq, 64, 64, flags);
    a_to_b = a.create_ah(b);
    b_to_a = b.create_ah(a);
  }
  hw::Status one(const hw::SendWqe& w) {
    a.post(a_qp, w);
    return wire.collect(a, a_cq, 1)[0].status;
  }

  Pair(const Pair&) = delete;

  Nic a, b;
  Wire wire;
  Nic::Cq a_cq{}, b_cq{};
  Nic::Qp a_qp{}, b_qp{};
  std::uint16_t a_to_b = 0, b_to_a = 0;
};

}  // namespace weft::efa::test
