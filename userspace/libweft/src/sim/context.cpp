// SPDX-License-Identifier: MIT
#include "context.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::sim {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kPagesInPage = kPage / 8;
constexpr std::uint32_t kPsnMask = 0xffffff;
// Defaults of a connection: 4.096 us << 14 is 67 ms, and seven tries.
constexpr std::uint8_t kTimeout = 14;

template <typename Object>
std::unique_ptr<Object> remove(std::vector<std::unique_ptr<Object>>& from, Object* object) {
  auto found = std::find_if(from.begin(), from.end(), [&](const auto& owned) { return owned.get() == object; });
  if (found == from.end()) return nullptr;
  std::unique_ptr<Object> owned = std::move(*found);
  from.erase(found);
  return owned;
}

}  // namespace

Context::Context(Driver& driver, std::uint32_t number)
    : driver_(driver),
      number_(number),
      shadow_(driver.device().host(), WEFT_SYNCS_PER_CONTEXT * sizeof(std::uint64_t), true),
      syncs_(0, WEFT_SYNCS_PER_CONTEXT) {}

Context::~Context() {
  if (driver_.contexts_[number_] != this) return;
  while (!channels_.empty()) channel_destroy(channels_.back().get());
  for (auto& queue : queues_)
    if (queue) queue_destroy(queue.get());
  while (!memory_.empty()) mem_free(memory_.back().get());
  driver_.call(WEFT_MBOX_CTX_DESTROY, weft_mbox_index{number_, 0});
  driver_.contexts_[number_] = nullptr;
}

void Context::doorbell(std::uint64_t offset, std::uint64_t value) {
  driver_.device_.write(WEFT_BAR_REGS, WEFT_DOORBELLS_BASE + std::uint64_t{number_} * WEFT_DOORBELL_PAGE + offset,
                        value, 8);
}

bool Context::has(const weft_event& event) const {
  switch (event.type) {
    case WEFT_EVENT_QUEUE_ERROR:
      return event.object < queues_.size() && queues_[event.object];
    case WEFT_EVENT_QP_ERROR:
      return std::any_of(channels_.begin(), channels_.end(),
                         [&](const auto& channel) { return channel->qpn == event.object; });
    default:
      return event.type == WEFT_EVENT_FATAL;
  }
}

// What is being destroyed does not fail any more.
void Context::on_event(const weft_event& event) {
  if (!has(event)) return;
  weft_failure failure{};
  failure.error = event.error;
  failure.type = event.type;
  failure.object = event.object;
  failure.value = event.value;
  failures_.push_back(failure);
}

const weft_failure* Context::failure(const weft_wait_scope* scope) const {
  const auto has = [](const std::uint32_t* list, std::uint32_t count, std::uint32_t object) {
    return std::find(list, list + count, object) != list + count;
  };
  const auto counts = [&](const weft_failure& one) {
    if (scope == nullptr) return true;
    if (one.type == WEFT_EVENT_QUEUE_ERROR) return has(scope->queue, scope->queues, one.object);
    if (one.type == WEFT_EVENT_QP_ERROR) return has(scope->channel, scope->channels, one.object);
    return true;
  };
  const auto found = std::find_if(failures_.begin(), failures_.end(), counts);
  return found == failures_.end() ? nullptr : &*found;
}

// A failure goes with the object that failed: what is made anew works.
void Context::forgive(std::uint32_t type, std::uint32_t object) {
  std::erase_if(failures_,
                [&](const weft_failure& failure) { return failure.type == type && failure.object == object; });
}

int Context::region(weft_region_entry entry, std::uint32_t& key) {
  const auto free_key = driver_.take_key();
  if (!free_key) return -ENOSPC;
  entry.key = *free_key;
  entry.ctx = number_;
  const int error = driver_.call(WEFT_MBOX_REGION_CREATE, entry);
  if (error != 0) {
    driver_.give_key(*free_key);
    return error;
  }
  key = *free_key;
  return 0;
}

