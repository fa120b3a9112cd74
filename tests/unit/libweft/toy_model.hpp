// SPDX-License-Identifier: MIT
// A model of a few lines, to test what hosts models: registers, DMA, interrupt, a link that sends back what comes.
#pragma once

#include "weft/abi/model.h"

namespace weft::test {

// BAR0: a write of an iova to 0 lets step() increment the 8 bytes there and raise vector 1; 8 counts frames; 16: clock.
// BAR2: 1 MiB of RAM. Option "fail": create() refuses.
const weft_abi_model& toy_model();

}  // namespace weft::test
