// SPDX-License-Identifier: MIT
#include "nic.hpp"

#include <infiniband/efadv.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

namespace readback {

namespace {

constexpr std::uint32_t kQkey = 0x1bad5eed;
constexpr std::size_t kBounce = 1 << 20;
constexpr auto kPatience = std::chrono::seconds(30);
constexpr int kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) fail(errno, what);
  return object;
}
void done(int error, const char* what) {
  if (error != 0) fail(error > 0 ? error : -error, what);
}

ibv_context* open_efa(const std::string& name) {
  int count = 0;
  ibv_device** list = made(ibv_get_device_list(&count), "ibv_get_device_list");
  ibv_context* found = nullptr;
  for (int i = 0; i < count && found == nullptr; ++i) {
    if (!name.empty() && name != ibv_get_device_name(list[i])) continue;
    ibv_context* context = ibv_open_device(list[i]);
    efadv_device_attr attr{};
    constexpr std::uint32_t kNeeds = EFADV_DEVICE_ATTR_CAPS_RDMA_READ | EFADV_DEVICE_ATTR_CAPS_RDMA_WRITE;
    if (context != nullptr && efadv_query_device(context, &attr, sizeof(attr)) == 0 &&
        (attr.device_caps & kNeeds) == kNeeds)
      found = context;
    else if (context != nullptr)
      ibv_close_device(context);
  }
  ibv_free_device_list(list);
  if (found == nullptr)
    fail(ENODEV, "no EFA with RDMA READ and WRITE here (ibv_devices lists RDMA devices; is efa.ko loaded?)");
  return found;
}

}  // namespace

Nic::Nic(const std::string& name) : context_(open_efa(name)), bounce_(kBounce) {
  pd_ = made(ibv_alloc_pd(context_), "ibv_alloc_pd");
  cq_ = made(ibv_create_cq(context_, 16, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  init.qp_type = IBV_QPT_DRIVER;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd_;
  init.send_ops_flags = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
  efadv_qp_init_attr efa{};
  efa.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
  qp_ = made(efadv_create_qp_ex(context_, &init, &efa, sizeof(efa)), "efadv_create_qp_ex");

  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  done(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "to INIT");
  attr.qp_state = IBV_QPS_RTR;
  done(ibv_modify_qp(qp_, &attr, IBV_QP_STATE), "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  done(ibv_modify_qp(qp_, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "to RTS");

  ibv_ah_attr where{};
  done(ibv_query_gid(context_, 1, 0, &where.grh.dgid), "ibv_query_gid");
  where.is_global = 1;
  where.port_num = 1;
  ah_ = made(ibv_create_ah(pd_, &where), "ibv_create_ah");
  bounce_mr_ = made(ibv_reg_mr(pd_, bounce_.data(), bounce_.size(), IBV_ACCESS_LOCAL_WRITE), "ibv_reg_mr");
}

Nic::~Nic() {
  ibv_dereg_mr(bounce_mr_);
  ibv_destroy_ah(ah_);
  ibv_destroy_qp(qp_);
  ibv_destroy_cq(cq_);
  ibv_dealloc_pd(pd_);
  ibv_close_device(context_);
}

Region Nic::add(int fd, std::uint64_t offset, std::uint64_t bytes) {
  return Region(made(ibv_reg_dmabuf_mr(pd_, offset, bytes, 0, fd, kRemote), "ibv_reg_dmabuf_mr"));
}

ibv_wc_status Nic::transfer(bool write, const Region& region, std::uint64_t offset, std::size_t bytes) {
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(qp_);
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;  // efa has no others
  if (write)
    ibv_wr_rdma_write(qp, region.get()->rkey, offset);
  else
    ibv_wr_rdma_read(qp, region.get()->rkey, offset);
  ibv_wr_set_sge(qp, bounce_mr_->lkey, reinterpret_cast<std::uintptr_t>(bounce_.data()),
                 static_cast<std::uint32_t>(bytes));
  ibv_wr_set_ud_addr(qp, ah_, qp_->qp_num, kQkey);
  done(ibv_wr_complete(qp), "ibv_wr_complete");

  const auto end = std::chrono::steady_clock::now() + kPatience;
  ibv_wc wc{};
  int got;
  while ((got = ibv_poll_cq(cq_, 1, &wc)) == 0)
    if (std::chrono::steady_clock::now() > end) fail(ETIMEDOUT, "the NIC has not completed an RDMA request");
  if (got < 0) fail(EIO, "ibv_poll_cq");
  return wc.status;
}

ibv_wc_status Nic::read(const Region& from, std::uint64_t offset, std::span<std::byte> to) {
  for (std::size_t at = 0; at < to.size();) {
    const std::size_t bytes = std::min(to.size() - at, kBounce);
    if (const ibv_wc_status status = transfer(false, from, offset + at, bytes); status != IBV_WC_SUCCESS) return status;
    std::memcpy(&to[at], bounce_.data(), bytes);
    at += bytes;
  }
  return IBV_WC_SUCCESS;
}

ibv_wc_status Nic::write(const Region& to, std::uint64_t offset, std::span<const std::byte> from) {
  for (std::size_t at = 0; at < from.size();) {
    const std::size_t bytes = std::min(from.size() - at, kBounce);
    std::memcpy(bounce_.data(), &from[at], bytes);
    if (const ibv_wc_status status = transfer(true, to, offset + at, bytes); status != IBV_WC_SUCCESS) return status;
    at += bytes;
  }
  return IBV_WC_SUCCESS;
}

}  // namespace readback
