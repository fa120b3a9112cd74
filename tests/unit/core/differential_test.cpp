// SPDX-License-Identifier: MIT
// Random programs on the core and on qemu-riscv32: registers and memory must be equal at the end.
//
// WEFT_DIFF_INSTRUCTIONS=n executes about n instructions instead of 120000.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/encoding.hpp"
#include "core/rvc.hpp"
#include "machine.hpp"

namespace weft::model::test {
namespace {

using namespace rv32;

// Both sides see the same bytes at the same addresses: code, then data that loads and stores stay inside, then room for
// the registers.
constexpr std::uint32_t kImageBytes = 0x10000;
constexpr std::uint32_t kDataAt = 0xf000;
constexpr std::uint32_t kDataBytes = 2048;
constexpr std::uint32_t kDumpBytes = 128;
constexpr std::uint32_t kResultBytes = kDataBytes + kDumpBytes;
constexpr std::uint32_t kBase = WEFT_FW_RAM + kDataAt + kDataBytes / 2;  // in sp and s0 all the time
constexpr unsigned kInstructions = 5000;                                 // a program

class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {
    image_.resize(kImageBytes);
    for (std::uint32_t i = 0; i < kDataBytes; ++i) image_[kDataAt + i] = static_cast<std::byte>(random_());
    load_constant(kSp, kBase);
    load_constant(kS0, kBase);
    for (unsigned reg = 1; reg < 32; ++reg) {
      if (writable(reg)) load_constant(reg, random_());
    }
  }

  // One more random instruction, or a short group.
  void step() {
    switch (random_() % 16) {
      case 0:
        return special_value();
      case 1:
        return branch();
      case 2:
        return jump();
      default: {
        Code code = plain();
        return emit(code);
      }
    }
  }

  std::vector<std::byte> finish() {
    for (unsigned reg = 0; reg < 32; ++reg) {
      emit(s_type(kStore, 2, kS0, reg, static_cast<std::int32_t>(kDataBytes / 2 + 4 * reg)));
    }
    constexpr unsigned kA1 = 11, kA2 = 12, kA7 = 17;
    emit(i_type(kOpImm, 0, kA0, 0, 1));  // write(1, data, bytes)
    emit(i_type(kOpImm, 0, kA1, kS0, -static_cast<std::int32_t>(kDataBytes / 2)));
    load_constant(kA2, kResultBytes);
    emit(i_type(kOpImm, 0, kA7, 0, 64));
    emit(kEcall);
    emit(i_type(kOpImm, 0, kA0, 0, 0));  // exit(0)
    emit(i_type(kOpImm, 0, kA7, 0, 93));
    emit(kEcall);
    return image_;
  }

 private:
  static bool writable(std::uint32_t reg) { return reg != kSp && reg != kS0; }
  std::uint32_t any_reg() { return random_() % 32; }
  std::uint32_t target_reg() {
    const std::uint32_t reg = any_reg();
    return writable(reg) ? reg : 0;
  }
  std::uint32_t base_reg() { return random_() % 2 != 0 ? kSp : kS0; }

  void emit(Code code) {
    ASSERT_LE(used_ + code.bytes, kDataAt);
    std::memcpy(image_.data() + used_, &code.word, code.bytes);
    used_ += code.bytes;
  }

  void load_constant(std::uint32_t rd, std::uint32_t value) {
    emit(u_type(kLui, rd, value + 0x800));
    emit(i_type(kOpImm, 0, rd, rd, static_cast<std::int32_t>(value << 20) >> 20));
  }

  // Operands for which division, comparison and shifts are special.
  void special_value() {
    constexpr std::uint32_t kValues[] = {0, 1, 0xffffffff, 0x80000000, 0x7fffffff, 31, 32, 0xffff8000};
    load_constant(target_reg(), kValues[random_() % std::size(kValues)]);
  }

  Code plain() { return random_() % 2 != 0 ? compressed() : full(); }

