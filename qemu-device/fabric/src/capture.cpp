// SPDX-License-Identifier: MIT
#include "weft/fabric/capture.hpp"

#include <cerrno>
#include <system_error>

namespace weft::fabric {
namespace {

// Block types and options of the pcapng draft, sections 4.1 to 4.3.
constexpr std::uint32_t kSectionHeader = 0x0A0D0D0A;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint16_t kOptionEnd = 0;
constexpr std::uint16_t kOptionComment = 1;
constexpr std::uint16_t kInterfaceName = 2;
constexpr std::uint16_t kInterfaceResolution = 9;
constexpr std::uint16_t kPacketFlags = 2;
constexpr std::uint32_t kInbound = 1;
constexpr std::uint16_t kEthernet = 1;

constexpr std::byte kZeros[4] = {};

template <typename T>
void put(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

std::size_t padding(std::size_t bytes) { return -bytes & 3; }

void option(std::vector<std::byte>& out, std::uint16_t code, std::span<const std::byte> value) {
  put(out, code);
  put(out, static_cast<std::uint16_t>(value.size()));
  out.insert(out.end(), value.begin(), value.end());
  out.insert(out.end(), padding(value.size()), std::byte{});
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

Capture::Capture(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
  if (!file_) throw std::system_error(errno, std::generic_category(), "cannot write capture " + path);
  std::vector<std::byte> body;
  put(body, std::uint32_t{0x1A2B3C4D});  // byte order
  put(body, std::uint16_t{1});           // version 1.0
  put(body, std::uint16_t{0});
  put(body, ~std::uint64_t{0});  // section length not known
  const Segment segment(body);
  block(kSectionHeader, {&segment, 1});
}

Capture::~Capture() = default;

unsigned Capture::interface(std::string_view name) {
  std::vector<std::byte> body;
  put(body, kEthernet);
  put(body, std::uint16_t{0});
  put(body, static_cast<std::uint32_t>(kFrameMax));
  option(body, kInterfaceName, bytes_of(name));
  const std::byte nanoseconds{9};
  option(body, kInterfaceResolution, {&nanoseconds, 1});
  option(body, kOptionEnd, {});
  const Segment segment(body);
  block(kInterfaceDescription, {&segment, 1});
  return interfaces_++;
}

void Capture::frame(unsigned interface, std::uint64_t time_ns, std::span<const Segment> segments,
                    std::string_view comment) {
  std::uint32_t length = 0;
  for (const Segment& s : segments) length += static_cast<std::uint32_t>(s.size());
  std::vector<std::byte> head;
  put(head, std::uint32_t{interface});
  put(head, static_cast<std::uint32_t>(time_ns >> 32));
  put(head, static_cast<std::uint32_t>(time_ns));
  put(head, length);
  put(head, length);
  std::vector<std::byte> tail(padding(length));
  const std::uint32_t inbound = kInbound;
  option(tail, kPacketFlags, std::as_bytes(std::span(&inbound, 1)));
  if (!comment.empty()) option(tail, kOptionComment, bytes_of(comment));
  option(tail, kOptionEnd, {});
  std::vector<Segment> body;
  body.reserve(segments.size() + 2);
  body.emplace_back(head);
  body.insert(body.end(), segments.begin(), segments.end());
  body.emplace_back(tail);
  block(kEnhancedPacket, body);
}

void Capture::flush() { std::fflush(file_.get()); }

void Capture::block(std::uint32_t type, std::span<const Segment> body) {
  std::size_t length = 12;
  for (const Segment& s : body) length += s.size();
  const std::size_t pad = padding(length);
  const auto total = static_cast<std::uint32_t>(length + pad);
  std::fwrite(&type, sizeof type, 1, file_.get());
  std::fwrite(&total, sizeof total, 1, file_.get());
  for (const Segment& s : body) std::fwrite(s.data(), 1, s.size(), file_.get());
  std::fwrite(kZeros, 1, pad, file_.get());
  std::fwrite(&total, sizeof total, 1, file_.get());
}

}  // namespace weft::fabric
