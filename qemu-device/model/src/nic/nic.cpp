// SPDX-License-Identifier: MIT
// The NIC as the device sees it: its parts, and the order in which a step works them.
//
// A frame is taken apart and its payload placed in link_receive(), where the link's own memory is at hand, so that
// payload is copied once. Everything that calls the device back (completions, events) or the link (answers, data,
// credit) waits for step().
#include "weft/model/nic.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "control.hpp"
#include "receive.hpp"
#include "transmit.hpp"

namespace weft::model::nic {
namespace {

class RoceNic final : public Nic {
 public:
  RoceNic(NicHost& host, const NicConfig& config)
      : host_(host),
        ports_(config),
        queue_pairs_(config.queue_pairs),
        transmitter_(host, ports_, queue_pairs_, notices_),
        receiver_(host, ports_, queue_pairs_, transmitter_),
        control_(ports_, queue_pairs_, transmitter_, notices_) {}

  Error port_get(weft_mbox_port& out) override { return ports_.get(out); }
  Error port_set(const weft_mbox_port_set& wanted) override {
    const bool was_active = ports_.exists(wanted.port) && ports_[wanted.port].active();
    const Error error = ports_.set(wanted);
    if (error == WEFT_ERR_OK) port_changed(wanted.port, was_active);
    return error;
  }
  Error gid_get(weft_mbox_gid& gid) override { return ports_.get_gid(gid); }
  Error gid_set(const weft_mbox_gid& gid) override { return ports_.set_gid(gid); }
  std::span<const std::uint64_t> counters(std::uint32_t port) const override {
    if (!ports_.exists(port)) return {};
    return ports_[port].counters;
  }

  Error qp_create(weft_qp_entry& entry) override { return control_.create(entry); }
  Error qp_modify(const weft_mbox_qp_modify& modify) override { return control_.modify(modify); }
  Error qp_query(std::uint32_t context, std::uint32_t qpn, weft_qp_entry& out) override {
    return control_.query(context, qpn, out);
  }
  Error qp_destroy(std::uint32_t context, std::uint32_t qpn) override { return control_.destroy(context, qpn); }
  void destroy_context(std::uint32_t context) override { control_.destroy_context(context); }

  Error post(std::uint32_t qpn, const WorkRequest& request) override;
  void cancel(const std::function<bool(std::uint64_t)>& which) override;

  int link_receive(std::uint32_t port, std::uint32_t cls, std::span<const std::byte> frame) override;
  void link_ready(std::uint32_t port, std::uint32_t cls) override;
  void link_state(std::uint32_t port, bool up) override;
  void link_station(std::uint32_t port, std::span<const std::uint8_t, 6> mac, bool up) override;

  Progress step(std::uint32_t budget) override;
  void reset() override;

 private:
  void port_changed(std::uint32_t number, bool was_active);
  void deliver_notices();

