// SPDX-License-Identifier: MIT
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include "bench.hpp"
#include "interrupt.hpp"
#include "launch.hpp"
#include "model/replay.hpp"
#include "options.hpp"
#include "output.hpp"
#include "report.hpp"
#include "sched/algorithms.hpp"
#include "sched/check.hpp"
#include "sched/file.hpp"

namespace weft::perf {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The schedule that wccl runs for the collective, for the time model: as wccl reads WCCL_SCHED_FILE and WCCL_ALGO.
// `name` says which.
std::unique_ptr<ccl::Source> schedule(const Options& options, std::uint32_t ranks, std::uint32_t lanes,
                                      std::string& name) {
  const wccl_sched_collective collective = options.collective == Collective::kAllReduce  ? WCCL_COLL_ALLREDUCE
                                           : options.collective == Collective::kSendRecv ? WCCL_COLL_SENDRECV
                                                                                         : WCCL_COLL_BARRIER;
  const std::string file = environment("WCCL_SCHED_FILE");
  if (!file.empty()) {
    std::string error;
    auto loaded = ccl::load_schedule(file, error);
    if (!loaded) throw std::runtime_error("WCCL_SCHED_FILE: " + error);
    if (const ccl::Report report = ccl::check(*loaded, 1); !report.ok())
      throw std::runtime_error("WCCL_SCHED_FILE: " + file + ": " + report.findings[0].text);
    if (loaded->shape().collective == collective) {
      if (loaded->shape().ranks != ranks)
        throw std::runtime_error("WCCL_SCHED_FILE: " + file + " is for " + std::to_string(loaded->shape().ranks) +
                                 " ranks, not " + std::to_string(ranks));
      name = file + " (" + loaded->shape().name + ")";
      return std::make_unique<ccl::Schedule>(std::move(*loaded));
    }
  }
  const std::string wanted = collective == WCCL_COLL_ALLREDUCE ? environment("WCCL_ALGO") : "";
  const ccl::Algorithm* algorithm = ccl::find_algorithm(collective, wanted);
  if (!algorithm) throw std::runtime_error("WCCL_ALGO=" + wanted + ": there is no such algorithm");
  name = std::string(ccl::collective_name(collective)) + ":" + std::string(algorithm->name);
  const bool data = collective == WCCL_COLL_ALLREDUCE;
  return algorithm->make({ranks, data ? lanes : 1, collective == WCCL_COLL_SENDRECV ? 1u : 0u});
}

// Lanes as wccl chooses them.
std::uint32_t lanes_of(const Options& options, const ccl::model::Profile& profile) {
  if (options.dry) return options.lanes ? options.lanes : profile.links;
  const std::string asked = environment("WCCL_LANES");
  const auto lanes = static_cast<std::uint32_t>(std::strtoul(asked.c_str(), nullptr, 10));
  return lanes ? lanes : std::min(options.ports, 4u);
}

class Model {
 public:
  Model(const Options& options, std::uint32_t ranks)
      : profile_(ccl::model::load_profile(options.model)),
        source_(schedule(options, ranks, lanes_of(options, profile_), schedule_)) {}
  // What the rows' modelled times stand for.
  void describe(Summary& summary) const {
    summary.profile = profile_.name;
    summary.profile_text = profile_.text;
    summary.schedule = schedule_;
  }
  ccl::model::Result time(const Row& row, ccl::model::Path path) const {
    ccl::model::Request request;
    request.path = path;
    request.element_bytes = type_bytes(row.type);
    request.count = row.bytes / request.element_bytes;
    request.in_place = row.in_place;
    return ccl::model::replay(*source_, request, profile_);
  }

