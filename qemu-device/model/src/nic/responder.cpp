// SPDX-License-Identifier: MIT
#include "responder.hpp"

#include "psn.hpp"
#include "requester.hpp"

namespace weft::model::nic {
namespace {

// IBTA volume 1, table 57: a region that does not grant the access is the requester's fault, unreachable memory is
// ours.
std::uint8_t syndrome_of(Error error) { return error == WEFT_ERR_DMA ? kNakOperation : kNakAccess; }

}  // namespace

void Responder::start(const Settings& settings, std::uint32_t psn) {
  *this = Responder();
  settings_ = settings;
  expected_ = psn;
}

Responder::Outcome Responder::refuse(std::uint8_t syndrome, Error error) {
  due_ = Due::kNak;
  syndrome_ = syndrome;
  return {Event::kRefused, error};
}

Responder::Answer Responder::answer() const {
  // An ACK names the last packet received in order; a NAK the packet that it is about, which is the expected one.
  if (due_ == Due::kNak) return {syndrome_, expected_, msn_};
  return {kAckUnlimited, psn_add(expected_, kPsnMask), msn_};
}

Responder::Outcome Responder::request(const Packet& packet, Memory& memory, Arrivals& arrivals) {
  const std::int32_t ahead = psn_diff(packet.bth.psn, expected_);
  if (ahead > 0) {
    if (!gap_) {
      gap_ = true;
      due_ = Due::kNak;
      syndrome_ = kNakSequence;
    }
    return {Event::kOutOfOrder, WEFT_ERR_OK};
  }
  if (ahead < 0) {
    // A WRITE was executed already: acknowledge again what is complete. A NAK that is due says the same and more.
    if (due_ == Due::kNothing) due_ = Due::kAck;
    return {Event::kDuplicate, WEFT_ERR_OK};
  }
  gap_ = false;
  // The gap closed before its NAK left.
  if (due_ == Due::kNak) due_ = Due::kAck;

  // Only WRITE has a target without a receive queue, which a channel does not have.
  if (packet.info.verb != Verb::kWrite) return refuse(kNakInvalid, WEFT_ERR_BAD_OP);
  if ((settings_.access & WEFT_RIGHT_REMOTE_WRITE) == 0) return refuse(kNakInvalid, WEFT_ERR_BAD_RIGHTS);
  const Outcome outcome = write(packet, memory, arrivals);
  if (outcome.event != Event::kAccepted) return outcome;
  expected_ = psn_add(expected_, 1);
  if (packet.bth.ack_request) due_ = Due::kAck;
  return outcome;
}

Responder::Outcome Responder::write(const Packet& packet, Memory& memory, Arrivals& arrivals) {
  const Part part = packet.info.part;
  const bool starts = part == Part::kFirst || part == Part::kOnly;
  const bool ends = part == Part::kLast || part == Part::kOnly;
  const std::size_t bytes = packet.payload.size();
  const Access who{settings_.context, WEFT_RIGHT_REMOTE_WRITE, settings_.pd};

  // Order of opcodes and length of packets: IBTA volume 1, sections 9.7.4.1.2 and 9.7.4.1.7.
  if (starts == in_message_) return refuse(kNakInvalid, WEFT_ERR_BAD_OP);
  if (ends ? bytes > settings_.mtu : bytes != settings_.mtu) return refuse(kNakInvalid, WEFT_ERR_BAD_FIELD);
  if (part == Part::kLast && bytes == 0) return refuse(kNakInvalid, WEFT_ERR_BAD_FIELD);
  if (starts) {
    if (packet.ext.length > kMessageMax) return refuse(kNakInvalid, WEFT_ERR_BAD_FIELD);
    key_ = packet.ext.key;
    address_ = packet.ext.address;
    length_ = packet.ext.length;
    received_ = 0;
  }
  if (ends ? received_ + bytes != length_ : received_ + bytes >= length_)
    return refuse(kNakInvalid, WEFT_ERR_BAD_FIELD);
  // The whole range before its first byte; a length of 0 names no memory (C9-88).
  if (starts && length_ != 0) {
    if (const Error error = memory.check(who, {key_, address_, length_}); error != WEFT_ERR_OK) {
      return refuse(syndrome_of(error), error);
    }
  }
  const bool immediate = (packet.info.headers & kImmediate) != 0;
  if (immediate) {
    if (const Error error = arrivals.immediate_check(packet.ext.immediate); error != WEFT_ERR_OK) {
      return refuse(kNakInvalid, error);
    }
  }
  if (bytes != 0) {
    const Error error = memory.write(who, {key_, address_ + received_, bytes}, packet.payload);
    if (error != WEFT_ERR_OK) return refuse(syndrome_of(error), error);
  }
  received_ += bytes;
  in_message_ = !ends;
  if (ends) {
    if (immediate) {
      if (const Error error = arrivals.immediate_arrived(packet.ext.immediate); error != WEFT_ERR_OK) {
        return refuse(kNakOperation, error);
      }
    }
    msn_ = psn_add(msn_, 1);
  }
  return {};
}

}  // namespace weft::model::nic
