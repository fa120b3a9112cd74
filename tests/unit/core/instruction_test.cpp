// SPDX-License-Identifier: MIT
// 32-bit instructions. Encodings are binutils' (riscv64-unknown-elf-as 2.40); results are worked out from the manual.
#include <gtest/gtest.h>

#include "machine.hpp"

namespace weft::model::test {
namespace {

// OP: rd = t0, rs1 = t1, rs2 = t2.
struct Binary {
  const char* name;
  std::uint32_t code;
  std::uint32_t a, b, result;
};

void PrintTo(const Binary& test, std::ostream* out) {
  *out << test.name << std::hex << " 0x" << test.a << ", 0x" << test.b;
}

class RegisterRegister : public testing::TestWithParam<Binary> {};

TEST_P(RegisterRegister, Result) {
  const Binary& test = GetParam();
  Machine machine({test.code});
  machine.set(kT1, test.a).set(kT2, test.b);
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.get(kT0), test.result);
  EXPECT_EQ(machine.get(kT1), test.a);
  EXPECT_EQ(machine.get(kT2), test.b);
  EXPECT_EQ(machine.core.pc(), kCode + 4);
}

INSTANTIATE_TEST_SUITE_P(
    Base, RegisterRegister,
    testing::Values(Binary{"add", 0x007302b3, 0xffffffff, 2, 1}, Binary{"add", 0x007302b3, 0x7fffffff, 1, 0x80000000},
                    Binary{"sub", 0x407302b3, 0, 1, 0xffffffff}, Binary{"sub", 0x407302b3, 0x80000000, 1, 0x7fffffff},
                    Binary{"sll", 0x007312b3, 1, 31, 0x80000000},
                    Binary{"sll", 0x007312b3, 5, 32, 5},  // five bits of the amount count
                    Binary{"slt", 0x007322b3, 0x80000000, 0, 1}, Binary{"slt", 0x007322b3, 0, 0x80000000, 0},
                    Binary{"slt", 0x007322b3, 7, 7, 0}, Binary{"sltu", 0x007332b3, 0x80000000, 0, 0},
                    Binary{"sltu", 0x007332b3, 0, 0x80000000, 1},
                    Binary{"xor", 0x007342b3, 0xff00ff00, 0x0ff00ff0, 0xf0f0f0f0},
                    Binary{"srl", 0x007352b3, 0x80000000, 31, 1},
                    Binary{"srl", 0x007352b3, 0x80000000, 0xffffffe0, 0x80000000},
                    Binary{"sra", 0x407352b3, 0x80000000, 31, 0xffffffff}, Binary{"sra", 0x407352b3, 0x40000000, 30, 1},
                    Binary{"or", 0x007362b3, 0xff00ff00, 0x0ff00ff0, 0xfff0fff0},
                    Binary{"and", 0x007372b3, 0xff00ff00, 0x0ff00ff0, 0x0f000f00}));

INSTANTIATE_TEST_SUITE_P(
    MultiplyDivide, RegisterRegister,
    testing::Values(Binary{"mul", 0x027302b3, 0x80000000, 3, 0x80000000},
                    Binary{"mul", 0x027302b3, 0xffffffff, 0xffffffff, 1},
                    Binary{"mulh", 0x027312b3, 0xffffffff, 0xffffffff, 0},           // -1 * -1
                    Binary{"mulh", 0x027312b3, 0xffffffff, 1, 0xffffffff},           // -1 * 1
                    Binary{"mulh", 0x027312b3, 0x80000000, 0x80000000, 0x40000000},  // 2^62
                    Binary{"mulh", 0x027312b3, 0x80000000, 0x7fffffff, 0xc0000000},
                    Binary{"mulhsu", 0x027322b3, 0xffffffff, 0xffffffff, 0xffffffff},  // -1 * (2^32 - 1)
                    Binary{"mulhsu", 0x027322b3, 0x80000000, 0xffffffff, 0x80000000},
                    Binary{"mulhsu", 0x027322b3, 0x7fffffff, 0xffffffff, 0x7ffffffe},
                    Binary{"mulhu", 0x027332b3, 0xffffffff, 0xffffffff, 0xfffffffe},
                    Binary{"mulhu", 0x027332b3, 0x80000000, 0x80000000, 0x40000000},
                    Binary{"div", 0x027342b3, 7, 0xfffffffe, 0xfffffffd},           // 7 / -2 = -3, towards zero
                    Binary{"div", 0x027342b3, 0xfffffff9, 2, 0xfffffffd},           // -7 / 2 = -3
                    Binary{"div", 0x027342b3, 5, 0, 0xffffffff},                    // by zero: -1
                    Binary{"div", 0x027342b3, 0x80000000, 0xffffffff, 0x80000000},  // overflow
                    Binary{"divu", 0x027352b3, 0x80000000, 0xffffffff, 0}, Binary{"divu", 0x027352b3, 7, 2, 3},
                    Binary{"divu", 0x027352b3, 5, 0, 0xffffffff},
                    Binary{"rem", 0x027362b3, 0xfffffff9, 2, 0xffffffff},  // sign of the dividend
                    Binary{"rem", 0x027362b3, 7, 0xfffffffe, 1}, Binary{"rem", 0x027362b3, 5, 0, 5},
                    Binary{"rem", 0x027362b3, 0x80000000, 0xffffffff, 0},  // overflow
                    Binary{"remu", 0x027372b3, 0x80000000, 0xffffffff, 0x80000000}, Binary{"remu", 0x027372b3, 7, 4, 3},
                    Binary{"remu", 0x027372b3, 5, 0, 5}));

// OP-IMM, LUI: rd = t0, rs1 = t1; `b` is not used.
INSTANTIATE_TEST_SUITE_P(
    Immediate, RegisterRegister,
    testing::Values(
        Binary{"addi -2048", 0x80030293, 0, 0, 0xfffff800}, Binary{"addi -2048", 0x80030293, 0x80000000, 0, 0x7ffff800},
        Binary{"slti -1", 0xfff32293, 0xfffffffe, 0, 1}, Binary{"slti -1", 0xfff32293, 0, 0, 0},
        Binary{"sltiu -1", 0xfff33293, 0xfffffffe, 0, 1}, Binary{"sltiu -1", 0xfff33293, 0xffffffff, 0, 0},
        Binary{"xori -1", 0xfff34293, 0x12345678, 0, 0xedcba987},
        Binary{"ori 0x555", 0x55536293, 0xaaaaaaaa, 0, 0xaaaaafff},
        Binary{"andi -16", 0xff037293, 0x12345678, 0, 0x12345670}, Binary{"slli 31", 0x01f31293, 3, 0, 0x80000000},
        Binary{"srli 31", 0x01f35293, 0xc0000000, 0, 1}, Binary{"srai 31", 0x41f35293, 0xc0000000, 0, 0xffffffff},
        Binary{"lui 0xfffff", 0xfffff2b7, 0, 0, 0xfffff000}, Binary{"lui 0x12345", 0x123452b7, 0, 0, 0x12345000},
        Binary{"auipc 1", 0x00001297, 0, 0, kCode + 0x1000},
        Binary{"auipc 0x80000", 0x80000297, 0, 0, kCode + 0x80000000}));

TEST(Register, ZeroStaysZero) {
  Machine machine({0x00730033});  // add zero, t1, t2
  machine.set(kT1, 1).set(kT2, 2);
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.get(kZero), 0u);
}

