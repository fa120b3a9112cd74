// SPDX-License-Identifier: MIT
// How the doctor's own processes talk: a TCP connection from each rank to rank 0, a line of text a message. It goes
// beside wccl, so that the walk goes on where no communicator comes to be.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace weft::doctor {

using Deadline = std::chrono::steady_clock::time_point;

// The other end left, said nothing in time, or said something that is no message.
struct Gone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // Throw Gone, or tools::Interrupted.
  void say(const std::string& text, Deadline deadline);
  std::string hear(Deadline deadline);

 private:
  int fd_;
  std::string rest_;  // heard after the last line
};

// Rank 0's end.
class Lobby {
 public:
  // Listens at "host:port" or "[v6]:port". Throws std::runtime_error.
  explicit Lobby(const std::string& address);
  ~Lobby();
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;
  // The next one that comes; null at the deadline.
  std::unique_ptr<Line> next(Deadline deadline);

 private:
  int fd_ = -1;
};

// Another rank's end: tries until the deadline. Throws std::runtime_error.
std::unique_ptr<Line> call(const std::string& address, Deadline deadline);

}  // namespace weft::doctor
