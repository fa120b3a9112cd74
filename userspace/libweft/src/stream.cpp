// SPDX-License-Identifier: MIT
#include "stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "device.hpp"
#include "error.hpp"
#include "queue.hpp"

using weft::front::fail;
using weft::front::guarded;
using weft::front::key_of;

namespace {

constexpr std::size_t kPiece = 1u << 30;      // a command's length has 32 bits
constexpr std::size_t kEventsOfACommand = 3;  // with an extension

weft_cmd command(weft_cmd_op op) {
  weft_cmd made{};
  made.op = static_cast<std::uint8_t>(op);
  made.version = WEFT_CMD_VERSION;
  made.wait_id = made.signal_id = WEFT_SYNC_NONE;
  return made;
}

bool reached(weft_device* device, const weft_sync_event& event) {
  return event.sync == WEFT_SYNC_NONE || weft_sync_value(device, event.sync) >= event.value;
}

}  // namespace

int weft::front::key_of(weft_device* device, weft_va va, std::size_t bytes, std::uint32_t& key) {
  weft_mem_info info{};
  info.size = sizeof(info);
  const int error = weft_mem_find(device, va, bytes, &info);
  key = info.key;
  return error == -ENOENT ? -EFAULT : error;
}

weft_stream::weft_stream(weft_device* device, std::uint32_t entries, unsigned flags, int& error) : device_(device) {
  std::uint32_t sync = 0;
  error = weft_sync_alloc(device, 1, 0, &sync);
  if (error != 0) return;
  sync_ = sync;
  value_ = weft_sync_value(device, sync);
  error = weft_queue_create(device, entries, flags, &queue_);
}

weft_stream::~weft_stream() {
  weft_queue_destroy(queue_);
  if (sync_) weft_sync_free(device_, *sync_, 1);
}

int weft_stream::put(std::span<const weft_cmd> slots, bool fence, weft_sync_event* event) {
  weft_cmd before = command(WEFT_OP_FENCE), behind = before;
  behind.signal_id = *sync_;
  behind.signal_add = 1;
  const std::size_t first = fence && !fenced_ && !slots.empty() ? 1 : 0;
  const std::size_t last = event != nullptr ? 1 : 0;
  // A slot is kept for the next record, so that who wants to wait always can.
  const int error =
      weft::front::submit(*queue_, {std::span(&before, first), slots, std::span(&behind, last)}, last != 0 ? 0 : 1);
  if (error != 0) return error;
  commands_ += first + last;
  for (std::size_t i = 0; i < slots.size(); i += (slots[i].flags & WEFT_CMD_EXT) != 0 ? 2 : 1) ++commands_;
  fenced_ = recorded_ = event != nullptr;
  if (event != nullptr) *event = {*sync_, 0, ++value_};
  return 0;
}

int weft_stream::submit(std::span<const weft_cmd> slots, weft_sync_event* event) { return put(slots, true, event); }

int weft_stream::wait(std::span<const weft_sync_event> events) {
  std::vector<weft_cmd> slots;
  std::size_t used = kEventsOfACommand;
  weft_cmd_ext extension{};
  for (const weft_sync_event& event : events) {
    if (reached(device_, event)) continue;
    if (used == kEventsOfACommand) {
      weft_cmd fence = command(WEFT_OP_FENCE);
      fence.flags = WEFT_CMD_EXT;
      fence.wait_id = event.sync;
      fence.wait_value = event.value;
      extension = {};
      extension.version = WEFT_CMD_VERSION;
      slots.insert(slots.end(), {fence, weft_cmd{}});
      used = 1;
    } else {
      extension.wait_id[used - 1] = event.sync;
      extension.wait_value[used - 1] = event.value;
      extension.waits = static_cast<std::uint8_t>(used++);
    }
    std::memcpy(&slots.back(), &extension, sizeof(extension));
  }
  if (slots.empty()) return 0;
  const int error = put(slots, false, nullptr);
  if (error == 0) fenced_ = true;
  return error;
}

int weft_stream::record(weft_sync_event* event) {
  if (!recorded_) return put({}, true, event);
  *event = {*sync_, 0, value_};
  return 0;
}

int weft_stream::query() {
  if (const int error = weft::front::halted(*queue_)) return error;
  return weft::front::completed(*queue_) == commands_ ? 0 : -EAGAIN;
}

