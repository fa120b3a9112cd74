// SPDX-License-Identifier: MIT
#include "core/rv32.hpp"

#include <algorithm>
#include <cstring>

#include "core/encoding.hpp"
#include "core/rvc.hpp"

namespace weft::model {
namespace {

using namespace rv32;

// CSR numbers (privileged ISA, section "CSR listing").
enum Csr : std::uint32_t {
  kMstatus = 0x300,
  kMisa = 0x301,
  kMie = 0x304,
  kMtvec = 0x305,
  kMstatush = 0x310,
  kMscratch = 0x340,
  kMepc = 0x341,
  kMcause = 0x342,
  kMtval = 0x343,
  kMip = 0x344,
  kMcycle = 0xb00,
  kMinstret = 0xb02,
  kMcycleh = 0xb80,
  kMinstreth = 0xb82,
  kMvendorid = 0xf11,
  kMarchid = 0xf12,
  kMimpid = 0xf13,
  kMhartid = 0xf14,
  kMconfigptr = 0xf15,
};

constexpr std::uint32_t kMisaValue = 1u << 30 | 1u << ('I' - 'A') | 1u << ('M' - 'A') | 1u << ('C' - 'A');
constexpr std::uint32_t kMstatusValue = 3u << 11;  // MPP is hardwired to M; there is no other mode and no interrupt

constexpr std::int32_t as_signed(std::uint32_t value) { return static_cast<std::int32_t>(value); }

// The M extension, funct7 = 1. Division by zero and overflow have defined results (unprivileged ISA, table "Semantics
// for division by zero and division overflow").
std::uint32_t multiply_divide(std::uint32_t funct3, std::uint32_t a, std::uint32_t b) {
  const auto sa = static_cast<std::int64_t>(as_signed(a));
  const auto sb = static_cast<std::int64_t>(as_signed(b));
  switch (funct3) {
    case 0:  // mul
      return a * b;
    case 1:  // mulh
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(sa * sb) >> 32);
    case 2:  // mulhsu
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(sa * static_cast<std::int64_t>(b)) >> 32);
    case 3:  // mulhu
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(a) * b >> 32);
    case 4:  // div; in 64 bits the overflow -2^31 / -1 gives 2^31, which is the defined result
      return b == 0 ? 0xffffffffu : static_cast<std::uint32_t>(sa / sb);
    case 5:  // divu
      return b == 0 ? 0xffffffffu : a / b;
    case 6:  // rem
      return b == 0 ? a : static_cast<std::uint32_t>(sa % sb);
    default:  // remu
      return b == 0 ? a : a % b;
  }
}

// OP and OP-IMM share funct3; `alternate` is sub or sra.
std::uint32_t arithmetic(std::uint32_t funct3, bool alternate, std::uint32_t a, std::uint32_t b) {
  switch (funct3) {
    case 0:
      return alternate ? a - b : a + b;
    case 1:
      return a << (b & 31);
    case 2:
      return as_signed(a) < as_signed(b) ? 1 : 0;
    case 3:
      return a < b ? 1 : 0;
    case 4:
      return a ^ b;
    case 5:
      return alternate ? static_cast<std::uint32_t>(as_signed(a) >> (b & 31)) : a >> (b & 31);
    case 6:
      return a | b;
    default:
      return a & b;
  }
}

}  // namespace

Rv32::Rv32(FirmwareBus& bus) : bus_(bus), ram_(WEFT_FW_RAM_BYTES) {}

bool Rv32::load(std::span<const std::byte> code, std::uint32_t address, std::uint32_t entry) {
  const std::uint32_t offset = address - WEFT_FW_RAM;
  if (offset > ram_.size() || code.size() > ram_.size() - offset) return false;
  if (entry - WEFT_FW_RAM >= ram_.size() || entry % 2 != 0) return false;
  std::copy(code.begin(), code.end(), ram_.begin() + offset);
  x_.fill(0);
  pc_ = entry;
  stopped_ = false;
  return true;
}

Rv32::Stop Rv32::run(std::uint32_t instructions) {
  if (stopped_) return Stop::kTrap;
  for (; instructions != 0; --instructions) {
    std::uint32_t instruction = 0;
    std::uint32_t bytes = 0;
    bool done = fetch(pc_, instruction, bytes);
    if (done) {
      next_pc_ = pc_ + bytes;
      done = bytes == 2 ? execute(expand_compressed(static_cast<std::uint16_t>(instruction)), bytes, instruction)
                        : execute(instruction, bytes, instruction);
    }
    if (done) {
      ++retired_;
      pc_ = next_pc_;
    } else if (!enter_handler()) {
      stopped_ = true;
      return Stop::kTrap;
    }
    if (idle_) {
      idle_ = false;
      return Stop::kIdle;
    }
  }
  return Stop::kBudget;
}

bool Rv32::trap(TrapCause cause, std::uint32_t value) {
  cause_ = cause;
  trap_value_ = value;
  return false;
}

bool Rv32::enter_handler() {
  if (mtvec_ == 0) return false;
  mepc_ = pc_;
  mcause_ = static_cast<std::uint32_t>(cause_);
  mtval_ = trap_value_;
  pc_ = mtvec_;
  return true;
}

