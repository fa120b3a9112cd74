// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <bit>
#include <cstdio>
#include <map>

#include "output.hpp"
#include "size.hpp"

namespace weft::perf {
namespace {

std::uint64_t parse_size(const std::string& text) {
  const auto value = tools::parse_size(text);
  if (!value) throw CLI::ValidationError("size", text + " is not a size up to 4 TiB");
  return *value;
}

std::vector<wcclDataType_t> parse_types(const std::string& text) {
  std::vector<wcclDataType_t> all;
  for (int t = 0; t < wcclNumTypes; ++t) {
    const auto type = static_cast<wcclDataType_t>(t);
    if (!supported(type)) continue;
    if (text == type_name(type)) return {type};
    all.push_back(type);
  }
  if (text == "all") return all;
  if (text == "fp16") return {wcclFloat16};
  if (text == "bf16") return {wcclBfloat16};
  throw CLI::ValidationError(
      "-d", text + " is no data type (int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 all)");
}

}  // namespace

std::vector<std::uint64_t> Options::sizes() const {
  std::vector<std::uint64_t> out;
  if (collective == Collective::kBarrier) return {0};
  for (std::uint64_t bytes = min_bytes; bytes <= max_bytes;) {
    out.push_back(bytes);
    std::uint64_t next = factor > 1 ? bytes * factor : bytes + step_bytes;
    if (bytes == 0 && factor > 1) next = 1;  // no factor leads from 0 to anything
    if (next <= bytes) break;
    bytes = next;
  }
  return out;
}

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options o;
  for (int i = 0; i < argc; ++i) o.command_line += (i ? " " : "") + std::string(argv[i]);
  CLI::App app{
      "Measures and checks wccl's collectives, with the options and columns of nccl-tests. Every element of every "
      "result is compared "
      "with a closed form."};
  std::string min_bytes = "32M", max_bytes, step_bytes = "1M", hbm;
  std::vector<std::string> op;
  std::string type = "float";
  std::uint32_t threads = 1, local_register = 0;
  int check = 1;
  auto* smallest = app.add_option("-b,--minbytes", min_bytes, "smallest size (default: 32M; --sim: -b 4K -e 4M -f 4)");
  app.add_option("-e,--maxbytes", max_bytes, "largest size (default: as -b)");
  app.add_option("-i,--stepbytes", step_bytes, "increment of the size")->capture_default_str();
  app.add_option("-f,--stepfactor", o.factor, "factor from size to size, instead of -i")->check(CLI::Range(2, 1 << 20));
  app.add_option("-g,--ngpus", o.devices, "devices of this process, /dev/accel/accel0 ..")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("-t,--nthreads", threads, "threads: 1; ranks beyond -g are processes")->check(CLI::Range(1, 1));
  auto* iterations = app.add_option("-n,--iters", o.iterations, "timed iterations (default: 20; --sim: 5)")
                         ->check(CLI::Range(1, 1 << 20));
  auto* warmup = app.add_option("-w,--warmup_iters", o.warmup, "iterations before them (default: 5; --sim: 1)")
                     ->check(CLI::Range(0, 1 << 20));
  app.add_option("-c,--check", check, "0: do not check results")->check(CLI::Range(0, 1 << 20))->capture_default_str();
  app.add_option(
         "-o,--op", op,
         "reduction (sum prod min max avg all) or collective (allreduce sendrecv barrier); may be given for each")
      ->take_all();
  app.add_option("-d,--datatype", type, "int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 all")
      ->capture_default_str();
  app.add_option("-R,--local_register", local_register, "accepted: wccl finds the region of a buffer by itself")
      ->check(CLI::Range(0, 2));
  app.add_flag("!--no-in-place", o.in_place, "measure out of place only");
  app.add_option("-T,--timeout", o.timeout_s, "limit of each wait, seconds (default: WCCL_TIMEOUT, else 30)")
      ->check(CLI::Range(1.0, 86400.0));
  app.add_option("-J,--json", o.json, "write the rows to this file, - for standard output");
  app.set_version_flag("--version", tools::version("wccl-perf"));
  app.add_flag("--hash", o.hash, "print a hash of all results, to compare runs");
  app.add_option("--device", o.device, "device specification (default: WEFT_DEVICE, else kernel:N)");
  auto* sim = app.add_flag("--sim", o.sim, "simulate all ranks in this process, without QEMU and driver");
  app.add_option("--ranks", o.ranks, "ranks of --sim and --dry")->check(CLI::Range(1, 65535))->capture_default_str();
  app.add_option("--seed", o.seed, "of --sim")->needs(sim)->capture_default_str();
  app.add_option("--loss", o.loss, "probability that the switch loses a frame (--sim)")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(sim);
  app.add_option("--ports", o.ports, "ports a device (--sim)")->check(CLI::Range(1, 24))->capture_default_str();
  app.add_option("--hbm", hbm, "HBM a device, a power of two (--sim; default: what the run needs)")->needs(sim);
  app.add_option("--event-log", o.event_log, "write the event log here (--sim)")->needs(sim);
  app.add_option("--capture", o.capture, "write the frames here, pcapng (--sim)")->needs(sim);
  app.add_option("--firmware", o.firmware, "image for the device's core (--sim; default: compiled in)")->needs(sim);
  app.add_option(
         "--trace", o.trace,
         "all-reduces on buffers that come and go, to see what registrations cost: training (40 buffers a step, "
         "-n steps, one in five reallocated every fourth step) or loop (one of 64 KiB, -n times)")
      ->check(CLI::IsMember({"training", "loop"}));
  auto* model = app.add_option("--model", o.model, "profile of the time model: a name (gaudi2, dl1, weft) or a file");
  app.add_flag("--dry", o.dry, "model only: no devices")->needs(model);
  auto* path = app.add_option("--path", o.path, "how the bytes go (--dry; without it, set WCCL_PATH)")
                   ->check(CLI::IsMember({"onchip", "peer", "staged-efa", "staged-tcp"}))
                   ->capture_default_str();
  app.add_option("--lanes", o.lanes, "lanes (--dry; default: the profile's links)")->check(CLI::Range(1, 24));
  try {
    app.parse(argc, argv);
    if (o.sim) {  // a simulation of the full size takes minutes
      if (smallest->empty() && max_bytes.empty()) {
        min_bytes = "4K";
        max_bytes = "4M";
        if (!o.factor) o.factor = 4;
      }
      if (iterations->empty()) o.iterations = 5;
      if (warmup->empty()) o.warmup = 1;
    }
    o.min_bytes = parse_size(min_bytes);
    o.max_bytes = max_bytes.empty() ? o.min_bytes : parse_size(max_bytes);
    o.step_bytes = parse_size(step_bytes);
    if (!hbm.empty()) {
      o.hbm = parse_size(hbm);
      if (!std::has_single_bit(o.hbm)) throw CLI::ValidationError("--hbm", hbm + " is not a power of two");
    }
    o.check = check != 0;
    o.types = parse_types(type);
    static const std::map<std::string, wcclRedOp_t> kOps = {
        {"sum", wcclSum}, {"prod", wcclProd}, {"min", wcclMin}, {"max", wcclMax}, {"avg", wcclAvg}};
    for (const std::string& word : op) {
      if (word == "allreduce" || word == "all_reduce") {
        o.collective = Collective::kAllReduce;
      } else if (word == "sendrecv") {
        o.collective = Collective::kSendRecv;
      } else if (word == "barrier") {
        o.collective = Collective::kBarrier;
      } else if (word == "all") {
        o.ops = {wcclSum, wcclProd, wcclMax, wcclMin, wcclAvg};
      } else if (const auto it = kOps.find(word); it != kOps.end()) {
        o.ops = {it->second};
      } else {
        throw CLI::ValidationError("--op", word + " is no reduction and no collective");
      }
    }
    if (o.min_bytes > o.max_bytes) throw CLI::ValidationError("-e", "is below -b: there is nothing to do");
    if (!path->empty() && !o.dry) throw CLI::ValidationError("--path", "is of --dry; else WCCL_PATH chooses");
    if (o.dry && !o.trace.empty()) throw CLI::ValidationError("--trace", "needs devices, --dry has none");
    if (o.sim && o.dry) throw CLI::ValidationError("--dry", "runs no devices, --sim does");
    if (o.sim && o.ranks > 256) throw CLI::ValidationError("--ranks", "the simulator has at most 256 devices");
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  if (o.collective != Collective::kAllReduce) o.ops = {wcclSum};
  if (o.collective == Collective::kBarrier) o.types = {wcclInt8};
  return o;
}

}  // namespace weft::perf