void Context::region_destroy(std::uint32_t key) {
  driver_.call(WEFT_MBOX_REGION_DESTROY, weft_mbox_index{key, 0});
  driver_.give_key(key);
}

int Context::mem_alloc(std::uint64_t bytes, unsigned flags, weft_backend_mem& out) {
  if (bytes > UINT64_MAX - kPage) return -ENOMEM;
  bytes = (bytes + kPage - 1) / kPage * kPage;
  // Large objects start where one large page of the bus can hold them.
  constexpr std::uint64_t kLarge = 2u << 20;
  const auto offset = driver_.hbm_->take(bytes, bytes >= kLarge ? kLarge : kPage);
  if (!offset) return -ENOMEM;
  weft_region_entry entry{};
  entry.type = WEFT_REGION_HBM;
  entry.rights = WEFT_RIGHT_READ | WEFT_RIGHT_WRITE;
  if ((flags & WEFT_MEM_REMOTE_READ) != 0) entry.rights |= WEFT_RIGHT_REMOTE_READ;
  if ((flags & WEFT_MEM_REMOTE_WRITE) != 0) entry.rights |= WEFT_RIGHT_REMOTE_WRITE;
  entry.va = WEFT_VA_HBM + *offset;
  entry.length = bytes;
  entry.base = *offset;
  entry.object = ++driver_.generation_;
  auto memory = std::make_unique<Memory>();
  memory->va = entry.va;
  memory->bytes = bytes;
  memory->hbm_offset = *offset;
  if (const int error = region(entry, memory->key); error != 0) {
    driver_.hbm_->give(*offset, bytes);
    return error;
  }
  out = {memory.get(), memory->va, memory->key, 0, bytes, entry.object};
  memory_.push_back(std::move(memory));
  return 0;
}

// Host memory is named by a list of 4 KiB pages, of one or two levels, as the kernel's driver must do it.
int Context::mem_register(void* base, std::uint64_t bytes, unsigned flags, weft_backend_mem& out) {
  constexpr std::uint64_t kMost = 1ull << 40;  // its page list is kept here
  if (bytes > kMost) return -ENOMEM;
  HostMemory& host = driver_.device_.host();
  auto memory = std::make_unique<Memory>();
  const bool writable = (flags & WEFT_MEM_READ_ONLY) == 0;
  memory->bytes = bytes;
  memory->iova = host.map(base, bytes, writable, false);
  memory->va = WEFT_VA_HOST + *memory->iova;
  const std::uint64_t first = *memory->iova / kPage * kPage;
  const std::uint64_t pages = (*memory->iova + bytes - first + kPage - 1) / kPage;
  memory->pages = std::make_unique<DmaBuffer>(host, pages * 8, false);
  auto* list = reinterpret_cast<std::uint64_t*>(memory->pages->data());
  for (std::uint64_t page = 0; page < pages; ++page) list[page] = first + page * kPage;

  weft_region_entry entry{};
  entry.type = WEFT_REGION_HOST;
  entry.rights = WEFT_RIGHT_READ;
  if (writable) entry.rights |= WEFT_RIGHT_WRITE;
  if ((flags & WEFT_MEM_REMOTE_READ) != 0) entry.rights |= WEFT_RIGHT_REMOTE_READ;
  if (writable && (flags & WEFT_MEM_REMOTE_WRITE) != 0) entry.rights |= WEFT_RIGHT_REMOTE_WRITE;
  entry.page_shift = 12;
  entry.va = memory->va;
  entry.length = bytes;
  entry.pages = pages;
  entry.object = ++driver_.generation_;
  if (pages <= kPagesInPage) {
    entry.levels = 1;
    entry.base = memory->pages->iova();
  } else {
    const std::uint64_t list_pages = (pages + kPagesInPage - 1) / kPagesInPage;
    memory->directory = std::make_unique<DmaBuffer>(host, list_pages * 8, false);
    auto* directory = reinterpret_cast<std::uint64_t*>(memory->directory->data());
    for (std::uint64_t page = 0; page < list_pages; ++page) directory[page] = memory->pages->iova() + page * kPage;
    entry.levels = 2;
    entry.base = memory->directory->iova();
  }
  if (const int error = region(entry, memory->key); error != 0) {
    host.unmap(*memory->iova);
    return error;
  }
  out = {memory.get(), memory->va, memory->key, 0, bytes, entry.object};
  memory_.push_back(std::move(memory));
  return 0;
}

