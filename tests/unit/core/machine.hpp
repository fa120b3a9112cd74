// SPDX-License-Identifier: MIT
// A core with a few instructions in its memory, and hardware words that remember what was written.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/rv32.hpp"

namespace weft::model::test {

// Instructions are given as the assembler encodes them: 4-byte ones as they are, compressed ones through rvc().
struct Code {
  std::uint32_t word;
  unsigned bytes;
  constexpr Code(std::uint32_t word) : word(word), bytes(4) {}  // NOLINT: a word is code
  constexpr Code(std::uint32_t word, unsigned bytes) : word(word), bytes(bytes) {}
};
constexpr Code rvc(std::uint16_t parcel) { return {parcel, 2}; }

// Registers by ABI name, as in the disassembly next to the code.
enum Reg : unsigned {
  kZero = 0,
  kRa = 1,
  kSp = 2,
  kT0 = 5,
  kT1 = 6,
  kT2 = 7,
  kS0 = 8,
  kS1 = 9,
  kA0 = 10,
  kA5 = 15,
  kT6 = 31
};

class WordBus final : public FirmwareBus {
 public:
  std::uint32_t io_read(std::uint32_t offset) override { return words[offset]; }
  void io_write(std::uint32_t offset, std::uint32_t value) override {
    words[offset] = value;
    writes.emplace_back(offset, value);
  }
  std::map<std::uint32_t, std::uint32_t> words;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> writes;
};

inline constexpr std::uint32_t kCode = WEFT_FW_RAM + 0x1000;
inline constexpr std::uint32_t kData = WEFT_FW_RAM + 0x8000;

class Machine {
 public:
  explicit Machine(std::initializer_list<Code> code, std::uint32_t at = kCode) : core(bus) {
    std::vector<std::byte> bytes;
    for (const Code& one : code) {
      const auto* from = reinterpret_cast<const std::byte*>(&one.word);
      bytes.insert(bytes.end(), from, from + one.bytes);
    }
    loaded = core.load(bytes, at, at);
  }

  Machine& set(unsigned reg, std::uint32_t value) {
    core.set_reg(reg, value);
    return *this;
  }
  std::uint32_t get(unsigned reg) const { return core.reg(reg); }

  void poke(std::uint32_t address, std::uint32_t word) {
    std::memcpy(core.ram().data() + (address - WEFT_FW_RAM), &word, sizeof(word));
  }
  std::uint32_t peek(std::uint32_t address) {
    std::uint32_t word = 0;
    std::memcpy(&word, core.ram().data() + (address - WEFT_FW_RAM), sizeof(word));
    return word;
  }

  // Executes one instruction that must not trap.
  bool one() { return core.run(1) != Rv32::Stop::kTrap; }

  WordBus bus;
  Rv32 core;
  bool loaded = false;
};

}  // namespace weft::model::test