TEST(Load, WidthsAndSigns) {
  struct Case {
    std::uint32_t code;
    std::uint32_t base;
    std::uint32_t result;
  };
  // The word at kData is 0x8badf0de, little-endian bytes de f0 ad 8b.
  for (const Case& test : {Case{0xfff30283, kData + 4, 0xffffff8b},      // lb t0,-1(t1)
                           Case{0xfff34283, kData + 4, 0x8b},            // lbu
                           Case{0xfff34283, kData + 1, 0xde},            // lbu
                           Case{0xffe31283, kData + 4, 0xffff8bad},      // lh t0,-2(t1)
                           Case{0xffe35283, kData + 4, 0x8bad},          // lhu
                           Case{0xffe35283, kData + 2, 0xf0de},          // lhu
                           Case{0xffc32283, kData + 4, 0x8badf0de},      // lw t0,-4(t1)
                           Case{0x7fc32283, kData - 2044, 0x8badf0de}})  // lw t0,2044(t1)
  {
    Machine machine({test.code});
    machine.poke(kData, 0x8badf0de);
    machine.set(kT1, test.base);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.get(kT0), test.result) << std::hex << test.code;
  }
}

TEST(Store, Widths) {
  struct Case {
    std::uint32_t code;
    std::uint32_t result;
  };
  for (const Case& test : {Case{0xfe730fa3, 0x44ffffff},     // sb t2,-1(t1)
                           Case{0xfe731f23, 0x3344ffff},     // sh t2,-2(t1)
                           Case{0xfe732e23, 0x11223344}}) {  // sw t2,-4(t1)
    Machine machine({test.code});
    machine.poke(kData, 0xffffffff);
    machine.poke(kData + 4, 0xffffffff);
    machine.set(kT1, kData + 4).set(kT2, 0x11223344);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.peek(kData), test.result);
    EXPECT_EQ(machine.peek(kData + 4), 0xffffffffu);
  }
}