void Context::mem_free(Memory* memory) {
  const std::unique_ptr<Memory> owned = remove(memory_, memory);
  if (!owned) return;
  region_destroy(owned->key);
  if (owned->iova) driver_.device_.host().unmap(*owned->iova);
  if (owned->hbm_offset) {
    // Zero before anybody else can get it. A device that does not answer any more keeps the range.
    if (driver_.call(WEFT_MBOX_HBM_ZERO, weft_mbox_range{*owned->hbm_offset, owned->bytes}) == 0)
      driver_.hbm_->give(*owned->hbm_offset, owned->bytes);
  }
}

void* Context::mem_map(Memory* memory) {
  if (!memory->hbm_offset) return nullptr;
  return driver_.device_.ram(WEFT_BAR_HBM).data() + *memory->hbm_offset;
}

int Context::sync_alloc(std::uint32_t count, std::uint32_t& first) {
  const auto begin = syncs_.take(count);
  if (!begin) return -ENOSPC;
  first = static_cast<std::uint32_t>(*begin);
  const weft_mbox_sync request{number_, first, count, WEFT_SYNC_NOTIFY};
  const int error = driver_.call(WEFT_MBOX_SYNC_CONFIG, request);
  if (error != 0) syncs_.give(*begin, count);
  return error;
}

void Context::sync_free(std::uint32_t first, std::uint32_t count) {
  if (count == 0 || first >= WEFT_SYNCS_PER_CONTEXT || count > WEFT_SYNCS_PER_CONTEXT - first) return;
  driver_.call(WEFT_MBOX_SYNC_CONFIG, weft_mbox_sync{number_, first, count, 0});
  syncs_.give(first, count);
}

std::uint64_t Context::sync_value(std::uint32_t sync) const {
  if (sync >= WEFT_SYNCS_PER_CONTEXT) return 0;
  return __atomic_load_n(reinterpret_cast<std::uint64_t*>(shadow_.data()) + sync, __ATOMIC_ACQUIRE);
}

int Context::sync_signal(std::uint32_t sync, std::uint32_t add) {
  if (sync >= WEFT_SYNCS_PER_CONTEXT) return -EINVAL;
  doorbell(WEFT_DB_SIGNAL, WEFT_DB_PAIR(sync, add));
  return 0;
}

void Context::sync_arm(std::uint32_t sync, std::uint64_t value) {
  const std::uint64_t now = sync_value(sync);
  const std::uint64_t target = value > now ? now + std::min<std::uint64_t>(value - now, WEFT_ARM_AHEAD_MAX) : value;
  doorbell(WEFT_DB_ARM, WEFT_DB_ARM_VALUE(sync, target));
}

