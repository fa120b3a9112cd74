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
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "hub_wire.hpp"
#include "rendezvous.hpp"

namespace weft::ccl {

// Runs in a thread of its own, which sleeps but for messages and a beat a second; ends when all ranks have gone, or
// nobody came in time. It holds its address until then.
class Hub {
 public:
  // Listens at once. `me` says which ranks belong here: its nonce, and where that is all zero (an agreed address, which
  // others may use too) its job. Throws boost::system::system_error.
  Hub(const boost::asio::ip::tcp::endpoint& address, const wire::Hello& me, std::chrono::milliseconds timeout);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  std::uint16_t port() const { return port_; }
  bool ended() const { return ended_; }
  // Ranks are connected.
  bool busy() const { return busy_ && !ended_; }

 private:
  struct Session;
  using SessionPtr = std::shared_ptr<Session>;
  void accept();
  void handle(const SessionPtr& session);
  void hello(const SessionPtr& session);
  void conflict(const SessionPtr& session, std::uint32_t rank, const std::string& text);
  void gather(const SessionPtr& session);
  void refuse(const SessionPtr& session, const std::string& text);
  void gone(const SessionPtr& session, const boost::system::error_code& error);
  void failed(std::uint32_t culprit, const std::string& text, const Session* except);
  void suspect(const SessionPtr& session);
  void arm();
  void beat();
  void time_out();
  void end_if_over();

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer timer_, grace_, beat_;
  const wire::Hello me_;
  const bool agreed_;  // the address is agreed on: the nonce tells nothing
  const Clock::time_point opened_;
  std::chrono::milliseconds timeout_;
  std::uint16_t port_ = 0;
  std::uint32_t ranks_ = 0;     // 0: nobody came yet
  std::uint32_t own_rank_ = 0;  // 1 + the first rank that is in this process; 0: none
  std::uint32_t joined_ = 0, left_ = 0;
  bool ending_ = false;   // somebody has left in good order
  bool failed_ = false;   // one failure is told; what follows from it is not
  std::string conflict_;  // why everybody is refused from now on
  std::vector<SessionPtr> members_;
  std::set<SessionPtr> strangers_;  // connected, not yet known
  std::vector<Suspicion> suspicions_;
  std::uint32_t round_ = 0;
  std::map<std::uint32_t, Bytes> gathered_;
  std::atomic<bool> ended_{false}, busy_{false};
  std::thread thread_;
};

}  // namespace weft::ccl
