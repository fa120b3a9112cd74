// SPDX-License-Identifier: MIT
// Queue pairs: send queues into transfers, frames into receive queues and memory, both into completions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <unordered_map>

#include "addresses.hpp"
#include "completions.hpp"
#include "host.hpp"
#include "hw.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "transfer.hpp"
#include "transport.hpp"

namespace weft::efa {

struct QueuePair {
  bool used = false;
  hw::QpType type = hw::QpType::kUd;
  hw::QpState state = hw::QpState::kReset;
  bool unsolicited = false;  // writes with immediate take no receive buffer
  bool listed = false;       // in the round of send queues
  std::uint16_t pd = 0;
  std::uint32_t qkey = 0, psn = 0;
  std::uint8_t rnr_retry = 7;  // 7: without end (IBTA 9.7.5.2.8); a driver that says nothing means that
  std::uint32_t send_cq = 0, receive_cq = 0;
  std::uint32_t sq_entries = 0, rq_entries = 0;  // powers of two, or 0
  std::uint64_t rq_base = 0;
  // Counters run free, 16 bits.
  std::uint16_t sq_head = 0, sq_tail = 0;
  std::uint16_t rq_head = 0, rq_tail = 0;
  std::uint32_t outstanding = 0;  // transfers
};

struct Statistics {
  hw::BasicStats basic{};
  hw::MessageStats messages{};
  hw::ReadStats reads{};
  hw::WriteStats writes{};
};

class DataPath final : public Transport::Client {
 public:
  static constexpr std::uint32_t kAnswersMax = 1024;  // reads of one peer under way
  static constexpr std::uint64_t kRetryNs = 200'000;  // first delay after RNR, doubled up to kRetryMaxNs
  static constexpr std::uint64_t kRetryMaxNs = 5'000'000;

  DataPath(Host& host, const Options& options, const Mac& mac, Regions& regions, Addresses& addresses,
           Completions& completions);

  void attach_send_queues(std::span<std::byte> ram) { send_queues_ = ram; }

  // Admin commands, checked by the caller as far as other tables are concerned.
  hw::AdminStatus create_qp(const hw::CreateQpCommand& command, hw::CreateQpReply& reply);
  hw::AdminStatus modify_qp(const hw::ModifyQpCommand& command);
  hw::AdminStatus query_qp(std::uint32_t handle, hw::QueryQpReply& reply);
  // The domain of the queue pair that went, or -1.
  int destroy_qp(std::uint32_t handle);
  void clear();

  // Doorbells: notes only.
  void ring_send(std::uint32_t qp, std::uint16_t tail);
  void ring_receive(std::uint32_t qp, std::uint16_t tail);

  void link_receive(std::span<const std::byte> frame) { transport_.receive(frame); }
  Transport& transport() { return transport_; }
  const Statistics& statistics() const { return statistics_; }

  // About `budget` bytes of work. True: there is more at once.
  bool run(std::uint64_t budget);
  std::uint64_t deadline() const;

  // Transport::Client
  Transfer* find(std::uint32_t id) override;
  bool fill(Transfer& transfer, std::uint32_t segment, wire::Head& head, std::span<std::byte> payload) override;
  void arrived(Transfer& transfer, std::uint32_t segment, std::uint8_t status) override;
  void fail_all(Peer& peer, hw::Status status) override;
  std::uint8_t receive(Peer& peer, const wire::Head& head, std::span<const std::byte> payload) override;
  void receive_datagram(const Mac& from, const wire::Head& head, std::span<const std::byte> payload) override;
  bool answering(const Peer& peer, std::uint32_t op) override;
  void no_answer(Peer& peer, std::uint32_t op) override;
  void sent(std::size_t bytes) override;
  void received(std::size_t bytes) override;
  void dropped() override { ++statistics_.basic.rx_drops; }

 private:
  struct ReceiveBuffers {
    std::uint16_t request = 0;
    std::uint16_t descriptors = 0;
    std::uint32_t count = 0;
    std::uint64_t bytes = 0;
    std::array<LocalBuffer, hw::kReceiveBuffers> buffer{};
  };
  enum class Found { kYes, kNone, kBroken };

  QueuePair* qp(std::uint32_t number) { return number < qps_.size() && qps_[number].used ? &qps_[number] : nullptr; }
  std::uint16_t number(const QueuePair& pair) const { return static_cast<std::uint16_t>(&pair - qps_.data()); }

  bool run_send_queues();
  void list(QueuePair& pair);
  void post(QueuePair& pair, const hw::SendWqe& wqe);
  hw::Status parse(const QueuePair& pair, const hw::SendWqe& wqe, Transfer& transfer);
  Transfer& add(Transfer&& transfer);
  void erase(const Transfer& transfer);
  void break_queue(QueuePair& pair);
  void flush(QueuePair& pair);
  void drop_transfers(QueuePair& pair);

  void complete(QueuePair& pair, std::uint16_t request, hw::SendOp op, hw::Status status);
  void finish(Transfer& transfer, hw::Status status);
  void retry_later(Transfer& transfer);
  void retry(std::uint64_t now_ns);
  void ask_for_reads(std::uint64_t now_ns);

  Found peek_receive(QueuePair& pair, ReceiveBuffers& buffers);
  hw::Cqe receive_cqe(const QueuePair& pair, const Mac& from, const wire::Head& head, hw::SendOp op,
                      std::uint32_t length);

  QueuePair* receiver(const wire::Head& head, hw::QpType type);
  std::uint8_t receive_send(const Mac& from, QueuePair& pair, const wire::Head& head,
                            std::span<const std::byte> payload);
  std::uint8_t receive_write(const Mac& from, QueuePair& pair, const wire::Head& head,
                             std::span<const std::byte> payload);
  std::uint8_t receive_read(Peer& peer, QueuePair& pair, const wire::Head& head);
  std::uint8_t receive_read_data(Peer& peer, const wire::Head& head, std::span<const std::byte> payload);

  Host& host_;
  const Options& options_;
  Regions& regions_;
  Addresses& addresses_;
  Completions& completions_;
  Transport transport_;
  std::span<std::byte> send_queues_;
  std::array<QueuePair, hw::kQueuePairs> qps_{};
  std::uint32_t next_qp_ = 1;
  std::deque<std::uint16_t> round_;  // queue pairs with work requests to fetch
  std::unordered_map<std::uint32_t, Transfer> transfers_;
  std::uint32_t next_id_ = 0;
  std::multimap<std::uint64_t, std::uint32_t> retries_;  // due time -> transfer
  bool buffers_came_ = false;
  std::uint64_t reads_waiting_ = 0;
  std::uint64_t next_ask_ns_ = 0;
  Statistics statistics_;
};

}  // namespace weft::efa
