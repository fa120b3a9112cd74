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
#include "report.hpp"
#include "sched/algorithms.hpp"

namespace weft::perf {
namespace {

// The schedule that wccl runs for the collective, for the time model.
std::unique_ptr<ccl::Source> schedule(const Options& options, std::uint32_t ranks, std::uint32_t lanes) {
  switch (options.collective) {
    case Collective::kAllReduce:
      return ccl::find_algorithm(WCCL_COLL_ALLREDUCE)->make({ranks, lanes, 0});
    case Collective::kSendRecv:
      return ccl::find_algorithm(WCCL_COLL_SENDRECV)->make({ranks, 1, 1});
    default:
      return ccl::find_algorithm(WCCL_COLL_BARRIER)->make({ranks, 1, 0});
  }
}

class Model {
 public:
  Model(const Options& options, std::uint32_t ranks)
      : profile_(ccl::model::load_profile(options.model)),
        source_(
            schedule(options, ranks,
                     options.dry ? (options.lanes ? options.lanes : profile_.links) : std::min(options.ports, 4u))) {}
  const ccl::model::Profile& profile() const { return profile_; }
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

int save(const Options& options, const Summary& summary) {
  std::string error;
  if (options.json.empty() || write_json(options, summary, error)) return 0;
  std::fprintf(stderr, "wccl-perf: %s\n", error.c_str());
  return 1;
}

int run_dry(const Options& options) {
  const Model model(options, options.ranks);
  Summary summary;
  summary.ranks = options.ranks;
  summary.accel = "none";
  summary.launcher = "model";
  summary.profile = model.profile().name;
  summary.profile_text = model.profile().text;
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
  return save(options, summary);
}

int run(const Options& options) {
  tools::catch_signals();
  const Launch launch = options.sim ? Launch{} : tools::find_launch();
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
    summary.profile = model->profile().name;
    summary.profile_text = model->profile().text;
  }
  summary.paths = bench.paths();
  if (!options.trace.empty()) {
    TraceRow& trace = summary.traces.emplace_back();
    bench.trace(trace);
    bench.finish();
    if (reports) print_trace(trace);
    const int code = save(options, summary);
    return total_wrong(summary) ? 1 : code;
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
  const int code = save(options, summary);
  if (summary.rows.empty()) {
    std::fprintf(stderr, "wccl-perf: the run did no work\n");
    return 1;
  }
  return total_wrong(summary) ? 1 : code;
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
