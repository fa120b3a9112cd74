// SPDX-License-Identifier: MIT
// Streams and events, on each backend that runs without a kernel: the device keeps the order, no host waits in between.
#include <gmock/gmock.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "fixture.hpp"

namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr std::int64_t kLimit = 60'000'000'000;
constexpr std::size_t kBytes = 8192;

class Streams : public weft::test::Device, public ::testing::WithParamInterface<const char*> {
 protected:
  Streams() : Device(GetParam()) {}

  weft_stream* stream(std::uint32_t entries = 64) {
    weft_stream* made = nullptr;
    EXPECT_EQ(weft_stream_create(device, entries, 0, &made), 0) << weft_last_error();
    return made;
  }
  std::vector<std::uint32_t> words(const weft_mem* mem) {
    std::vector<std::uint32_t> out(weft_mem_bytes(mem) / 4);
    EXPECT_EQ(weft_read(device, out.data(), weft_mem_va(mem), out.size() * 4), 0) << weft_last_error();
    return out;
  }
  weft_cmd sum(const weft_mem* to, const weft_mem* one, const weft_mem* other) {
    weft_cmd cmd = weft::test::command(WEFT_OP_REDUCE);
    cmd.arg0 = WEFT_I32;
    cmd.arg1 = WEFT_SUM;
    weft::test::operand(cmd, 0, to);
    weft::test::operand(cmd, 1, one);
    weft::test::operand(cmd, 2, other);
    cmd.length = kBytes / 4;
    return cmd;
  }
  // An event that the host raises.
  weft_sync_event later(std::uint32_t& id) {
    id = sync();
    return {id, 0, weft_sync_value(device, id) + 1};
  }
  int synchronize(weft_stream* which, weft_failure* failure = nullptr) {
    return weft_stream_synchronize(which, kLimit, failure);
  }
};

// And a backend under test: WEFT_TEST_DEVICE=./my.so (userspace/PORTING.md).
std::vector<const char*> devices() {
  std::vector<const char*> all{"null", "sim:0"};
  if (const char* own = std::getenv("WEFT_TEST_DEVICE")) all.push_back(own);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Backends, Streams, ::testing::ValuesIn(devices()), [](const auto& info) {
  return std::string(info.index == 0 ? "null" : info.index == 1 ? "sim" : "own");
});

// What a collective needs: behind a copy of one stream, before a kernel of another, and a host's transfer in front of
// all.
TEST_P(Streams, TheDeviceOrdersAcrossStreams) {
  weft_mem *from = alloc(kBytes), *staged = alloc(kBytes), *reduced = alloc(kBytes), *out = alloc(kBytes);
  ASSERT_EQ(weft_fill(device, weft_mem_va(from), 0x0000000700000007, kBytes), 0);
  weft_stream *copies = stream(), *kernels = stream();
  std::uint32_t host = 0;
  const weft_sync_event arrived = later(host);
  weft_sync_event copied{}, done{};
  ASSERT_EQ(weft_stream_wait(copies, &arrived, 1), 0);
  ASSERT_EQ(weft_stream_copy(copies, weft_mem_va(staged), weft_mem_va(from), kBytes), 0) << weft_last_error();
  ASSERT_EQ(weft_stream_record(copies, &copied), 0);
  ASSERT_EQ(weft_stream_wait(kernels, &copied, 1), 0);
  const weft_cmd kernel = sum(reduced, staged, staged);
  ASSERT_EQ(weft_stream_submit(kernels, &kernel, 1, &done), 0) << weft_last_error();
  ASSERT_EQ(weft_stream_wait(copies, &done, 1), 0);
  ASSERT_EQ(weft_stream_copy(copies, weft_mem_va(out), weft_mem_va(reduced), kBytes), 0);

  EXPECT_EQ(weft_stream_query(copies), -EAGAIN);
  EXPECT_EQ(weft_event_query(device, &copied), -EAGAIN);
  EXPECT_EQ(weft_event_query(device, &done), -EAGAIN);
  EXPECT_THAT(words(staged), Each(0u)) << "nothing starts before its event";
  EXPECT_EQ(weft_stream_synchronize(kernels, 0, nullptr), -ETIME);
  ASSERT_EQ(weft_sync_signal(device, host, 1), 0);
  ASSERT_EQ(synchronize(copies), 0) << weft_last_error();
  EXPECT_EQ(weft_event_query(device, &copied), 0);
  EXPECT_EQ(weft_event_query(device, &done), 0);
  EXPECT_EQ(weft_stream_query(copies), 0);
  EXPECT_EQ(weft_stream_query(kernels), 0);
  EXPECT_THAT(words(out), Each(14u));
}

