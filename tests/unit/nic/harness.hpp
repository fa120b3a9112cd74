// SPDX-License-Identifier: MIT
// Two NICs on a wire with virtual time: everything that happens is decided by the seed.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weft/hw/mem.h"
#include "weft/model/nic.hpp"

namespace harness {

using namespace weft::model;
using Frame = std::vector<std::byte>;

// Regions are plain vectors; the rules are those of weft/hw/mem.h.
class TestMemory final : public Memory {
 public:
  struct Region {
    std::uint32_t context = 0;
    std::uint32_t rights = 0;
    std::uint64_t va = 0;
    std::vector<std::byte> bytes;
    bool reachable = true;
    std::uint32_t pd = 0;
  };

  Region& add(std::uint32_t key, Region region) { return regions_[key] = std::move(region); }
  void remove(std::uint32_t key) { regions_.erase(key); }
  Region& region(std::uint32_t key) { return regions_.at(key); }

  Error check(Access who, Range range) override {
    const auto found = regions_.find(range.key);
    if (found == regions_.end() || found->second.context != who.context) return WEFT_ERR_BAD_KEY;
    const Region& r = found->second;
    if (r.pd != who.pd) return WEFT_ERR_BAD_PD;
    if ((r.rights & who.right) == 0) return WEFT_ERR_BAD_RIGHTS;
    if (range.address < r.va || range.address - r.va > r.bytes.size() ||
        range.length > r.bytes.size() - (range.address - r.va)) {
      return WEFT_ERR_BAD_RANGE;
    }
    return WEFT_ERR_OK;
  }
  Error read(Access who, Range range, std::span<std::byte> out) override {
    if (const Error error = check(who, range); error != WEFT_ERR_OK) return error;
    if (!regions_.at(range.key).reachable) return WEFT_ERR_DMA;
    if (!out.empty()) std::memcpy(out.data(), at(range), out.size());
    if (after_read) after_read();
    return WEFT_ERR_OK;
  }
  Error write(Access who, Range range, std::span<const std::byte> in) override {
    if (const Error error = check(who, range); error != WEFT_ERR_OK) return error;
    if (!regions_.at(range.key).reachable) return WEFT_ERR_DMA;
    if (!in.empty()) std::memcpy(at(range), in.data(), in.size());
    return WEFT_ERR_OK;
  }
  Error signal(std::uint32_t context, std::uint32_t sync, std::uint64_t add) override {
    if (sync >= 4096) return WEFT_ERR_BAD_SYNC;
    syncs[{context, sync}] += add;
    if (on_signal) on_signal(context, sync);
    return WEFT_ERR_OK;
  }
  Error fetch_add(Access, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t&) override {
    return WEFT_ERR_BAD_OP;
  }
  Error compare_swap(Access, std::uint32_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t&) override {
    return WEFT_ERR_BAD_OP;
  }

  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> syncs;
  std::function<void(std::uint32_t, std::uint32_t)> on_signal;
  std::function<void()> after_read;

 private:
  std::byte* at(Range range) {
    Region& r = regions_.at(range.key);
    return r.bytes.data() + (range.address - r.va);
  }
  std::map<std::uint32_t, Region> regions_;
};

class Net;

struct Completion {
  std::uint64_t token;
  Error error;
  std::uint64_t time;
};

struct Node final : NicHost {
  Node(Net& net, unsigned number, const std::string& serial, unsigned ports = 1) : net(net), number(number) {
    NicConfig config;
    config.ports = ports;
    config.queue_pairs = 64;
    config.serial = serial;
    nic = make_nic(*this, config);
  }
  Memory& memory() override { return mem; }
  std::uint64_t now_ns() override;
  int link_send(std::uint32_t port, std::uint32_t cls, std::span<const std::span<const std::byte>> segments) override;
  void link_credit(std::uint32_t, std::uint32_t, std::uint32_t frames) override;
  void completed(std::uint64_t token, Error error) override;
  void qp_failed(std::uint32_t context, std::uint32_t qpn, Error error) override {
    failed.push_back({context, qpn, error});
  }
  void port_changed(std::uint32_t port, weft_port_state state) override { port_events.emplace_back(port, state); }

