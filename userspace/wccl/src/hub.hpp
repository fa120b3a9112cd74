// SPDX-License-Identifier: MIT
// The hub of one communicator: gathers and spreads what ranks send, passes messages on, and tells all when one fails or
// goes.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous.hpp"
#include "wire.hpp"

namespace weft::ccl {

// Runs in a thread of its own, which sleeps but for messages; ends when all ranks have gone, or nobody came in time.
class Hub {
 public:
  // Listens at once. Throws boost::system::system_error.
  Hub(const boost::asio::ip::tcp::endpoint& address, const std::array<std::uint8_t, 16>& nonce,
      std::chrono::milliseconds timeout);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  std::uint16_t port() const { return port_; }
  bool ended() const { return ended_; }

 private:
  struct Session;
  void run();
  void accept();
  void read_head(const std::shared_ptr<Session>& session);
  void read_payload(const std::shared_ptr<Session>& session);
  void handle(const std::shared_ptr<Session>& session);
  void hello(const std::shared_ptr<Session>& session);
  void gather(const std::shared_ptr<Session>& session);
  void send(const std::shared_ptr<Session>& session, std::vector<std::byte> message);
  void write(const std::shared_ptr<Session>& session);
  void refuse(const std::shared_ptr<Session>& session, const std::string& text);
  void gone(const std::shared_ptr<Session>& session);
  void failed(std::uint32_t culprit, const std::string& text, const Session* except);
  void suspect(const std::shared_ptr<Session>& session);
  void arm();
  void time_out();
  void end_if_over();

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer grace_;
  const std::array<std::uint8_t, 16> nonce_;
  std::chrono::milliseconds timeout_;
  std::uint16_t port_ = 0;
  std::uint32_t ranks_ = 0;  // 0: nobody came yet
  std::uint32_t joined_ = 0, left_ = 0;
  bool complete_ = false;  // all have joined
  bool failed_ = false;    // one failure is told; what follows from it is not
  std::vector<std::shared_ptr<Session>> members_;
  std::set<std::shared_ptr<Session>> strangers_;  // connected, not yet known
  std::vector<Suspicion> suspicions_;
  std::uint32_t round_ = 0;
  std::map<std::uint32_t, Bytes> gathered_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace weft::ccl
