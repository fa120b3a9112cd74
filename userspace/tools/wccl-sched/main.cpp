// SPDX-License-Identifier: MIT
// wccl-sched check|show|time|surface|write|list: schedules as files, or as wccl's algorithms make them.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "model/replay.hpp"
#include "output.hpp"
#include "sched/algorithms.hpp"
#include "sched/check.hpp"
#include "sched/file.hpp"
#include "surface.hpp"

namespace {

using namespace weft::ccl;

// A schedule to work on: a file, or "collective[:algorithm]" for a number of ranks.
struct Choice {
  std::string what;
  std::uint32_t ranks = 2, lanes = 1, distance = 1;

  void add_to(CLI::App* app) {
    app->add_option("schedule", what, "a file, or a collective with its algorithm: all_reduce:ring (see list)")
        ->required();
    app->add_option("--ranks", ranks, "ranks, when it is no file")
        ->check(CLI::Range(1u, WCCL_SCHED_MAX_RANKS))
        ->capture_default_str();
    app->add_option("--lanes", lanes, "lanes, when it is no file")
        ->check(CLI::Range(1u, WCCL_SCHED_MAX_LANES))
        ->capture_default_str();
    app->add_option("--distance", distance, "from sender to receiver, of sendrecv")->capture_default_str();
  }