  std::uint64_t counter(weft_port_counter which, unsigned port = 0) const { return nic->counters(port)[which]; }

  struct Failed {
    std::uint32_t context, qpn;
    Error error;
  };
  Net& net;
  unsigned number;
  TestMemory mem;
  std::unique_ptr<Nic> nic;
  std::vector<Completion> completions;
  std::vector<Failed> failed;
  std::vector<std::pair<std::uint32_t, weft_port_state>> port_events;
  std::uint64_t deadline = UINT64_MAX;
  bool starved = false;
  std::function<void(std::uint64_t)> on_completed;
  std::function<void()> before_send;  // the NIC has made its frame, and the link has not taken it yet
};

struct Impairment {
  double loss = 0, duplicate = 0, reorder = 0, corrupt = 0;
};

// The wire: port 0 of node 0 to port 0 of node 1.
class Net {
 public:
  explicit Net(std::uint64_t seed = 1, unsigned ports = 1) : random(seed) {
    for (unsigned i = 0; i < 2; ++i) nodes[i] = std::make_unique<Node>(*this, i, i == 0 ? "left" : "right", ports);
    for (auto& node : nodes) {
      for (unsigned port = 0; port < ports; ++port) node->nic->link_state(port, true);
    }
  }
  Node& a() { return *nodes[0]; }
  Node& b() { return *nodes[1]; }

  // Runs until nothing is left to do, or `until` ns. Returns false when it was cut by the limit of events.
  bool run(std::uint64_t until = UINT64_MAX, std::uint64_t limit = 20'000'000) {
    for (; limit > 0; --limit) {
      bool more = false;
      for (auto& node : nodes) {
        const Nic::Progress progress = node->nic->step(budget);
        node->deadline = progress.deadline_ns;
        more |= progress.more;
        if (node->starved && in_flight(node->number) < credits) {
          node->starved = false;
          node->nic->link_ready(0, 0);
          more = true;
        }
      }
      if (more) continue;
      std::uint64_t next = std::min(nodes[0]->deadline, nodes[1]->deadline);
      if (!wire.empty()) next = std::min(next, wire.begin()->first.first);
      if (next == UINT64_MAX || next > until) {
        if (until != UINT64_MAX) now = std::max(now, until);
        return true;
      }
      now = std::max(now, next);
      while (!wire.empty() && wire.begin()->first.first <= now) {
        auto [to, frame] = std::move(wire.begin()->second);
        wire.erase(wire.begin());
        nodes[to]->nic->link_receive(0, 0, frame);
      }
    }
    return false;
  }

  void send(unsigned from, Frame frame) {
    if (on_frame && !on_frame(from, frame)) return;
    const auto chance = [&](double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random) < p; };
    if (chance(impair.loss)) return;
    const unsigned copies = chance(impair.duplicate) ? 2 : 1;
    for (unsigned i = 0; i < copies; ++i) {
      Frame copy = frame;
      if (chance(impair.corrupt)) copy[random() % copy.size()] ^= static_cast<std::byte>(1u << random() % 8);
      const std::uint64_t delay = latency + (chance(impair.reorder) ? random() % (20 * latency) : 0);
      wire.emplace(std::pair{now + delay, sequence++}, std::pair{1 - from, std::move(copy)});
    }
  }

  std::size_t in_flight(unsigned from) const {
    if (credits == SIZE_MAX) return 0;
    std::size_t n = 0;
    for (const auto& [when, what] : wire) n += what.first == 1 - from;
    return n;
  }

  std::mt19937_64 random;
  Impairment impair;
  std::size_t credits = SIZE_MAX;
  std::uint64_t now = 1000;
  std::uint64_t latency = 1000;
  std::uint32_t budget = 1 << 20;
  std::function<bool(unsigned from, Frame&)> on_frame;  // false: lost
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::pair<unsigned, Frame>> wire;
  std::uint64_t sequence = 0;
  std::unique_ptr<Node> nodes[2];
};

