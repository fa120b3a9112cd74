// SPDX-License-Identifier: MIT
// Two endpoints in one process: every operation and size, with every byte compared. Over tcp; in a node with a host NIC
// also over WEFT_OFI_PROVIDER=efa-direct or efa.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "endpoint.hpp"

namespace weft::ofi::test {
namespace {

constexpr std::size_t kMost = 8u << 20;
constexpr std::size_t kGuard = 64;  // bytes around what is transferred, which must stay as they are

class Transfer : public ::testing::Test {
 protected:
  void SetUp() override {
    a_at_b = b.insert(a.address());
    b_at_a = a.insert(b.address());
    a_mr = a.add(a_memory);
    b_mr = b.add(b_memory);
    ASSERT_EQ(api().remote(b_mr, &b_address, &b_key), 0);
    ASSERT_EQ(api().remote(a_mr, &a_address, &a_key), 0);
  }

  Endpoint a, b;
  std::vector<unsigned char> a_memory = std::vector<unsigned char>(kMost + 2 * kGuard, 0x11);
  std::vector<unsigned char> b_memory = std::vector<unsigned char>(kMost + 2 * kGuard, 0x22);
  weft_ofi_mr *a_mr = nullptr, *b_mr = nullptr;
  std::uint32_t a_at_b = 0, b_at_a = 0;
  std::uint64_t a_address = 0, a_key = 0, b_address = 0, b_key = 0;
  int tag = 0;