int Context::queue_create(std::uint32_t entries, unsigned flags, weft_backend_queue& out) {
  auto slot = std::find(queues_.begin(), queues_.end(), nullptr);
  if (slot == queues_.end()) return -ENOSPC;
  auto queue = std::make_unique<Queue>();
  queue->number = static_cast<std::uint32_t>(slot - queues_.begin());
  const std::uint64_t bytes = sizeof(weft_ring_head) + std::uint64_t{entries} * sizeof(weft_cmd);
  queue->bytes = (bytes + kPage - 1) / kPage * kPage;
  weft_region_entry entry{};
  entry.rights = WEFT_RIGHT_READ | WEFT_RIGHT_WRITE;
  entry.length = queue->bytes;
  entry.object = ++driver_.generation_;
  std::byte* memory = nullptr;
  if ((flags & WEFT_QUEUE_HBM) != 0) {
    queue->hbm_offset = driver_.hbm_->take(queue->bytes, kPage);
    if (!queue->hbm_offset) return -ENOMEM;
    entry.type = WEFT_REGION_HBM;
    entry.va = WEFT_VA_HBM + *queue->hbm_offset;
    entry.base = *queue->hbm_offset;
    memory = driver_.device_.ram(WEFT_BAR_HBM).data() + *queue->hbm_offset;
  } else {
    queue->ring = std::make_unique<DmaBuffer>(driver_.device_.host(), queue->bytes, true);
    entry.type = WEFT_REGION_HOST;
    entry.va = WEFT_VA_HOST + queue->ring->iova();
    entry.base = queue->ring->iova();
    memory = queue->ring->data();
  }
  int error = region(entry, queue->key);
  if (error == 0) {
    weft_queue_entry request{};
    request.ctx = number_;
    request.queue = queue->number;
    request.ring_key = queue->key;
    request.entries = entries;
    request.ring_addr = entry.va;
    error = driver_.call(WEFT_MBOX_QUEUE_CREATE, request);
    if (error != 0) region_destroy(queue->key);
  }
  if (error != 0) {
    if (queue->hbm_offset) driver_.hbm_->give(*queue->hbm_offset, queue->bytes);
    return error;
  }
  out.handle = queue.get();
  out.number = queue->number;
  out.entries = entries;
  out.head = reinterpret_cast<weft_ring_head*>(memory);
  out.slots = memory + sizeof(weft_ring_head);
  *slot = std::move(queue);
  return 0;
}

void Context::queue_destroy(Queue* queue) {
  std::unique_ptr<Queue> owned = std::move(queues_[queue->number]);
  // What waits in it would hold it up: it is aborted, and that alone tells nobody.
  driver_.call(WEFT_MBOX_QUEUE_ABORT, weft_mbox_pair{number_, owned->number});
  driver_.call(WEFT_MBOX_QUEUE_DESTROY, weft_mbox_pair{number_, owned->number});
  driver_.take_events();
  forgive(WEFT_EVENT_QUEUE_ERROR, owned->number);
  region_destroy(owned->key);
  if (owned->hbm_offset && driver_.call(WEFT_MBOX_HBM_ZERO, weft_mbox_range{*owned->hbm_offset, owned->bytes}) == 0)
    driver_.hbm_->give(*owned->hbm_offset, owned->bytes);
}

void Context::queue_ring(Queue* queue, std::uint64_t producer) { doorbell(WEFT_DB_QUEUE(queue->number), producer); }

int Context::channel_create(std::uint32_t port, std::uint32_t sync_base, std::uint32_t sync_count,
                            weft_backend_channel& out) {
  weft_mbox_port address{};
  if (const int error = driver_.port(port, address); error != 0) return error;
  auto channel = std::make_unique<Channel>();
  weft_qp_entry qp{};
  qp.ctx = number_;
  qp.type = WEFT_QP_CHANNEL;
  qp.av.port = static_cast<std::uint8_t>(port);
  qp.access = WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE;
  qp.sync_base = sync_base;
  qp.sync_count = sync_count;
  if (const int error = driver_.call(WEFT_MBOX_QP_CREATE, &qp, sizeof(qp), &qp, sizeof(qp)); error != 0) return error;
  channel->qpn = qp.qpn;
  channel->port = port;
  channel->sync_base = sync_base;
  channel->sync_count = sync_count;
  channel->psn = driver_.random_psn() & kPsnMask;
  channel->local.qpn = qp.qpn;
  channel->local.psn = channel->psn;
  std::memcpy(channel->local.mac, address.mac, sizeof(address.mac));
  channel->local.mtu = WEFT_MTU_256;
  while (channel->local.mtu < WEFT_MTU_8192 && (128u << (channel->local.mtu + 1)) <= address.mtu) ++channel->local.mtu;
  // IPv4-mapped, RFC 4291 section 2.5.5.2.
  channel->local.gid[10] = channel->local.gid[11] = 0xff;
  std::memcpy(channel->local.gid + 12, address.ipv4, sizeof(address.ipv4));
  out.handle = channel.get();
  out.number = channel->qpn;
  out.local = channel->local;
  channels_.push_back(std::move(channel));
  return 0;
}

