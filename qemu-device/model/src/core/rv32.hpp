// SPDX-License-Identifier: MIT
// The device's management core: an RV32IMC_Zicsr interpreter, machine mode, one hart, no interrupts.
//
// Memory is WEFT_FW_RAM and WEFT_FW_IO of weft/hw/fw.h; everything else is an access fault. Misaligned loads and stores
// trap. A trap goes to mtvec; while that is 0 (as after reset) the core stops instead. Nothing depends on time: mcycle
// and minstret both count retired instructions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/model/firmware_port.hpp"

namespace weft::model {

// mcause (RISC-V privileged ISA, table "Machine cause register values").
enum class TrapCause : std::uint32_t {
  kFetchAccess = 1,
  kIllegal = 2,
  kBreakpoint = 3,
  kLoadMisaligned = 4,
  kLoadAccess = 5,
  kStoreMisaligned = 6,
  kStoreAccess = 7,
  kEcall = 11,
};

class Rv32 {
 public:
  explicit Rv32(FirmwareBus& bus);

  // Copies `code` to `address` of RAM and starts at `entry`, all registers 0. False: it does not fit; nothing changed.
  bool load(std::span<const std::byte> code, std::uint32_t address, std::uint32_t entry);

  enum class Stop {
    kBudget,  // all instructions executed
    kIdle,    // WEFT_FWIO_IDLE was written
    kTrap,    // stopped for good: cause(), trap_value(), pc()
  };
  // Executes at most `instructions` instructions; a trapping one counts.
  Stop run(std::uint32_t instructions);

  std::uint32_t pc() const { return pc_; }  // of the trapping instruction after Stop::kTrap
  TrapCause cause() const { return cause_; }
  std::uint32_t trap_value() const { return trap_value_; }  // as mtval
  std::uint64_t retired() const { return retired_; }
  std::uint32_t reg(unsigned index) const { return x_[index & 31]; }
  void set_reg(unsigned index, std::uint32_t value) {
    if ((index & 31) != 0) x_[index & 31] = value;
  }
  std::span<std::byte> ram() { return ram_; }

 private:
  // Each gives false after it took note of a trap.
  bool fetch(std::uint32_t address, std::uint32_t& instruction, std::uint32_t& bytes);
  bool execute(std::uint32_t instruction, std::uint32_t bytes, std::uint32_t raw);
  bool load_data(std::uint32_t address, std::uint32_t bytes, std::uint32_t& value);
  bool store_data(std::uint32_t address, std::uint32_t bytes, std::uint32_t value);
  bool system(std::uint32_t instruction, std::uint32_t raw);
  bool csr_read(std::uint32_t csr, std::uint32_t& value) const;
  bool csr_write(std::uint32_t csr, std::uint32_t value);
  bool trap(TrapCause cause, std::uint32_t value);
  // Enters the handler; false when there is none.
  bool enter_handler();

  FirmwareBus& bus_;
  std::vector<std::byte> ram_;
  std::array<std::uint32_t, 32> x_{};
  std::uint32_t pc_ = 0;
  std::uint32_t next_pc_ = 0;
  std::uint64_t retired_ = 0;
  bool idle_ = false;
  bool stopped_ = false;
  TrapCause cause_ = TrapCause::kIllegal;
  std::uint32_t trap_value_ = 0;

  // CSRs.
  std::uint32_t mtvec_ = 0;
  std::uint32_t mepc_ = 0;
  std::uint32_t mcause_ = 0;
  std::uint32_t mtval_ = 0;
  std::uint32_t mscratch_ = 0;
  std::uint64_t mcycle_offset_ = 0;  // added to retired_
  std::uint64_t minstret_offset_ = 0;
};

}  // namespace weft::model
