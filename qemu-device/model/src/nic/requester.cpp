// SPDX-License-Identifier: MIT
#include "requester.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "psn.hpp"

namespace weft::model::nic {
namespace {

constexpr std::size_t kQueueMax = 65536;  // requests

// Packets outstanding: at most half the frames of credit that a link gives, halved at a loss because go-back-N sends
// all of them again, and grown with each acknowledgement.
constexpr std::uint32_t kWindowMax = 512;
constexpr std::uint32_t kWindowMin = 16;

// An acknowledgement is asked for at each message's end, at least this often, and four times a window.
constexpr std::uint32_t kAckInterval = 32;

// Without a limit of retries: no time-out is doubled beyond about a second, and a port that is down for this many
// time-outs ends the connection.
constexpr std::uint64_t kBackoffMaxNs = 1'000'000'000;
constexpr std::uint8_t kRetriesDown = 7;

}  // namespace

std::uint64_t rnr_delay_ns(std::uint8_t timer) {
  // In units of 10 us.
  constexpr std::array<std::uint32_t, 32> kDelay{65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                                 48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                                 2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return std::uint64_t{kDelay[timer & 31]} * 10'000;
}

void Requester::start(const Settings& settings, std::uint32_t psn) {
  *this = Requester();
  settings_ = settings;
  retries_ = retries();
  rnr_retries_ = settings.rnr_retry;
  window_ = kWindowMax;
  // One lap ahead, so that the circle's half behind the first packet is not below zero.
  una_ = next_ = high_ = tail_ = (std::uint64_t{1} << 24) + psn;
}

void Requester::set_retry(const Settings& settings) {
  settings_.timeout = settings.timeout;
  settings_.retry_cnt = settings.retry_cnt;
  retries_ = retries();
  settings_.rnr_retry = rnr_retries_ = settings.rnr_retry;
}

std::uint8_t Requester::retries() const { return unlimited() ? kRetriesDown : settings_.retry_cnt; }

std::uint64_t Requester::timeout_ns() const {
  if (settings_.timeout == 0) return kNever;
  const std::uint64_t base = std::uint64_t{4096} << settings_.timeout;
  return std::max(base, std::min(base << backoff_, kBackoffMaxNs));
}

bool Requester::post(const WorkRequest& request) {
  if (queue_.size() >= kQueueMax) return false;
  SendRequest& posted = queue_.emplace_back(SendRequest{request});
  const std::uint64_t packets = (request.local.length + settings_.mtu - 1) / settings_.mtu;
  posted.packets = static_cast<std::uint32_t>(std::max<std::uint64_t>(packets, 1));
  posted.first = tail_;
  tail_ += posted.packets;
  return true;
}

bool Requester::can_send() const {
  return cursor_ < queue_.size() && !waiting_ && next_ - una_ < window_ && queue_[cursor_].error == WEFT_ERR_OK;
}

std::optional<Requester::Packet> Requester::next() {
  if (!can_send()) return std::nullopt;
  SendRequest& request = queue_[cursor_];
  const std::uint64_t index = next_ - request.first;
  const bool first = index == 0;
  const bool last = index + 1 == request.packets;
  Packet packet;
  packet.request = &request;
  packet.psn = static_cast<std::uint32_t>(next_) & kPsnMask;
  packet.part = first ? (last ? Part::kOnly : Part::kFirst) : (last ? Part::kLast : Part::kMiddle);
  packet.offset = index * settings_.mtu;
  packet.length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(settings_.mtu, request.local.length - packet.offset));
  packet.ack_request = last || unasked_ + 1 >= std::min(kAckInterval, window_ / 4) || next_ + 1 - una_ >= window_;
  packet.again = next_ < high_;
  return packet;
}

void Requester::sent(const Packet& packet, std::uint64_t now) {
  unasked_ = packet.ack_request ? 0 : unasked_ + 1;
  ++next_;
  high_ = std::max(high_, next_);
  const SendRequest& request = queue_[cursor_];
  if (next_ == request.first + request.packets) ++cursor_;
  if (deadline_ == kNever) arm(now);
}

void Requester::local_error(const Packet& packet, Error error) { packet.request->error = error; }

Error Requester::due_error() const {
  // Packets of the request itself may be outstanding; what they would be answered does not matter any more.
  return queue_.empty() ? WEFT_ERR_OK : queue_.front().error;
}

std::optional<std::uint64_t> Requester::outstanding(std::uint32_t psn) const {
  const std::uint64_t sequence =
      una_ + static_cast<std::uint64_t>(std::int64_t{psn_diff(psn, static_cast<std::uint32_t>(una_) & kPsnMask)});
  if (sequence < una_ || sequence >= high_) return std::nullopt;
  return sequence;
}

void Requester::arm(std::uint64_t now) {
  const std::uint64_t timeout = timeout_ns();
  deadline_ = una_ < high_ && timeout != kNever ? now + timeout : kNever;
}

void Requester::progress(std::uint64_t una, std::uint64_t now, Completions& done) {
  if (una == una_) return;
  window_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(kWindowMax, window_ + (una - una_)));
  una_ = una;
  if (next_ < una_) {  // packets sent before going back were acknowledged after all
    next_ = una_;
    cursor_ = 0;
    while (cursor_ < queue_.size() && queue_[cursor_].first + queue_[cursor_].packets <= next_) ++cursor_;
  }
  while (!queue_.empty() && queue_.front().first + queue_.front().packets <= una_) {
    const SendRequest request = queue_.front();
    queue_.pop_front();
    --cursor_;
    if (!request.forgotten) done.complete(request, WEFT_ERR_OK);
  }
  retries_ = retries();
  backoff_ = 0;
  rnr_retries_ = settings_.rnr_retry;
  arm(now);
}