inline std::uint64_t Node::now_ns() { return net.now; }
inline void Node::link_credit(std::uint32_t, std::uint32_t, std::uint32_t) {}
inline void Node::completed(std::uint64_t token, Error error) {
  completions.push_back({token, error, net.now});
  if (on_completed) on_completed(token);
}
inline int Node::link_send(std::uint32_t, std::uint32_t, std::span<const std::span<const std::byte>> segments) {
  if (net.in_flight(number) >= net.credits) {
    starved = true;
    return -EAGAIN;
  }
  if (before_send) before_send();
  Frame frame;
  for (const auto s : segments) frame.insert(frame.end(), s.begin(), s.end());
  net.send(number, std::move(frame));
  return 0;
}

struct Params {
  weft_mtu mtu = WEFT_MTU_1024;
  std::uint8_t timeout = 8;  // about 1 ms
  std::uint8_t retry_cnt = 7;
  std::uint8_t rnr_retry = 7;
  std::uint32_t psn = 0x123456;
  bool ipv6 = false;
  std::uint8_t traffic_class = 0;
  std::uint32_t access = WEFT_RIGHT_REMOTE_WRITE;
  std::uint32_t context = 5;
  std::uint32_t pd = 0;
};

inline constexpr std::uint32_t kSyncBase = 100;
inline constexpr std::uint32_t kSyncCount = 16;

inline Error create(Nic& nic, std::uint32_t& qpn, const Params& p) {
  weft_qp_entry entry{};
  entry.ctx = p.context;
  entry.pd = p.pd;
  entry.type = WEFT_QP_CHANNEL;
  entry.access = p.access;
  entry.sync_base = kSyncBase;
  entry.sync_count = kSyncCount;
  const Error error = nic.qp_create(entry);
  qpn = entry.qpn;
  return error;
}

inline Error to_state(Nic& nic, std::uint32_t qpn, std::uint8_t state, std::uint32_t mask, weft_qp_entry entry,
                      std::uint32_t context) {
  weft_mbox_qp_modify modify{};
  modify.mask = mask;
  modify.qp = entry;
  modify.qp.ctx = context;
  modify.qp.qpn = qpn;
  modify.qp.state = state;
  return nic.qp_modify(modify);
}

inline weft_qp_entry remote(Nic& peer, std::uint32_t qpn, const Params& p) {
  weft_mbox_port port{};
  peer.port_get(port);
  weft_qp_entry entry{};
  std::memcpy(entry.av.dmac, port.mac, 6);
  if (p.ipv6) {
    entry.av.sgid_index = 1;
    std::memcpy(entry.av.dgid, port.ipv6, 16);
  } else {
    entry.av.dgid[10] = entry.av.dgid[11] = 0xff;
    std::memcpy(entry.av.dgid + 12, port.ipv4, 4);
  }
  entry.dest_qpn = qpn;
  entry.path_mtu = p.mtu;
  entry.timeout = p.timeout;
  entry.retry_cnt = p.retry_cnt;
  entry.rnr_retry = p.rnr_retry;
  entry.sq_psn = p.psn;
  entry.rq_psn = p.psn;
  entry.av.traffic_class = p.traffic_class;
  entry.access = p.access;
  entry.pkey = 0xffff;
  return entry;
}

// What a reliable connection requires (IBTA volume 1, section 11.2.5.2).
inline constexpr std::uint32_t kInitMask = WEFT_QPM_PORT | WEFT_QPM_PKEY | WEFT_QPM_ACCESS;
inline constexpr std::uint32_t kRtrMask =
    WEFT_QPM_PATH | WEFT_QPM_MTU | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN | WEFT_QPM_RNR_TIMER | WEFT_QPM_DEST_RD_ATOMIC;
inline constexpr std::uint32_t kRtsMask = WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY | WEFT_QPM_RD_ATOMIC;

