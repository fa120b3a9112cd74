// SPDX-License-Identifier: MIT
// Memory that runs out in the middle of a call: an error, no exception, nothing lost (LeakSanitizer is the judge).
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <new>
#include <vector>

#include "weft/weft.h"

namespace {

// Allocations of this thread that still succeed; negative: all.
thread_local long left = -1;

void* allocate(std::size_t bytes) {
  if (left == 0) throw std::bad_alloc();
  if (left > 0) --left;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes != 0 ? bytes : 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

// Runs `call` with ever more allocations until it succeeds. How often it failed.
int until_it_works(const char* what, const std::function<int()>& call) {
  for (long allowed = 0; allowed < 1000; ++allowed) {
    left = allowed;
    int error = 0;
    try {
      error = call();
    } catch (...) {
      left = -1;
      ADD_FAILURE() << what << ": an exception crossed the C interface after " << allowed << " allocations";
      return 0;
    }
    left = -1;
    if (error == 0) return static_cast<int>(allowed);
    EXPECT_EQ(error, -ENOMEM) << what << ": " << weft_last_error();
  }
  ADD_FAILURE() << what << " never works";
  return 0;
}

TEST(NoMemory, IsAnErrorOfTheCall) {
  weft_device* device = nullptr;
  EXPECT_GT(until_it_works("open", [&] { return weft_device_open("null", &device); }), 0);
  ASSERT_NE(device, nullptr);
  weft_mem *mem = nullptr, *other = nullptr;
  EXPECT_GT(until_it_works("alloc", [&] { return weft_mem_alloc(device, 4096, 0, &mem); }), 0);
  std::vector<char> host(4096);
  EXPECT_GT(until_it_works("register", [&] { return weft_mem_register(device, host.data(), 4096, 0, &other); }), 0);
  struct weft_device_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(weft_device_info(device, &info), 0);
  EXPECT_EQ(info.hbm_used, 4096u) << "what failed took nothing";
  weft_queue* queue = nullptr;
  EXPECT_GT(until_it_works("queue", [&] { return weft_queue_create(device, 64, 0, &queue); }), 0);
  weft_stream* stream = nullptr;
  EXPECT_GT(until_it_works("stream", [&] { return weft_stream_create(device, 64, 0, &stream); }), 0);
  const auto freed = [](void*, weft_mem*) {};
  EXPECT_GT(until_it_works("on_free", [&] { return weft_mem_on_free(device, freed, nullptr); }), 0);
  EXPECT_GT(until_it_works("copy", [&] { return weft_stream_fill(stream, weft_mem_va(mem), 1, 8); }), 0);
  EXPECT_GT(until_it_works("write", [&] { return weft_write(device, weft_mem_va(mem), "x", 1); }), 0);
  weft_sync_event event{};
  EXPECT_EQ(weft_stream_record(stream, &event), 0);
  EXPECT_EQ(weft_stream_synchronize(stream, -1, nullptr), 0);
  left = 0;
  EXPECT_EQ(weft_device_count("null"), 1);
  left = -1;
  weft_device_close(device);
}

}  // namespace