void Requester::go_back() {
  next_ = una_;
  cursor_ = 0;
  unasked_ = 0;
  window_ = std::max(window_ / 2, kWindowMin);
}

Error Requester::acknowledged(std::uint32_t psn, std::uint64_t now, Completions& done) {
  if (const auto sequence = outstanding(psn)) {
    waiting_ = false;
    progress(*sequence + 1, now, done);
  }
  return due_error();
}

Error Requester::refused(std::uint32_t psn, std::uint8_t syndrome, std::uint64_t now, Completions& done) {
  const auto sequence = outstanding(psn);
  if (!sequence) return WEFT_ERR_OK;
  progress(*sequence, now, done);
  switch (syndrome) {
    case kNakInvalid:
      return WEFT_ERR_REMOTE_INVALID;
    case kNakAccess:
      return WEFT_ERR_REMOTE_ACCESS;
    default:
      return WEFT_ERR_REMOTE_OPERATION;
  }
}

Error Requester::not_ready(std::uint32_t psn, std::uint8_t timer, std::uint64_t now, Completions& done) {
  const auto sequence = outstanding(psn);
  if (!sequence) return WEFT_ERR_OK;
  progress(*sequence, now, done);
  if (const Error error = due_error(); error != WEFT_ERR_OK) return error;
  if (settings_.rnr_retry != 7) {
    if (rnr_retries_ == 0) return WEFT_ERR_RNR_EXCEEDED;
    --rnr_retries_;
  }
  next_ = una_;
  cursor_ = 0;
  unasked_ = 0;
  waiting_ = true;
  deadline_ = now + rnr_delay_ns(timer);
  return WEFT_ERR_OK;
}

Error Requester::sequence_error(std::uint32_t psn, std::uint64_t now, Completions& done) {
  const auto sequence = outstanding(psn);
  if (!sequence) return WEFT_ERR_OK;
  progress(*sequence, now, done);
  if (const Error error = due_error(); error != WEFT_ERR_OK) return error;
  if (waiting_) return WEFT_ERR_OK;  // it goes back by itself when the wait ends
  if (!unlimited() && retries_-- == 0) return WEFT_ERR_RETRY_EXCEEDED;
  arm(now);
  go_back();
  return WEFT_ERR_OK;
}

Error Requester::timer(std::uint64_t now, bool port_up) {
  if (now < deadline_) return WEFT_ERR_OK;
  deadline_ = kNever;
  if (waiting_) {
    waiting_ = false;
    arm(now);
    return WEFT_ERR_OK;
  }
  ++timeouts_;
  if (unlimited() && port_up) {
    if (timeout_ns() < kBackoffMaxNs) ++backoff_;
    retries_ = retries();
  } else {
    backoff_ = 0;
    if (retries_-- == 0) return unlimited() ? WEFT_ERR_PORT_DOWN : WEFT_ERR_RETRY_EXCEEDED;
  }
  arm(now);
  go_back();
  return WEFT_ERR_OK;
}

void Requester::flush(Error first, Completions& done) {
  Error error = first;
  while (!queue_.empty()) {
    const SendRequest request = queue_.front();
    queue_.pop_front();
    if (!request.forgotten) done.complete(request, error);
    error = WEFT_ERR_FLUSHED;
  }
  cursor_ = 0;
  next_ = una_ = tail_ = high_;
  waiting_ = false;
  deadline_ = kNever;
}

bool Requester::forget(const std::function<bool(std::uint64_t)>& which) {
  bool under_way = false;
  std::uint64_t first = 0;
  bool renumber = false;
  for (auto request = queue_.begin(); request != queue_.end();) {
    const bool started = request->first < high_;
    if (which(request->token)) {
      if (started) {
        request->forgotten = true;
        under_way = true;
      } else {
        if (!renumber) first = request->first;
        renumber = true;
        request = queue_.erase(request);
        continue;
      }
    } else if (renumber) {
      request->first = first;
    }
    if (renumber) first = request->first + request->packets;
    ++request;
  }
  if (renumber) tail_ = first;
  return under_way;
}

}  // namespace weft::model::nic
