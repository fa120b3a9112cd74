// SPDX-License-Identifier: MIT
#include "unreachable.hpp"

#include <algorithm>
#include <cstdint>

namespace weft::fabric {
namespace {

using Bytes = std::vector<std::byte>;
using View = std::span<const std::byte>;

constexpr std::size_t kEthernet = 14, kIp4 = 20, kIp6 = 40, kIcmp = 8;
constexpr std::size_t kQuoteTo4 = 576;   // size of the whole answer (RFC 1812 4.3.2.3)
constexpr std::size_t kQuoteTo6 = 1280;  // (RFC 4443 2.4 c)
constexpr unsigned kProtocolIcmp = 1, kProtocolTcp = 6, kProtocolUdp = 17, kProtocolIcmp6 = 58;

unsigned byte_at(View bytes, std::size_t at) { return std::to_integer<unsigned>(bytes[at]); }
unsigned word_at(View bytes, std::size_t at) { return byte_at(bytes, at) << 8 | byte_at(bytes, at + 1); }
void put_word(Bytes& bytes, std::size_t at, unsigned value) {
  bytes[at] = static_cast<std::byte>(value >> 8);
  bytes[at + 1] = static_cast<std::byte>(value);
}

// RFC 1071.
unsigned checksum(View bytes, std::uint32_t sum = 0) {
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) sum += word_at(bytes, i);
  if (bytes.size() % 2 != 0) sum += byte_at(bytes, bytes.size() - 1) << 8;
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return ~sum & 0xffff;
}

// Ethernet header back to the sender, `header` bytes for IP, ICMP's head and the quote.
Bytes start(View frame, std::size_t header, unsigned type, unsigned code, View quote) {
  Bytes answer(kEthernet + header + kIcmp);
  std::copy_n(frame.begin() + 6, 6, answer.begin());
  std::copy_n(frame.begin(), 6, answer.begin() + 6);
  std::copy_n(frame.begin() + 12, 2, answer.begin() + 12);
  answer[kEthernet + header] = static_cast<std::byte>(type);
  answer[kEthernet + header + 1] = static_cast<std::byte>(code);
  answer.insert(answer.end(), quote.begin(), quote.end());
  return answer;
}

Bytes answer4(View frame) {
  const View packet = frame.subspan(kEthernet);
  if (packet.size() < kIp4 || byte_at(packet, 0) >> 4 != 4) return {};
  const std::size_t header = (byte_at(packet, 0) & 15) * 4, total = word_at(packet, 2);
  if (header < kIp4 || total < header || total > packet.size()) return {};
  if (word_at(packet, 6) & 0x1fff) return {};  // not the first fragment
  // Sender and destination are single hosts: not 0/8, 127/8, multicast or above (RFC 1122 3.2.2).
  for (const std::size_t at : {12, 16}) {
    const unsigned net = byte_at(packet, at);
    if (net == 0 || net == 127 || net >= 224) return {};
  }
  if (byte_at(packet, 9) == kProtocolIcmp) {
    if (total <= header) return {};
    const unsigned type = byte_at(packet, header);
    if (type == 3 || type == 4 || type == 5 || type == 11 || type == 12) return {};  // no error about an error
  }
  const View quote = packet.first(std::min(total, kQuoteTo4 - kIp4 - kIcmp));
  Bytes answer = start(frame, kIp4, 3, 1, quote);
  answer[kEthernet] = std::byte{0x45};
  answer[kEthernet + 1] = std::byte{0xc0};  // precedence: internetwork control (RFC 1812 4.3.2.5)
  put_word(answer, kEthernet + 2, static_cast<unsigned>(answer.size() - kEthernet));
  answer[kEthernet + 8] = std::byte{64};
  answer[kEthernet + 9] = static_cast<std::byte>(kProtocolIcmp);
  std::copy_n(packet.begin() + 16, 4, answer.begin() + kEthernet + 12);
  std::copy_n(packet.begin() + 12, 4, answer.begin() + kEthernet + 16);
  put_word(answer, kEthernet + 10, checksum(View(answer).subspan(kEthernet, kIp4)));
  put_word(answer, kEthernet + kIp4 + 2, checksum(View(answer).subspan(kEthernet + kIp4)));
  return answer;
}

Bytes answer6(View frame) {
  const View packet = frame.subspan(kEthernet);
  if (packet.size() < kIp6 || byte_at(packet, 0) >> 4 != 6) return {};
  const std::size_t total = kIp6 + word_at(packet, 4);
  if (total > packet.size() || total == kIp6) return {};
  const unsigned next = byte_at(packet, 6);
  const bool echo = next == kProtocolIcmp6 && (byte_at(packet, kIp6) == 128 || byte_at(packet, kIp6) == 129);
  if (next != kProtocolTcp && next != kProtocolUdp && !echo) return {};
  if (byte_at(packet, 8) == 0xff || byte_at(packet, 24) == 0xff) return {};  // multicast
  if (std::all_of(packet.begin() + 8, packet.begin() + 24, [](std::byte b) { return b == std::byte{}; })) return {};
  const View quote = packet.first(std::min(total, kQuoteTo6 - kIp6 - kIcmp));
  Bytes answer = start(frame, kIp6, 1, 3, quote);
  const unsigned length = static_cast<unsigned>(kIcmp + quote.size());
  answer[kEthernet] = std::byte{0x60};
  put_word(answer, kEthernet + 4, length);
  answer[kEthernet + 6] = static_cast<std::byte>(kProtocolIcmp6);
  answer[kEthernet + 7] = std::byte{64};
  std::copy_n(packet.begin() + 24, 16, answer.begin() + kEthernet + 8);
  std::copy_n(packet.begin() + 8, 16, answer.begin() + kEthernet + 24);
  // Addresses, then message, with length and next header of the pseudo-header (RFC 8200 8.1).
  put_word(answer, kEthernet + kIp6 + 2, checksum(View(answer).subspan(kEthernet + 8), length + kProtocolIcmp6));
  return answer;
}

}  // namespace

std::vector<std::byte> host_unreachable(std::span<const std::byte> frame) {
  if (frame.size() < kEthernet || byte_at(frame, 0) & 1 || byte_at(frame, 6) & 1) return {};
  switch (word_at(frame, 12)) {
    case 0x0800:
      return answer4(frame);
    case 0x86dd:
      return answer6(frame);
    default:
      return {};
  }
}

}  // namespace weft::fabric
