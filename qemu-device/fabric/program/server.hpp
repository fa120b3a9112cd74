// SPDX-License-Identifier: MIT
// The switch with its sockets: accelerator ports, QEMU netdevs, and a control socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "weft/fabric/switch.hpp"

namespace weft::fabric {

// One connected port.
class Session {
 public:
  virtual ~Session() = default;
  virtual void flush() = 0;
  virtual bool open() const = 0;
  virtual std::string name() const = 0;  // empty until the peer said HELLO
  virtual void set_state(bool up) = 0;
  virtual void close() = 0;  // ends what it waits for, and with that its last owner
};

class Server {
 public:
  explicit Server(const ImpairmentPlan& plan);
  ~Server();

  // Listen on UNIX stream sockets; an old socket file that nobody serves is replaced. Throws std::system_error.
  void listen_weft(const std::string& path);
  void listen_net(const std::string& path);
  void listen_control(const std::string& path);

  void start_capture(const std::string& path);
  void stop_capture();
  // Until stop(), SIGINT or SIGTERM. Removes the socket files.
  void run();

  // A line of the control socket; answers one line. Commands: stats | capture start FILE | capture stop |
  // plan [loss=P] [duplicate=P] [corrupt=P] [reorder=P] [seed=N] | link NAME up|down
  nlohmann::json command(const std::string& line);

 private:
  using Local = boost::asio::local::stream_protocol;

  template <typename LinkType>
  class PortSession;
  class ControlSession;

  void listen(const std::string& path, std::function<void(Local::socket)> accepted);
  void accept(Local::acceptor& acceptor, std::function<void(Local::socket)> accepted);
  void flush_all();
  void settle();  // after each event: write what was queued, drop what was closed
  void expect_reordered();
  nlohmann::json stats() const;

  boost::asio::io_context io_;
  boost::asio::steady_timer late_{io_};  // runs while a reordered frame waits
  bool late_runs_ = false;
  std::unique_ptr<Capture> capture_;
  Switch switch_;
  std::list<std::shared_ptr<Session>> sessions_;
  std::list<Local::acceptor> acceptors_;
  std::vector<std::string> files_;
  unsigned netdevs_ = 0;
};

}  // namespace weft::fabric