  // One instruction that goes on with the next.
  Code full() {
    const std::uint32_t rd = target_reg();
    const std::uint32_t funct3 = random_() % 8;
    switch (random_() % 8) {
      case 0:
        return u_type(random_() % 2 != 0 ? kLui : kAuipc, rd, random_());
      case 1: {
        const std::uint32_t width = random_() % 3;
        const std::int32_t offset = data_offset(1u << width);
        return s_type(kStore, width, base_reg(), any_reg(), offset);
      }
      case 2: {
        constexpr std::uint32_t kWidths[] = {0, 1, 2, 4, 5};
        const std::uint32_t width = kWidths[random_() % 5];
        return i_type(kLoad, width, rd, base_reg(), data_offset(1u << (width & 3)));
      }
      case 3: {
        auto imm = static_cast<std::int32_t>(random_() % 4096);
        if (funct3 == 1) imm &= 0x1f;
        if (funct3 == 5) imm &= 0x41f;
        return i_type(kOpImm, funct3, rd, any_reg(), imm);
      }
      case 4:
      case 5:
        return r_type(kOp, funct3, 1, rd, any_reg(), any_reg());  // M
      case 6:
        return random_() % 8 == 0 ? Code(0x0ff0000f)
                                  : Code(r_type(kOp, random_() % 2 * 5, 0x20, rd, any_reg(), any_reg()));
      default:
        return r_type(kOp, funct3, 0, rd, any_reg(), any_reg());
    }
  }

  // Aligned, inside the data around the base.
  std::int32_t data_offset(std::uint32_t width) {
    return static_cast<std::int32_t>(random_() % (kDataBytes / width) * width) -
           static_cast<std::int32_t>(kDataBytes / 2);
  }

  Code compressed() {
    for (;;) {
      auto parcel = static_cast<std::uint16_t>(random_());
      if ((parcel & 0xe003) == 0x4000 || (parcel & 0xe003) == 0xc000) parcel &= ~0x0380;  // c.lw, c.sw: from s0
      const std::uint32_t instruction = expand_compressed(parcel);
      const std::uint32_t rd = instruction >> 7 & 31;
      switch (instruction & 0x7f) {
        case kOp:
        case kOpImm:
        case kLui:
        case kLoad:
          if (writable(rd)) return rvc(parcel);
          break;
        case kStore:
          return rvc(parcel);
        default:  // reserved, or leaves the line
          break;
      }
    }
  }

  // Over the next instruction, or not.
  void branch() {
    const Code next = plain();
    if (random_() % 2 != 0) {
      constexpr std::uint32_t kConditions[] = {0, 1, 4, 5, 6, 7};
      emit(
          b_type(kBranch, kConditions[random_() % 6], any_reg(), any_reg(), static_cast<std::int32_t>(4 + next.bytes)));
    } else {  // c.beqz, c.bnez: offset[2:1] in bits 4:3
      const std::uint32_t offset = 2 + next.bytes;
      emit(rvc(static_cast<std::uint16_t>(0xc001 | random_() % 2 << 13 | random_() % 8 << 7 | (offset >> 1 & 3) << 3)));
    }
    emit(next);
  }

  void jump() {
    const Code next = plain();
    const std::uint32_t t = 1 + random_() % 31;
    switch (random_() % 4) {
      case 0:
        emit(j_type(kJal, target_reg(), static_cast<std::int32_t>(4 + next.bytes)));
        break;
      case 1:  // c.j, c.jal: offset[3:1] in bits 5:3
        emit(
            rvc(static_cast<std::uint16_t>((random_() % 2 != 0 ? 0xa001 : 0x2001) | ((2 + next.bytes) >> 1 & 7) << 3)));
        break;
      case 2:
        if (!writable(t)) return;
        emit(u_type(kAuipc, t, 0));
        emit(i_type(kJalr, 0, target_reg(), t,
                    static_cast<std::int32_t>(8 + next.bytes + random_() % 2)));  // bit 0 is cleared
        break;
      default:  // c.jr, c.jalr
        if (!writable(t)) return;
        emit(u_type(kAuipc, t, 0));
        emit(i_type(kOpImm, 0, t, t, static_cast<std::int32_t>(10 + next.bytes)));
        emit(rvc(static_cast<std::uint16_t>(0x8002 | random_() % 2 << 12 | t << 7)));
        break;
    }
    emit(next);
  }

