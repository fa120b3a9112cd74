// SPDX-License-Identifier: MIT
// Two whole devices with their own NICs and firmware, frames carried by hand: the work that everything else is for.
#include <random>

#include "board.hpp"

namespace weft::test {
namespace {

model::DeviceParts real_parts() { return {model::make_nic, model::boot_image, model::boot_native}; }

model::Options options(const char* serial) {
  model::Options out = Board::defaults();
  out.serial = serial;
  return out;
}

class Pair : public testing::Test {
 protected:
  void SetUp() override {
    for (Board* board : {&a, &b}) {
      board->start();
      board->device->link_state(0, true);
      board->run();
    }
  }

  // Carries frames and steps both until time alone brings no more frames; `lose` says which frames do not arrive.
  template <class Lose>
  void run(Lose lose) {
    for (int idle = 0; idle < 8;) {
      bool busy = false;
      for (auto [from, to] : {std::pair{&a, &b}, {&b, &a}}) {
        auto& frames = from->host.sent[0];
        while (!frames.empty()) {
          busy = true;
          const std::vector<std::byte> frame = std::move(frames.front());
          frames.pop_front();
          ASSERT_LE(frame.size(), 9280u);
          if (!lose(frame)) {
            ASSERT_EQ(to->device->link_receive(0, 0, frame), 0);
          }
        }
      }
      std::uint64_t deadline = UINT64_MAX;
      for (Board* board : {&a, &b}) {
        const weft_abi_step step = board->step(256 * 1024);
        busy |= step.more != 0;
        deadline = std::min(deadline, step.deadline_ns);
      }
      if (!a.host.sent[0].empty() || !b.host.sent[0].empty()) {
        idle = 0;
      } else if (!busy) {  // a lost frame's timer, or the firmware's tick
        ++idle;
        a.host.now = b.host.now = std::max(a.host.now, deadline);
      }
    }
  }
  void run() {
    run([](const auto&) { return false; });
  }

  weft_qp_entry make_channel(Board& board, std::uint32_t sync_base) {
    weft_qp_entry qp{};
    qp.ctx = 1;
    qp.type = WEFT_QP_CHANNEL;
    qp.sync_base = sync_base;
    qp.sync_count = 64;
    EXPECT_EQ(board.mailbox(WEFT_MBOX_QP_CREATE, qp), WEFT_ERR_OK);
    return board.answered<weft_qp_entry>();
  }
  weft_mbox_port port_of(Board& board) {
    EXPECT_EQ(board.mailbox(WEFT_MBOX_PORT_GET, weft_mbox_index{0, 0}), WEFT_ERR_OK);
    return board.answered<weft_mbox_port>();
  }
  void connect(Board& board, weft_qp_entry qp, std::uint32_t peer_qpn, const weft_mbox_port& peer, std::uint32_t psn,
               std::uint32_t peer_psn) {
    const auto gid = [](std::uint8_t(&out)[16], const std::uint8_t(&ipv4)[4]) {
      out[10] = out[11] = 0xff;
      std::copy(std::begin(ipv4), std::end(ipv4), out + 12);
    };
    weft_mbox_qp_modify modify{};
    modify.qp = qp;
    modify.qp.state = WEFT_QPS_INIT;
    modify.qp.access = WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE;
    modify.mask = WEFT_QPM_PORT | WEFT_QPM_PKEY | WEFT_QPM_ACCESS;
    ASSERT_EQ(board.mailbox(WEFT_MBOX_QP_MODIFY, modify), WEFT_ERR_OK);
    modify.qp.state = WEFT_QPS_RTR;
    modify.qp.path_mtu = WEFT_MTU_4096;
    modify.qp.dest_qpn = peer_qpn;
    modify.qp.rq_psn = peer_psn;
    std::copy(std::begin(peer.mac), std::end(peer.mac), modify.qp.av.dmac);
    gid(modify.qp.av.dgid, peer.ipv4);
    modify.qp.min_rnr_timer = 12;
    modify.mask =
        WEFT_QPM_PATH | WEFT_QPM_MTU | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN | WEFT_QPM_RNR_TIMER | WEFT_QPM_DEST_RD_ATOMIC;
    ASSERT_EQ(board.mailbox(WEFT_MBOX_QP_MODIFY, modify), WEFT_ERR_OK);
    modify.qp.state = WEFT_QPS_RTS;
    modify.qp.sq_psn = psn;
    modify.qp.timeout = 14;
    modify.qp.retry_cnt = 7;
    modify.qp.rnr_retry = 7;
    modify.mask = WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY | WEFT_QPM_RD_ATOMIC;
    ASSERT_EQ(board.mailbox(WEFT_MBOX_QP_MODIFY, modify), WEFT_ERR_OK);
  }