TEST(Jump, TargetsAndLinks) {
  {
    Machine machine({0x001000ef});  // jal ra, +0x800
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.core.pc(), kCode + 0x800);
    EXPECT_EQ(machine.get(kRa), kCode + 4);
  }
  {
    Machine machine({0x800ff06f});  // jal zero, -0x1000
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.core.pc(), kCode - 0x1000);
  }
  {
    Machine machine({0x005300e7});  // jalr ra, 5(t1): the lowest bit of the target is cleared
    machine.set(kT1, kData);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.core.pc(), kData + 4);
    EXPECT_EQ(machine.get(kRa), kCode + 4);
  }
  {
    Machine machine({0x000080e7});  // jalr ra, 0(ra): the target is read before the link is written
    machine.set(kRa, kData);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.core.pc(), kData);
    EXPECT_EQ(machine.get(kRa), kCode + 4);
  }
}

TEST(Branch, Conditions) {
  struct Case {
    std::uint32_t code;  // branch t1, t2, +8
    std::uint32_t a, b;
    bool taken;
  };
  for (const Case& test : {Case{0x00730463, 1, 1, true}, Case{0x00730463, 1, 2, false},                    // beq
                           Case{0x00731463, 1, 2, true}, Case{0x00731463, 2, 2, false},                    // bne
                           Case{0x00734463, 0xffffffff, 0, true}, Case{0x00734463, 0, 0xffffffff, false},  // blt
                           Case{0x00735463, 0, 0xffffffff, true}, Case{0x00735463, 5, 5, true},            // bge
                           Case{0x00735463, 0xffffffff, 0, false},                                         // bge
                           Case{0x00736463, 0, 0xffffffff, true}, Case{0x00736463, 0xffffffff, 0, false},  // bltu
                           Case{0x00737463, 0xffffffff, 0, true}, Case{0x00737463, 0, 1, false}}) {        // bgeu
    Machine machine({test.code});
    machine.set(kT1, test.a).set(kT2, test.b);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.core.pc(), kCode + (test.taken ? 8 : 4)) << std::hex << test.code;
  }
}

TEST(Branch, FarthestTargets) {
  Machine back({0x80730063});  // beq t1, t2, -0x1000
  ASSERT_TRUE(back.one());
  EXPECT_EQ(back.core.pc(), kCode - 0x1000);
  Machine forth({0x7e730fe3});  // beq t1, t2, +0xffe
  ASSERT_TRUE(forth.one());
  EXPECT_EQ(forth.core.pc(), kCode + 0xffe);
}