  weft_ofi_info info() const {
    weft_ofi_info info{};
    info.size = sizeof(info);
    EXPECT_EQ(api().info(a.ofi, &info), 0);
    return info;
  }
};

class TransferSizes : public Transfer, public ::testing::WithParamInterface<std::size_t> {};

TEST_P(TransferSizes, Write) {
  const std::size_t n = GetParam();
  fill(a_memory, kGuard, n, 1);
  ASSERT_EQ(api().write(a.ofi, b_at_a, a_mr, kGuard, n, b_address + kGuard, b_key, &tag), 0) << api().error();
  std::vector<weft_ofi_completion> others;
  const weft_ofi_completion done = next(a, b, &others);
  ASSERT_EQ(done.status, 0) << done.text;
  EXPECT_EQ(done.op, std::uint32_t{WEFT_OFI_WRITE});
  EXPECT_EQ(done.context, &tag);
  EXPECT_EQ(done.bytes, n);
  EXPECT_EQ(done.peer, b_at_a);
  EXPECT_TRUE(holds(b_memory, kGuard, n, 1));
  EXPECT_EQ(b_memory[kGuard - 1], 0x22);
  EXPECT_EQ(b_memory[kGuard + n], 0x22);
  EXPECT_TRUE(others.empty());
}

TEST_P(TransferSizes, WriteImmediate) {
  const std::size_t n = GetParam();
  fill(a_memory, kGuard, n, 2);
  ASSERT_EQ(api().write_immediate(a.ofi, b_at_a, a_mr, kGuard, n, b_address + kGuard, b_key, 0xdeadbeef, &tag), 0)
      << api().error();
  std::vector<weft_ofi_completion> others;
  const weft_ofi_completion arrival = next(b, a, &others);
  ASSERT_EQ(arrival.status, 0) << arrival.text;
  EXPECT_EQ(arrival.op, std::uint32_t{WEFT_OFI_ARRIVAL});
  EXPECT_EQ(arrival.immediate, 0xdeadbeefu);
  EXPECT_EQ(arrival.bytes, n);
  EXPECT_EQ(arrival.context, nullptr);
  EXPECT_TRUE(holds(b_memory, kGuard, n, 2)) << "the arrival came before the data";
  const weft_ofi_completion done = others.empty() ? next(a, b) : others[0];
  EXPECT_EQ(done.op, std::uint32_t{WEFT_OFI_WRITE});
  EXPECT_EQ(done.status, 0);
}

TEST_P(TransferSizes, Read) {
  const std::size_t n = GetParam();
  fill(b_memory, kGuard, n, 3);
  ASSERT_EQ(api().read(a.ofi, b_at_a, a_mr, kGuard, n, b_address + kGuard, b_key, &tag), 0) << api().error();
  std::vector<weft_ofi_completion> others;
  const weft_ofi_completion done = next(a, b, &others);
  ASSERT_EQ(done.status, 0) << done.text;
  EXPECT_EQ(done.op, std::uint32_t{WEFT_OFI_READ});
  EXPECT_TRUE(holds(a_memory, kGuard, n, 3));
  EXPECT_EQ(a_memory[kGuard - 1], 0x11);
  EXPECT_EQ(a_memory[kGuard + n], 0x11);
}

TEST_P(TransferSizes, SendAndReceive) {
  const std::size_t n = GetParam();
  if (n > info().max_send) {
    EXPECT_EQ(api().send(a.ofi, b_at_a, a_mr, kGuard, n, &tag), -EMSGSIZE);
    GTEST_SKIP() << provider() << " sends messages up to " << info().max_send << " bytes";
  }
  fill(a_memory, kGuard, n, 4);
  int tag_b = 0;
  ASSERT_EQ(api().recv(b.ofi, WEFT_OFI_ANY, b_mr, kGuard, kMost, &tag_b), 0) << api().error();
  ASSERT_EQ(api().send(a.ofi, b_at_a, a_mr, kGuard, n, &tag), 0) << api().error();
  std::vector<weft_ofi_completion> others;
  const weft_ofi_completion got = next(b, a, &others);
  ASSERT_EQ(got.status, 0) << got.text;
  EXPECT_EQ(got.op, std::uint32_t{WEFT_OFI_RECV});
  EXPECT_EQ(got.context, &tag_b);
  EXPECT_EQ(got.bytes, n);
  EXPECT_TRUE(holds(b_memory, kGuard, n, 4));
  const weft_ofi_completion sent = others.empty() ? next(a, b) : others[0];
  EXPECT_EQ(sent.op, std::uint32_t{WEFT_OFI_SEND});
  EXPECT_EQ(sent.status, 0);
}

INSTANTIATE_TEST_SUITE_P(Bytes, TransferSizes,
                         ::testing::Values(0u, 1u, 63u, 64u, 4095u, 4096u, 65537u, 1u << 20, kMost),
                         ::testing::PrintToStringParamName());

TEST_F(Transfer, Info) {
  const weft_ofi_info info = this->info();
  EXPECT_EQ(info.provider, provider());
  EXPECT_GE(info.libfabric >> 16, 2u);
  EXPECT_EQ(info.cq_depth, info.tx_depth + info.rx_depth + info.arrivals);
  EXPECT_EQ(info.address_bytes, a.address().size());
  EXPECT_GE(info.max_rma, kMost);
  if (provider() == "tcp") {
    EXPECT_STREQ(info.domain, "lo");
    EXPECT_STREQ(info.bdf, "");
    EXPECT_EQ(info.flags, WEFT_OFI_VISIBLE);
  } else {
    EXPECT_EQ(std::string(info.bdf).size(), std::string("0000:00:00.0").size()) << info.bdf;
    EXPECT_EQ(info.flags, WEFT_OFI_DMABUF);
    std::printf("%s at %s: messages up to %llu bytes, RMA up to %llu, depths %u, %u, %u\n", info.domain, info.bdf,
                static_cast<unsigned long long>(info.max_send), static_cast<unsigned long long>(info.max_rma),
                info.tx_depth, info.rx_depth, info.arrivals);
  }
  // A caller of an older version of this struct.
  weft_ofi_info old{};
  old.size = offsetof(weft_ofi_info, max_rma);
  old.max_rma = 77;
  ASSERT_EQ(api().info(a.ofi, &old), 0);
  EXPECT_EQ(old.max_send, info.max_send);
  EXPECT_EQ(old.max_rma, 77u);
}

TEST_F(Transfer, FlushReadsBackOwnMemory) {
  ASSERT_EQ(api().flush(a.ofi, a_mr, a_memory.size() - 1, &tag), 0) << api().error();
  const weft_ofi_completion done = next(a, b);
  EXPECT_EQ(done.status, 0) << done.text;
  EXPECT_EQ(done.op, std::uint32_t{WEFT_OFI_FLUSH});
  EXPECT_EQ(done.context, &tag);
  EXPECT_EQ(api().flush(a.ofi, a_mr, a_memory.size(), &tag), -EINVAL);
}

TEST_F(Transfer, NoMoreInFlightThanCredits) {
  weft_ofi_open_args args = default_args();
  args.tx_depth = 8;
  args.rx_depth = 4;
  Endpoint small(args);
  const std::uint32_t peer = small.insert(b.address());
  std::vector<unsigned char> memory(4096, 5);
  weft_ofi_mr* mr = small.add(memory);
  // Nobody polls: nothing completes.
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(api().credits(small.ofi), 8 - i);
    ASSERT_EQ(api().write(small.ofi, peer, mr, 0, 4096, b_address, b_key, &tag), 0) << api().error();
  }
  EXPECT_EQ(api().credits(small.ofi), 0);
  EXPECT_EQ(api().write(small.ofi, peer, mr, 0, 4096, b_address, b_key, &tag), -EAGAIN);
  EXPECT_EQ(api().read(small.ofi, peer, mr, 0, 4096, b_address, b_key, &tag), -EAGAIN);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(api().recv(small.ofi, WEFT_OFI_ANY, mr, 0, 64, nullptr), 0);
  EXPECT_EQ(api().recv(small.ofi, WEFT_OFI_ANY, mr, 0, 64, nullptr), -EAGAIN);
  EXPECT_EQ(api().deregister(mr), -EBUSY);
  EXPECT_EQ(api().remove(small.ofi, peer), -EBUSY);