 private:
  ccl::model::Profile profile_;
  std::string schedule_;
  std::unique_ptr<ccl::Source> source_;
};

// By which of the model's paths a row's bytes went.
ccl::model::Path path_of(const Row& row) {
  if (row.path == "peer") return ccl::model::Path::kPeer;
  if (row.path != "staged") return ccl::model::Path::kOnchip;
  return row.transport == "tcp" ? ccl::model::Path::kStagedTcp : ccl::model::Path::kStagedEfa;
}

template <class F>
void for_each_row(const Options& options, F&& visit) {
  for (const std::uint64_t bytes : options.sizes()) {
    for (const wcclDataType_t type : options.types) {
      for (const wcclRedOp_t op : options.ops) {
        Row row;
        row.bytes = bytes;
        row.type = type;
        row.op = op;
        visit(row);
      }
    }
  }
}

int run_dry(const Options& options) {
  tools::Output json(options.json);
  const Model model(options, options.ranks);
  Summary summary;
  summary.ranks = options.ranks;
  summary.accel = "none";
  summary.launcher = "model";
  model.describe(summary);
  print_header(options, summary);
  for_each_row(options, [&](Row& row) {
    row.count = row.bytes / type_bytes(row.type);
    row.bytes = row.count * type_bytes(row.type);
    const ccl::model::Path path = *ccl::model::find_path(options.path);
    const ccl::model::Result result = model.time(row, path);
    row.path = options.path.substr(0, options.path.find('-'));
    row.time_us = result.modelled_us;
    row.modelled_us = result.modelled_us;
    const wcclPath_t number = path == ccl::model::Path::kOnchip ? wcclPathOnchip
                              : path == ccl::model::Path::kPeer ? wcclPathPeer
                                                                : wcclPathStaged;
    row.path_bytes[number] = result.usage.rdma_bytes + result.usage.nic_bytes;
    set_bandwidth(row, options.collective, options.ranks);
    print_line(options, row, nullptr);
    summary.rows.push_back(row);
  });
  print_trailer(options, summary);
  json.write(as_json(options, summary));
  return 0;
}

int run(const Options& options) {
  tools::catch_signals();
  const Launch launch = options.sim ? Launch{} : tools::find_launch();
  // Standard output is rank 0's.
  tools::Output json(launch.rank == 0 || options.json != "-" ? options.json : "");
  Summary summary;
  Bench bench(options, launch);
  const bool reports = bench.reports();
  summary.ranks = bench.ranks();
  const char* accel = std::getenv("WEFT_ACCEL");
  summary.accel = options.sim ? "sim" : accel && *accel ? accel : "unknown";
  summary.launcher = options.sim ? "simulator" : launch.launcher;
  std::unique_ptr<Model> model;
  if (!options.model.empty()) {
    model = std::make_unique<Model>(options, bench.ranks());
    model->describe(summary);
  }
  summary.paths = bench.paths();
  if (!options.trace.empty()) {
    TraceRow& trace = summary.traces.emplace_back();
    bench.trace(trace);
    bench.finish();
    if (reports) print_trace(trace);
    json.write(as_json(options, summary));
    return total_wrong(summary) ? 1 : 0;
  }
  if (reports) print_header(options, summary);
  for_each_row(options, [&](Row row) {
    Row in = row;
    in.in_place = true;
    bench.measure(row);
    if (model) row.modelled_us = model->time(row, path_of(row)).modelled_us;
    summary.rows.push_back(row);
    // A send and a receive of the same memory at once have no meaning, and a barrier has no memory.
    const bool twice = options.in_place && options.collective == Collective::kAllReduce;
    if (twice) {
      bench.measure(in);
      if (model) in.modelled_us = model->time(in, path_of(in)).modelled_us;
      summary.rows.push_back(in);
    }
    if (reports) print_line(options, row, twice ? &in : nullptr);
  });
  summary.nic = bench.nic();
  bench.finish();
  if (options.sim) summary.event_hash = bench.event_hash();
  if (reports) print_trailer(options, summary);
  json.write(as_json(options, summary));
  if (summary.rows.empty()) {
    std::fprintf(stderr, "wccl-perf: the run did no work\n");
    return 1;
  }
  return total_wrong(summary) ? 1 : 0;
}

}  // namespace
}  // namespace weft::perf

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = weft::perf::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    return options->dry ? weft::perf::run_dry(*options) : weft::perf::run(*options);
  } catch (const weft::perf::Interrupted&) {
    std::fprintf(stderr, "wccl-perf: interrupted\n");
    return 130;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "wccl-perf: %s\n", error.what());
    return 1;
  }
}
