// SPDX-License-Identifier: MIT
// What a bad wire does to a frame, from a seed: the same frames in the same order on a port always meet the same fate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft::fabric {

// Probabilities, 0..1, each drawn for each frame by itself.
struct ImpairmentPlan {
  std::uint64_t seed = 1;
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;  // one byte changed
  double reorder = 0;  // held until the next frame of the same port passed it, or for 10 ms

  bool any() const { return loss > 0 || duplicate > 0 || corrupt > 0 || reorder > 0; }
};

struct Fate {
  bool lost = false;
  bool duplicated = false;
  bool reordered = false;
  bool corrupted = false;
  std::uint64_t where = 0;  // corrupted: random number that chooses the byte and its change
};

// The fates of one port's frames, in order.
class Impairment {
 public:
  Impairment(const ImpairmentPlan& plan, std::string_view port);
  Fate next();

 private:
  std::uint64_t random();
  bool chance(double probability);

  ImpairmentPlan plan_;
  std::uint64_t state_;
};

}  // namespace weft::fabric