TEST(Fence, IsANoOp) {
  Machine machine({0x0ff0000f});  // fence iorw, iorw
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.core.pc(), kCode + 4);
}

TEST(Csr, ReadWriteSetClear) {
  struct Case {
    std::uint32_t code;
    std::uint32_t after;
  };
  // mscratch is 0xff00, t1 is 0x0ff0.
  for (const Case& test : {Case{0x340312f3, 0x0ff0},       // csrrw t0, mscratch, t1
                           Case{0x340322f3, 0xfff0},       // csrrs
                           Case{0x340332f3, 0xf000},       // csrrc
                           Case{0x340ad2f3, 21},           // csrrwi 21
                           Case{0x340562f3, 0xff0a},       // csrrsi 10
                           Case{0x3402f2f3, 0xff00}}) {    // csrrci 5
    Machine machine({0x34031073, test.code, 0x34002373});  // csrw mscratch, t1; test; csrr t1, mscratch
    machine.set(kT1, 0xff00);
    ASSERT_TRUE(machine.one());
    machine.set(kT1, 0x0ff0);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.get(kT0), 0xff00u);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.get(kT1), test.after) << std::hex << test.code;
  }
}

TEST(Csr, Identity) {
  struct Case {
    std::uint32_t code;
    std::uint32_t value;
  };
  for (const Case& test : {Case{0x301022f3, 0x40001104},  // misa: MXL 1, I, M, C
                           Case{0xf14022f3, 0},           // mhartid
                           Case{0x300022f3, 0x1800},      // mstatus: MPP = M
                           Case{0x305022f3, 0}, Case{0x341022f3, 0}, Case{0x342022f3, 0}}) {
    Machine machine({test.code});
    machine.set(kT0, 0x5555);
    ASSERT_TRUE(machine.one());
    EXPECT_EQ(machine.get(kT0), test.value) << std::hex << test.code;
  }
}

TEST(Csr, CountersCountRetiredInstructions) {
  // nop; csrr t0, mcycle; csrw minstret, t1; csrr t0, minstret; csrr t0, minstreth
  Machine machine({0x00000013, 0xb00022f3, 0xb0231073, 0xb02022f3, 0xb82022f3});
  machine.set(kT1, 0xffffffff);
  ASSERT_EQ(machine.core.run(2), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.get(kT0), 1u);
  ASSERT_EQ(machine.core.run(2), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.get(kT0), 0xffffffffu);  // what was written; the write itself does not count
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.get(kT0), 1u);  // carried into the high word
  EXPECT_EQ(machine.core.retired(), 5u);
}

TEST(Run, IsBounded) {
  Machine machine({0x0000006f});  // j .
  EXPECT_EQ(machine.core.run(1000), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.core.retired(), 1000u);
  EXPECT_EQ(machine.core.run(0), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.core.retired(), 1000u);
}

TEST(Io, WordsReachTheBus) {
  Machine machine({0xffc32283, 0xfe732e23});  // lw t0,-4(t1); sw t2,-4(t1)
  machine.bus.words[0x21c - 0x10] = 0x1234;
  machine.set(kT1, WEFT_FW_IO + 0x210).set(kT2, 99);
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.get(kT0), 0x1234u);
  EXPECT_EQ(machine.core.run(1), Rv32::Stop::kBudget);
  ASSERT_EQ(machine.bus.writes.size(), 1u);
  EXPECT_EQ(machine.bus.writes[0], std::make_pair(0x20cu, 99u));
}

TEST(Io, IdleEndsTheRun) {
  Machine machine({0xfe732e23, 0x00000013});  // sw t2,-4(t1); nop
  machine.set(kT1, WEFT_FW_IO + WEFT_FWIO_IDLE + 4);
  EXPECT_EQ(machine.core.run(100), Rv32::Stop::kIdle);
  EXPECT_EQ(machine.core.retired(), 1u);
  EXPECT_EQ(machine.core.run(1), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.core.pc(), kCode + 8);
}

}  // namespace
}  // namespace weft::model::test
