// SPDX-License-Identifier: MIT
#include "copies.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "device.hpp"
#include "error.hpp"
#include "stream.hpp"

namespace weft::front {
namespace {

constexpr std::size_t kStaging = 2u << 20;
constexpr std::int64_t kLimit = 120'000'000'000;

}  // namespace

Copies::~Copies() {
  weft_stream_destroy(stream_);
  weft_mem_free(staging_);
  std::free(buffer_);
}

// Waits for what `put` puts into the stream. Called with the lock held.
template <typename Put>
int Copies::run(Put put) {
  int error = stream_ != nullptr ? 0 : weft_stream_create(&device_, 64, 0, &stream_);
  if (error != 0) return error;
  error = put();
  if (error == 0) {
    do {
      error = weft_stream_synchronize(stream_, kLimit, nullptr);
    } while (error == -EINTR);
  }
  // A halted stream takes nothing more, and one that stands still may run later, into memory of others: the next call
  // makes a new one.
  if (error == -EIO || error == -ETIME || error == -ENODEV) {
    weft_stream_destroy(stream_);
    stream_ = nullptr;
  }
  return error;
}

int Copies::copy(weft_va to, weft_va from, std::size_t bytes) {
  std::lock_guard guard(lock_);
  return run([&] { return weft_stream_copy(stream_, to, from, bytes); });
}

int Copies::fill(weft_va to, std::uint64_t pattern, std::size_t bytes) {
  std::lock_guard guard(lock_);
  return run([&] { return weft_stream_fill(stream_, to, pattern, bytes); });
}

int Copies::write(weft_va to, const void* from, std::size_t bytes) {
  if (bytes == 0) return 0;
  std::uint32_t key = 0;
  if (int error = key_of(&device_, to, bytes, key); error != 0) return error;
  std::lock_guard guard(lock_);
  if (int error = stage(); error != 0) return error;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(bytes - done, kStaging);
    std::memcpy(buffer_, static_cast<const std::byte*>(from) + done, piece);
    const auto put = [&] { return weft_stream_copy(stream_, to + done, weft_mem_va(staging_), piece); };
    if (int error = run(put); error != 0) return error;
    done += piece;
  }
  return 0;
}

int Copies::read(void* to, weft_va from, std::size_t bytes) {
  if (bytes == 0) return 0;
  std::uint32_t key = 0;
  if (int error = key_of(&device_, from, bytes, key); error != 0) return error;
  std::lock_guard guard(lock_);
  if (int error = stage(); error != 0) return error;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(bytes - done, kStaging);
    const auto put = [&] { return weft_stream_copy(stream_, weft_mem_va(staging_), from + done, piece); };
    if (int error = run(put); error != 0) return error;
    std::memcpy(static_cast<std::byte*>(to) + done, buffer_, piece);
    done += piece;
  }
  return 0;
}

int Copies::stage() {
  if (staging_ != nullptr) return 0;
  if (buffer_ == nullptr) buffer_ = std::aligned_alloc(4096, kStaging);
  if (buffer_ == nullptr) return fail(ENOMEM, "no memory for the staging buffer");
  std::memset(buffer_, 0, kStaging);
  return weft_mem_register(&device_, buffer_, kStaging, 0, &staging_);
}

}  // namespace weft::front

using weft::front::guarded;

int weft_copy(weft_device* device, weft_va to, weft_va from, size_t bytes) {
  return guarded("weft_copy", [&] { return device->copies->copy(to, from, bytes); });
}
int weft_write(weft_device* device, weft_va to, const void* from, size_t bytes) {
  return guarded("weft_write", [&] { return device->copies->write(to, from, bytes); });
}
int weft_read(weft_device* device, void* to, weft_va from, size_t bytes) {
  return guarded("weft_read", [&] { return device->copies->read(to, from, bytes); });
}
int weft_fill(weft_device* device, weft_va to, uint64_t pattern, size_t bytes) {
  return guarded("weft_fill", [&] { return device->copies->fill(to, pattern, bytes); });
}
