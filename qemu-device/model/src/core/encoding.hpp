// SPDX-License-Identifier: MIT
// RV32 instruction formats (RISC-V unprivileged ISA, chapter "RV32I", section "Base instruction formats").
#pragma once

#include <cstdint>

namespace weft::model::rv32 {

enum Opcode : std::uint32_t {
  kLoad = 0x03,
  kMiscMem = 0x0f,
  kOpImm = 0x13,
  kAuipc = 0x17,
  kStore = 0x23,
  kOp = 0x33,
  kLui = 0x37,
  kBranch = 0x63,
  kJalr = 0x67,
  kJal = 0x6f,
  kSystem = 0x73,
};

inline constexpr std::uint32_t kEcall = 0x00000073;
inline constexpr std::uint32_t kEbreak = 0x00100073;
inline constexpr std::uint32_t kMret = 0x30200073;
inline constexpr std::uint32_t kWfi = 0x10500073;

constexpr std::uint32_t r_type(std::uint32_t opcode, std::uint32_t funct3, std::uint32_t funct7, std::uint32_t rd,
                               std::uint32_t rs1, std::uint32_t rs2) {
  return opcode | rd << 7 | funct3 << 12 | rs1 << 15 | rs2 << 20 | funct7 << 25;
}
constexpr std::uint32_t i_type(std::uint32_t opcode, std::uint32_t funct3, std::uint32_t rd, std::uint32_t rs1,
                               std::int32_t imm) {
  return opcode | rd << 7 | funct3 << 12 | rs1 << 15 | (static_cast<std::uint32_t>(imm) & 0xfff) << 20;
}
constexpr std::uint32_t s_type(std::uint32_t opcode, std::uint32_t funct3, std::uint32_t rs1, std::uint32_t rs2,
                               std::int32_t offset) {
  const auto imm = static_cast<std::uint32_t>(offset);
  return opcode | (imm & 0x1f) << 7 | funct3 << 12 | rs1 << 15 | rs2 << 20 | (imm >> 5 & 0x7f) << 25;
}
constexpr std::uint32_t b_type(std::uint32_t opcode, std::uint32_t funct3, std::uint32_t rs1, std::uint32_t rs2,
                               std::int32_t offset) {
  const auto imm = static_cast<std::uint32_t>(offset);
  return opcode | (imm >> 11 & 1) << 7 | (imm >> 1 & 0xf) << 8 | funct3 << 12 | rs1 << 15 | rs2 << 20 |
         (imm >> 5 & 0x3f) << 25 | (imm >> 12 & 1) << 31;
}
constexpr std::uint32_t u_type(std::uint32_t opcode, std::uint32_t rd, std::uint32_t imm) {
  return opcode | rd << 7 | (imm & 0xfffff000);
}
constexpr std::uint32_t j_type(std::uint32_t opcode, std::uint32_t rd, std::int32_t offset) {
  const auto imm = static_cast<std::uint32_t>(offset);
  return opcode | rd << 7 | (imm & 0xff000) | (imm >> 11 & 1) << 20 | (imm >> 1 & 0x3ff) << 21 | (imm >> 20 & 1) << 31;
}

// Immediates, sign-extended.
constexpr std::uint32_t i_imm(std::uint32_t x) {
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(x) >> 20);
}
constexpr std::uint32_t s_imm(std::uint32_t x) { return (i_imm(x) & ~0x1fu) | (x >> 7 & 0x1f); }
constexpr std::uint32_t b_imm(std::uint32_t x) {
  return (i_imm(x) & 0xfffff000) | (x << 4 & 0x800) | (x >> 20 & 0x7e0) | (x >> 7 & 0x1e);
}
constexpr std::uint32_t j_imm(std::uint32_t x) {
  return (i_imm(x) & 0xfff00000) | (x & 0xff000) | (x >> 9 & 0x800) | (x >> 20 & 0x7fe);
}

}  // namespace weft::model::rv32
