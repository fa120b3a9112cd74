// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <map>

#include "output.hpp"
#include "size.hpp"

namespace weft::doctor {
namespace {

std::uint64_t whole_size(const std::string& text) {
  const auto value = tools::parse_size(text);
  if (!value || *value < 8 || *value % 8 != 0)
    throw CLI::ValidationError("size", text + " is no size: a multiple of 8 bytes up to 4 TiB");
  return *value;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options o;
  for (int i = 0; i < argc; ++i) o.command_line += (i ? " " : "") + std::string(argv[i]);
  CLI::App app{
      "Walks every pair of ranks, size and path, measures them, and names each detour that bytes take, with the "
      "reason. Run it "
      "first on a new machine or topology, on every node at once: vm/weft-vm run --nodes 2 --nics 1 -- wccl-doctor.\n"
      "Exit code: 0 healthy, or findings that are no failure; 1 something is broken; 2 usage; 3 --expect was not met; "
      "130 "
      "interrupted."};
  std::string smallest = "4K", largest = "32M", expect;
  std::uint32_t factor = 8;
  app.add_option("-b,--minbytes", smallest, "smallest size")->capture_default_str();
  app.add_option("-e,--maxbytes", largest, "largest size; always measured")->capture_default_str();
  app.add_option("-f,--stepfactor", factor, "factor from size to size")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_option("-n,--iters", o.iterations, "timed iterations; large sizes take fewer, at least 2")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  app.add_option("--expect", expect,
                 "worst path that is good enough: onchip, peer or staged; any detour from it ends with 3")
      ->check(CLI::IsMember({"onchip", "peer", "staged"}));
  app.add_option("--size-fall", o.criteria.size_fall, "bandwidth may be this many times lower than at a smaller size")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  app.add_option("--rank-fall", o.criteria.rank_fall,
                 "all ranks' all-reduce may be this many times slower than the slowest pair's (times ranks / 2 in the "
                 "emulator)")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  app.set_version_flag("--version", tools::version("wccl-doctor"));
  app.add_option("-J,--json", o.json, "write what was found to this file, - for standard output");
  app.add_option("--svg", o.svg, "draw bandwidth by size and path to this file");
  app.add_option("-T,--timeout", o.timeout_s, "limit of each wait, seconds")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  app.add_option("--limit", o.limit_s, "limit of the walk, seconds")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str();
  app.add_option("--device", o.device, "device specification (default: WEFT_DEVICE, else kernel:N)");
  auto* sim = app.add_flag("--sim", o.sim,
                           "simulate all ranks in this process, without QEMU and driver; times are the simulator's");
  app.add_option("--ranks", o.ranks, "ranks (--sim)")->check(CLI::Range(2, 256))->needs(sim)->capture_default_str();
  app.add_option("--ports", o.ports, "ports a device (--sim)")
      ->check(CLI::Range(1, 24))
      ->needs(sim)
      ->capture_default_str();
  app.add_option("--seed", o.seed, "of the simulator (--sim)")->needs(sim)->capture_default_str();
  try {
    app.parse(argc, argv);
    const std::uint64_t first = whole_size(smallest), last = whole_size(largest);
    if (first > last) throw CLI::ValidationError("-e", "is below -b: there is nothing to do");
    for (std::uint64_t bytes = first; bytes < last; bytes *= factor) o.sizes.push_back(bytes);
    o.sizes.push_back(last);
    static const std::map<std::string, wcclPath_t> kPaths = {
        {"onchip", wcclPathOnchip}, {"peer", wcclPathPeer}, {"staged", wcclPathStaged}};
    if (!expect.empty()) o.criteria.expect = kPaths.at(expect);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  return o;
}

}  // namespace weft::doctor
