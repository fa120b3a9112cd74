// SPDX-License-Identifier: MIT
// How operations end: completions and errors of the provider's queue, and those that the wrapper makes.
#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "endpoint.hpp"
#include "error.hpp"

using weft::ofi::describe_operation;
using weft::ofi::errno_of;
using weft::ofi::fail;
using weft::ofi::Request;

weft_ofi::Operations::iterator weft_ofi::of_context(void* context) {
  const auto found = by_context_.find(context);
  return found == by_context_.end() ? free_.end() : found->second;
}

void weft_ofi::retire(Operations::iterator operation, Operations& from) {
  const Request& r = operation->request;
  --r.mr->in_flight;
  if (r.peer != WEFT_OFI_ANY) --peers_[r.peer].in_flight;
  Operations& free = r.op == WEFT_OFI_RECV ? free_receives_ : free_;
  free.splice(free.begin(), from, operation);
}

// False: the caller has its completion already.
bool weft_ofi::report(Operations::iterator operation, Operations& from, int status, weft_ofi_completion* out) {
  const Request& r = operation->request;
  const bool late = operation->timed_out;
  if (late) {
    ++counters_.late;
  } else {
    out->context = r.context;
    out->op = r.op;
    out->status = status == 0 ? 0 : -errno_of(-status);
    out->peer = r.peer;
    out->bytes = r.bytes;
    ++(status == 0 ? counters_.completed : counters_.failed);
    if (status == 0 && r.op == WEFT_OFI_WRITE) counters_.bytes_written += r.bytes;
    if (status == 0 && r.op == WEFT_OFI_READ) counters_.bytes_read += r.bytes;
    if (status == 0 && r.op == WEFT_OFI_SEND) counters_.bytes_sent += r.bytes;
  }
  retire(operation, from);
  return !late;
}

void weft_ofi::report_later(Operations::iterator operation, int status, const char* text, bool keep) {
  const Request& r = operation->request;
  weft_ofi_completion made{};
  made.context = r.context;
  made.op = r.op;
  made.status = -errno_of(-status);
  made.peer = r.peer;
  made.bytes = r.bytes;
  later_texts_.push_back(describe_operation(r) + ": " + text);
  later_.push_back(made);
  ++counters_.failed;
  operation->timed_out = keep;
}

int weft_ofi::read_error(weft_ofi_completion* out) {
  fi_cq_err_entry entry{};
  const ssize_t got = fi_cq_readerr(queue_.get(), &entry, 0);
  if (got != 1) return -1;
  const int status = entry.err != 0 ? -entry.err : -FI_EIO;
  char said[256] = "";
  const char* provider = fi_cq_strerror(queue_.get(), entry.prov_errno, entry.err_data, said, sizeof(said));
  const auto operation = of_context(entry.op_context);
  std::string text;
  if (operation == free_.end()) {
    *out = {};
    out->op = WEFT_OFI_NONE;
    out->status = -errno_of(-status);
    out->peer = WEFT_OFI_ANY;
    text = "a peer's transfer";
    ++counters_.failed;
  } else {
    text = describe_operation(operation->request);
    Operations& from = operation->request.op == WEFT_OFI_RECV ? receiving_ : flying_;
    *out = {};
    if (!report(operation, from, status, out)) return 0;
  }
  out->provider_error = entry.prov_errno;
  text += std::string(": ") + fi_strerror(-status);
  if (provider != nullptr && *provider != 0) text += std::string(" (") + provider_.name + ": " + provider + ")";
  texts_.push_back(std::move(text));
  out->text = texts_.back().c_str();
  return 1;
}

int weft_ofi::read_queue(std::span<weft_ofi_completion> out) {
  std::array<fi_cq_data_entry, 32> entries;
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t room = std::min(entries.size(), out.size() - done);
    const ssize_t got = fi_cq_read(queue_.get(), entries.data(), room);
    if (got == -FI_EAVAIL) {
      const int made = read_error(&out[done]);
      if (made < 0) break;
      done += static_cast<std::size_t>(made);
      continue;
    }
    if (got == -FI_EAGAIN || got == 0) break;
    if (got < 0) return fail(static_cast<int>(-got), "the completion queue: %s", fi_strerror(static_cast<int>(-got)));
    for (ssize_t i = 0; i < got; ++i) {
      const fi_cq_data_entry& entry = entries[static_cast<std::size_t>(i)];
      weft_ofi_completion& completion = out[done];
      completion = {};
      // A peer's write with immediate has no operation here; what it says as context means nothing.
      if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & (FI_RMA | FI_REMOTE_WRITE)) != 0) {
        completion.op = WEFT_OFI_ARRIVAL;
        completion.peer = WEFT_OFI_ANY;
        completion.immediate = static_cast<std::uint32_t>(entry.data);
        completion.bytes = entry.len;
        ++counters_.arrivals;
        ++done;
        continue;
      }
      const auto operation = of_context(entry.op_context);
      if (operation == free_.end()) continue;
      const bool receive = operation->request.op == WEFT_OFI_RECV;
      if (!report(operation, receive ? receiving_ : flying_, 0, &completion)) continue;
      if (receive) {
        completion.bytes = entry.len;
        counters_.bytes_received += entry.len;
      }
      ++done;
    }
  }
  return static_cast<int>(done);
}

int weft_ofi::poll(std::span<weft_ofi_completion> out) {
  std::lock_guard guard(lock_);
  texts_.clear();
  const int got = read_queue(out);
  if (got < 0) return got;
  if (!deferred_.empty()) retry();
  expire();
  std::size_t done = static_cast<std::size_t>(got);
  for (; done < out.size() && !later_.empty(); ++done) {
    out[done] = later_.front();
    later_.pop_front();
    texts_.push_back(std::move(later_texts_.front()));
    later_texts_.pop_front();
    out[done].text = texts_.back().c_str();
  }
  return static_cast<int>(done);
}

int weft_ofi::wait(std::span<weft_ofi_completion> out, std::uint32_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (unsigned turn = 0;; ++turn) {
    const int got = poll(out);
    if (got != 0 || Clock::now() >= end) return got;
    // The efa provider has nothing to sleep on: first let others run, then sleep longer and longer.
    if (turn < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(turn, 1000u)));
    }
  }
}
