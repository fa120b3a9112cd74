// SPDX-License-Identifier: MIT
// wccl-doctor: which way do the bytes go between any two ranks, why, and at what cost?
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>

#include "crew.hpp"
#include "interrupt.hpp"
#include "launch.hpp"
#include "options.hpp"
#include "output.hpp"
#include "report.hpp"
#include "walk.hpp"

namespace weft::doctor {
namespace {

int run(const Options& options) {
  tools::catch_signals();
  const tools::Launch launch = options.sim ? tools::Launch{} : tools::find_launch();
  if (!options.sim && launch.ranks < 2) {
    std::fprintf(stderr,
                 "wccl-doctor: there is one rank, so there is nothing to walk: start it on every node "
                 "(vm/weft-vm run --nodes 2 --nics 1 -- wccl-doctor), or say --sim\n");
    return 2;
  }
  if (launch.rank != 0) return follow(options, launch);
  tools::Output json(options.json), svg(options.svg);
  const auto crew = options.sim ? make_simulated_crew(options) : make_crew(options, launch);
  Survey survey = walk(options, *crew);
  crew->end();
  const char* accel = std::getenv("WEFT_ACCEL");
  survey.accel = options.sim ? "sim" : accel && *accel ? accel : "unknown";
  survey.launcher = options.sim ? "simulator" : launch.launcher;
  survey.command = options.command_line;
  const auto findings = judge(survey, options.criteria);
  std::fputs(text_report(survey, findings).c_str(), stdout);
  if (std::fflush(stdout) != 0) throw std::runtime_error("standard output cannot be written");
  json.write(json_report(survey, findings, options.criteria));
  if (svg) svg.write(svg_report(survey));
  return exit_code(findings, options.criteria);
}

}  // namespace
}  // namespace weft::doctor

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = weft::doctor::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    return weft::doctor::run(*options);
  } catch (const weft::tools::Interrupted&) {
    std::fprintf(stderr, "wccl-doctor: interrupted\n");
    return 130;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wccl-doctor: %s\n", error.what());
    return 1;
  }
}
