// SPDX-License-Identifier: MIT
// HBM that the host NIC reads and writes by itself: never mapped here, seeded and looked at through the accelerator.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "endpoint.hpp"
#include "weft/mrcache.hpp"
#include "weft/weft.h"

namespace weft::ofi::test {
namespace {

constexpr std::size_t kMost = 32u << 20;

// As a transport does it: the object's DMA-BUF (the driver exports whole objects), then the NIC's region of the range,
// at the device's own address.
class HbmRegistrar : public mr::Registrar {
 public:
  HbmRegistrar(weft_device* device, weft_ofi* ofi) : device_(device), ofi_(ofi) {}
  int add(const mr::Object& object, mr::Range range, void** region) override {
    const weft_va va = object.id + range.offset;
    int fd = -1;
    if (int error = weft_mem_export_found(device_, object.id, object.generation, &fd)) return error;
    weft_ofi_mr* mr = nullptr;
    const int error = api().register_dmabuf(ofi_, fd, range.offset, range.bytes, va, 0, &mr);
    ::close(fd);
    *region = mr;
    return error;
  }
  void remove(void* region) override { EXPECT_EQ(api().deregister(static_cast<weft_ofi_mr*>(region)), 0); }

 private:
  weft_device* device_;
  weft_ofi* ofi_;
};

// The last NIC of the node: where there are two, all that the tests send passes the switch.
weft_ofi_open_args last_nic() {
  static weft_ofi_info info[8];
  for (weft_ofi_info& one : info) one.size = sizeof(one);
  weft_ofi_open_args args = default_args();
  const int count = api().list(args.provider, info, 8);
  EXPECT_GT(count, 0) << api().error();
  if (count > 0) args.domain = info[count - 1].domain;
  return args;
}

class Hbm : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(weft_device_open("kernel", &device), 0) << weft_last_error();
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(weft_mem_alloc(device, kMost, 0, &mem[i]), 0) << weft_last_error();
      registrars[i] = std::make_unique<HbmRegistrar>(device, ends[i].ofi);
      caches[i] = std::make_unique<mr::Cache>(*registrars[i]);
    }
    peer = ends[0].insert(ends[1].address());
    ends[1].insert(ends[0].address());
  }
  void TearDown() override {
    leases[0].end();
    leases[1].end();
    caches[0].reset();
    caches[1].reset();
    weft_mem_free(mem[0]);
    weft_mem_free(mem[1]);
    weft_device_close(device);
  }
  mr::Object object(int i) const { return {weft_mem_va(mem[i]), weft_mem_generation(mem[i]), weft_mem_bytes(mem[i])}; }
  weft_ofi_mr* region(int i) {
    EXPECT_EQ(caches[i]->acquire(object(i), {0, kMost}, &leases[i]), 0) << api().error() << weft_last_error();
    return static_cast<weft_ofi_mr*>(leases[i].region());
  }
  void seed(int i, std::size_t bytes, unsigned seed) {
    std::vector<unsigned char> host(bytes);
    fill(host, 0, bytes, seed);
    ASSERT_EQ(weft_write(device, weft_mem_va(mem[i]), host.data(), bytes), 0) << weft_last_error();
  }
  ::testing::AssertionResult hbm_holds(int i, std::size_t bytes, unsigned seed) {
    std::vector<unsigned char> host(bytes);
    if (weft_read(device, host.data(), weft_mem_va(mem[i]), bytes) != 0)
      return ::testing::AssertionFailure() << weft_last_error();
    return holds(host, 0, bytes, seed);
  }

  weft_device* device = nullptr;
  weft_mem* mem[2] = {};
  Endpoint ends[2] = {Endpoint(), Endpoint(last_nic())};
  std::unique_ptr<HbmRegistrar> registrars[2];
  std::unique_ptr<mr::Cache> caches[2];
  mr::Cache::Lease leases[2];
  std::uint32_t peer = 0;
};

TEST_F(Hbm, WriteReadImmediateFlush) {
  weft_ofi_mr *from = region(0), *to = region(1);
  std::uint64_t address = 0, key = 0;
  ASSERT_EQ(api().remote(to, &address, &key), 0);
  EXPECT_EQ(address, weft_mem_va(mem[1]));
  unsigned turn = 1;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{65537}, std::size_t{1} << 20, kMost}) {
    seed(0, bytes, turn);
    std::vector<weft_ofi_completion> others;
    ASSERT_EQ(api().write_immediate(ends[0].ofi, peer, from, 0, bytes, address, key, turn, nullptr), 0)
        << api().error();
    const weft_ofi_completion arrival = next(ends[1], ends[0], &others);
    ASSERT_EQ(arrival.status, 0) << arrival.text;
    EXPECT_EQ(arrival.immediate, turn);
    EXPECT_EQ(arrival.bytes, bytes);
    // Visible only after it is read back.
    ASSERT_EQ(api().flush(ends[1].ofi, to, bytes - 1, nullptr), 0) << api().error();
    const weft_ofi_completion flushed = next(ends[1], ends[0], &others);
    ASSERT_EQ(flushed.status, 0) << flushed.text;
    EXPECT_TRUE(hbm_holds(1, bytes, turn));
    if (others.empty()) others.push_back(next(ends[0], ends[1]));
    ASSERT_EQ(others[0].status, 0) << others[0].text;

    seed(1, bytes, turn + 100);
    ASSERT_EQ(api().read(ends[0].ofi, peer, from, 0, bytes, address, key, nullptr), 0) << api().error();
    others.clear();
    const weft_ofi_completion read = next(ends[0], ends[1], &others);
    ASSERT_EQ(read.status, 0) << read.text;
    // What is read comes as writes of the NIC too.
    ASSERT_EQ(api().flush(ends[0].ofi, from, bytes - 1, nullptr), 0) << api().error();
    const weft_ofi_completion landed = next(ends[0], ends[1], &others);
    ASSERT_EQ(landed.status, 0) << landed.text;
    EXPECT_TRUE(hbm_holds(0, bytes, turn + 100));
    ++turn;
  }
  EXPECT_EQ(caches[0]->counters().registrations, 1u);
}

