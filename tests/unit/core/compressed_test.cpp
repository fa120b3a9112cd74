// SPDX-License-Identifier: MIT
// The C extension: every parcel against binutils, then what an expansion alone does not show.
#include <gtest/gtest.h>
#include <libdeflate.h>

#include <vector>

#include "core/rvc.hpp"
#include "machine.hpp"

namespace weft::model::test {
namespace {

// All 49152 parcels were expanded and the disassembly of the results compared with binutils 2.40's disassembly of the
// parcels (objdump -m riscv:rv32 -M no-aliases), operand by operand. The only differences are 1537 encodings that
// objdump prints but the manual reserves for RV32: shifts with shamt[5] = 1 and c.addi16sp with 0. This is the CRC of
// that list.
TEST(Compressed, AllParcelsAsBinutilsHasThem) {
  std::vector<std::uint32_t> expanded;
  std::size_t legal = 0;
  for (std::uint32_t parcel = 0; parcel < 0x10000; ++parcel) {
    if ((parcel & 3) == 3) continue;
    expanded.push_back(expand_compressed(static_cast<std::uint16_t>(parcel)));
    legal += expanded.back() != 0;
  }
  EXPECT_EQ(expanded.size(), 49152u);
  EXPECT_EQ(legal, 28823u);
  EXPECT_EQ(libdeflate_crc32(0, expanded.data(), expanded.size() * 4), 0x1cbb9d04u);
}

TEST(Compressed, KnownPairs) {
  struct Pair {
    std::uint16_t parcel;
    std::uint32_t instruction;
  };
  for (const Pair& pair : {Pair{0x0040, 0x00410413},  // c.addi4spn s0, sp, 4
                           Pair{0x5ce8, 0x07c4a503},  // c.lw a0, 124(s1)
                           Pair{0xc206, 0x00112223},  // c.swsp ra, 4(sp)
                           Pair{0x9002, 0x00100073},  // c.ebreak
                           Pair{0x0001, 0x00000013},  // c.nop
                           Pair{0x0000, 0}}) {        // defined illegal
    EXPECT_EQ(expand_compressed(pair.parcel), pair.instruction) << std::hex << pair.parcel;
  }
}

TEST(Compressed, Reserved) {
  for (const std::uint16_t parcel : {0x0000, 0x0004,                             // c.addi4spn with 0
                                     0x6101,                                     // c.addi16sp with 0
                                     0x6281,                                     // c.lui t0 with 0
                                     0x9001, 0x9401, 0x1282,                     // shamt[5]
                                     0x4002,                                     // c.lwsp zero
                                     0x8002,                                     // c.jr zero
                                     0x9c01, 0x9c21,                             // c.subw, c.addw
                                     0x2000, 0x6000, 0xa000, 0xe000, 0x8000}) {  // F, D and reserved
    EXPECT_EQ(expand_compressed(parcel), 0u) << std::hex << parcel;
  }
}

TEST(Compressed, LinksAreTwoBytesOn) {
  Machine jal({rvc(0x2ffd)});  // c.jal +0x7fe
  ASSERT_TRUE(jal.one());
  EXPECT_EQ(jal.core.pc(), kCode + 0x7fe);
  EXPECT_EQ(jal.get(kRa), kCode + 2);
  Machine jalr({rvc(0x9282)});  // c.jalr t0
  jalr.set(kT0, kData);
  ASSERT_TRUE(jalr.one());
  EXPECT_EQ(jalr.core.pc(), kData);
  EXPECT_EQ(jalr.get(kRa), kCode + 2);
}

TEST(Compressed, FallsThroughTwoBytes) {
  Machine machine({rvc(0xcc7d), rvc(0x02fd), 0x007302b3});  // c.beqz s0, +0xfe; c.addi t0, 31; add t0, t1, t2
  machine.set(kS0, 1).set(kT1, 5).set(kT2, 6);
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.core.pc(), kCode + 2);
  ASSERT_TRUE(machine.one());
  EXPECT_EQ(machine.get(kT0), 31u);
  ASSERT_TRUE(machine.one());  // a 32-bit instruction on a 2-byte boundary
  EXPECT_EQ(machine.get(kT0), 11u);
  EXPECT_EQ(machine.core.pc(), kCode + 8);
}

TEST(Compressed, StackAccess) {
  Machine machine({rvc(0xc206), rvc(0x5ffe)});  // c.swsp ra, 4(sp); c.lwsp t6, 252(sp)
  machine.set(kSp, kData).set(kRa, 0xabcd);
  machine.poke(kData + 252, 0x1234);
  ASSERT_EQ(machine.core.run(2), Rv32::Stop::kBudget);
  EXPECT_EQ(machine.peek(kData + 4), 0xabcdu);
  EXPECT_EQ(machine.get(kT6), 0x1234u);
}

TEST(Compressed, HintsChangeNothing) {
  for (const std::uint16_t parcel : {0x0005,     // c.nop 1
                                     0x4005,     // c.li zero, 1
                                     0x6005,     // c.lui zero, 1
                                     0x8016,     // c.mv zero, t0
                                     0x9016,     // c.add zero, t0
                                     0x0006}) {  // c.slli zero, 1
    Machine machine({rvc(parcel)});
    machine.set(kT0, 7);
    ASSERT_TRUE(machine.one()) << std::hex << parcel;
    EXPECT_EQ(machine.get(kZero), 0u);
    EXPECT_EQ(machine.get(kT0), 7u);
    EXPECT_EQ(machine.core.pc(), kCode + 2);
  }
}

}  // namespace
}  // namespace weft::model::test
