// SPDX-License-Identifier: MIT
// The control program behind the model's Firmware interface.
#include "control.hpp"
#include "weft/model/firmware_port.hpp"

namespace weft::model {
namespace {

class NativeFirmware final : public Firmware {
 public:
  explicit NativeFirmware(FirmwareBus& bus) : control_(fw::Io(bus)) {}

  Progress step(std::uint32_t instructions) override {
    Progress progress;
    if (instructions == 0) return progress;
    control_.pass();
    progress.idle = control_.io().take_idle();
    return progress;
  }

 private:
  fw::Control control_;
};

}  // namespace

std::unique_ptr<Firmware> boot_native(FirmwareBus& bus) { return std::make_unique<NativeFirmware>(bus); }

}  // namespace weft::model
