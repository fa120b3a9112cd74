// SPDX-License-Identifier: MIT
#include "control.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "interrupt.hpp"

namespace weft::doctor {
namespace {

constexpr std::size_t kMostBytes = 4u << 20;  // of a message
constexpr std::chrono::milliseconds kRetry{200};

struct Resolved {
  addrinfo* list = nullptr;
  ~Resolved() {
    if (list) freeaddrinfo(list);
  }
};

void resolve(const std::string& address, int flags, Resolved& out) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) throw std::runtime_error(address + " is not address:port");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  if (const int error = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &out.list))
    throw std::runtime_error(address + ": " + gai_strerror(error));
}

// Ready for `events`; false at the deadline.
bool ready(int fd, short events, Deadline deadline) {
  for (;;) {
    if (tools::interrupted()) throw tools::Interrupted();
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd item{fd, events, 0};
    // Not longer than this at once: a signal may come between the look at it and the call.
    const int n = poll(&item, 1, static_cast<int>(std::min<long long>(left.count(), 500)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) throw Gone(std::strerror(errno));
  }
}

void set_up(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

Line::~Line() { ::close(fd_); }

void Line::say(const std::string& text, Deadline deadline) {
  std::string left = text + '\n';
  while (!left.empty()) {
    if (!ready(fd_, POLLOUT, deadline)) throw Gone("takes no message");
    const ssize_t n = ::send(fd_, left.data(), left.size(), MSG_NOSIGNAL);
    if (n > 0) {
      left.erase(0, static_cast<std::size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      throw Gone(std::strerror(errno));
    }
  }
}

std::string Line::hear(Deadline deadline) {
  for (;;) {
    const std::size_t end = rest_.find('\n');
    if (end != std::string::npos) {
      std::string line = rest_.substr(0, end);
      rest_.erase(0, end + 1);
      return line;
    }
    if (rest_.size() > kMostBytes) throw Gone("sends what is no message");
    if (!ready(fd_, POLLIN, deadline)) throw Gone("is silent");
    char piece[16384];
    const ssize_t n = ::recv(fd_, piece, sizeof piece, 0);
    if (n > 0) {
      rest_.append(piece, static_cast<std::size_t>(n));
    } else if (n == 0) {
      throw Gone("left");
    } else if (errno != EAGAIN && errno != EINTR) {
      throw Gone(std::strerror(errno));
    }
  }
}

Lobby::Lobby(const std::string& address) {
  Resolved found;
  resolve(address, AI_PASSIVE, found);
  std::string why = "no address";
  for (const addrinfo* at = found.list; at && fd_ < 0; at = at->ai_next) {
    fd_ = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    const int on = 1;
    if (fd_ >= 0) setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd_ >= 0 && ::bind(fd_, at->ai_addr, at->ai_addrlen) == 0 && ::listen(fd_, SOMAXCONN) == 0) break;
    why = std::strerror(errno);
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  if (fd_ < 0) throw std::runtime_error("cannot listen at " + address + ": " + why);
  set_up(fd_);
}

Lobby::~Lobby() {
  if (fd_ >= 0) ::close(fd_);
}

std::unique_ptr<Line> Lobby::next(Deadline deadline) {
  while (ready(fd_, POLLIN, deadline)) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    set_up(fd);
    return std::make_unique<Line>(fd);
  }
  return nullptr;
}

std::unique_ptr<Line> call(const std::string& address, Deadline deadline) {
  Resolved found;
  resolve(address, 0, found);
  std::string why = "no address";
  for (;;) {
    for (const addrinfo* at = found.list; at; at = at->ai_next) {
      const int fd = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
      if (fd < 0) continue;
      auto line = std::make_unique<Line>(fd);
      set_up(fd);
      if (::connect(fd, at->ai_addr, at->ai_addrlen) == 0) return line;
      int error = errno;
      if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        const Deadline soon = std::min(deadline, std::chrono::steady_clock::now() + std::chrono::seconds(2));
        if (!ready(fd, POLLOUT, soon)) {
          error = ETIMEDOUT;
        } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0) {
          return line;
        }
      }
      why = std::strerror(error);
    }
    if (std::chrono::steady_clock::now() + kRetry >= deadline)
      throw std::runtime_error("rank 0 does not answer at " + address + ": " + why);
    if (tools::interrupted()) throw tools::Interrupted();
    std::this_thread::sleep_for(kRetry);
  }
}

}  // namespace weft::doctor
