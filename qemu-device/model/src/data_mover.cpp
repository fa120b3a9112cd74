// SPDX-License-Identifier: MIT
#include "data_mover.hpp"

#include <algorithm>
#include <cstring>
#include <span>

#include "reduce.hpp"

namespace weft::model {

namespace {

// What two operands have in common: where both are in HBM, or in the same region.
enum class Overlap { kNone, kSame, kPart };

struct Operand {
  const Region* region = nullptr;
  std::uint64_t address = 0;
  std::byte* memory = nullptr;  // in HBM

  // A number that orders bytes of the same kind of memory.
  std::uint64_t place() const { return memory ? reinterpret_cast<std::uintptr_t>(memory) : address; }
};

Overlap overlap(const Operand& a, const Operand& b, std::uint64_t bytes) {
  if (bytes == 0) return Overlap::kNone;
  if ((a.memory == nullptr) != (b.memory == nullptr)) return Overlap::kNone;
  if (a.memory == nullptr && a.region != b.region) return Overlap::kNone;
  if (a.place() == b.place()) return Overlap::kSame;
  const std::uint64_t apart = a.place() > b.place() ? a.place() - b.place() : b.place() - a.place();
  return apart < bytes ? Overlap::kPart : Overlap::kNone;
}

Error open(RegionTable& memory, std::uint32_t context, std::uint32_t right, const weft_cmd& cmd, int operand,
           std::uint64_t bytes, Operand& out) {
  out.address = cmd.addr[operand];
  const Error error = memory.find({context, right}, {cmd.key[operand], out.address, bytes}, out.region);
  if (error == WEFT_ERR_OK) out.memory = memory.pointer(*out.region, out.address);
  return error;
}

}  // namespace

DataMover::DataMover(RegionTable& memory, Counters& counters)
    : memory_(memory), counters_(counters), bounce_(std::make_unique<std::array<Bounce, 3>>()) {}

DataMover::Slice DataMover::copy(std::uint32_t context, const weft_cmd& cmd, std::uint64_t done, std::uint64_t budget) {
  const std::uint64_t total = cmd.length;
  Operand to;
  Operand from;
  if (Error error = open(memory_, context, WEFT_RIGHT_READ, cmd, 1, total, from); error != WEFT_ERR_OK) {
    return {error, true, 0};
  }
  if (Error error = open(memory_, context, WEFT_RIGHT_WRITE, cmd, 0, total, to); error != WEFT_ERR_OK) {
    return {error, true, 0};
  }
  std::uint64_t bytes = std::min(total - done, std::max<std::uint64_t>(budget, 64));
  // Overlapping operands copy as memmove does.
  const bool backwards = overlap(to, from, total) == Overlap::kPart && to.place() > from.place();
  if (!to.memory && !from.memory) bytes = std::min<std::uint64_t>(bytes, kBounce);
  const std::uint64_t offset = backwards ? total - done - bytes : done;
  Error error = WEFT_ERR_OK;
  if (to.memory && from.memory) {
    std::memmove(to.memory + offset, from.memory + offset, bytes);
    memory_.count_hbm_read(bytes);
    memory_.count_hbm_write(bytes);
  } else if (to.memory) {
    error =
        memory_.load(*from.region, from.address + offset, std::span(to.memory + offset, bytes), WEFT_ABI_DMA_PAYLOAD);
    if (error == WEFT_ERR_OK) memory_.count_hbm_write(bytes);
  } else if (from.memory) {
    memory_.count_hbm_read(bytes);
    error = memory_.store(*to.region, to.address + offset, std::span<const std::byte>(from.memory + offset, bytes),
                          WEFT_ABI_DMA_PAYLOAD);
  } else {
    const auto buffer = std::span((*bounce_)[0].bytes).first(bytes);
    error = memory_.load(*from.region, from.address + offset, buffer, WEFT_ABI_DMA_PAYLOAD);
    if (error == WEFT_ERR_OK) error = memory_.store(*to.region, to.address + offset, buffer, WEFT_ABI_DMA_PAYLOAD);
  }
  if (error != WEFT_ERR_OK) return {error, true, bytes};
  counters_.add(WEFT_CTR_copy_bytes, bytes);
  return {WEFT_ERR_OK, done + bytes == total, bytes};
}

DataMover::Slice DataMover::fill(std::uint32_t context, const weft_cmd& cmd, std::uint64_t done, std::uint64_t budget) {
  const std::uint64_t total = cmd.length;
  if (cmd.addr[0] % 8 != 0 || total % 8 != 0) return {WEFT_ERR_BAD_ALIGN, true, 0};
  Operand to;
  if (Error error = open(memory_, context, WEFT_RIGHT_WRITE, cmd, 0, total, to); error != WEFT_ERR_OK) {
    return {error, true, 0};
  }
  std::uint64_t bytes = std::min(total - done, std::max<std::uint64_t>(budget & ~std::uint64_t{7}, 64));
  const std::uint64_t pattern = cmd.addr[1];
  if (to.memory) {
    std::fill_n(reinterpret_cast<std::uint64_t*>(to.memory + done), bytes / 8, pattern);
    memory_.count_hbm_write(bytes);
  } else {
    bytes = std::min<std::uint64_t>(bytes, kBounce);
    const auto buffer = std::span((*bounce_)[0].bytes).first(bytes);
    std::fill_n(reinterpret_cast<std::uint64_t*>(buffer.data()), bytes / 8, pattern);
    if (Error error = memory_.store(*to.region, to.address + done, buffer, WEFT_ABI_DMA_PAYLOAD);
        error != WEFT_ERR_OK) {
      return {error, true, bytes};
    }
  }
  counters_.add(WEFT_CTR_fill_bytes, bytes);
  return {WEFT_ERR_OK, done + bytes == total, bytes};
}

DataMover::Slice DataMover::reduce(std::uint32_t context, const weft_cmd& cmd, std::uint32_t divisor,
                                   std::uint64_t done, std::uint64_t budget) {
  const std::uint64_t size = dtype_bytes(cmd.arg0);
  if (size == 0) return {WEFT_ERR_BAD_TYPE, true, 0};
  const std::uint64_t total = cmd.length * size;
  if ((cmd.addr[0] | cmd.addr[1] | cmd.addr[2]) % size != 0) return {WEFT_ERR_BAD_ALIGN, true, 0};
  std::array<Operand, 3> operand;
  for (int i : {1, 2, 0}) {
    const std::uint32_t right = i == 0 ? WEFT_RIGHT_WRITE : WEFT_RIGHT_READ;
    if (Error error = open(memory_, context, right, cmd, i, total, operand[i]); error != WEFT_ERR_OK) {
      return {error, true, 0};
    }
  }
  if (overlap(operand[0], operand[1], total) == Overlap::kPart ||
      overlap(operand[0], operand[2], total) == Overlap::kPart) {
    return {WEFT_ERR_BAD_FIELD, true, 0};
  }
  std::uint64_t bytes = std::min(total - done, std::max<std::uint64_t>(budget & ~std::uint64_t{63}, 64));
  if (!operand[0].memory || !operand[1].memory || !operand[2].memory) bytes = std::min<std::uint64_t>(bytes, kBounce);

  std::array<std::byte*, 3> at;
  for (int i : {1, 2}) {
    if (operand[i].memory) {
      at[i] = operand[i].memory + done;
      memory_.count_hbm_read(bytes);
    } else {
      const auto buffer = std::span((*bounce_)[i].bytes).first(bytes);
      at[i] = buffer.data();
      if (Error error = memory_.load(*operand[i].region, operand[i].address + done, buffer, WEFT_ABI_DMA_PAYLOAD);
          error != WEFT_ERR_OK) {
        return {error, true, bytes};
      }
    }
  }
  at[0] = operand[0].memory ? operand[0].memory + done : (*bounce_)[0].bytes.data();
  if (!model::reduce(cmd.arg0, cmd.arg1, at[0], at[1], at[2], bytes / size, divisor)) {
    return {WEFT_ERR_BAD_TYPE, true, 0};
  }
  if (operand[0].memory) {
    memory_.count_hbm_write(bytes);
  } else if (Error error = memory_.store(*operand[0].region, operand[0].address + done, std::span(at[0], bytes),
                                         WEFT_ABI_DMA_PAYLOAD);
             error != WEFT_ERR_OK) {
    return {error, true, bytes};
  }
  counters_.add(WEFT_CTR_reduce_bytes, bytes);
  return {WEFT_ERR_OK, done + bytes == total, bytes};
}

}  // namespace weft::model
