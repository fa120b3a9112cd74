// SPDX-License-Identifier: MIT
#include "weft/fabric/impairment.hpp"

namespace weft::fabric {

Impairment::Impairment(const ImpairmentPlan& plan, std::string_view port) : plan_(plan), state_(plan.seed) {
  for (const char c : port) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;  // FNV-1a
}

Fate Impairment::next() {
  Fate fate;
  if (!plan_.any()) return fate;
  fate.lost = chance(plan_.loss);
  fate.duplicated = chance(plan_.duplicate);
  fate.corrupted = chance(plan_.corrupt);
  fate.reordered = chance(plan_.reorder);
  fate.where = random();
  return fate;
}

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
std::uint64_t Impairment::random() {
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

bool Impairment::chance(double probability) { return static_cast<double>(random() >> 11) * 0x1p-53 < probability; }

}  // namespace weft::fabric