int weft_stream::synchronize(std::int64_t timeout_ns, weft_failure* failure) {
  weft_sync_event last{};
  if (const int error = record(&last); error != 0) return error;
  const std::uint32_t queue = number();
  const weft_wait_scope scope{1, 0, &queue, nullptr};
  return weft_sync_wait(device_, &last, 1, timeout_ns, &scope, nullptr, failure);
}

int weft_stream::copy(weft_va to, weft_va from, std::size_t bytes) {
  if (bytes == 0) return 0;
  weft_cmd piece = command(WEFT_OP_COPY);
  if (const int error = key_of(device_, to, bytes, piece.key[0]); error != 0) return error;
  if (const int error = key_of(device_, from, bytes, piece.key[1]); error != 0) return error;
  if (to < from + bytes && from < to + bytes) return fail(EINVAL, "source and destination of a copy overlap");
  std::vector<weft_cmd> pieces;
  for (std::size_t done = 0; done < bytes; done += piece.length) {
    piece.addr[0] = to + done;
    piece.addr[1] = from + done;
    piece.length = static_cast<std::uint32_t>(std::min(bytes - done, kPiece));
    pieces.push_back(piece);
  }
  return submit(pieces, nullptr);
}

int weft_stream::fill(weft_va to, std::uint64_t pattern, std::size_t bytes) {
  if (bytes == 0) return 0;
  if ((to | bytes) % 8 != 0) return fail(EINVAL, "address and length of a fill must be multiples of 8");
  weft_cmd piece = command(WEFT_OP_FILL);
  if (const int error = key_of(device_, to, bytes, piece.key[0]); error != 0) return error;
  piece.addr[1] = pattern;
  std::vector<weft_cmd> pieces;
  for (std::size_t done = 0; done < bytes; done += piece.length) {
    piece.addr[0] = to + done;
    piece.length = static_cast<std::uint32_t>(std::min(bytes - done, kPiece));
    pieces.push_back(piece);
  }
  return submit(pieces, nullptr);
}

// ---- the C interface -----------------------------------------------------------------------------------------------

int weft_event_query(weft_device* device, const weft_sync_event* event) {
  return reached(device, *event) ? 0 : -EAGAIN;
}

int weft_stream_create(weft_device* device, uint32_t entries, unsigned flags, weft_stream** out) {
  *out = nullptr;
  return guarded("weft_stream_create", [&] {
    int error = 0;
    auto stream = std::make_unique<weft_stream>(device, entries, flags, error);
    if (error != 0) return error;
    std::lock_guard guard(device->objects_lock);
    device->streams.insert(stream.get());
    *out = stream.release();
    return 0;
  });
}

void weft_stream_destroy(weft_stream* stream) {
  if (stream == nullptr) return;
  std::unique_ptr<weft_stream> owner(stream);
  std::lock_guard guard(stream->device()->objects_lock);
  stream->device()->streams.erase(stream);
}

uint32_t weft_stream_number(const weft_stream* stream) { return stream->number(); }

int weft_stream_submit(weft_stream* stream, const void* slot, uint32_t slots, weft_sync_event* event) {
  if (slots == 0) return fail(EINVAL, "weft_stream_submit: no command");
  return guarded("weft_stream_submit",
                 [&] { return stream->submit({static_cast<const weft_cmd*>(slot), slots}, event); });
}

int weft_stream_wait(weft_stream* stream, const weft_sync_event* event, uint32_t events) {
  return guarded("weft_stream_wait", [&] { return stream->wait({event, events}); });
}

int weft_stream_record(weft_stream* stream, weft_sync_event* event) {
  return guarded("weft_stream_record", [&] { return stream->record(event); });
}

int weft_stream_query(weft_stream* stream) {
  return guarded("weft_stream_query", [&] { return stream->query(); });
}

int weft_stream_synchronize(weft_stream* stream, int64_t timeout_ns, weft_failure* failure) {
  return guarded("weft_stream_synchronize", [&] { return stream->synchronize(timeout_ns, failure); });
}

int weft_stream_copy(weft_stream* stream, weft_va to, weft_va from, size_t bytes) {
  return guarded("weft_stream_copy", [&] { return stream->copy(to, from, bytes); });
}

int weft_stream_fill(weft_stream* stream, weft_va to, uint64_t pattern, size_t bytes) {
  return guarded("weft_stream_fill", [&] { return stream->fill(to, pattern, bytes); });
}
