// SPDX-License-Identifier: MIT
#include "server.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <iostream>
#include <sstream>
#include <system_error>

#include "netdev_link.hpp"
#include "weft/fabric/socket_link.hpp"

namespace weft::fabric {
namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kReordered{10};  // a frame that no other one passes goes on after this time
constexpr std::size_t kNetdevQueue = 1000;           // frames, as Linux' default txqueuelen

std::uint64_t wall_clock_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(now).count());
}

// A descriptor of our own for a link; Asio keeps the socket to wait on.
Fd duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw std::system_error(errno, std::generic_category(), "dup");
  return Fd(copy);
}

}  // namespace

// A link and the switch port behind it. The port is there while the link is up and known by name.
template <typename LinkType>
class Server::PortSession final : public Session,
                                  public std::enable_shared_from_this<Server::PortSession<LinkType>>,
                                  private LinkOwner {
 public:
  template <typename Make>
  PortSession(Server& server, Local::socket socket, std::string name, Make make)
      : server_(server),
        socket_(std::move(socket)),
        name_(std::move(name)),
        link_(make(duplicate(socket_.native_handle()), *this)) {
    if (!name_.empty()) join();
  }
  ~PortSession() override { close(); }

  void close() override {
    socket_.close();
    if (port_) server_.switch_.remove_port(*std::exchange(port_, nullptr));
  }

  void start() {
    wait_read();
    server_.settle();
  }
  void flush() override {
    link_->flush();
    wait_write();
  }
  bool open() const override { return link_->open(); }
  std::string name() const override { return name_; }
  void set_state(bool up) override { link_->set_state(up); }

 private:
  void join() {
    constexpr bool lossless = std::is_same_v<LinkType, SocketLink>;
    port_ = &server_.switch_.add_port({name_, lossless, lossless ? SIZE_MAX : kNetdevQueue, !lossless});
    port_->attach(*link_);
  }

  void wait_read() {
    socket_.async_wait(Local::socket::wait_read,
                       [self = this->shared_from_this()](const boost::system::error_code& error) {
                         if (error || !self->socket_.is_open()) return;
                         while (self->link_->open() && self->link_->readable()) self->server_.flush_all();
                         if (self->link_->open()) self->wait_read();
                         self->server_.settle();
                       });
  }
  void wait_write() {
    if (waiting_to_write_ || !link_->wants_write()) return;
    waiting_to_write_ = true;
    socket_.async_wait(Local::socket::wait_write,
                       [self = this->shared_from_this()](const boost::system::error_code& error) {
                         if (error || !self->socket_.is_open()) return;
                         self->waiting_to_write_ = false;
                         self->link_->writable();
                         self->server_.settle();
                       });
  }

  void on_frame(unsigned cls, std::span<const std::byte> frame) override {
    if (port_) port_->on_frame(cls, frame);
  }
  void on_ready(unsigned cls) override {
    if (port_) port_->on_ready(cls);
  }
  void on_pause(unsigned cls, bool stop) override {
    if (port_) port_->on_pause(cls, stop);
  }
  void on_state(bool up) override {
    if constexpr (std::is_same_v<LinkType, SocketLink>) {
      if (up && !port_) {
        name_ = link_->peer_name();
        join();
      }
    }
    if (port_) port_->on_state(up);
  }

  Server& server_;
  Local::socket socket_;
  std::string name_;
  std::unique_ptr<LinkType> link_;
  Switch::Port* port_ = nullptr;
  bool waiting_to_write_ = false;
};

// One client of the control socket: lines in, lines out.
class Server::ControlSession : public std::enable_shared_from_this<ControlSession> {
 public:
  ControlSession(Server& server, Local::socket socket) : server_(server), socket_(std::move(socket)) {}

  void read() {
    asio::async_read_until(socket_, input_, '\n', [self = shared_from_this()](const auto& error, std::size_t) {
      if (error) return;
      std::string line;
      std::getline(std::istream(&self->input_), line);
      self->output_ = self->server_.command(line).dump() + "\n";
      self->server_.settle();
      asio::async_write(self->socket_, asio::buffer(self->output_), [self](const auto& failed, std::size_t) {
        if (!failed) self->read();
      });
    });
  }

 private:
  static constexpr std::size_t kLine = 4096;
  Server& server_;
  Local::socket socket_;
  asio::streambuf input_{kLine};
  std::string output_;
};

Server::Server(const ImpairmentPlan& plan)
    : switch_({.plan = plan, .capture = nullptr, .now_ns = wall_clock_ns, .addresses = 8192}) {}

Server::~Server() {
  for (auto& session : sessions_) session->close();
  sessions_.clear();
  for (const std::string& file : files_) ::unlink(file.c_str());
}

void Server::listen_weft(const std::string& path) {
  listen(path, [this](Local::socket socket) {
    auto session =
        std::make_shared<PortSession<SocketLink>>(*this, std::move(socket), std::string(), [](Fd fd, LinkOwner& owner) {
          return std::make_unique<SocketLink>(std::move(fd), owner, SocketLink::Options{.name = "switch"});
        });
    sessions_.push_back(session);
    session->start();
  });
}

void Server::listen_net(const std::string& path) {
  listen(path, [this](Local::socket socket) {
    auto session = std::make_shared<PortSession<NetdevLink>>(
        *this, std::move(socket), "net" + std::to_string(netdevs_++),
        [](Fd fd, LinkOwner& owner) { return std::make_unique<NetdevLink>(std::move(fd), owner); });
    sessions_.push_back(session);
    session->start();
  });
}

void Server::listen_control(const std::string& path) {
  listen(path, [this](Local::socket socket) { std::make_shared<ControlSession>(*this, std::move(socket))->read(); });
}

