// SPDX-License-Identifier: MIT
#include "requester.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "psn.hpp"

namespace weft::model::nic {
namespace {

constexpr std::size_t kQueueMax = 65536;  // messages

// Packets outstanding: at most half the frames of credit that a link gives, halved at a loss because go-back-N sends
// all of them again, and grown with each acknowledgement.
constexpr std::uint32_t kWindowMax = 512;
constexpr std::uint32_t kWindowMin = 16;

// An acknowledgement is asked for at each message's end, at least this often, and four times a window.
constexpr std::uint32_t kAckInterval = 32;

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
  retries_ = settings.retry_cnt;
  rnr_retries_ = settings.rnr_retry;
  window_ = kWindowMax;
  // One lap ahead, so that the circle's half behind the first packet is not below zero.
  una_ = next_ = high_ = tail_ = (std::uint64_t{1} << 24) + psn;
}

void Requester::set_retry(const Settings& settings) {
  settings_.timeout = settings.timeout;
  settings_.retry_cnt = retries_ = settings.retry_cnt;
  settings_.rnr_retry = rnr_retries_ = settings.rnr_retry;
}

bool Requester::post(Message message) {
  if (queue_.size() >= kQueueMax) return false;
  const std::uint64_t packets = (message.local.length + settings_.mtu - 1) / settings_.mtu;
  message.packets = static_cast<std::uint32_t>(std::max<std::uint64_t>(packets, 1));
  message.first = tail_;
  tail_ += message.packets;
  queue_.push_back(std::move(message));
  return true;
}

bool Requester::can_send() const {
  return cursor_ < queue_.size() && !waiting_ && next_ - una_ < window_ && queue_[cursor_].error == WEFT_ERR_OK;
}

std::optional<Requester::Packet> Requester::next() {
  if (!can_send()) return std::nullopt;
  Message& message = queue_[cursor_];
  const std::uint64_t index = next_ - message.first;
  const bool first = index == 0;
  const bool last = index + 1 == message.packets;
  Packet packet;
  packet.message = &message;
  packet.psn = static_cast<std::uint32_t>(next_) & kPsnMask;
  packet.part = first ? (last ? Part::kOnly : Part::kFirst) : (last ? Part::kLast : Part::kMiddle);
  packet.offset = index * settings_.mtu;
  packet.length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(settings_.mtu, message.local.length - packet.offset));
  packet.ack_request = last || unasked_ + 1 >= std::min(kAckInterval, window_ / 4) || next_ + 1 - una_ >= window_;
  packet.again = next_ < high_;
  return packet;
}

void Requester::sent(const Packet& packet, std::uint64_t now) {
  unasked_ = packet.ack_request ? 0 : unasked_ + 1;
  ++next_;
  high_ = std::max(high_, next_);
  const Message& message = queue_[cursor_];
  if (next_ == message.first + message.packets) ++cursor_;
  if (deadline_ == kNever) arm(now);
}

void Requester::local_error(const Packet& packet, Error error) { packet.message->error = error; }

Error Requester::due_error() const {
  // Packets of the message itself may be outstanding; what they would be answered does not matter any more.
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
    const Message message = queue_.front();
    queue_.pop_front();
    --cursor_;
    if (!message.forgotten) done.message_done(message, WEFT_ERR_OK);
  }
  retries_ = settings_.retry_cnt;
  rnr_retries_ = settings_.rnr_retry;
  arm(now);
}

Error Requester::go_back() {
  if (retries_ == 0) return WEFT_ERR_RETRY_EXCEEDED;
  --retries_;
  next_ = una_;
  cursor_ = 0;
  unasked_ = 0;
  window_ = std::max(window_ / 2, kWindowMin);
  return WEFT_ERR_OK;
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
  arm(now);
  return go_back();
}

Error Requester::timer(std::uint64_t now) {
  if (now < deadline_) return WEFT_ERR_OK;
  deadline_ = kNever;
  if (waiting_) {
    waiting_ = false;
    arm(now);
    return WEFT_ERR_OK;
  }
  ++timeouts_;
  arm(now);
  return go_back();
}

void Requester::flush(Error first, Completions& done) {
  Error error = first;
  while (!queue_.empty()) {
    const Message message = queue_.front();
    queue_.pop_front();
    if (!message.forgotten) done.message_done(message, error);
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
  for (auto message = queue_.begin(); message != queue_.end();) {
    const bool started = message->first < high_;
    if (which(message->token)) {
      if (started) {
        message->forgotten = true;
        under_way = true;
      } else {
        if (!renumber) first = message->first;
        renumber = true;
        message = queue_.erase(message);
        continue;
      }
    } else if (renumber) {
      message->first = first;
    }
    if (renumber) first = message->first + message->packets;
    ++message;
  }
  if (renumber) tail_ = first;
  return under_way;
}

}  // namespace weft::model::nic
