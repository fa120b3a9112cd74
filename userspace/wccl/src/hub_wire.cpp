// SPDX-License-Identifier: MIT
#include "hub_wire.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <cstring>

namespace weft::ccl::wire {

namespace asio = boost::asio;

namespace {

// A neighbour that does not answer address resolution gives "host unreachable" too, but no earlier than after its entry
// has aged (15 s at least). What comes while the peer's TCP still answered lately was said by the network.
constexpr std::uint32_t kLatelyMs = 10'000;

bool unreachable(const boost::system::error_code& error) {
  return error.category() == boost::system::system_category() &&
         (error.value() == EHOSTUNREACH || error.value() == ENETUNREACH || error.value() == EHOSTDOWN);
}

}  // namespace

std::vector<std::byte> pack(Type type, std::uint32_t a, std::uint32_t b, std::span<const std::byte> payload) {
  Head head;
  head.type = type;
  head.length = static_cast<std::uint32_t>(payload.size());
  head.a = a;
  head.b = b;
  std::vector<std::byte> out(sizeof head + payload.size());
  std::memcpy(out.data(), &head, sizeof head);
  if (!payload.empty()) std::memcpy(out.data() + sizeof head, payload.data(), payload.size());
  return out;
}

std::string why_ended(const boost::system::error_code& error) {
  return unreachable(error) ? "its host is gone (" + error.message() + ')' : error.message();
}

Stream::Stream(asio::ip::tcp::socket socket) : socket_(std::move(socket)) {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  // Unreachable hosts end the connection at once, in place of the kernel's retries of a quarter of an hour.
  const int on = 1;
  (void)setsockopt(socket_.native_handle(), IPPROTO_IP, IP_RECVERR, &on, sizeof on);
  (void)setsockopt(socket_.native_handle(), IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on);
}

void Stream::start(std::function<void()> message, std::function<void(error_code)> end) {
  message_ = std::move(message);
  end_ = std::move(end);
  read();
}

bool Stream::is_gone(error_code error) {
  if (!unreachable(error)) return true;
  tcp_info info{};
  socklen_t bytes = sizeof info;
  return getsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
         info.tcpi_last_ack_recv < kLatelyMs;
}

void Stream::read() {
  std::byte* base = in_payload_ ? payload_.data() : reinterpret_cast<std::byte*>(&head_);
  const std::size_t size = in_payload_ ? payload_.size() : sizeof head_;
  const auto self = shared_from_this();
  asio::async_read(socket_, asio::buffer(base + have_, size - have_), [this, self](error_code error, std::size_t n) {
    if (!open_) return;
    have_ += n;
    if (error && !is_gone(error)) return read();
    if (error) return ended(error);
    have_ = 0;
    in_payload_ = !in_payload_;
    if (in_payload_) {
      if (head_.magic != kMagic || head_.version != kVersion || head_.length > payload_max_) {
        return ended(asio::error::invalid_argument);
      }
      payload_.resize(head_.length);
    } else {
      message_();
      if (!open_ || closing_) return;
    }
    read();
  });
}

void Stream::send(std::vector<std::byte> message) {
  if (!open_) return;
  out_.push_back(std::move(message));
  if (out_.size() == 1) write();
}

void Stream::write() {
  const auto self = shared_from_this();
  asio::async_write(socket_, asio::buffer(out_.front().data() + sent_, out_.front().size() - sent_),
                    [this, self](error_code error, std::size_t n) {
                      if (!open_) return;
                      sent_ += n;
                      if (error && !is_gone(error)) return write();
                      if (error) return ended(error);
                      sent_ = 0;
                      out_.pop_front();
                      if (!out_.empty()) return write();
                      if (closing_) ended(asio::error::eof);
                    });
}

void Stream::close_when_sent() {
  closing_ = true;
  if (out_.empty()) ended(asio::error::eof);
}

void Stream::ended(error_code error) {
  if (!open_) return;
  const auto self = shared_from_this();
  close();
  if (end_) end_(error);
}

void Stream::close() {
  open_ = false;
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
}

}  // namespace weft::ccl::wire