TEST_P(Streams, CommandsRunInOrderAlsoWhenTheRingWraps) {
  weft_mem *x = alloc(kBytes), *y = alloc(kBytes);
  weft_stream* one = stream(16);
  const auto put = [&](auto call) {
    int error = 0;
    while ((error = call()) == -EAGAIN) ASSERT_EQ(synchronize(one), 0) << weft_last_error();
    ASSERT_EQ(error, 0) << weft_last_error();
  };
  for (std::uint64_t round = 1; round <= 40; ++round) {
    put([&] { return weft_stream_fill(one, weft_mem_va(x), round << 32 | round, kBytes); });
    put([&] { return weft_stream_copy(one, weft_mem_va(y), weft_mem_va(x), kBytes); });
    put([&] { return weft_stream_fill(one, weft_mem_va(x), 0, kBytes); });
    if (round % 10 != 0) continue;
    ASSERT_EQ(synchronize(one), 0) << weft_last_error();
    EXPECT_THAT(words(y), Each(static_cast<std::uint32_t>(round)));
    EXPECT_THAT(words(x), Each(0u));
  }
}

TEST_P(Streams, CommandsOfOneSubmissionHaveTheOrderThatTheySay) {
  weft_mem *x = alloc(kBytes), *y = alloc(kBytes), *z = alloc(kBytes);
  weft_stream* one = stream();
  const std::uint32_t filled = sync();
  const std::uint64_t base = weft_sync_value(device, filled);
  std::array<weft_cmd, 2> batch{sum(z, x, x), weft::test::command(WEFT_OP_FILL)};
  batch[0].wait_id = filled;  // the first waits for the second
  batch[0].wait_value = base + 1;
  weft::test::operand(batch[1], 0, x);
  batch[1].addr[1] = 0x0000000300000003;
  batch[1].length = kBytes;
  batch[1].signal_id = filled;
  batch[1].signal_add = 1;
  ASSERT_EQ(weft_stream_submit(one, batch.data(), batch.size(), nullptr), 0);
  ASSERT_EQ(weft_stream_copy(one, weft_mem_va(y), weft_mem_va(z), kBytes), 0);
  ASSERT_EQ(synchronize(one), 0) << weft_last_error();
  EXPECT_THAT(words(y), Each(6u));
}

TEST_P(Streams, WaitsForManyEvents) {
  weft_mem* x = alloc(kBytes);
  weft_stream* one = stream();
  std::array<weft_sync_event, 9> events{};
  std::array<std::uint32_t, 9> ids{};
  for (std::size_t i = 0; i < events.size(); ++i) events[i] = later(ids[i]);
  events[4] = {WEFT_SYNC_NONE, 0, 0};
  EXPECT_EQ(weft_event_query(device, &events[4]), 0);
  ASSERT_EQ(weft_sync_signal(device, ids[0], 1), 0);
  ASSERT_EQ(wait(ids[0], events[0].value), 0);
  ASSERT_EQ(weft_stream_wait(one, events.data(), events.size()), 0) << weft_last_error();
  ASSERT_EQ(weft_stream_fill(one, weft_mem_va(x), ~0ull, kBytes), 0);
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (i == 4) continue;
    EXPECT_EQ(weft_stream_query(one), -EAGAIN);
    EXPECT_THAT(words(x), Each(0u)) << "event " << i << " is still to come";
    ASSERT_EQ(weft_sync_signal(device, ids[i], 1), 0);
  }
  ASSERT_EQ(synchronize(one), 0) << weft_last_error();
  EXPECT_THAT(words(x), Each(~0u));
}

TEST_P(Streams, ARecordTakesNoPlaceWhereOneIsAlready) {
  weft_mem* x = alloc(kBytes);
  weft_stream* one = stream(16);
  weft_sync_event first{}, again{};
  ASSERT_EQ(weft_stream_record(one, &first), 0);
  EXPECT_EQ(weft_event_query(device, &first), 0) << "an empty stream is done";
  ASSERT_EQ(weft_stream_fill(one, weft_mem_va(x), 1, 8), 0);
  for (int i = 0; i < 100; ++i) {
    weft_sync_event now{};
    ASSERT_EQ(weft_stream_record(one, &now), 0) << weft_last_error();
    if (i == 0) again = now;
    EXPECT_EQ(now.sync, again.sync);
    EXPECT_EQ(now.value, again.value);
  }
  EXPECT_GT(again.value, first.value);
  EXPECT_EQ(synchronize(one), 0);
}

TEST_P(Streams, AFullRingTakesNothingAndCanStillBeRecorded) {
  struct weft_device_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  weft_mem* x = alloc(kBytes);
  weft_stream* one = stream(16);
  std::uint32_t host = 0;
  const weft_sync_event never = later(host);
  ASSERT_EQ(weft_stream_wait(one, &never, 1), 0);
  int error = 0;
  std::uint64_t fills = 0;
  while ((error = weft_stream_fill(one, weft_mem_va(x) + 8 * fills, fills + 1, 8)) == 0) ++fills;
  ASSERT_EQ(error, -EAGAIN);
  ASSERT_GT(fills, 3u);
  weft_sync_event last{};
  ASSERT_EQ(weft_stream_record(one, &last), 0) << weft_last_error();
  ASSERT_EQ(weft_sync_signal(device, host, 1), 0);
  ASSERT_EQ(synchronize(one), 0) << weft_last_error();
  EXPECT_EQ(weft_event_query(device, &last), 0);
  std::vector<std::uint64_t> got(fills + 1), expected(fills + 1);
  for (std::uint64_t i = 0; i < fills; ++i) expected[i] = i + 1;
  ASSERT_EQ(weft_read(device, got.data(), weft_mem_va(x), got.size() * 8), 0);
  EXPECT_EQ(got, expected) << "what was refused did not run";
}