bool Rv32::fetch(std::uint32_t address, std::uint32_t& instruction, std::uint32_t& bytes) {
  const std::uint32_t offset = address - WEFT_FW_RAM;
  if (offset > WEFT_FW_RAM_BYTES - 2) return trap(TrapCause::kFetchAccess, address);
  std::uint16_t parcel = 0;
  std::memcpy(&parcel, ram_.data() + offset, sizeof(parcel));
  instruction = parcel;
  bytes = 2;
  if ((parcel & 3) != 3) return true;
  if (offset > WEFT_FW_RAM_BYTES - 4) return trap(TrapCause::kFetchAccess, address + 2);
  std::memcpy(&parcel, ram_.data() + offset + 2, sizeof(parcel));
  instruction |= static_cast<std::uint32_t>(parcel) << 16;
  bytes = 4;
  return true;
}

bool Rv32::load_data(std::uint32_t address, std::uint32_t bytes, std::uint32_t& value) {
  if (address % bytes != 0) return trap(TrapCause::kLoadMisaligned, address);
  const std::uint32_t offset = address - WEFT_FW_RAM;
  if (offset <= WEFT_FW_RAM_BYTES - bytes) {
    value = 0;
    std::memcpy(&value, ram_.data() + offset, bytes);
    return true;
  }
  if (address - WEFT_FW_IO < WEFT_FW_IO_BYTES && bytes == 4) {
    value = bus_.io_read(address - WEFT_FW_IO);
    return true;
  }
  return trap(TrapCause::kLoadAccess, address);
}

bool Rv32::store_data(std::uint32_t address, std::uint32_t bytes, std::uint32_t value) {
  if (address % bytes != 0) return trap(TrapCause::kStoreMisaligned, address);
  const std::uint32_t offset = address - WEFT_FW_RAM;
  if (offset <= WEFT_FW_RAM_BYTES - bytes) {
    std::memcpy(ram_.data() + offset, &value, bytes);
    return true;
  }
  if (address - WEFT_FW_IO < WEFT_FW_IO_BYTES && bytes == 4) {
    idle_ = address - WEFT_FW_IO == WEFT_FWIO_IDLE;
    bus_.io_write(address - WEFT_FW_IO, value);
    return true;
  }
  return trap(TrapCause::kStoreAccess, address);
}

// `raw` is the instruction as it stands in memory, for mtval.
bool Rv32::execute(std::uint32_t instruction, std::uint32_t bytes, std::uint32_t raw) {
  const std::uint32_t rd = instruction >> 7 & 31;
  const std::uint32_t funct3 = instruction >> 12 & 7;
  const std::uint32_t funct7 = instruction >> 25;
  const std::uint32_t a = x_[instruction >> 15 & 31];
  const std::uint32_t b = x_[instruction >> 20 & 31];
  std::uint32_t result = 0;

  switch (instruction & 0x7f) {
    case kLui:
      result = instruction & 0xfffff000;
      break;
    case kAuipc:
      result = pc_ + (instruction & 0xfffff000);
      break;
    case kJal:
      result = pc_ + bytes;
      next_pc_ = pc_ + j_imm(instruction);
      break;
    case kJalr:
      if (funct3 != 0) return trap(TrapCause::kIllegal, raw);
      result = pc_ + bytes;
      next_pc_ = (a + i_imm(instruction)) & ~1u;
      break;
    case kBranch: {
      bool taken = false;
      switch (funct3 >> 1) {
        case 0:
          taken = a == b;
          break;
        case 2:
          taken = as_signed(a) < as_signed(b);
          break;
        case 3:
          taken = a < b;
          break;
        default:
          return trap(TrapCause::kIllegal, raw);
      }
      if (taken != ((funct3 & 1) != 0)) next_pc_ = pc_ + b_imm(instruction);
      return true;
    }
    case kLoad: {
      const std::uint32_t address = a + i_imm(instruction);
      switch (funct3) {
        case 0:  // lb
          if (!load_data(address, 1, result)) return false;
          result = static_cast<std::uint32_t>(static_cast<std::int8_t>(result));
          break;
        case 1:  // lh
          if (!load_data(address, 2, result)) return false;
          result = static_cast<std::uint32_t>(static_cast<std::int16_t>(result));
          break;
        case 2:  // lw
          if (!load_data(address, 4, result)) return false;
          break;
        case 4:  // lbu
          if (!load_data(address, 1, result)) return false;
          break;
        case 5:  // lhu
          if (!load_data(address, 2, result)) return false;
          break;
        default:
          return trap(TrapCause::kIllegal, raw);
      }
      break;
    }
    case kStore:
      if (funct3 > 2) return trap(TrapCause::kIllegal, raw);
      return store_data(a + s_imm(instruction), 1u << funct3, b);
    case kOpImm: {
      const bool shift = funct3 == 1 || funct3 == 5;
      const bool alternate = funct3 == 5 && funct7 == 0x20;
      if (shift && funct7 != 0 && !alternate) return trap(TrapCause::kIllegal, raw);
      result = arithmetic(funct3, alternate, a, shift ? (instruction >> 20 & 31) : i_imm(instruction));
      break;
    }
    case kOp: {
      const bool alternate = funct7 == 0x20 && (funct3 == 0 || funct3 == 5);
      if (funct7 == 1) {
        result = multiply_divide(funct3, a, b);
      } else if (funct7 == 0 || alternate) {
        result = arithmetic(funct3, alternate, a, b);
      } else {
        return trap(TrapCause::kIllegal, raw);
      }
      break;
    }
    case kMiscMem:  // fence: one hart in order, nothing to do; fence.i is Zifencei, not offered
      if (funct3 != 0) return trap(TrapCause::kIllegal, raw);
      return true;
    case kSystem:
      return system(instruction, raw);
    default:
      return trap(TrapCause::kIllegal, raw);
  }
  if (rd != 0) x_[rd] = result;
  return true;
}

