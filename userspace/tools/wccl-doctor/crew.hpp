// SPDX-License-Identifier: MIT
// Those who carry out orders: the simulator's ranks in this process, or a process a rank.
#pragma once

#include <memory>
#include <vector>

#include "launch.hpp"
#include "options.hpp"
#include "survey.hpp"
#include "trial.hpp"

namespace weft::doctor {

class Crew {
 public:
  virtual ~Crew() = default;
  virtual std::vector<Node>& nodes() = 0;  // by rank; one that leaves gets an error
  // Runs the order on its ranks and puts their results together. A rank that does not answer makes the trial fail, and
  // is gone.
  virtual Trial run(Order order) = 0;
  // The others go home.
  virtual void end() {}
};

// Throw std::runtime_error.
std::unique_ptr<Crew> make_simulated_crew(const Options& options);
// Rank 0's; waits until all have come, or for the time limit of one wait.
std::unique_ptr<Crew> make_crew(const Options& options, const tools::Launch& launch);

// The life of another rank: does what rank 0 says until it says that it was all. Returns the exit code.
int follow(const Options& options, const tools::Launch& launch);

}  // namespace weft::doctor