  std::vector<weft_ofi_completion> others;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(next(small, b, &others).status, 0);
    EXPECT_EQ(api().credits(small.ofi), i + 1);
  }
  weft_ofi_counters counters{};
  counters.size = sizeof(counters);
  ASSERT_EQ(api().counters(small.ofi, &counters), 0);
  EXPECT_EQ(counters.in_flight, 0u);
  EXPECT_EQ(counters.posted, 12u);
  EXPECT_EQ(counters.completed, 8u);
  EXPECT_EQ(counters.bytes_written, 8u * 4096);
  if (provider() == "tcp") {
    EXPECT_GT(counters.deferred, 0u) << "the first ones wait for the connection";
  }
  EXPECT_EQ(api().remove(small.ofi, peer), 0) << api().error();
}

// Many writes with immediates in flight at once: each arrives once, with its data.
TEST_F(Transfer, ManyImmediates) {
  constexpr std::uint32_t kWrites = 3000;
  constexpr std::size_t kBytes = 512;
  std::set<std::uint32_t> seen;
  std::uint32_t posted = 0, completed = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while ((completed < kWrites || seen.size() < kWrites) && std::chrono::steady_clock::now() < end) {
    while (posted < kWrites && posted < seen.size() + 64) {
      const std::size_t at = (posted % 64) * kBytes;
      fill(a_memory, at, kBytes, posted);
      const int error = api().write_immediate(a.ofi, b_at_a, a_mr, at, kBytes, b_address + at, b_key, posted, nullptr);
      if (error == -EAGAIN) break;
      ASSERT_EQ(error, 0) << api().error();
      ++posted;
    }
    weft_ofi_completion batch[16];
    int got = api().poll(a.ofi, batch, 16);
    for (int i = 0; i < got; ++i) {
      ASSERT_EQ(batch[i].status, 0) << batch[i].text;
      ++completed;
    }
    got = api().poll(b.ofi, batch, 16);
    for (int i = 0; i < got; ++i) {
      ASSERT_EQ(batch[i].op, std::uint32_t{WEFT_OFI_ARRIVAL});
      ASSERT_TRUE(seen.insert(batch[i].immediate).second) << "twice";
      ASSERT_TRUE(holds(b_memory, (batch[i].immediate % 64) * kBytes, kBytes, batch[i].immediate));
    }
  }
  EXPECT_EQ(completed, kWrites);
  EXPECT_EQ(seen.size(), kWrites);
}

TEST_F(Transfer, RejectsWhatIsOutOfBounds) {
  const std::size_t size = a_memory.size();
  EXPECT_EQ(api().write(a.ofi, b_at_a, a_mr, size, 1, b_address, b_key, nullptr), -EINVAL);
  EXPECT_EQ(api().write(a.ofi, b_at_a, a_mr, 1, size, b_address, b_key, nullptr), -EINVAL);
  EXPECT_EQ(api().write(a.ofi, b_at_a, a_mr, UINT64_MAX, 2, b_address, b_key, nullptr), -EINVAL);
  EXPECT_EQ(api().write(a.ofi, 99, a_mr, 0, 1, b_address, b_key, nullptr), -EINVAL);
  EXPECT_EQ(api().write(a.ofi, WEFT_OFI_ANY, a_mr, 0, 1, b_address, b_key, nullptr), -EINVAL);
  EXPECT_EQ(api().insert(a.ofi, "short", 5, &b_at_a), -EINVAL);
  EXPECT_EQ(api().credits(a.ofi), 128);
}