  // Channels both ways; immediates raise sync objects from 100 on.
  void connect() {
    const weft_qp_entry qa = make_channel(a, 100);
    const weft_qp_entry qb = make_channel(b, 100);
    const weft_mbox_port pa = port_of(a);
    const weft_mbox_port pb = port_of(b);
    connect(a, qa, qb.qpn, pb, 0x123456, 0xfffffe);
    connect(b, qb, qa.qpn, pa, 0xfffffe, 0x123456);
    channel_a = qa.qpn;
    channel_b = qb.qpn;
  }

  Board a{real_parts(), options("A")};
  Board b{real_parts(), options("B")};
  std::uint32_t channel_a = 0;
  std::uint32_t channel_b = 0;
};

// A ring of two over `elements` floats: reduce-scatter, then all-gather, in chunks; everything between the doorbell and
// the last signal happens in the devices.
class Ring : public Pair {
 protected:
  static constexpr std::uint64_t kData = 0;
  static constexpr std::uint64_t kScratch = 16u << 20;
  static constexpr std::uint32_t kDone = 10;

  template <class Lose>
  void all_reduce(std::uint32_t elements, std::uint32_t chunks, Lose lose) {
    connect();
    const std::uint32_t half = elements / 2 * 4;  // bytes that each rank reduces
    const Place data_a = a.hbm_region(kData, elements * 4), data_b = b.hbm_region(kData, elements * 4);
    const Place scratch_a = a.hbm_region(kScratch, half), scratch_b = b.hbm_region(kScratch, half);
    std::vector<float> wanted(elements);
    std::mt19937 random(elements);
    for (std::uint32_t i = 0; i < elements; ++i) {
      const auto x = static_cast<float>(random() % 1000), y = static_cast<float>(random() % 1000);
      a.hbm.at<float>(kData)[i] = x;
      b.hbm.at<float>(kData)[i] = y;
      wanted[i] = x + y;
    }
    const std::uint32_t piece = half / chunks;
    const auto program = [&](Board& board, std::uint32_t channel, Place mine, Place scratch, Place peer,
                             Place peer_scratch, std::uint32_t rank) {
      Board::Queue queue = board.make_queue();
      const std::uint64_t keep = rank * std::uint64_t{half}, give = half - keep;
      const std::uint64_t doorbells = board.counter(WEFT_CTR_doorbells);
      for (std::uint32_t c = 0; c < chunks; ++c) {
        const std::uint64_t at = std::uint64_t{c} * piece;
        // Arrivals of the first phase raise 100, of the second 101.
        for (const weft_cmd& cmd :
             {rdma_write(channel, mine + (give + at), peer_scratch + at, piece, 0),
              then(after(reduce(WEFT_F32, WEFT_SUM, mine + (keep + at), mine + (keep + at), scratch + at, piece / 4),
                         100, c + 1),
                   1),
              then(after(rdma_write(channel, mine + (keep + at), peer + (keep + at), piece, 1), 1, c + 1), 2)}) {
          queue.put(&cmd);
        }
      }
      weft_cmd end = then(after(command(WEFT_OP_NOP), 2, chunks), kDone);
      weft_cmd_ext ext{};
      ext.version = WEFT_CMD_VERSION;
      ext.waits = 1;
      ext.wait_id[0] = 101;
      ext.wait_value[0] = chunks;
      queue.submit(end, ext);
      EXPECT_EQ(board.counter(WEFT_CTR_doorbells), doorbells + 1);
      return queue;
    };
    Board::Queue qa = program(a, channel_a, data_a, scratch_a, data_b, scratch_b, 0);
    Board::Queue qb = program(b, channel_b, data_b, scratch_b, data_a, scratch_a, 1);
    const weft_abi_dma_counters before = a.host.counters;
    run(lose);
    for (Board* board : {&a, &b}) {
      EXPECT_EQ(board->shadow(kDone), 1u);
      std::uint32_t wrong = 0;
      for (std::uint32_t i = 0; i < elements; ++i) wrong += board->hbm.at<float>(kData)[i] != wanted[i];
      EXPECT_EQ(wrong, 0u);
      EXPECT_EQ(board->counter(WEFT_CTR_rdma_bytes), elements * 4u);
      EXPECT_EQ(board->counter(WEFT_CTR_rdma_ops), 2 * chunks);
      EXPECT_EQ(board->counter(WEFT_CTR_reduce_bytes), half);
      EXPECT_EQ(board->counter(WEFT_CTR_commands), 3 * chunks + 1);
      EXPECT_EQ(board->counter(WEFT_CTR_commands_failed), 0u);
      // No payload byte goes through guest RAM.
      EXPECT_EQ(board->counter(WEFT_CTR_host_payload_read_bytes), 0u);
      EXPECT_EQ(board->counter(WEFT_CTR_host_payload_write_bytes), 0u);
      // Writes to HBM: results and arrivals.
      EXPECT_EQ(board->counter(WEFT_CTR_hbm_write_bytes), half + elements * 4u);
    }
    EXPECT_EQ(a.host.counters.read_bytes[WEFT_ABI_DMA_PAYLOAD][0], before.read_bytes[WEFT_ABI_DMA_PAYLOAD][0]);
    EXPECT_EQ(qa.head().completed, 3u * chunks + 1);
    EXPECT_EQ(qb.head().state, static_cast<std::uint32_t>(WEFT_QUEUE_RUNNING));
  }
};

TEST_F(Ring, AllReduceIsExact) {
  all_reduce(1u << 20, 8, [](const auto&) { return false; });
  // Without loss nothing is read twice: payload sent, and both operands of the reductions.
  EXPECT_EQ(a.counter(WEFT_CTR_hbm_read_bytes), (4u << 20) + 2 * (2u << 20));
}

TEST_F(Ring, AllReduceIsExactWithLoss) {
  std::mt19937 random(7);
  all_reduce(64 * 1024, 4, [&](const auto& frame) { return frame.size() > 70 && random() % 100 < 5; });
}

TEST_F(Pair, WriteToAWrongKeyFailsTheQueueAndTellsTheDriver) {
  a.make_event_queue();
  connect();
  const Place from = a.hbm_region(0, 4096);
  Board::Queue queue = a.make_queue();
  queue.submit({then(rdma_write(channel_a, from, {WEFT_KEY(999, 1), WEFT_VA_HBM}, 4096), 1)});
  run();
  EXPECT_EQ(queue.head().state, static_cast<std::uint32_t>(WEFT_QUEUE_HALTED));
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_REMOTE_ACCESS));
  EXPECT_EQ(a.shadow(1), 0u);
  const std::vector<weft_event> events = a.events();
  bool queue_error = false, channel_error = false;
  for (const weft_event& event : events) {
    queue_error |= event.type == WEFT_EVENT_QUEUE_ERROR && event.error == WEFT_ERR_REMOTE_ACCESS;
    channel_error |= event.type == WEFT_EVENT_QP_ERROR && event.object == channel_a;
  }
  EXPECT_TRUE(queue_error);
  EXPECT_TRUE(channel_error);
}

TEST_F(Pair, ChannelOfAnotherContextIsRefused) {
  connect();
  a.make_context(2);
  const Place from = a.hbm_region(0, 4096, 2);
  Board::Queue queue = a.make_queue(0, 16, 2);
  queue.submit({rdma_write(channel_a, from, {1, 0}, 64)});
  a.run();
  EXPECT_EQ(queue.head().error, static_cast<std::uint32_t>(WEFT_ERR_BAD_CHANNEL));
}

}  // namespace
}  // namespace weft::test