TEST_P(Streams, AFailureIsItsStreamsAlone) {
  weft_mem* x = alloc(kBytes);
  weft_stream *bad = stream(), *good = stream();
  weft_cmd wrong = weft::test::command(WEFT_OP_FILL);
  weft::test::operand(wrong, 0, x, kBytes - 8);
  wrong.length = 16;
  weft_sync_event never{};
  ASSERT_EQ(weft_stream_submit(bad, &wrong, 1, &never), 0);
  weft_failure failure{};
  EXPECT_EQ(synchronize(bad, &failure), -EIO);
  EXPECT_EQ(failure.error, WEFT_ERR_BAD_RANGE);
  EXPECT_EQ(failure.object, weft_stream_number(bad));
  EXPECT_EQ(weft_stream_query(bad), -EIO);
  EXPECT_EQ(weft_event_query(device, &never), -EAGAIN);
  EXPECT_EQ(weft_stream_fill(bad, weft_mem_va(x), 5, 8), -EIO);
  EXPECT_THAT(weft_last_error(), HasSubstr("halted"));

  ASSERT_EQ(weft_stream_fill(good, weft_mem_va(x), 9, 8), 0) << weft_last_error();
  EXPECT_EQ(synchronize(good), 0) << weft_last_error();
  const std::uint32_t number = weft_stream_number(good);
  const weft_wait_scope scope{1, 0, &number, nullptr};
  EXPECT_EQ(weft_sync_wait(device, &never, 1, 1'000'000, &scope, nullptr, nullptr), -ETIME)
      << "not this scope's failure";
  EXPECT_EQ(weft_sync_wait(device, &never, 1, 1'000'000, nullptr, nullptr, nullptr), -EIO);
  weft_stream_destroy(bad);
  weft_stream* fresh = stream();
  ASSERT_EQ(weft_stream_fill(fresh, weft_mem_va(x), 11, 8), 0) << weft_last_error();
  EXPECT_EQ(synchronize(fresh), 0) << weft_last_error();
}

TEST_P(Streams, WhatHasNotRunGoesWithItsStream) {
  weft_mem* x = alloc(kBytes);
  weft_stream* one = stream();
  std::uint32_t host = 0;
  const weft_sync_event never = later(host);
  ASSERT_EQ(weft_stream_wait(one, &never, 1), 0);
  ASSERT_EQ(weft_stream_fill(one, weft_mem_va(x), ~0ull, kBytes), 0);
  weft_stream_destroy(one);
  ASSERT_EQ(weft_sync_signal(device, host, 1), 0);
  ASSERT_EQ(wait(host, never.value), 0);
  EXPECT_THAT(words(x), Each(0u));
  stream();  // and one that is left goes with the device
}

TEST_P(Streams, BadArgumentsAreNamed) {
  weft_mem* x = alloc(kBytes);
  weft_stream* one = stream(16);
  weft_stream* none = nullptr;
  EXPECT_EQ(weft_stream_create(device, 17, 0, &none), -EINVAL);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(weft_stream_copy(one, weft_mem_va(x), weft_mem_va(x) + 8, 16), -EINVAL);
  EXPECT_EQ(weft_stream_copy(one, weft_mem_va(x), 0, 16), -EFAULT);
  EXPECT_THAT(weft_last_error(), HasSubstr("lies in no memory object"));
  EXPECT_EQ(weft_stream_fill(one, weft_mem_va(x) + 4, 0, 8), -EINVAL);
  EXPECT_EQ(weft_stream_submit(one, nullptr, 0, nullptr), -EINVAL);
  std::vector<weft_cmd> many(16, weft::test::command(WEFT_OP_NOP));
  EXPECT_EQ(weft_stream_submit(one, many.data(), 16, nullptr), -EINVAL) << "it would leave no slot for a record";
  EXPECT_EQ(weft_stream_query(one), 0);
}

// More streams than the context has queues: the error names it, and nothing is lost.
TEST_P(Streams, AreAsManyAsQueues) {
  std::vector<weft_stream*> all;
  weft_stream* one = nullptr;
  int error = 0;
  while ((error = weft_stream_create(device, 16, 0, &one)) == 0) all.push_back(one);
  EXPECT_EQ(error, -ENOSPC);
  EXPECT_THAT(weft_last_error(), HasSubstr("no further queue"));
  const std::size_t most = all.size();
  for (weft_stream* stream : all) weft_stream_destroy(stream);
  all.clear();
  while ((error = weft_stream_create(device, 16, 0, &one)) == 0) all.push_back(one);
  EXPECT_EQ(all.size(), most);
}

}  // namespace
