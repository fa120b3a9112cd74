// SPDX-License-Identifier: MIT
// weft-lifetimes serve | ask WORDS... | help. Exit codes of ask: 0 done, 1 refused, 3 nobody answers.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>

#include "owner.hpp"

namespace {

constexpr const char* kSocket = "/tmp/weft-lifetimes.sock";

sockaddr_un where() {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, kSocket, sizeof(at.sun_path) - 1);
  return at;
}

std::string read_all(int fd) {
  std::string out;
  char piece[1024];
  for (ssize_t n; (n = read(fd, piece, sizeof(piece))) > 0;) out.append(piece, static_cast<std::size_t>(n));
  return out;
}

void answer(int fd, const std::string& text) {
  if (write(fd, text.data(), text.size()) < 0) std::perror("weft-lifetimes: answer");
}

int serve() {
  unlink(kSocket);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un at = where();
  std::optional<lifetimes::Owner> owner(std::in_place);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0 || listen(listener, 4) != 0) {
    std::perror(kSocket);
    return 1;
  }
  for (; !owner->finished(); owner->progress()) {
    pollfd ready{listener, POLLIN, 0};
    if (poll(&ready, 1, 10) <= 0) continue;
    const int client = accept(listener, nullptr, nullptr);
    if (client < 0) continue;
    std::string said;
    try {
      said = "+" + owner->serve(read_all(client));
      if (owner->finished()) owner.reset();  // answered when all is given back
    } catch (const std::exception& e) {
      said = std::string("-") + e.what();
    }
    answer(client, said);
    close(client);
    if (!owner) break;
  }
  unlink(kSocket);
  return 0;
}

int ask(int count, char** words) {
  std::string line;
  for (int i = 0; i < count; ++i) line += (i != 0 ? " " : "") + std::string(words[i]);
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un at = where();
  if (connect(server, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) != 0) {
    std::perror(kSocket);
    return 3;
  }
  answer(server, line);
  shutdown(server, SHUT_WR);
  const std::string said = read_all(server);
  close(server);
  if (said.empty()) {
    std::fprintf(stderr, "weft-lifetimes: it ended while it was asked\n");
    return 3;
  }
  std::fprintf(said[0] == '+' ? stdout : stderr, "%s\n", said.c_str() + 1);
  return said[0] == '+' ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  try {
    if (verb == "serve") return serve();
    if (verb == "ask" && argc > 2) return ask(argc - 2, argv + 2);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "weft-lifetimes: %s\n", e.what());
    return 1;
  }
  const bool asked = verb == "help" || verb == "--help";
  std::fprintf(asked ? stdout : stderr, "usage: weft-lifetimes serve | ask COMMAND...\n%s", lifetimes::kCommands);
  return asked ? 0 : 2;
}
