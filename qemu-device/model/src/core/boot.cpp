// SPDX-License-Identifier: MIT
// The boot ROM: a checked image becomes a running core.
#include <memory>

#include "core/image.hpp"
#include "core/rv32.hpp"
#include "weft/model/firmware_port.hpp"

namespace weft::model {
namespace {

class CoreFirmware final : public Firmware {
 public:
  explicit CoreFirmware(FirmwareBus& bus) : core_(bus) {}

  bool load(std::span<const std::byte> code, std::uint32_t address, std::uint32_t entry) {
    return core_.load(code, address, entry);
  }

  Progress step(std::uint32_t instructions) override {
    Progress progress;
    const Rv32::Stop stop = core_.run(instructions);
    progress.idle = stop == Rv32::Stop::kIdle;
    progress.trapped = stop == Rv32::Stop::kTrap;
    if (progress.trapped) {
      progress.cause = static_cast<std::uint32_t>(core_.cause());
      progress.pc = core_.pc();
    }
    return progress;
  }

 private:
  Rv32 core_;
};

}  // namespace

BootResult boot_image(std::span<const std::byte> image, FirmwareBus& bus) {
  const ImageCheck check = check_image(image);
  BootResult result;
  result.error = check.error;
  result.detail = check.detail;
  result.image_crc = check.crc32;
  if (check.error != WEFT_BOOT_OK) return result;

  auto firmware = std::make_unique<CoreFirmware>(bus);
  if (!firmware->load(image.subspan(sizeof(weft_fw_header)), check.header.load, check.header.entry)) {
    result.error = WEFT_BOOT_LAYOUT;
    result.detail = check.header.load;
    return result;
  }
  result.firmware = std::move(firmware);
  return result;
}

}  // namespace weft::model