  std::mt19937 random_;
  std::vector<std::byte> image_;
  std::uint32_t used_ = 0;
};

std::vector<std::byte> generate(std::uint32_t seed, unsigned instructions) {
  Generator generator(seed);
  for (unsigned i = 0; i < instructions; ++i) generator.step();
  return generator.finish();
}

using Result = std::array<std::uint32_t, kResultBytes / 4>;

bool run_core(const std::vector<std::byte>& image, Result& result, std::uint64_t& executed) {
  WordBus bus;
  Rv32 core(bus);
  if (!core.load(image, WEFT_FW_RAM, WEFT_FW_RAM)) return false;
  if (core.run(1000000) != Rv32::Stop::kTrap || core.cause() != TrapCause::kEcall) return false;
  executed = core.retired();
  std::memcpy(result.data(), core.ram().data() + kDataAt, kResultBytes);
  return true;
}

#ifdef WEFT_QEMU_RISCV32

// A static ELF32 executable with one segment (System V ABI, chapters 4 and 5).
void write_elf(const std::string& path, const std::vector<std::byte>& image) {
  constexpr std::uint32_t kOffset = 0x1000;
  struct Header {
    std::uint8_t ident[16] = {0x7f, 'E', 'L', 'F', 1, 1, 1};
    std::uint16_t type = 2, machine = 243;
    std::uint32_t version = 1, entry = WEFT_FW_RAM, phoff = 52, shoff = 0, flags = 1;
    std::uint16_t ehsize = 52, phentsize = 32, phnum = 1, shentsize = 0, shnum = 0, shstrndx = 0;
    std::uint32_t p_type = 1, p_offset = kOffset, p_vaddr = WEFT_FW_RAM, p_paddr = WEFT_FW_RAM;
    std::uint32_t p_filesz = kImageBytes, p_memsz = kImageBytes, p_flags = 7, p_align = 0x1000;
  };
  static_assert(sizeof(Header) == 84);
  std::vector<char> file(kOffset + kImageBytes);
  const Header header;
  std::memcpy(file.data(), &header, sizeof(header));
  std::memcpy(file.data() + kOffset, image.data(), image.size());
  std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(file.size()));
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

bool run_qemu(const std::vector<std::byte>& image, Result& result) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("weft-diff-" + std::to_string(getpid()) + ".elf")).string();
  write_elf(path, image);
  const std::string command = "timeout 60 " WEFT_QEMU_RISCV32 " '" + path + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  const bool complete = pipe && std::fread(result.data(), 1, kResultBytes, pipe.get()) == kResultBytes;
  std::filesystem::remove(path);
  return complete;
}

// Both, with `instructions` steps of the generator. Empty: equal.
std::string difference(std::uint32_t seed, unsigned instructions, std::uint64_t& executed) {
  const std::vector<std::byte> image = generate(seed, instructions);
  Result ours, theirs;
  if (!run_core(image, ours, executed)) return "the core did not reach the end";
  if (!run_qemu(image, theirs)) return "qemu-riscv32 did not reach the end";
  std::string text;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    char line[96];
    const bool reg = i >= kDataBytes / 4;
    std::snprintf(line, sizeof(line), "%s%zu: core %08x, qemu %08x\n", reg ? "x" : "data word ",
                  reg ? i - kDataBytes / 4 : i, ours[i], theirs[i]);
    text += line;
  }
  return text;
}

TEST(Differential, RandomProgramsAgreeWithQemu) {
  const char* wanted = std::getenv("WEFT_DIFF_INSTRUCTIONS");
  const std::uint64_t goal = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 120000;
  std::uint64_t total = 0;
  for (std::uint32_t seed = 1; total < goal; ++seed) {
    std::uint64_t executed = 0;
    if (difference(seed, kInstructions, executed).empty()) {
      total += executed;
      continue;
    }
    // The shortest beginning that differs ends with the culprit.
    unsigned good = 0;
    unsigned bad = kInstructions;
    while (bad - good > 1) {
      const unsigned middle = good + (bad - good) / 2;
      (difference(seed, middle, executed).empty() ? good : bad) = middle;
    }
    FAIL() << "seed " << seed << ", first wrong at step " << bad << ":\n" << difference(seed, bad, executed);
  }
  std::printf("%llu instructions agree\n", static_cast<unsigned long long>(total));
}

#else

TEST(Differential, RandomProgramsAgreeWithQemu) { GTEST_SKIP() << "qemu-riscv32 (qemu-user) is not installed"; }

#endif

// Needs no other emulator: the same program gives the same result, whatever the portions it is run in.
TEST(Differential, PortionsDoNotMatter) {
  for (std::uint32_t seed = 100; seed < 104; ++seed) {
    const std::vector<std::byte> image = generate(seed, kInstructions);
    Result whole;
    std::uint64_t executed = 0;
    ASSERT_TRUE(run_core(image, whole, executed));
    WordBus bus;
    Rv32 core(bus);
    ASSERT_TRUE(core.load(image, WEFT_FW_RAM, WEFT_FW_RAM));
    std::uint32_t portion = 1;
    while (core.run(portion) != Rv32::Stop::kTrap) portion = portion * 7 % 101;
    EXPECT_EQ(core.retired(), executed);
    EXPECT_EQ(std::memcmp(core.ram().data() + kDataAt, whole.data(), kResultBytes), 0);
  }
}

}  // namespace
}  // namespace weft::model::test