  NicHost& host_;
  Notices notices_;
  Ports ports_;
  QpTable queue_pairs_;
  Transmitter transmitter_;
  Receiver receiver_;
  Control control_;
  std::uint64_t received_ = 0;  // payload bytes since the last step
};

Error RoceNic::post(std::uint32_t qpn, const WorkRequest& request) {
  if (request.op != WEFT_RDMA_WRITE && request.op != WEFT_RDMA_WRITE_IMM) return WEFT_ERR_BAD_OP;
  QueuePair* qp = queue_pairs_.find(request.context, qpn);
  if (qp == nullptr || qp->entry.type != WEFT_QP_CHANNEL) return WEFT_ERR_BAD_CHANNEL;
  if (qp->entry.state == WEFT_QPS_ERR) return WEFT_ERR_FLUSHED;
  if (!qp->sends()) return WEFT_ERR_BAD_CHANNEL;
  if (!ports_[qp->entry.av.port].admin_up) return WEFT_ERR_PORT_DOWN;
  if (request.local.length > kMessageMax) return WEFT_ERR_BAD_FIELD;
  if (!qp->requester.post(request)) return WEFT_ERR_OVERRUN;
  transmitter_.schedule(*qp);
  return WEFT_ERR_OK;
}

void RoceNic::cancel(const std::function<bool(std::uint64_t)>& which) {
  std::erase_if(notices_,
                [&](const Notice& notice) { return notice.kind == Notice::Kind::kCompleted && which(notice.token); });
  queue_pairs_.for_each([&](QueuePair& qp) {
    if (!qp.requester.idle() && qp.requester.forget(which)) {
      transmitter_.fail(qp, WEFT_ERR_ABORTED, WEFT_ERR_FLUSHED);
    }
  });
}

int RoceNic::link_receive(std::uint32_t port, std::uint32_t cls, std::span<const std::byte> frame) {
  if (!ports_.exists(port) || cls >= kClasses) return -EINVAL;
  ++ports_[port].owed[cls];
  if (ports_[port].active()) received_ += receiver_.receive(port, frame);
  return 0;
}

void RoceNic::link_ready(std::uint32_t port, std::uint32_t cls) {
  if (ports_.exists(port) && cls < kClasses) transmitter_.unpark(ports_[port], cls);
}

void RoceNic::link_state(std::uint32_t port, bool up) {
  if (!ports_.exists(port)) return;
  const bool was_active = ports_[port].active();
  ports_[port].link_up = up;
  port_changed(port, was_active);
}

void RoceNic::link_station(std::uint32_t port, std::span<const std::uint8_t, 6> mac, bool up) {
  if (!ports_.exists(port) || up) return;
  queue_pairs_.for_each([&](QueuePair& qp) {
    if (qp.receives() && qp.entry.av.port == port && std::ranges::equal(qp.entry.av.dmac, mac)) {
      transmitter_.fail(qp, WEFT_ERR_PEER_GONE, WEFT_ERR_PEER_GONE);
    }
  });
}

void RoceNic::port_changed(std::uint32_t number, bool was_active) {
  Port& port = ports_[number];
  if (port.active() == was_active) return;
  if (was_active) ++port.flaps;
  // Who waited for credit goes on: over the new link, or into the void, where its timer counts.
  for (std::uint32_t cls = 0; cls <= kLoopback; ++cls) transmitter_.unpark(port, cls);
  Notice notice;
  notice.kind = Notice::Kind::kPortChanged;
  notice.number = number;
  notice.state = port.active() ? WEFT_PORT_ACTIVE : WEFT_PORT_DOWN;
  notices_.push_back(notice);
}

void RoceNic::deliver_notices() {
  while (!notices_.empty()) {
    const Notice notice = notices_.front();
    notices_.pop_front();
    switch (notice.kind) {
      case Notice::Kind::kCompleted:
        host_.completed(notice.token, notice.error);
        break;
      case Notice::Kind::kQueuePairFailed:
        host_.qp_failed(notice.context, notice.number, notice.error);
        break;
      case Notice::Kind::kPortChanged:
        host_.port_changed(notice.number, notice.state);
        break;
    }
  }
}

Nic::Progress RoceNic::step(std::uint32_t budget) {
  ports_.return_credit(host_);
  transmitter_.run_timers();
  std::uint64_t spent = std::exchange(received_, 0) + receiver_.receive_loopback(budget);
  deliver_notices();
  const auto left = [&] { return budget - std::min<std::uint64_t>(spent, budget); };
  // Answers first: they are short, and the peer's window waits for them.
  spent += transmitter_.send_answers(left());
  spent += transmitter_.send_data(left());
  deliver_notices();

  Progress progress;
  progress.spent = spent;
  progress.more = transmitter_.busy() || receiver_.loopback_waits();
  progress.deadline_ns = transmitter_.deadline();
  return progress;
}

void RoceNic::reset() {
  queue_pairs_.clear();
  transmitter_.reset();
  notices_.clear();
  received_ = 0;
  ports_.reset();
}

}  // namespace
}  // namespace weft::model::nic

namespace weft::model {

std::unique_ptr<Nic> make_nic(NicHost& host, const NicConfig& config) {
  return std::make_unique<nic::RoceNic>(host, config);
}

}  // namespace weft::model
