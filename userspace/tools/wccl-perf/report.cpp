// SPDX-License-Identifier: MIT
#include "report.hpp"

#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace weft::perf {
namespace {

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kSendRecv:
      return "sendrecv";
    default:
      return "barrier";
  }
}

void print_side(const Row* row) {
  if (!row) {
    std::printf("  %9s  %7s %7s %6s", "N/A", "N/A", "N/A", "N/A");
    return;
  }
  const std::string wrong = row->wrong ? std::to_string(*row->wrong) : "N/A";
  std::printf("  %9.*f  %7.3f %7.3f %6s", row->time_us < 1e4 ? 2 : 0, row->time_us, row->algbw, row->busbw,
              wrong.c_str());
}

std::string stamp(const std::string& accel) {
  return accel == "none" ? "modelled, no device" : "emulator speed, not hardware (" + accel + ')';
}

std::uint64_t combined_hash(const Summary& summary) {
  std::uint64_t hash = kHashStart;
  for (const Row& row : summary.rows) hash = hash_bytes(std::as_bytes(std::span(&row.hash, 1)), hash);
  return hash;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

double each_us(std::uint64_t ns, std::uint64_t count) {
  return count ? static_cast<double>(ns) / 1e3 / static_cast<double>(count) : 0;
}

nlohmann::ordered_json as_json(const Nic& nic) {
  return {{"hits", nic.hits},
          {"misses", nic.misses},
          {"evictions", nic.evictions},
          {"invalidations", nic.invalidations},
          {"registrations", nic.registrations},
          {"registration_us", static_cast<double>(nic.registration_ns) / 1e3},
          {"teardowns", nic.teardowns},
          {"teardown_us", static_cast<double>(nic.teardown_ns) / 1e3}};
}

nlohmann::ordered_json number_or_null(const std::optional<std::uint64_t>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

void print_registrations(const Nic& nic) {
  std::printf("# registrations        : %" PRIu64 " of %.1f us, %" PRIu64 " torn down, of %.1f us\n", nic.registrations,
              each_us(nic.registration_ns, nic.registrations), nic.teardowns, each_us(nic.teardown_ns, nic.teardowns));
  std::printf("# registration cache   : %" PRIu64 " hits, %" PRIu64 " misses, %" PRIu64 " evictions, %" PRIu64
              " invalidations\n",
              nic.hits, nic.misses, nic.evictions, nic.invalidations);
}

}  // namespace

void set_bandwidth(Row& row, Collective collective, std::uint32_t ranks) {
  row.algbw = row.time_us > 0 ? static_cast<double>(row.bytes) / row.time_us / 1e3 : 0;
  const double n = ranks;
  row.busbw = row.algbw * (collective == Collective::kAllReduce ? 2 * (n - 1) / n : 1);
}

void print_header(const Options& o, const Summary& s) {
  std::printf("# %s, %u ranks (%s), minBytes %" PRIu64 " maxBytes %" PRIu64 " step: %" PRIu64
              "(%s) warmup iters: %u iters: %u validation: %d\n",
              collective_name(o.collective), s.ranks, s.launcher.c_str(), o.min_bytes, o.max_bytes,
              o.factor ? o.factor : o.step_bytes, o.factor ? "factor" : "bytes", o.warmup, o.iterations,
              o.check ? 1 : 0);
  std::printf("# %s\n", stamp(s.accel).c_str());
  if (!s.profile.empty()) {
    std::printf("# profile %s: %s\n", s.profile.c_str(), s.profile_text.c_str());
    std::printf("# schedule of the model: %s\n", s.schedule.c_str());
  }
  std::printf("#\n# %60s  %30s\n", "out-of-place", "in-place");
  const char* model = s.profile.empty() ? "" : "   modelled";
  std::printf("# %12s %13s %9s %6s %5s  %9s  %7s %7s %6s  %9s  %7s %7s %6s%s\n", "size", "count", "type", "redop",
              "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong", model);
  std::printf("# %12s %13s %9s %6s %5s  %9s  %7s %7s %6s  %9s  %7s %7s %6s%s\n", "(B)", "(elements)", "", "", "",
              "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "", s.profile.empty() ? "" : "       (us)");
  std::fflush(stdout);
}

void print_line(const Options& o, const Row& out, const Row* in) {
  const bool reduces = o.collective == Collective::kAllReduce;
  std::printf("  %12" PRIu64 " %13" PRIu64 " %9s %6s %5d", out.bytes, out.count, type_name(out.type),
              reduces ? op_name(out.op) : "none", -1);
  print_side(&out);
  print_side(in);
  if (out.modelled_us) std::printf(" %10.2f", *out.modelled_us);
  std::printf("\n");
  std::fflush(stdout);
}

void print_trace(const TraceRow& t) {
  std::printf("# trace %s: buffers %u, steps %u, reallocations %u, all-reduces %" PRIu64 ", bytes %" PRIu64 "\n",
              t.name.c_str(), t.buffers, t.steps, t.reallocations, t.collectives, t.bytes);
  std::printf("# path                 : %s over %s\n", t.path.c_str(), t.transport.c_str());
  std::printf("# time                 : %.0f us, %.1f us an all-reduce\n", t.time_us,
              t.collectives ? t.time_us / static_cast<double>(t.collectives) : 0);
  print_registrations(t.nic);
  std::printf("# wrong elements       : %s\n", t.wrong ? std::to_string(*t.wrong).c_str() : "NOT CHECKED");
  std::fflush(stdout);
}

std::uint64_t total_wrong(const Summary& s) {
  std::uint64_t sum = 0;
  for (const TraceRow& trace : s.traces) sum += trace.wrong.value_or(0);
  for (const Row& row : s.rows) sum += row.wrong.value_or(0);
  return sum;
}

void print_trailer(const Options& o, const Summary& s) {
  double busbw = 0, most = 0, least = 1e300;
  std::uint64_t bytes[wcclNumPaths] = {}, dram = 0, copies = 0;
  bool checked = false;
  for (const Row& row : s.rows) {
    busbw += row.busbw;
    most = std::max(most, row.doorbells);
    least = std::min(least, row.doorbells);
    dram += row.host_dram_bytes;
    copies += row.cpu_copies;
    checked = checked || row.wrong.has_value();
    for (int p = 0; p < wcclNumPaths; ++p) bytes[p] += row.path_bytes[p];
  }
  const std::uint64_t wrong = total_wrong(s);
  if (s.accel != "none") {
    std::printf("# Out of bounds values : %" PRIu64 " %s\n", wrong, !checked ? "NOT CHECKED" : wrong ? "FAILED" : "OK");
  }
  std::printf("# Avg bus bandwidth    : %g\n#\n", s.rows.empty() ? 0 : busbw / static_cast<double>(s.rows.size()));
  for (const std::string& line : s.paths) std::printf("# path %s\n", line.c_str());
  if (s.accel != "none") {
    std::printf("# bytes by path        : onchip %" PRIu64 ", peer %" PRIu64 ", staged %" PRIu64
                " (timed, all ranks)\n",
                bytes[wcclPathOnchip], bytes[wcclPathPeer], bytes[wcclPathStaged]);
    if (!s.rows.empty() && !s.rows[0].transport.empty()) {
      std::printf("# transport            : %s\n", s.rows[0].transport.c_str());
    }
    if (s.nic.registrations || s.nic.flushes) {
      print_registrations(s.nic);
      std::printf("# flushes              : %" PRIu64 " (all of the run, all ranks, as the two lines above)\n",
                  s.nic.flushes);
    }
    std::printf("# host_dram_bytes      : %" PRIu64 "\n# cpu_copies           : %" PRIu64 "\n", dram, copies);
    if (!s.rows.empty()) {
      std::printf("# doorbells            : %g%s a collective a rank\n", most,
                  least < most ? (" at most, " + std::to_string(least) + " at least").c_str() : "");
    }
  }
  if (o.hash) std::printf("# payload hash         : %s\n", hex(combined_hash(s)).c_str());
  if (s.event_hash) std::printf("# event log hash       : %s\n", hex(*s.event_hash).c_str());
  std::printf("# %s\n", stamp(s.accel).c_str());
  std::fflush(stdout);
}

std::string as_json(const Options& o, const Summary& s) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["command"] = o.command_line;
  json["accel"] = s.accel;
  json["note"] = stamp(s.accel);
  json["ranks"] = s.ranks;
  if (!s.profile.empty()) {
    json["profile"] = s.profile;
    json["schedule"] = s.schedule;
  }
  json["paths"] = s.paths;
  if (o.hash) json["payload_hash"] = hex(combined_hash(s));
  if (s.event_hash) json["event_hash"] = hex(*s.event_hash);
  auto& rows = json["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : s.rows) {
    nlohmann::ordered_json r;
    r["path"] = row.path;
    r["transport"] = row.transport;
    r["bytes"] = row.bytes;
    r["time_us"] = row.time_us;
    r["algbw_GBps"] = row.algbw;
    r["busbw_GBps"] = row.busbw;
    r["wrong"] = number_or_null(row.wrong);
    r["host_dram_bytes"] = row.host_dram_bytes;
    r["cpu_copies"] = row.cpu_copies;
    r["modelled_us"] = row.modelled_us ? nlohmann::ordered_json(*row.modelled_us) : nlohmann::ordered_json(nullptr);
    r["collective"] = collective_name(o.collective);
    r["ranks"] = s.ranks;
    r["count"] = row.count;
    r["type"] = type_name(row.type);
    r["redop"] = o.collective == Collective::kAllReduce ? op_name(row.op) : "none";
    r["in_place"] = row.in_place;
    r["iterations"] = s.accel == "none" ? 0 : o.iterations;
    r["doorbells"] = row.doorbells;
    r["path_bytes"] = {{"onchip", row.path_bytes[wcclPathOnchip]},
                       {"peer", row.path_bytes[wcclPathPeer]},
                       {"staged", row.path_bytes[wcclPathStaged]}};
    r["flushes"] = row.nic.flushes;
    r["registrations"] = as_json(row.nic);
    r["hash"] = hex(row.hash);
    rows.push_back(std::move(r));
  }
  for (const TraceRow& t : s.traces) {
    rows.push_back({{"trace", t.name},
                    {"path", t.path},
                    {"transport", t.transport},
                    {"buffers", t.buffers},
                    {"steps", t.steps},
                    {"reallocations", t.reallocations},
                    {"collectives", t.collectives},
                    {"bytes", t.bytes},
                    {"time_us", t.time_us},
                    {"wrong", number_or_null(t.wrong)},
                    {"registrations", as_json(t.nic)}});
  }
  json["registrations"] = as_json(s.nic);
  return json.dump(2) + '\n';
}

}  // namespace weft::perf
