// SPDX-License-Identifier: MIT
#include "contexts.hpp"

#include <algorithm>
#include <span>

namespace weft::model {

namespace {

// The value that an arm doorbell means: the one nearest to `now` with these low bits, as serial numbers compare
// (RFC 1982). What lies behind counts as reached.
constexpr std::uint64_t arm_target(std::uint64_t now, std::uint64_t low) {
  const std::uint64_t ahead = (low - now) & ((std::uint64_t{1} << WEFT_ARM_VALUE_BITS) - 1);
  return ahead <= WEFT_ARM_AHEAD_MAX ? now + ahead : now;
}

}  // namespace

Contexts::Contexts(HostPort& host, Counters& counters, Interrupts& interrupts)
    : host_(host), counters_(counters), interrupts_(interrupts) {}

Contexts::~Contexts() { reset(); }

Error Contexts::create(const weft_mbox_ctx& entry) {
  if (entry.ctx >= WEFT_CONTEXTS_MAX || entry.vector >= WEFT_VECTORS || entry.syncs == 0 ||
      entry.syncs > WEFT_SYNCS_PER_CONTEXT || entry.flags != 0) {
    return WEFT_ERR_BAD_FIELD;
  }
  if (entry.shadow % 8 != 0) return WEFT_ERR_BAD_ALIGN;
  if (entry.shadow > UINT64_MAX - (WEFT_SYNCS_PER_CONTEXT * 8 - 1)) return WEFT_ERR_BAD_RANGE;
  if (contexts_[entry.ctx]) return WEFT_ERR_MBOX_BUSY;
  auto context = std::make_unique<Context>();
  context->vector = entry.vector;
  context->syncs = entry.syncs;
  context->shadow = entry.shadow;
  contexts_[entry.ctx] = std::move(context);
  return WEFT_ERR_OK;
}

Error Contexts::destroy(std::uint32_t context) {
  if (!exists(context)) return WEFT_ERR_MBOX_NOT_FOUND;
  contexts_[context].reset();
  return WEFT_ERR_OK;
}

Error Contexts::configure(const weft_mbox_sync& entry) {
  if (!exists(entry.ctx)) return WEFT_ERR_MBOX_NOT_FOUND;
  const Context& context = *contexts_[entry.ctx];
  if (entry.first >= context.syncs || entry.count == 0 || entry.count > context.syncs - entry.first) {
    return WEFT_ERR_BAD_SYNC;
  }
  if (entry.flags & ~WEFT_SYNC_NOTIFY) return WEFT_ERR_BAD_FIELD;
  const bool notify = (entry.flags & WEFT_SYNC_NOTIFY) != 0;
  if (notify && context.shadow == 0) return WEFT_ERR_MBOX_STATE;
  for (std::uint32_t i = 0; i < entry.count; ++i) {
    Sync& sync = at(entry.ctx, entry.first + i);
    sync.notify = notify;
    if (sync.dirty.is_linked()) sync.dirty.unlink();
    if (notify) dirty_.push_back(sync);
  }
  return WEFT_ERR_OK;
}

void Contexts::reset() {
  for (auto& context : contexts_) context.reset();
}

Contexts::Sync& Contexts::at(std::uint32_t context, std::uint32_t number) {
  std::unique_ptr<Page>& page = contexts_[context]->pages[number / kSyncsPerPage];
  if (!page) {
    page = std::make_unique<Page>();
    for (std::uint32_t i = 0; i < kSyncsPerPage; ++i) {
      page->sync[i].context = static_cast<std::uint16_t>(context);
      page->sync[i].number = static_cast<std::uint16_t>(number / kSyncsPerPage * kSyncsPerPage + i);
    }
  }
  return page->sync[number % kSyncsPerPage];
}

std::uint64_t Contexts::value(std::uint32_t context, std::uint32_t sync) {
  return valid(context, sync) ? at(context, sync).value : 0;
}

Error Contexts::signal(std::uint32_t context, std::uint32_t number, std::uint64_t add, std::uint64_t* before) {
  if (!valid(context, number)) return WEFT_ERR_BAD_SYNC;
  Sync& sync = at(context, number);
  if (before) *before = sync.value;
  sync.value += add;
  counters_.add(WEFT_CTR_sync_signals);
  react(sync);
  return WEFT_ERR_OK;
}

bool Contexts::wait(std::uint32_t context, std::uint32_t number, Waiter& waiter) {
  Sync& sync = at(context, number);
  if (sync.value >= waiter.value) return true;
  // Producers mostly wait for growing values: look from the end.
  auto place = sync.waiters.end();
  while (place != sync.waiters.begin()) {
    auto before = place;
    --before;
    if (before->value <= waiter.value) break;
    place = before;
  }
  sync.waiters.insert(place, waiter);
  return false;
}

bool Contexts::ring_signal(std::uint32_t context, std::uint32_t number, std::uint32_t add) {
  if (!valid(context, number)) return false;
  Sync& sync = at(context, number);
  sync.value += add;
  counters_.add(WEFT_CTR_host_signals);
  if (!sync.touched.is_linked()) touched_.push_back(sync);
  return true;
}

bool Contexts::ring_arm(std::uint32_t context, std::uint32_t number, std::uint64_t low) {
  if (!valid(context, number)) return false;
  Sync& sync = at(context, number);
  const std::uint64_t target = arm_target(sync.value, low);
  sync.near = sync.armed == 0 ? target : std::min(sync.near, target);
  sync.far = sync.armed == 0 ? target : std::max(sync.far, target);
  if (sync.armed < 3) ++sync.armed;
  if (!sync.touched.is_linked()) touched_.push_back(sync);
  return true;
}

void Contexts::process_doorbells() {
  while (!touched_.empty()) {
    Sync& sync = touched_.front();
    touched_.pop_front();
    react(sync);
  }
}

void Contexts::react(Sync& sync) {
  while (!sync.waiters.empty() && sync.waiters.front().value <= sync.value) {
    Waiter& waiter = sync.waiters.front();
    sync.waiters.pop_front();
    waiter.reached();
  }
  if (sync.armed != 0 && sync.value >= sync.near) {
    interrupts_.raise(contexts_[sync.context]->vector);
    if (sync.value >= sync.far) {
      sync.armed = 0;
    } else if (sync.armed == 2) {
      sync.armed = 1;
      sync.near = sync.far;
    } else {
      // More than two targets were asked for and only the ends are kept: tell of each change until the last is reached.
      sync.near = sync.value + 1;
    }
  }
  if (sync.notify && !sync.dirty.is_linked()) dirty_.push_back(sync);
}

void Contexts::flush() {
  std::array<std::uint64_t, kSyncsPerPage> run;
  while (!dirty_.empty()) {
    // Neighbours that changed one after the other go in one write.
    const Sync& first = dirty_.front();
    std::size_t count = 0;
    while (count < run.size() && !dirty_.empty()) {
      const Sync& sync = dirty_.front();
      if (sync.context != first.context || sync.number != first.number + count) break;
      run[count++] = sync.value;
      dirty_.pop_front();
    }
    const std::uint64_t at = contexts_[first.context]->shadow + std::uint64_t{first.number} * 8;
    if (!host_.publish(at, std::as_bytes(std::span(run).first(count)))) counters_.error(WEFT_ERR_DMA);
  }
}

}  // namespace weft::model
