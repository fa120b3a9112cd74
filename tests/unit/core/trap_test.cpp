// SPDX-License-Identifier: MIT
// Traps: causes and values as the privileged manual says, stopping without a handler, entering one with it.
#include <gtest/gtest.h>

#include "machine.hpp"

namespace weft::model::test {
namespace {

void expect_stop(Machine& machine, TrapCause cause, std::uint32_t pc, std::uint32_t value) {
  EXPECT_EQ(machine.core.run(1), Rv32::Stop::kTrap);
  EXPECT_EQ(machine.core.cause(), cause);
  EXPECT_EQ(machine.core.pc(), pc);
  EXPECT_EQ(machine.core.trap_value(), value);
  // It stays stopped.
  EXPECT_EQ(machine.core.run(10), Rv32::Stop::kTrap);
  EXPECT_EQ(machine.core.pc(), pc);
}

TEST(Trap, EnvironmentCallAndBreakpoint) {
  Machine ecall({0x00000073});
  expect_stop(ecall, TrapCause::kEcall, kCode, 0);
  Machine ebreak({0x00100073});
  expect_stop(ebreak, TrapCause::kBreakpoint, kCode, kCode);
  Machine compressed({rvc(0x9002)});
  expect_stop(compressed, TrapCause::kBreakpoint, kCode, kCode);
}

TEST(Trap, IllegalInstructions) {
  for (const std::uint32_t code : {0xffffffffu,                            // defined illegal
                                   0x00001067u,                            // jalr with funct3 1
                                   0x00002063u,                            // branch with funct3 2
                                   0x00003003u, 0x00006003u, 0x00007003u,  // ld, lwu, reserved
                                   0x00003023u,                            // sd
                                   0x02001013u, 0x02005013u, 0x42005013u,  // shifts by 32 and more
                                   0x40001033u, 0x40002033u, 0x04000033u,  // reserved funct7
                                   0x0000100fu,                            // fence.i: Zifencei
                                   0x1005202fu,                            // lr.w: A
                                   0x00052007u, 0x00b57553u,               // flw: F; fadd.d: D
                                   0x0000001bu, 0x0000003bu,               // RV64's OP-IMM-32, OP-32
                                   0x10200073u,                            // sret: no S mode
                                   0x00200073u,                            // uret: no N
                                   0x00004073u,                            // SYSTEM with funct3 4
                                   0xf1431073u,                            // csrw mhartid: read-only
                                   0xc00022f3u, 0x180022f3u}) {            // cycle, satp: not there
    Machine machine({code});
    machine.set(kT1, kData);
    SCOPED_TRACE(testing::Message() << std::hex << code);
    expect_stop(machine, TrapCause::kIllegal, kCode, code);
  }
  Machine zero({rvc(0)});
  expect_stop(zero, TrapCause::kIllegal, kCode, 0);
  Machine reserved({rvc(0x9c01)});
  expect_stop(reserved, TrapCause::kIllegal, kCode, 0x9c01);
}

TEST(Trap, ReadOnlyCsrMayBeReadBySetInstructions) {
  Machine machine({0xf14022f3});  // csrrs t0, mhartid, zero
  EXPECT_TRUE(machine.one());
}

TEST(Trap, MisalignedData) {
  struct Case {
    std::uint32_t code;
    std::uint32_t offset;
    TrapCause cause;
  };
  for (const Case& test : {Case{0xffc32283, 1, TrapCause::kLoadMisaligned},  // lw t0,-4(t1)
                           Case{0xffc32283, 2, TrapCause::kLoadMisaligned},
                           Case{0xffe31283, 1, TrapCause::kLoadMisaligned},      // lh t0,-2(t1)
                           Case{0xffe35283, 1, TrapCause::kLoadMisaligned},      // lhu
                           Case{0xfe732e23, 3, TrapCause::kStoreMisaligned},     // sw t2,-4(t1)
                           Case{0xfe731f23, 1, TrapCause::kStoreMisaligned}}) {  // sh t2,-2(t1)
    Machine machine({test.code});
    machine.set(kT1, kData + 8 + test.offset).set(kT0, 77);
    const std::uint32_t size = (test.code & 0x3000) == 0x2000 ? 4 : 2;
    SCOPED_TRACE(testing::Message() << std::hex << test.code);
    expect_stop(machine, test.cause, kCode, kData + 8 + test.offset - size);
    EXPECT_EQ(machine.get(kT0), 77u);
    EXPECT_EQ(machine.peek(kData + 4), 0u);
  }
}

TEST(Trap, DataAccessFaults) {
  struct Case {
    std::uint32_t code;
    std::uint32_t base;
    std::uint32_t address;
    TrapCause cause;
  };
  constexpr std::uint32_t kEnd = WEFT_FW_RAM + WEFT_FW_RAM_BYTES;
  constexpr std::uint32_t kIoEnd = WEFT_FW_IO + WEFT_FW_IO_BYTES;
  for (const Case& test :
       {Case{0xffc32283, WEFT_FW_RAM, WEFT_FW_RAM - 4, TrapCause::kLoadAccess},  // lw t0,-4(t1)
        Case{0xffc32283, kEnd + 4, kEnd, TrapCause::kLoadAccess}, Case{0xffc32283, 4, 0, TrapCause::kLoadAccess},
        Case{0xffc32283, 0, 0xfffffffc, TrapCause::kLoadAccess},
        Case{0xffc32283, WEFT_FW_IO, WEFT_FW_IO - 4, TrapCause::kLoadAccess},
        Case{0xffc32283, kIoEnd + 4, kIoEnd, TrapCause::kLoadAccess},
        Case{0xffe35283, WEFT_FW_IO + 2, WEFT_FW_IO, TrapCause::kLoadAccess},  // lhu: words only
        Case{0xfff34283, WEFT_FW_IO + 1, WEFT_FW_IO, TrapCause::kLoadAccess},  // lbu
        Case{0xfe732e23, kEnd + 4, kEnd, TrapCause::kStoreAccess},             // sw t2,-4(t1)
        Case{0xfe732e23, WEFT_FW_RAM, WEFT_FW_RAM - 4, TrapCause::kStoreAccess},
        Case{0xfe730fa3, WEFT_FW_IO + 1, WEFT_FW_IO, TrapCause::kStoreAccess},  // sb t2,-1(t1)
        Case{0xfe732e23, kIoEnd + 4, kIoEnd, TrapCause::kStoreAccess}}) {
    Machine machine({test.code});
    machine.set(kT1, test.base);
    SCOPED_TRACE(testing::Message() << std::hex << test.code << " at " << test.address);
    expect_stop(machine, test.cause, kCode, test.address);
    EXPECT_TRUE(machine.bus.writes.empty());
  }
}

TEST(Trap, LastBytesOfMemoryAreReachable) {
  constexpr std::uint32_t kEnd = WEFT_FW_RAM + WEFT_FW_RAM_BYTES;
  Machine machine({0xfe732e23, 0xfff34283});  // sw t2,-4(t1); lbu t0,-1(t1)
  machine.set(kT1, kEnd).set(kT2, 0xa1b2c3d4);
  EXPECT_EQ(machine.core.run(2), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.get(kT0), 0xa1u);
}

TEST(Trap, FetchOutsideMemory) {
  for (const std::uint32_t target : {0u, WEFT_FW_RAM - 4, WEFT_FW_RAM + WEFT_FW_RAM_BYTES, WEFT_FW_IO, 0xfffffffcu}) {
    Machine machine({0x00030067});  // jr t1
    machine.set(kT1, target);
    ASSERT_TRUE(machine.one());
    SCOPED_TRACE(testing::Message() << std::hex << target);
    expect_stop(machine, TrapCause::kFetchAccess, target, target);
  }
}

TEST(Trap, InstructionThatCrossesTheEndOfMemory) {
  constexpr std::uint32_t kLast = WEFT_FW_RAM + WEFT_FW_RAM_BYTES - 2;
  Machine word({rvc(0x02b3)}, kLast);  // low half of a 32-bit instruction
  ASSERT_TRUE(word.loaded);
  expect_stop(word, TrapCause::kFetchAccess, kLast, kLast + 2);
  Machine parcel({rvc(0x0001)}, kLast);
  EXPECT_TRUE(parcel.one());
}

TEST(Trap, HandlerRunsAndReturns) {
  // csrw mtvec, t1; ecall; nop; at kData: csrr t0, mcause; csrr t2, mepc; addi t2, t2, 4; csrw mepc, t2; mret
  Machine machine({0x30531073, 0x00000073, 0x00000013});
  const std::uint32_t handler[] = {0x342022f3, 0x341023f3, 0x00438393, 0x34139073, 0x30200073};
  for (unsigned i = 0; i < 5; ++i) machine.poke(kData + 4 * i, handler[i]);
  machine.set(kT1, kData + 3);  // the mode bits do not stick: direct only
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.core.run(1), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.core.pc(), kData);
  EXPECT_EQ(machine.core.retired(), 1u);  // a trapping instruction does not retire
  EXPECT_EQ(machine.core.run(5), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.get(kT0), 11u);
  EXPECT_EQ(machine.core.pc(), kCode + 8);
}

TEST(Trap, HandlerSeesTheValue) {
  Machine machine({0x30531073, 0xffc3a283});  // csrw mtvec, t1; lw t0,-4(t2)
  machine.poke(kData, 0x343022f3);            // csrr t0, mtval
  machine.set(kT1, kData).set(kT2, 0x20000005);
  EXPECT_EQ(machine.core.run(3), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.get(kT0), 0x20000001u);
}

TEST(Trap, HandlerThatTrapsStaysBounded) {
  Machine machine({0x30531073, 0x00000073});  // csrw mtvec, t1; ecall
  machine.poke(kData, 0xffffffff);
  machine.set(kT1, kData);
  EXPECT_EQ(machine.core.run(100000), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.core.retired(), 1u);
}

TEST(Load, RefusesWhatDoesNotFit) {
  WordBus bus;
  Rv32 core(bus);
  const std::vector<std::byte> code(16);
  const std::vector<std::byte> all(WEFT_FW_RAM_BYTES);
  constexpr std::uint32_t kEnd = WEFT_FW_RAM + WEFT_FW_RAM_BYTES;
  EXPECT_TRUE(core.load(all, WEFT_FW_RAM, WEFT_FW_RAM));
  EXPECT_TRUE(core.load(code, kEnd - 16, WEFT_FW_RAM));
  EXPECT_FALSE(core.load(all, WEFT_FW_RAM + 4, WEFT_FW_RAM));
  EXPECT_FALSE(core.load(code, kEnd - 12, WEFT_FW_RAM));
  EXPECT_FALSE(core.load(code, kEnd, WEFT_FW_RAM));
  EXPECT_FALSE(core.load(code, WEFT_FW_RAM - 4, WEFT_FW_RAM));
  EXPECT_FALSE(core.load(code, 0xfffffff0, WEFT_FW_RAM));
  EXPECT_FALSE(core.load(code, WEFT_FW_RAM, kEnd));
  EXPECT_FALSE(core.load(code, WEFT_FW_RAM, WEFT_FW_RAM - 2));
  EXPECT_FALSE(core.load(code, WEFT_FW_RAM, WEFT_FW_RAM + 1));
}

}  // namespace
}  // namespace weft::model::test