// A NIC whose writes are posted late (posted=on): an arrival alone is not enough, or flush would be for nothing.
TEST_F(Hbm, ArrivalAloneIsNotVisible) {
  if (std::getenv("WEFT_NIC_POSTED") == nullptr)
    GTEST_SKIP() << "WEFT_NIC_POSTED is not set: this NIC's writes are not late";
  weft_ofi_mr *from = region(0), *to = region(1);
  std::uint64_t address = 0, key = 0;
  ASSERT_EQ(api().remote(to, &address, &key), 0);
  int stale = 0;
  for (unsigned turn = 1; turn <= 200 && stale == 0; ++turn) {
    seed(0, 4096, turn);
    std::vector<weft_ofi_completion> others;
    ASSERT_EQ(api().write_immediate(ends[0].ofi, peer, from, 0, 4096, address, key, turn, nullptr), 0);
    ASSERT_EQ(next(ends[1], ends[0], &others).status, 0);
    if (!hbm_holds(1, 4096, turn)) ++stale;
    ASSERT_EQ(api().flush(ends[1].ofi, to, 4095, nullptr), 0);
    ASSERT_EQ(next(ends[1], ends[0], &others).status, 0);
    ASSERT_TRUE(hbm_holds(1, 4096, turn)) << "after the flush";
    if (others.empty()) others.push_back(next(ends[0], ends[1]));
    ASSERT_EQ(others[0].status, 0) << others[0].text;
  }
  EXPECT_GT(stale, 0) << "of 200 arrivals all were visible at once";
}

// A part of an object, by an offset into its DMA-BUF, is where its address says.
TEST_F(Hbm, PartOfAnObject) {
  constexpr std::size_t kOffset = (3u << 20) + 4096, kBytes = 1u << 20;
  mr::Cache off(*registrars[1], {0, 0, 0});
  mr::Cache::Lease part;
  ASSERT_EQ(off.acquire(object(1), {kOffset, kBytes}, &part), 0) << api().error();
  auto* to = static_cast<weft_ofi_mr*>(part.region());
  std::uint64_t address = 0, key = 0;
  ASSERT_EQ(api().remote(to, &address, &key), 0);
  EXPECT_EQ(address, weft_mem_va(mem[1]) + kOffset);
  seed(0, kBytes, 42);
  ASSERT_EQ(api().write(ends[0].ofi, peer, region(0), 0, kBytes, address, key, nullptr), 0);
  std::vector<weft_ofi_completion> others;
  weft_ofi_completion done = next(ends[0], ends[1], &others);
  ASSERT_EQ(done.status, 0) << done.text;
  ASSERT_EQ(api().flush(ends[1].ofi, to, kBytes - 1, nullptr), 0);
  ASSERT_EQ(next(ends[1], ends[0], &others).status, 0);
  std::vector<unsigned char> all(kMost);
  ASSERT_EQ(weft_read(device, all.data(), weft_mem_va(mem[1]), kMost), 0);
  EXPECT_TRUE(holds(all, kOffset, kBytes, 42));
  for (std::size_t i = 0; i < kMost; ++i) {
    if (i >= kOffset && i < kOffset + kBytes) continue;
    ASSERT_EQ(all[i], 0) << "byte " << i << ", outside the part";
  }
  // One byte beyond: the NIC refuses, since the region ends there.
  ASSERT_EQ(api().write(ends[0].ofi, peer, region(0), 0, kBytes, address + 1, key, nullptr), 0);
  done = next(ends[0], ends[1], &others);
  EXPECT_LT(done.status, 0);
  EXPECT_NE(done.status, -ETIME);
}

TEST_F(Hbm, TakesNoMessages) {
  weft_ofi_mr* mr = region(0);
  EXPECT_EQ(api().recv(ends[0].ofi, WEFT_OFI_ANY, mr, 0, 64, nullptr), -EOPNOTSUPP);
  EXPECT_EQ(api().send(ends[0].ofi, peer, mr, 0, 4096, nullptr), -EOPNOTSUPP);
}

// One run: what a registration costs, and what the cache saves of it.
TEST_F(Hbm, CacheOffAndOn) {
  using Clock = std::chrono::steady_clock;
  mr::Cache off(*registrars[0], {0, 0, 0});
  constexpr int kLoops = 50;
  double took[2];
  mr::Counters counters;
  for (int on = 0; on < 2; ++on) {
    mr::Cache& cache = on != 0 ? *caches[0] : off;
    const auto begin = Clock::now();
    for (int i = 0; i < kLoops; ++i) {
      mr::Cache::Lease lease;
      ASSERT_EQ(cache.acquire(object(0), {0, 64 * 1024}, &lease), 0) << api().error();
    }
    took[on] = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kLoops;
    if (on == 0) counters = cache.counters();
  }
  std::printf("64 KiB of HBM: registration %.0f us, teardown %.0f us; loop, cache off / on: %.0f us / %.1f us = %.0f\n",
              static_cast<double>(counters.registration_ns) / 1e3 / kLoops,
              static_cast<double>(counters.teardown_ns) / 1e3 / kLoops, took[0], took[1], took[0] / took[1]);
  EXPECT_EQ(counters.registrations, std::uint64_t{kLoops});
  EXPECT_EQ(caches[0]->counters().registrations, 1u);
  EXPECT_GT(took[0], took[1]);
}

}  // namespace
}  // namespace weft::ofi::test
