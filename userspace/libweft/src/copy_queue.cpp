// SPDX-License-Identifier: MIT
#include "copy_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "device.hpp"
#include "error.hpp"

namespace weft::front {
namespace {

constexpr std::size_t kStaging = 2u << 20;
constexpr std::size_t kPiece = 1u << 30;  // a command's length has 32 bits
constexpr std::int64_t kLimit = 120'000'000'000;

}  // namespace

CopyQueue::~CopyQueue() {
  drop();
  if (staging_ != nullptr) weft_mem_free(staging_);
  std::free(buffer_);
}

void CopyQueue::drop() {
  weft_queue_destroy(queue_);
  queue_ = nullptr;
  // The sync object may still be short of value_; a new one starts from what it has.
  if (have_sync_) weft_sync_free(&device_, sync_, 1);
  have_sync_ = false;
}

int CopyQueue::ready() {
  if (queue_ != nullptr) return 0;
  if (int error = weft_sync_alloc(&device_, 1, WEFT_SYNC_WAITABLE, &sync_); error != 0) return error;
  have_sync_ = true;
  value_ = weft_sync_value(&device_, sync_);
  return weft_queue_create(&device_, 64, 0, &queue_);
}

int CopyQueue::key_of(weft_va va, std::size_t bytes, std::uint32_t& key) {
  const weft_mem* mem = weft_mem_find(&device_, va, bytes);
  if (mem == nullptr)
    return fail(EFAULT, "[0x%llx, +%zu) lies in no memory object of this device", static_cast<unsigned long long>(va),
                bytes);
  key = weft_mem_key(mem);
  return 0;
}

int CopyQueue::run(weft_cmd& command) {
  if (int error = ready(); error != 0) {
    drop();
    return error;
  }
  command.version = WEFT_CMD_VERSION;
  command.wait_id = WEFT_SYNC_NONE;
  command.signal_id = sync_;
  command.signal_add = 1;
  if (int error = weft_queue_submit(queue_, &command, 1); error != 0) {
    drop();
    return error;
  }
  ++value_;
  const int error = wait();
  if (error != 0) drop();
  return error;
}

int CopyQueue::wait() {
  const weft_wait_item item{sync_, 0, value_};
  weft_failure failure{};
  int error = 0;
  do {
    error = weft_sync_wait(&device_, &item, 1, kLimit, nullptr, &failure);
  } while (error == -EINTR);
  const bool another = error == -EIO && failure.type != WEFT_EVENT_FATAL &&
                       (failure.type != WEFT_EVENT_QUEUE_ERROR || failure.object != weft_queue_number(queue_));
  if (!another) return error;
  // As long as something else of the context has failed, waiting does not wait: look until the copy is done.
  const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kLimit);
  while (weft_sync_value(&device_, sync_) < value_) {
    if (__atomic_load_n(&queue_->backend.head->state, __ATOMIC_ACQUIRE) == WEFT_QUEUE_HALTED)
      return fail(EIO, "the copy failed: %s", weft_error_text(queue_->backend.head->error));
    if (std::chrono::steady_clock::now() > end) return fail(ETIME, "time-out of a copy");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return 0;
}

int CopyQueue::run_copy(weft_va to, std::uint32_t to_key, weft_va from, std::uint32_t from_key, std::size_t bytes) {
  weft_cmd command{};
  command.op = WEFT_OP_COPY;
  command.addr[0] = to;
  command.key[0] = to_key;
  command.addr[1] = from;
  command.key[1] = from_key;
  command.length = static_cast<std::uint32_t>(bytes);
  return run(command);
}

int CopyQueue::copy(weft_va to, weft_va from, std::size_t bytes) {
  if (bytes == 0) return 0;
  std::lock_guard guard(lock_);
  std::uint32_t to_key = 0, from_key = 0;
  if (int error = key_of(to, bytes, to_key); error != 0) return error;
  if (int error = key_of(from, bytes, from_key); error != 0) return error;
  if (to < from + bytes && from < to + bytes) return fail(EINVAL, "weft_copy: source and destination overlap");
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(bytes - done, kPiece);
    if (int error = run_copy(to + done, to_key, from + done, from_key, piece); error != 0) return error;
    done += piece;
  }
  return 0;
}

int CopyQueue::write(weft_va to, const void* from, std::size_t bytes) {
  if (bytes == 0) return 0;
  std::lock_guard guard(lock_);
  std::uint32_t key = 0;
  if (int error = key_of(to, bytes, key); error != 0) return error;
  if (int error = stage(); error != 0) return error;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(bytes - done, kStaging);
    std::memcpy(buffer_, static_cast<const std::byte*>(from) + done, piece);
    if (int error = run_copy(to + done, key, weft_mem_va(staging_), weft_mem_key(staging_), piece); error != 0)
      return error;
    done += piece;
  }
  return 0;
}

int CopyQueue::read(void* to, weft_va from, std::size_t bytes) {
  if (bytes == 0) return 0;
  std::lock_guard guard(lock_);
  std::uint32_t key = 0;
  if (int error = key_of(from, bytes, key); error != 0) return error;
  if (int error = stage(); error != 0) return error;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(bytes - done, kStaging);
    if (int error = run_copy(weft_mem_va(staging_), weft_mem_key(staging_), from + done, key, piece); error != 0)
      return error;
    std::memcpy(static_cast<std::byte*>(to) + done, buffer_, piece);
    done += piece;
  }
  return 0;
}

int CopyQueue::fill(weft_va to, std::uint64_t pattern, std::size_t bytes) {
  if (bytes == 0) return 0;
  if ((to | bytes) % 8 != 0) return fail(EINVAL, "weft_fill: address and length must be multiples of 8");
  std::lock_guard guard(lock_);
  std::uint32_t key = 0;
  if (int error = key_of(to, bytes, key); error != 0) return error;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(bytes - done, kPiece);
    weft_cmd command{};
    command.op = WEFT_OP_FILL;
    command.addr[0] = to + done;
    command.key[0] = key;
    command.addr[1] = pattern;
    command.length = static_cast<std::uint32_t>(piece);
    if (int error = run(command); error != 0) return error;
    done += piece;
  }
  return 0;
}

int CopyQueue::stage() {
  if (staging_ != nullptr) return 0;
  if (buffer_ == nullptr) buffer_ = std::aligned_alloc(4096, kStaging);
  if (buffer_ == nullptr) return fail(ENOMEM, "no memory for the staging buffer");
  std::memset(buffer_, 0, kStaging);
  return weft_mem_register(&device_, buffer_, kStaging, 0, &staging_);
}

}  // namespace weft::front

int weft_copy(weft_device* device, weft_va to, weft_va from, size_t bytes) {
  return device->copies->copy(to, from, bytes);
}
int weft_write(weft_device* device, weft_va to, const void* from, size_t bytes) {
  return device->copies->write(to, from, bytes);
}
int weft_read(weft_device* device, void* to, weft_va from, size_t bytes) {
  return device->copies->read(to, from, bytes);
}
int weft_fill(weft_device* device, weft_va to, uint64_t pattern, size_t bytes) {
  return device->copies->fill(to, pattern, bytes);
}