TEST_F(Transfer, ForeignKeyIsAnErrorAndNothingIsWritten) {
  ASSERT_EQ(api().write(a.ofi, b_at_a, a_mr, 0, 64, b_address, b_key + 1000, &tag), 0);
  std::vector<weft_ofi_completion> others;
  const weft_ofi_completion done = next(a, b, &others);
  EXPECT_LT(done.status, 0);
  EXPECT_NE(done.status, -ETIME);
  EXPECT_EQ(done.context, &tag);
  ASSERT_NE(done.text, nullptr);
  EXPECT_NE(std::string(done.text).find("write of 64 bytes to peer"), std::string::npos) << done.text;
  for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(b_memory[i], 0x22);
}

TEST_F(Transfer, LocalRegionsAreNotForPeers) {
  std::vector<unsigned char> memory(4096);
  weft_ofi_mr* mr = a.add(memory, WEFT_OFI_LOCAL);
  std::uint64_t address = 0, key = 0;
  EXPECT_EQ(api().remote(mr, &address, &key), -EINVAL);
  EXPECT_EQ(api().flush(a.ofi, mr, 0, nullptr), -EINVAL);
  EXPECT_EQ(api().deregister(mr), 0);
}

// A source buffer: its owner writes from it, and no peer gets at it, whatever key it tries.
TEST_F(Transfer, ASourceBufferIsClosedToPeers) {
  std::vector<unsigned char> source(4096, 0x33);
  weft_ofi_mr* mr = b.add(source, WEFT_OFI_LOCAL);
  std::vector<weft_ofi_completion> others;
  const std::uint64_t bases[] = {0, reinterpret_cast<std::uintptr_t>(source.data())};
  for (std::uint64_t key = b_key > 4 ? b_key - 4 : 0; key < b_key + 8; ++key) {
    if (key == b_key) continue;
    for (const std::uint64_t base : bases) {
      for (const bool write : {true, false}) {
        const auto call = write ? api().write : api().read;
        ASSERT_EQ(call(a.ofi, b_at_a, a_mr, 0, 64, base, key, &tag), 0) << api().error();
        const weft_ofi_completion done = next(a, b, &others);
        EXPECT_LT(done.status, 0) << (write ? "written" : "read") << " with key " << key;
        EXPECT_NE(done.status, -ETIME);
      }
    }
  }
  EXPECT_EQ(source, std::vector<unsigned char>(4096, 0x33));
  EXPECT_EQ(api().deregister(mr), 0);
}

// Whatever the wrapper opens, it closes: libfabric's objects hold descriptors.
TEST(Descriptors, AreAsManyAfterClose) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto cycle = [] {
    Endpoint one, other;
    std::vector<unsigned char> memory(4096);
    one.add(memory);
    one.insert(other.address());
  };
  cycle();  // what libfabric keeps from the first time on
  const auto before = count();
  for (int i = 0; i < 10; ++i) cycle();
  EXPECT_EQ(count(), before);
}

TEST_F(Transfer, DmaBufs) {
  weft_ofi_mr* mr = nullptr;
  if (provider() == "tcp") {
    EXPECT_EQ(api().register_dmabuf(a.ofi, 0, 0, 4096, 1u << 20, 0, &mr), -EOPNOTSUPP);
    EXPECT_NE(std::string(api().error()).find("CPU"), std::string::npos) << api().error();
    return;
  }
  EXPECT_EQ(api().register_dmabuf(a.ofi, 0, 0, 4096, 0, 0, &mr), -EINVAL) << "address 0";
  EXPECT_EQ(api().register_dmabuf(a.ofi, 0, 0, 4096, 0x100010, 0, &mr), -EINVAL) << "another offset in the page";
  EXPECT_EQ(api().register_dmabuf(a.ofi, 0, 8192, 4096, 4096, 0, &mr), -EINVAL) << "it would begin below 0";
  EXPECT_EQ(api().register_dmabuf(a.ofi, 0, UINT64_MAX, 4096, 1u << 20, 0, &mr), -EINVAL);
  EXPECT_LT(api().register_dmabuf(a.ofi, 0, 0, 4096, 1u << 20, 0, &mr), 0) << "standard input is no DMA-BUF";
  EXPECT_EQ(mr, nullptr);
}

}  // namespace
}  // namespace weft::ofi::test
