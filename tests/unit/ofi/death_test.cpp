// SPDX-License-Identifier: MIT
// A peer in another process that dies: whoever waits for it gets an error within the limit.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "endpoint.hpp"
#include "peer.hpp"

namespace weft::ofi::test {
namespace {

constexpr std::size_t kBytes = kPeerBytes;

pid_t start_peer(int card_fd) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(card_fd, 1);
  execl(WEFT_OFI_PEER_PROGRAM, "ofi_peer", WEFT_OFI_FILE, static_cast<char*>(nullptr));
  _exit(127);
}

class OfiDeath : public ::testing::TestWithParam<int> {};

TEST_P(OfiDeath, ErrorWithinLimit) {
  const int signal = GetParam();
  int card_pipe[2];
  ASSERT_EQ(pipe(card_pipe), 0);
  const pid_t pid = start_peer(card_pipe[1]);
  ASSERT_GT(pid, 0);
  close(card_pipe[1]);
  Card card{};
  const ssize_t got = read(card_pipe[0], &card, sizeof(card));
  if (got != static_cast<ssize_t>(sizeof(card))) kill(pid, SIGKILL);
  ASSERT_EQ(got, static_cast<ssize_t>(sizeof(card)));

  weft_ofi_open_args args = tcp_args();
  args.timeout_ms = 3000;
  Endpoint me(args);
  const std::uint32_t peer = me.insert({card.address, card.address + card.address_bytes});
  std::vector<unsigned char> memory(kBytes);
  weft_ofi_mr* mr = me.add(memory);
  weft_ofi_completion done{};
  ASSERT_EQ(api().write(me.ofi, peer, mr, 0, kBytes, card.memory, card.key, nullptr), 0);
  ASSERT_EQ(api().wait(me.ofi, &done, 1, 30000), 1);
  ASSERT_EQ(done.status, 0) << done.text;

  // In mid-transfer: some are under way when it dies, some are posted after.
  for (int i = 0; i < 8; ++i) ASSERT_EQ(api().write(me.ofi, peer, mr, 0, kBytes, card.memory, card.key, nullptr), 0);
  kill(pid, signal);
  int errors = 0, completions = 0, posted = 8;
  const auto begin = std::chrono::steady_clock::now();
  while (completions < posted && std::chrono::steady_clock::now() - begin < std::chrono::seconds(30)) {
    if (posted < 12 && api().read(me.ofi, peer, mr, 0, 4096, card.memory, card.key, nullptr) == 0) ++posted;
    if (api().wait(me.ofi, &done, 1, 100) != 1) continue;
    ++completions;
    if (done.status != 0) {
      ++errors;
      ASSERT_NE(done.text, nullptr);
      EXPECT_NE(std::string(done.text).find("peer"), std::string::npos) << done.text;
      if (errors == 1) std::printf("first error: %d, %s\n", done.status, done.text);
    }
  }
  EXPECT_EQ(completions, posted) << "every operation ends, one way or the other";
  EXPECT_GT(errors, 0);
  if (signal == SIGSTOP) {
    weft_ofi_counters counters{};
    counters.size = sizeof(counters);
    ASSERT_EQ(api().counters(me.ofi, &counters), 0);
    EXPECT_GT(counters.timeouts, 0u);
    EXPECT_EQ(api().deregister(mr), -EBUSY) << "a silent peer may still come back: the memory is in use until close";
  }
  kill(pid, SIGKILL);
  int status;
  waitpid(pid, &status, 0);
  close(card_pipe[0]);
}

// Killed: its kernel closes the connection. Stopped: nothing is ever heard of it again.
INSTANTIATE_TEST_SUITE_P(Peer, OfiDeath, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) { return info.param == SIGKILL ? "Killed" : "Silent"; });

TEST(OfiAbsence, NobodyAtTheAddress) {
  std::vector<unsigned char> address;
  {
    Endpoint gone(tcp_args());
    address = gone.address();
  }
  weft_ofi_open_args args = tcp_args();
  args.timeout_ms = 2000;
  Endpoint me(args);
  const std::uint32_t peer = me.insert(address);
  std::vector<unsigned char> memory(4096);
  weft_ofi_mr* mr = me.add(memory);
  weft_ofi_completion done{};
  ASSERT_EQ(api().write(me.ofi, peer, mr, 0, 4096, 0, 1, &done), 0);
  ASSERT_EQ(api().wait(me.ofi, &done, 1, 30000), 1);
  EXPECT_LT(done.status, 0);
  ASSERT_NE(done.text, nullptr);
  std::printf("%s\n", done.text);
}

}  // namespace
}  // namespace weft::ofi::test