void Server::listen(const std::string& path, std::function<void(Local::socket)> accepted) {
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    throw std::system_error(ENAMETOOLONG, std::generic_category(), "socket " + path);
  boost::system::error_code error;
  Local::socket probe(io_);
  probe.connect(Local::endpoint(path), error);
  if (!error) throw std::system_error(EADDRINUSE, std::generic_category(), "socket " + path);
  if (error == boost::system::errc::connection_refused) ::unlink(path.c_str());  // left by one that was killed
  Local::acceptor& acceptor = acceptors_.emplace_back(io_);
  acceptor.open();
  acceptor.bind(Local::endpoint(path), error);
  if (error) throw std::system_error(error.value(), std::generic_category(), "socket " + path);
  files_.push_back(path);
  acceptor.listen();
  accept(acceptor, std::move(accepted));
}

void Server::accept(Local::acceptor& acceptor, std::function<void(Local::socket)> accepted) {
  acceptor.async_accept([this, &acceptor, accepted = std::move(accepted)](const auto& error, Local::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error)
      std::cerr << "weft-fabric: accept: " << error.message() << "\n";
    else
      accepted(std::move(socket));
    accept(acceptor, accepted);
  });
}

void Server::flush_all() {
  for (auto& session : sessions_) session->flush();
}

void Server::expect_reordered() {
  if (late_runs_ || !switch_.holds_reordered()) return;
  late_runs_ = true;
  late_.expires_after(kReordered);
  late_.async_wait([this](const auto&) {
    late_runs_ = false;
    switch_.release_reordered();
    settle();
  });
}

void Server::settle() {
  flush_all();
  expect_reordered();
  // Not from inside a session's own handler.
  asio::post(io_, [this] {
    const auto removed = sessions_.remove_if([](const auto& session) {
      if (session->open()) return false;
      session->close();
      return true;
    });
    if (removed > 0) flush_all();  // the others were told whose stations are gone
  });
}

void Server::start_capture(const std::string& path) {
  auto capture = std::make_unique<Capture>(path);
  switch_.set_capture(capture.get());
  capture_ = std::move(capture);
}

void Server::stop_capture() {
  switch_.set_capture(nullptr);
  capture_.reset();
}

void Server::run() {
  asio::signal_set signals(io_, SIGINT, SIGTERM);
  signals.async_wait([this](const auto&, int) { io_.stop(); });
  io_.run();
  stop_capture();
}

nlohmann::json Server::stats() const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Switch::Port* port : switch_.ports()) {
    const PortCounters& c = port->counters();
    rows.push_back({{"port", port->name()},
                    {"rx_frames", c.rx_frames},
                    {"rx_bytes", c.rx_bytes},
                    {"tx_frames", c.tx_frames},
                    {"tx_bytes", c.tx_bytes},
                    {"flooded", c.flooded},
                    {"waited", c.waited},
                    {"waiting", port->waiting()},
                    {"dropped_queue", c.dropped_queue},
                    {"dropped_down", c.dropped_down},
                    {"dropped_short", c.dropped_short},
                    {"dropped_source", c.dropped_source},
                    {"unreachable", c.unreachable},
                    {"lost", c.lost},
                    {"duplicated", c.duplicated},
                    {"reordered", c.reordered},
                    {"corrupted", c.corrupted}});
  }
  return rows;
}

nlohmann::json Server::command(const std::string& line) try {
  std::istringstream words(line);
  std::string verb, what;
  words >> verb >> what;
  const auto refuse = [](const std::string& why) { return nlohmann::json{{"ok", false}, {"error", why}}; };
  if (verb == "stats") return {{"ok", true}, {"rows", stats()}};
  if (verb == "capture" && what == "start") {
    std::string path;
    std::getline(words >> std::ws, path);
    if (path.empty()) return refuse("capture start FILE");
    start_capture(path);
    return {{"ok", true}};
  }
  if (verb == "capture" && what == "stop") {
    stop_capture();
    return {{"ok", true}};
  }
  if (verb == "plan") {
    ImpairmentPlan plan;
    for (std::string pair = what; !pair.empty(); pair = (words >> pair) ? pair : "") {
      const std::size_t equals = pair.find('=');
      if (equals == std::string::npos) return refuse("plan takes NAME=VALUE, not " + pair);
      const std::string name = pair.substr(0, equals), value = pair.substr(equals + 1);
      double* const probability = name == "loss"        ? &plan.loss
                                  : name == "duplicate" ? &plan.duplicate
                                  : name == "corrupt"   ? &plan.corrupt
                                  : name == "reorder"   ? &plan.reorder
                                                        : nullptr;
      if (name == "seed") {
        plan.seed = std::stoull(value);
      } else if (!probability) {
        return refuse("plan has no " + name);
      } else if (*probability = std::stod(value); !(*probability >= 0 && *probability <= 1)) {
        return refuse(name + " is a probability, 0 to 1");
      }
    }
    switch_.set_plan(plan);
    return {{"ok", true}};
  }
  if (verb == "link") {
    std::string state;
    words >> state;
    if (state != "up" && state != "down") return refuse("link NAME up|down");
    for (auto& session : sessions_) {
      if (session->name() != what) continue;
      session->set_state(state == "up");
      session->flush();  // the others are told of its stations: settle() flushes them
      return {{"ok", true}};
    }
    return refuse("no port " + what);
  }
  return refuse("commands: stats, capture start FILE, capture stop, plan NAME=VALUE..., link NAME up|down");
} catch (const std::exception& error) {
  return {{"ok", false}, {"error", error.what()}};
}

}  // namespace weft::fabric
