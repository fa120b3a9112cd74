// SPDX-License-Identifier: MIT
// The NIC: an EFA by plain libibverbs, one SRD queue pair that talks to itself.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace readback {

/** Memory that the NIC reaches. Deregistered when it goes; the NIC that made it must still be there. */
class Region {
 public:
  explicit Region(ibv_mr* mr) : mr_(mr) {}
  ibv_mr* get() const { return mr_.get(); }

 private:
  struct Deregister {
    void operator()(ibv_mr* mr) const { ibv_dereg_mr(mr); }
  };
  std::unique_ptr<ibv_mr, Deregister> mr_;
};

class Nic {
 public:
  /** `name` as in /sys/class/infiniband; empty: the first that is an EFA. Throws std::system_error. */
  explicit Nic(const std::string& name = "");
  ~Nic();
  Nic(const Nic&) = delete;

  /** ibv_reg_dmabuf_mr of [offset, offset + bytes) of the DMA-BUF; the NIC calls its first byte 0. Throws
   * std::system_error. */
  Region add(int fd, std::uint64_t offset, std::uint64_t bytes);

  /**
   * RDMA READ of [offset, offset + size) of a region, and RDMA WRITE to it, through the NIC to itself. IBV_WC_SUCCESS,
   * or how the NIC failed. Throws std::system_error when it does not answer within 30 s.
   */
  ibv_wc_status read(const Region& from, std::uint64_t offset, std::span<std::byte> to);
  ibv_wc_status write(const Region& to, std::uint64_t offset, std::span<const std::byte> from);

 private:
  ibv_wc_status transfer(bool write, const Region& region, std::uint64_t offset, std::size_t bytes);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_mr* bounce_mr_ = nullptr;
  std::vector<std::byte> bounce_;  // what the NIC reads and writes on this side
};

}  // namespace readback