bool Rv32::system(std::uint32_t instruction, std::uint32_t raw) {
  const std::uint32_t funct3 = instruction >> 12 & 7;
  if (funct3 == 0) {
    switch (instruction) {
      case kEcall:
        return trap(TrapCause::kEcall, 0);
      case kEbreak:
        return trap(TrapCause::kBreakpoint, pc_);
      case kMret:
        next_pc_ = mepc_;
        return true;
      case kWfi:  // may be a no-op
        return true;
      default:
        return trap(TrapCause::kIllegal, raw);
    }
  }
  if (funct3 == 4) return trap(TrapCause::kIllegal, raw);

  // Zicsr. csrrs and csrrc with rs1 (or the immediate) 0 do not write at all.
  const std::uint32_t csr = instruction >> 20;
  const std::uint32_t source = instruction >> 15 & 31;
  const std::uint32_t operand = (funct3 & 4) != 0 ? source : x_[source];
  const bool writes = (funct3 & 3) == 1 || source != 0;
  std::uint32_t old = 0;
  if (!csr_read(csr, old)) return trap(TrapCause::kIllegal, raw);
  if (writes) {
    const std::uint32_t value = (funct3 & 3) == 1 ? operand : (funct3 & 3) == 2 ? old | operand : old & ~operand;
    if (!csr_write(csr, value)) return trap(TrapCause::kIllegal, raw);
  }
  const std::uint32_t rd = instruction >> 7 & 31;
  if (rd != 0) x_[rd] = old;
  return true;
}

bool Rv32::csr_read(std::uint32_t csr, std::uint32_t& value) const {
  switch (csr) {
    case kMstatus:
      value = kMstatusValue;
      return true;
    case kMisa:
      value = kMisaValue;
      return true;
    case kMtvec:
      value = mtvec_;
      return true;
    case kMscratch:
      value = mscratch_;
      return true;
    case kMepc:
      value = mepc_;
      return true;
    case kMcause:
      value = mcause_;
      return true;
    case kMtval:
      value = mtval_;
      return true;
    case kMcycle:
      value = static_cast<std::uint32_t>(retired_ + mcycle_offset_);
      return true;
    case kMcycleh:
      value = static_cast<std::uint32_t>((retired_ + mcycle_offset_) >> 32);
      return true;
    case kMinstret:
      value = static_cast<std::uint32_t>(retired_ + minstret_offset_);
      return true;
    case kMinstreth:
      value = static_cast<std::uint32_t>((retired_ + minstret_offset_) >> 32);
      return true;
    case kMstatush:
    case kMie:
    case kMip:
    case kMvendorid:
    case kMarchid:
    case kMimpid:
    case kMhartid:
    case kMconfigptr:
      value = 0;
      return true;
    default:
      return false;
  }
}

bool Rv32::csr_write(std::uint32_t csr, std::uint32_t value) {
  if (csr >> 10 == 3) return false;  // csr[11:10] = 11: read-only
  // The written value is what the next instruction reads, so this one's retirement must not count.
  const auto counter = [this](std::uint64_t& offset, std::uint64_t wanted) { offset = wanted - (retired_ + 1); };
  const std::uint64_t cycle = retired_ + mcycle_offset_;
  const std::uint64_t instret = retired_ + minstret_offset_;
  constexpr std::uint64_t kLow = 0xffffffffu;
  switch (csr) {
    case kMtvec:
      mtvec_ = value & ~3u;  // direct mode only
      return true;
    case kMscratch:
      mscratch_ = value;
      return true;
    case kMepc:
      mepc_ = value & ~1u;
      return true;
    case kMcause:
      mcause_ = value;
      return true;
    case kMtval:
      mtval_ = value;
      return true;
    case kMcycle:
      counter(mcycle_offset_, (cycle & ~kLow) | value);
      return true;
    case kMcycleh:
      counter(mcycle_offset_, (cycle & kLow) | static_cast<std::uint64_t>(value) << 32);
      return true;
    case kMinstret:
      counter(minstret_offset_, (instret & ~kLow) | value);
      return true;
    case kMinstreth:
      counter(minstret_offset_, (instret & kLow) | static_cast<std::uint64_t>(value) << 32);
      return true;
    default:  // legal to write, hardwired
      return true;
  }
}

}  // namespace weft::model
