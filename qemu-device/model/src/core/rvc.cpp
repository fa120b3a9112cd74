// SPDX-License-Identifier: MIT
#include "core/rvc.hpp"

#include "core/encoding.hpp"

namespace weft::model {
namespace {

using namespace rv32;

constexpr std::uint32_t kIllegal = 0;
constexpr std::uint32_t kRa = 1;
constexpr std::uint32_t kSp = 2;

// Bits [high:low] of the parcel, moved to bit `to` of an immediate.
constexpr std::uint32_t bits(std::uint32_t parcel, unsigned high, unsigned low, unsigned to = 0) {
  return ((parcel >> low) & ((1u << (high - low + 1)) - 1)) << to;
}

constexpr std::int32_t sign_extend(std::uint32_t value, unsigned width) {
  const unsigned shift = 32 - width;
  return static_cast<std::int32_t>(value << shift) >> shift;
}

// The three-bit register fields name x8..x15.
constexpr std::uint32_t short_rd(std::uint32_t p) { return 8 + bits(p, 4, 2); }
constexpr std::uint32_t short_rs1(std::uint32_t p) { return 8 + bits(p, 9, 7); }

constexpr std::int32_t imm6(std::uint32_t p) { return sign_extend(bits(p, 12, 12, 5) | bits(p, 6, 2), 6); }

constexpr std::uint32_t lw_offset(std::uint32_t p) { return bits(p, 12, 10, 3) | bits(p, 6, 6, 2) | bits(p, 5, 5, 6); }

constexpr std::int32_t jump_offset(std::uint32_t p) {
  return sign_extend(bits(p, 12, 12, 11) | bits(p, 11, 11, 4) | bits(p, 10, 9, 8) | bits(p, 8, 8, 10) |
                         bits(p, 7, 7, 6) | bits(p, 6, 6, 7) | bits(p, 5, 3, 1) | bits(p, 2, 2, 5),
                     12);
}

constexpr std::int32_t branch_offset(std::uint32_t p) {
  return sign_extend(bits(p, 12, 12, 8) | bits(p, 11, 10, 3) | bits(p, 6, 5, 6) | bits(p, 4, 3, 1) | bits(p, 2, 2, 5),
                     9);
}

std::uint32_t expand_quadrant0(std::uint32_t p) {
  switch (bits(p, 15, 13)) {
    case 0: {  // c.addi4spn; a zero immediate is reserved, and the all-zero parcel is defined illegal
      const std::uint32_t imm = bits(p, 12, 11, 4) | bits(p, 10, 7, 6) | bits(p, 6, 6, 2) | bits(p, 5, 5, 3);
      return imm == 0 ? kIllegal : i_type(kOpImm, 0, short_rd(p), kSp, static_cast<std::int32_t>(imm));
    }
    case 2:  // c.lw
      return i_type(kLoad, 2, short_rd(p), short_rs1(p), static_cast<std::int32_t>(lw_offset(p)));
    case 6:  // c.sw
      return s_type(kStore, 2, short_rs1(p), short_rd(p), static_cast<std::int32_t>(lw_offset(p)));
    default:  // c.fld, c.flw, c.fsd, c.fsw, reserved
      return kIllegal;
  }
}

std::uint32_t expand_arithmetic(std::uint32_t p) {
  const std::uint32_t rd = short_rs1(p);
  switch (bits(p, 11, 10)) {
    case 0:  // c.srli; shamt[5] is reserved for RV32
      return bits(p, 12, 12) ? kIllegal : i_type(kOpImm, 5, rd, rd, static_cast<std::int32_t>(bits(p, 6, 2)));
    case 1:  // c.srai
      return bits(p, 12, 12) ? kIllegal : i_type(kOpImm, 5, rd, rd, static_cast<std::int32_t>(0x400 | bits(p, 6, 2)));
    case 2:  // c.andi
      return i_type(kOpImm, 7, rd, rd, imm6(p));
    default:
      break;
  }
  if (bits(p, 12, 12)) return kIllegal;  // c.subw, c.addw: RV64
  const std::uint32_t rs2 = short_rd(p);
  switch (bits(p, 6, 5)) {
    case 0:  // c.sub
      return r_type(kOp, 0, 0x20, rd, rd, rs2);
    case 1:  // c.xor
      return r_type(kOp, 4, 0, rd, rd, rs2);
    case 2:  // c.or
      return r_type(kOp, 6, 0, rd, rd, rs2);
    default:  // c.and
      return r_type(kOp, 7, 0, rd, rd, rs2);
  }
}

std::uint32_t expand_quadrant1(std::uint32_t p) {
  const std::uint32_t rd = bits(p, 11, 7);
  switch (bits(p, 15, 13)) {
    case 0:  // c.addi, c.nop
      return i_type(kOpImm, 0, rd, rd, imm6(p));
    case 1:  // c.jal (RV32 only)
      return j_type(kJal, kRa, jump_offset(p));
    case 2:  // c.li
      return i_type(kOpImm, 0, rd, 0, imm6(p));
    case 3: {
      if (rd == kSp) {  // c.addi16sp
        const std::int32_t imm = sign_extend(
            bits(p, 12, 12, 9) | bits(p, 6, 6, 4) | bits(p, 5, 5, 6) | bits(p, 4, 3, 7) | bits(p, 2, 2, 5), 10);
        return imm == 0 ? kIllegal : i_type(kOpImm, 0, kSp, kSp, imm);
      }
      const std::int32_t imm = imm6(p);  // c.lui
      return imm == 0 ? kIllegal : u_type(kLui, rd, static_cast<std::uint32_t>(imm) << 12);
    }
    case 4:
      return expand_arithmetic(p);
    case 5:  // c.j
      return j_type(kJal, 0, jump_offset(p));
    case 6:  // c.beqz
      return b_type(kBranch, 0, short_rs1(p), 0, branch_offset(p));
    default:  // c.bnez
      return b_type(kBranch, 1, short_rs1(p), 0, branch_offset(p));
  }
}

std::uint32_t expand_quadrant2(std::uint32_t p) {
  const std::uint32_t rd = bits(p, 11, 7);
  const std::uint32_t rs2 = bits(p, 6, 2);
  switch (bits(p, 15, 13)) {
    case 0:  // c.slli
      return bits(p, 12, 12) ? kIllegal : i_type(kOpImm, 1, rd, rd, static_cast<std::int32_t>(rs2));
    case 2: {  // c.lwsp
      const std::uint32_t offset = bits(p, 12, 12, 5) | bits(p, 6, 4, 2) | bits(p, 3, 2, 6);
      return rd == 0 ? kIllegal : i_type(kLoad, 2, rd, kSp, static_cast<std::int32_t>(offset));
    }
    case 4:
      if (bits(p, 12, 12) == 0) {
        if (rs2 != 0) return r_type(kOp, 0, 0, rd, 0, rs2);      // c.mv
        return rd == 0 ? kIllegal : i_type(kJalr, 0, 0, rd, 0);  // c.jr
      }
      if (rs2 != 0) return r_type(kOp, 0, 0, rd, rd, rs2);      // c.add
      return rd == 0 ? kEbreak : i_type(kJalr, 0, kRa, rd, 0);  // c.ebreak, c.jalr
    case 6: {                                                   // c.swsp
      const std::uint32_t offset = bits(p, 12, 9, 2) | bits(p, 8, 7, 6);
      return s_type(kStore, 2, kSp, rs2, static_cast<std::int32_t>(offset));
    }
    default:  // c.fldsp, c.flwsp, c.fsdsp, c.fswsp
      return kIllegal;
  }
}

}  // namespace

std::uint32_t expand_compressed(std::uint16_t parcel) {
  switch (parcel & 3) {
    case 0:
      return expand_quadrant0(parcel);
    case 1:
      return expand_quadrant1(parcel);
    case 2:
      return expand_quadrant2(parcel);
    default:
      return kIllegal;
  }
}

}  // namespace weft::model