  std::unique_ptr<Source> make() const {
    const std::size_t colon = what.find(':');
    for (const Algorithm& algorithm : algorithms()) {
      if (what.substr(0, colon) != collective_name(algorithm.collective)) continue;
      if (colon != std::string::npos && what.substr(colon + 1) != algorithm.name) continue;
      return algorithm.make({ranks, lanes, distance});
    }
    std::string error;
    auto schedule = load_schedule(what, error);
    if (!schedule) throw std::runtime_error(error);
    return std::make_unique<Schedule>(std::move(*schedule));
  }
};

void print_shape(const Source& source) {
  const Shape& s = source.shape();
  std::printf("%s by %s: %u ranks, %u lanes, %u parts, chunks: input %u output %u scratch %u, %u steps%s\n",
              std::string(collective_name(s.collective)).c_str(), s.name.empty() ? "(no name)" : s.name.c_str(),
              s.ranks, s.lanes, s.parts, s.input_chunks, s.output_chunks, s.scratch_chunks, s.steps,
              s.flags & WCCL_SCHED_IN_PLACE ? ", also in place" : "");
}

int run_check(const Choice& choice) {
  const auto source = choice.make();
  print_shape(*source);
  const Report report = check(*source);
  for (const Finding& f : report.findings) {
    std::printf("%s: rank %u", std::string(fault_name(f.fault)).c_str(), f.rank);
    if (f.op != UINT32_MAX) std::printf(" op %s", describe(*source, f.rank, f.op).c_str());
    std::printf(": %s\n", f.text.c_str());
  }
  std::printf("%" PRIu64 " ops, %" PRIu64 " messages of %" PRIu64 " chunks: %s\n", report.ops, report.messages,
              report.message_chunks, report.ok() ? "computes the collective, without deadlock or race" : "WRONG");
  return report.ok() ? 0 : 1;
}

int run_show(const Choice& choice, const std::vector<std::uint32_t>& only) {
  const auto source = choice.make();
  print_shape(*source);
  for (std::uint32_t rank = 0; rank < source->shape().ranks; ++rank) {
    if (!only.empty() && std::find(only.begin(), only.end(), rank) == only.end()) continue;
    std::printf("rank %u\n", rank);
    for (std::uint32_t index = 0; index < source->ops(rank); ++index)
      std::printf("  %s\n", describe(*source, rank, index).c_str());
  }
  return 0;
}

int run_time(const Choice& choice, const std::string& profile_name, const model::Request& request,
             const std::string& json_file, const std::string& command_line) {
  weft::tools::Output out(json_file);
  nlohmann::ordered_json row;
  const auto source = choice.make();
  const model::Profile profile = model::load_profile(profile_name);
  print_shape(*source);
  const model::Result r = model::replay(*source, request, profile);
  const model::Usage& u = r.usage;
  std::printf("profile %s: %s\n", profile.name.c_str(), profile.text.c_str());
  const auto figure = [&](const char* name, double value) {
    std::printf("%-18s %.3f\n", name, value);
    row[name] = value;
  };
  const auto line = [&](const char* name, std::uint64_t value) {
    std::printf("%-18s %" PRIu64 "\n", name, value);
    row[name] = value;
  };
  row["path"] = model::path_name(request.path);
  row["bytes"] = request.count * 4;
  row["in_place"] = request.in_place;
  figure("modelled_us", r.modelled_us);
  figure("algbw_GBps", r.modelled_us > 0 ? static_cast<double>(request.count * 4) / r.modelled_us / 1e3 : 0);
  line("slice_bytes", r.slice_bytes);
  line("slots", r.slots);
  line("steps", r.steps);
  const bool hosted = request.path != model::Path::kOnchip;
  line("commands", u.commands);
  line(hosted ? "nic_ops" : "rdma_ops", hosted ? u.nic_ops : u.rdma_ops);
  line(hosted ? "nic_bytes" : "rdma_bytes", hosted ? u.nic_bytes : u.rdma_bytes);
  line("wire_bytes", u.wire_bytes);
  line("copy_bytes", u.copy_bytes);
  line("reduce_bytes", u.reduce_bytes);
  line("hbm_read_bytes", u.hbm_read_bytes);
  line("hbm_write_bytes", u.hbm_write_bytes);
  if (hosted) {
    line("host_read_bytes", u.host_payload_read_bytes);
    line("host_write_bytes", u.host_payload_write_bytes);
    line("peer_read_bytes", u.peer_payload_read_bytes);
    line("peer_write_bytes", u.peer_payload_write_bytes);
    line("pcie_up_bytes", u.pcie_up_bytes);
    line("pcie_down_bytes", u.pcie_down_bytes);
    line("cpu_copy_bytes", u.cpu_copy_bytes);
    line("flushes", u.flushes);
    line("host_steps", u.host_steps);
  }
  if (const auto overlap = r.overlap()) figure("overlap", *overlap);
  const auto busy = [&](const char* name, double ns) {
    row["busy_us"][name] = ns / 1000;
    std::printf("busy %-13s %.3f us, %.1f %% (busiest rank)\n", name, ns / 1000,
                r.modelled_us > 0 ? ns / r.modelled_us / 10 : 0);
  };
  busy("link", u.link_ns);
  busy("hbm", u.hbm_ns);
  busy("reduce", u.reduce_ns);
  busy("copy", u.copy_ns);
  busy("processor", u.processor_ns);
  if (hosted) {
    busy("pcie", u.pcie_ns);
    busy("host thread", u.host_ns);
    busy("host copies", u.cpu_ns);
  }
  const Shape& shape = source->shape();
  const nlohmann::ordered_json document = {
      {"schema", 1},
      {"command", command_line},
      {"accel", "none"},
      {"note", "modelled, no device"},
      {"profile", profile.name},
      {"schedule", std::string(collective_name(shape.collective)) + ":" + shape.name},
      {"ranks", shape.ranks},
      {"rows", {row}}};
  out.write(document.dump(2) + '\n');
  return 0;
}

int run_write(const Choice& choice, const std::string& path) {
  const auto source = choice.make();
  std::string error;
  if (!save_schedule(*source, path, error)) throw std::runtime_error(error);
  print_shape(*source);
  return 0;
}

int run_list() {
  for (const Algorithm& algorithm : algorithms()) {
    std::printf("%s:%s  %s\n", std::string(collective_name(algorithm.collective)).c_str(),
                std::string(algorithm.name).c_str(), std::string(algorithm.text).c_str());
  }
  std::printf("profiles:");
  for (const std::string& name : model::builtin_profiles()) std::printf(" %s", name.c_str());
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Checks, shows and times the schedules of collectives. A file that WCCL_SCHED_FILE names must pass `check`."};
  app.require_subcommand(1);
  Choice choice;
  std::vector<std::uint32_t> only;
  std::string profile = "weft", output, path = "onchip";
  std::uint64_t bytes = 32u << 20;
  model::Request request;
  tool::SurfaceOptions surface;
  for (int i = 0; i < argc; ++i) surface.command_line += (i ? " " : "") + std::string(argv[i]);
  app.set_version_flag("--version", weft::tools::version("wccl-sched"));
  auto* check_command = app.add_subcommand(
      "check", "prove that it computes its collective, cannot block and has no race; exit code 1 if not");
  auto* show_command = app.add_subcommand("show", "print the ops of each rank");
  auto* time_command = app.add_subcommand("time", "replay it in the time model, as float32");
  auto* surface_command = app.add_subcommand(
      "surface", "the ratio of an all-reduce staged through host DRAM to one peer-direct, over copy rate and overlap");
  auto* write_command = app.add_subcommand("write", "write it to a file");
  app.add_subcommand("list", "algorithms and profiles that there are");
  for (auto* command : {check_command, show_command, time_command, write_command}) choice.add_to(command);
  show_command->add_option("--rank", only, "these ranks only");
  time_command->add_option("--profile", profile, "name or file")->capture_default_str();
  time_command->add_option("--bytes", bytes, "of the data that is cut into parts")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  time_command->add_option("--slice", request.slice_bytes, "slice bytes (default: as wccl chooses)");
  time_command->add_option("--slots", request.slots, "slots of a connection (default: the profile's)")
      ->check(CLI::Range(1u, 4096u));
  time_command->add_option("--path", path, "how the bytes go")
      ->check(CLI::IsMember({"onchip", "peer", "staged-efa", "staged-tcp"}))
      ->capture_default_str();
  time_command->add_flag("--in-place", request.in_place, "run in place");
  for (auto* command : {time_command, surface_command})
    command->add_option("-J,--json", surface.json, "write the rows to this file, - for standard output");
  surface_command->add_option("--profile", surface.profile, "name or file; of dl1, published ratios are marked")
      ->capture_default_str();
  surface_command->add_option("--ranks", surface.request.ranks, "ranks, one a node")
      ->check(CLI::Range(2u, 256u))
      ->capture_default_str();
  surface_command->add_option("--bytes", surface.request.bytes, "sizes (default: 32M 256M)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1} << 20, std::uint64_t{1} << 32));
  surface_command->add_option("--copy-rate", surface.request.copy_GBps, "GB/s, each direction (default: 2 to 16)")
      ->check(CLI::Range(0.01, 1e4));
  surface_command->add_flag("--tcp", surface.tcp, "staged over tcp instead of the host NIC's own transport");
  surface_command->add_option("--svg", surface.svg, "write a heat map to this file");
  write_command->add_option("--output,-o", output, "file to write")->required();
  CLI11_PARSE(app, argc, argv);
  try {
    if (*check_command) return run_check(choice);
    if (*show_command) return run_show(choice, only);
    if (*time_command) {
      request.count = bytes / 4;
      request.path = *model::find_path(path);
      return run_time(choice, profile, request, surface.json, surface.command_line);
    }
    if (*surface_command) {
      if (surface.tcp) surface.request.staged = model::Path::kStagedTcp;
      return tool::run_surface(surface);
    }
    if (*write_command) return run_write(choice, output);
    return run_list();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wccl-sched: %s\n", error.what());
    return 2;
  }
}