// An entry of port 0's GID table made anew.
inline Error set_gid(Nic& nic, std::uint32_t index, weft_gid_type type, const std::vector<std::uint8_t>& gid,
                     std::uint16_t vlan = WEFT_VLAN_NONE, const std::vector<std::uint8_t>& mac = {}) {
  weft_mbox_gid entry{};
  entry.index = index;
  entry.type = static_cast<std::uint8_t>(type);
  entry.vlan = vlan;
  std::copy(gid.begin(), gid.end(), entry.gid);
  std::copy(mac.begin(), mac.end(), entry.mac);
  return nic.gid_set(entry);
}
// The port's present address at `index`, in VLAN `vlan` from now on.
inline Error set_vlan(Nic& nic, std::uint32_t index, std::uint16_t vlan) {
  weft_mbox_gid entry{};
  entry.index = index;
  if (const Error error = nic.gid_get(entry); error != WEFT_ERR_OK) return error;
  entry.vlan = vlan;
  return nic.gid_set(entry);
}

inline Error connect_one(Nic& nic, std::uint32_t qpn, const weft_qp_entry& entry, const Params& p) {
  if (const Error e = to_state(nic, qpn, WEFT_QPS_INIT, kInitMask, entry, p.context); e != WEFT_ERR_OK) return e;
  if (const Error e = to_state(nic, qpn, WEFT_QPS_RTR, kRtrMask, entry, p.context); e != WEFT_ERR_OK) return e;
  return to_state(nic, qpn, WEFT_QPS_RTS, kRtsMask, entry, p.context);
}

inline Error connect_one(Nic& nic, std::uint32_t qpn, Nic& peer, std::uint32_t peer_qpn, const Params& p) {
  return connect_one(nic, qpn, remote(peer, peer_qpn, p), p);
}

struct Pair {
  std::uint32_t a = 0, b = 0;
};

inline Pair connect(Net& net, const Params& p = {}) {
  Pair pair;
  create(*net.a().nic, pair.a, p);
  create(*net.b().nic, pair.b, p);
  EXPECT_EQ(connect_one(*net.a().nic, pair.a, *net.b().nic, pair.b, p), WEFT_ERR_OK);
  EXPECT_EQ(connect_one(*net.b().nic, pair.b, *net.a().nic, pair.a, p), WEFT_ERR_OK);
  return pair;
}

inline constexpr std::uint32_t kSource = 0x101;
inline constexpr std::uint32_t kTarget = 0x202;
inline constexpr std::uint64_t kSourceVa = WEFT_VA_HBM + 0x10000;
inline constexpr std::uint64_t kTargetVa = WEFT_VA_HBM + 0x7000;
inline constexpr std::byte kFill{0xa5};

inline std::vector<std::byte> noise(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t)) {
    const std::uint64_t word = random();
    std::memcpy(&out[i], &word, std::min(sizeof word, bytes - i));
  }
  return out;
}

// Source in `from` and target in `to`, of `bytes` bytes.
inline void regions(Node& from, Node& to, std::size_t bytes, std::uint32_t context = 5, std::uint64_t seed = 77) {
  TestMemory::Region source{context, WEFT_RIGHT_READ, kSourceVa, noise(bytes, seed)};
  TestMemory::Region target{context, WEFT_RIGHT_REMOTE_WRITE, kTargetVa, std::vector<std::byte>(bytes, kFill)};
  from.mem.add(kSource, std::move(source));
  to.mem.add(kTarget, std::move(target));
}

inline WorkRequest write_request(std::uint64_t token, std::size_t offset, std::size_t bytes,
                                 std::uint32_t context = 5) {
  WorkRequest r;
  r.token = token;
  r.context = context;
  r.local = {kSource, kSourceVa + offset, bytes};
  r.remote_key = kTarget;
  r.remote_address = kTargetVa + offset;
  return r;
}

inline WorkRequest write_imm_request(std::uint64_t token, std::size_t offset, std::size_t bytes, std::uint32_t imm,
                                     std::uint32_t context = 5) {
  WorkRequest r = write_request(token, offset, bytes, context);
  r.op = WEFT_RDMA_WRITE_IMM;
  r.immediate = imm;
  return r;
}

}  // namespace harness