int Context::channel_connect(Channel* channel, const weft_endpoint& remote, std::uint8_t timeout,
                             std::uint8_t retry_cnt) {
  if (remote.mtu < WEFT_MTU_256 || remote.mtu > WEFT_MTU_8192) return -EINVAL;
  // RESET to INIT to RTR to RTS: IBTA volume 1, section 10.3.1, table 91 for what each step carries.
  weft_mbox_qp_modify modify{};
  weft_qp_entry& qp = modify.qp;
  qp.ctx = number_;
  qp.qpn = channel->qpn;
  qp.type = WEFT_QP_CHANNEL;
  qp.av.port = static_cast<std::uint8_t>(channel->port);
  qp.path_mtu = std::min(channel->local.mtu, remote.mtu);
  qp.timeout = timeout != 0 ? timeout : kTimeout;
  qp.retry_cnt = retry_cnt != 0 ? retry_cnt : WEFT_RETRY_UNLIMITED;
  qp.rnr_retry = 7;
  qp.min_rnr_timer = 12;
  qp.dest_qpn = remote.qpn;
  qp.sq_psn = channel->psn;
  qp.rq_psn = remote.psn & kPsnMask;
  qp.pkey = WEFT_PKEY_DEFAULT;
  qp.av.hop_limit = 64;
  std::memcpy(qp.av.dmac, remote.mac, sizeof(qp.av.dmac));
  std::memcpy(qp.av.dgid, remote.gid, sizeof(qp.av.dgid));
  qp.max_rd_atomic = 16;
  qp.max_dest_rd_atomic = 16;
  qp.access = WEFT_RIGHT_REMOTE_READ | WEFT_RIGHT_REMOTE_WRITE;
  qp.sync_base = channel->sync_base;
  qp.sync_count = channel->sync_count;

  const struct {
    weft_qp_state state;
    std::uint32_t mask;
  } steps[] = {
      {WEFT_QPS_INIT, WEFT_QPM_PORT | WEFT_QPM_PKEY | WEFT_QPM_ACCESS | WEFT_QPM_SYNC},
      {WEFT_QPS_RTR,
       WEFT_QPM_PATH | WEFT_QPM_MTU | WEFT_QPM_DEST | WEFT_QPM_RQ_PSN | WEFT_QPM_RNR_TIMER | WEFT_QPM_DEST_RD_ATOMIC},
      {WEFT_QPS_RTS, WEFT_QPM_SQ_PSN | WEFT_QPM_RETRY | WEFT_QPM_RD_ATOMIC},
  };
  for (const auto& step : steps) {
    qp.state = static_cast<std::uint8_t>(step.state);
    modify.mask = step.mask;
    if (const int error = driver_.call(WEFT_MBOX_QP_MODIFY, modify); error != 0) return error;
  }
  return 0;
}

int Context::channel_state(Channel* channel, std::uint32_t& state, std::uint32_t& error) {
  const weft_mbox_pair name{number_, channel->qpn};
  weft_qp_entry qp{};
  if (const int failed = driver_.call(WEFT_MBOX_QP_QUERY, &name, sizeof(name), &qp, sizeof(qp)); failed != 0)
    return failed;
  state = qp.state;
  error = qp.error;
  return 0;
}

void Context::channel_destroy(Channel* channel) {
  const std::unique_ptr<Channel> owned = remove(channels_, channel);
  if (!owned) return;
  driver_.call(WEFT_MBOX_QP_DESTROY, weft_mbox_pair{number_, owned->qpn});
  driver_.take_events();
  forgive(WEFT_EVENT_QP_ERROR, owned->qpn);
}

}  // namespace weft::sim
