// SPDX-License-Identifier: MIT
// weft-fwpack: puts the header in front of the core's memory image, or says why an image is refused.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/image.hpp"
#include "version.hpp"
#include "weft/hw/fw.h"
#include "weft/hw/regs.h"

namespace {

using weft::model::boot_error_text;
using weft::model::check_image;
using weft::model::image_crc32;
using weft::model::ImageCheck;

constexpr const char* kUsage =
    "usage: weft-fwpack IN.bin OUT       IN.bin: what stands at the start of the core's RAM, entry first\n"
    "       weft-fwpack --check FILE     says what the image is, or why the boot ROM refuses it\n";

std::vector<char> read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<char> bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad()) throw std::runtime_error("error while reading " + path);
  return bytes;
}

void pack(const std::string& in, const std::string& out) {
  std::vector<char> body = read_file(in);
  body.resize((body.size() + 3) / 4 * 4);
  if (body.size() > WEFT_FW_RAM_BYTES) throw std::runtime_error(in + " is larger than the core's RAM");

  weft_fw_header header{};
  header.magic = WEFT_FW_MAGIC;
  header.header_version = WEFT_FW_HEADER_VERSION;
  header.header_bytes = sizeof(header);
  header.image_bytes = static_cast<std::uint32_t>(sizeof(header) + body.size());
  header.hw_version = WEFT_HW_MAJOR << 16 | WEFT_HW_MINOR;
  header.fw_version = weft::fw::kVersion;
  header.load = WEFT_FW_RAM;
  header.entry = WEFT_FW_RAM;
  constexpr std::string_view kName = "weft control";
  static_assert(kName.size() < sizeof(header.name));
  std::memcpy(header.name, kName.data(), kName.size());

  std::vector<char> image(sizeof(header));
  std::memcpy(image.data(), &header, sizeof(header));
  image.insert(image.end(), body.begin(), body.end());
  header.crc32 = image_crc32(std::as_bytes(std::span(image)));
  std::memcpy(image.data(), &header, sizeof(header));

  const ImageCheck check = check_image(std::as_bytes(std::span(image)));
  if (check.error != WEFT_BOOT_OK) throw std::runtime_error(in + ": " + std::string(boot_error_text(check.error)));
  std::ofstream file(out, std::ios::binary | std::ios::trunc);
  file.write(image.data(), static_cast<std::streamsize>(image.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + out);
  std::printf("%s: %zu bytes, CRC %08x\n", out.c_str(), image.size(), check.crc32);
}

// 0: the ROM takes it.
int check(const std::string& path) {
  const std::vector<char> image = read_file(path);
  const ImageCheck check = check_image(std::as_bytes(std::span(image)));
  if (check.error != WEFT_BOOT_OK) {
    const std::string_view text = boot_error_text(check.error);
    std::printf("%s: refused, boot error %d: %.*s; found 0x%x (%u)\n", path.c_str(), check.error,
                static_cast<int>(text.size()), text.data(), check.detail, check.detail);
    return 1;
  }
  const weft_fw_header& header = check.header;
  const auto name = std::string(reinterpret_cast<const char*>(header.name), sizeof(header.name));
  std::printf("%s: good: %s %u.%u for hardware %u.%u, %u bytes, CRC %08x, load 0x%08x, entry 0x%08x\n", path.c_str(),
              name.c_str(), header.fw_version >> 16, header.fw_version & 0xffff, header.hw_version >> 16,
              header.hw_version & 0xffff, header.image_bytes, check.crc32, header.load, header.entry);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) {
      std::fputs(kUsage, stderr);
      return 2;
    }
    if (std::string_view(argv[1]) == "--check") return check(argv[2]);
    pack(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weft-fwpack: %s\n", error.what());
    return 2;
  }
}
