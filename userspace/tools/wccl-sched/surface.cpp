// SPDX-License-Identifier: MIT
#include "surface.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "output.hpp"

namespace weft::ccl::tool {
namespace {

using model::SurfacePoint;

constexpr const char* kClaim =
    "Bracketing, not validation: neither copy rates nor pipelining of the published measurement are known. "
    "Modelled, no device.";

template <class... A>
std::string format(const char* form, A... values) {
  char text[512];
  std::snprintf(text, sizeof text, form, values...);
  return text;
}

std::string name_of(const model::Pipelining& p) {
  return format("%u slot%s, %g slice%s", p.slots, p.slots == 1 ? "" : "s", p.pieces, p.pieces == 1 ? "" : "s");
}

std::string as_json(const SurfaceOptions& o, const model::Profile& profile, const std::vector<SurfacePoint>& points,
                    const std::vector<model::Published>& published) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["command"] = o.command_line;
  json["accel"] = "none";
  json["note"] = kClaim;
  json["profile"] = profile.name;
  json["ranks"] = o.request.ranks;
  json["of"] = model::path_name(model::Path::kPeer);
  json["to"] = model::path_name(o.request.staged);
  for (const auto& p : published) {
    json["published"].push_back({{"bytes", p.bytes}, {"low", p.low}, {"high", p.high}, {"source", p.text}});
  }
  for (const SurfacePoint& p : points) {
    json["rows"].push_back({{"bytes", p.bytes},
                            {"copy_GBps", p.copy_GBps},
                            {"effective_GBps", p.effective_GBps},
                            {"slots", p.pipelining.slots},
                            {"slices_per_message", p.pipelining.pieces},
                            {"slice_bytes", p.slice_bytes},
                            {"overlap", p.overlap},
                            {"peer_us", p.peer_us},
                            {"staged_us", p.staged_us},
                            {"ratio", p.ratio},
                            {"consistent", p.consistent},
                            {"consistent_all", p.consistent_all}});
  }
  return json.dump(1) + '\n';
}

// One sheet for each size: rows are pipelinings, the deepest on top, columns copy rates. A cell shows the ratio and the
// overlap; what is consistent with a published figure has a frame, a thick one where it is so at all sizes.
std::string as_svg(const SurfaceOptions& o, const model::Profile& profile, const std::vector<SurfacePoint>& points,
                   const std::vector<model::Published>& published) {
  constexpr int kCell = 62, kHigh = 34, kLeft = 130, kTop = 84, kGap = 40, kFoot = 96;
  const int columns = static_cast<int>(o.request.copy_GBps.size()),
            rows = static_cast<int>(o.request.pipelinings.size());
  const int sheet = kLeft + columns * kCell + kGap, sheets = static_cast<int>(o.request.bytes.size());
  const int width = sheet * sheets, height = kTop + rows * kHigh + kFoot;
  double most = 1;
  for (const SurfacePoint& p : points) most = std::max(most, p.ratio);
  std::string svg = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
      width, height, width, height, width, height);
  const auto text = [&](int x, int y, const char* anchor, const std::string& what, int size = 12) {
    svg +=
        format("<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" font-size=\"%d\">", x, y, anchor, size) + what + "</text>\n";
  };
  text(16, 24, "start",
       format("All-reduce, %u ranks, profile %s: time %s / time peer", o.request.ranks, profile.name.c_str(),
              std::string(model::path_name(o.request.staged)).c_str()),
       16);
  text(16, 44, "start", kClaim);
  for (int s = 0; s < sheets; ++s) {
    const int left = s * sheet + kLeft;
    const std::uint64_t bytes = o.request.bytes[static_cast<std::size_t>(s)];
    std::string title = format("%" PRIu64 " MiB", bytes >> 20);
    for (const auto& p : published) {
      if (p.bytes == bytes) title += format(": framed %.2f to %.2f", p.low, p.high);
    }
    text(left, kTop - 12, "start", title, 14);
    for (int r = 0; r < rows; ++r) {
      const int y = kTop + (rows - 1 - r) * kHigh;
      text(left - 8, y + kHigh / 2 + 4, "end", name_of(o.request.pipelinings[static_cast<std::size_t>(r)]));
      for (int c = 0; c < columns; ++c) {
        const SurfacePoint& p = points[static_cast<std::size_t>((s * rows + r) * columns + c)];
        const double shade = most > 1 ? (p.ratio - 1) / (most - 1) : 0;
        const int x = left + c * kCell, red = static_cast<int>(247 - 214 * shade),
                  green = static_cast<int>(251 - 138 * shade), blue = static_cast<int>(255 - 74 * shade);
        const int frame = p.consistent_all ? 3 : p.consistent ? 1 : 0;
        svg += format(
            "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"rgb(%d,%d,%d)\" stroke=\"#c33\" "
            "stroke-width=\"%d\"/>\n",
            x + 2, y + 2, kCell - 4, kHigh - 4, red, green, blue, frame);
        text(x + kCell / 2, y + 15, "middle", format("%.2f", p.ratio), 13);
        text(x + kCell / 2, y + 27, "middle", format("%.0f %%", p.overlap * 100), 9);
      }
    }
    const int foot = kTop + rows * kHigh;
    for (int c = 0; c < columns; ++c) {
      const SurfacePoint& p = points[static_cast<std::size_t>(s * rows * columns + c)];
      const bool bound = p.effective_GBps < p.copy_GBps;
      text(left + c * kCell + kCell / 2, foot + 16, "middle",
           bound ? format("%.4g (PCIe)", p.effective_GBps) : format("%g", p.copy_GBps), bound ? 10 : 12);
    }
    text(left + columns * kCell / 2, foot + 36, "middle", "copy rate, each direction (GB/s)");
  }
  text(16, height - 36, "start",
       "Cell: ratio, and below it the overlap (share of the copies' time behind the wire, from the replayed schedule). "
       "Thick frame: consistent with what is published for each size.");
  for (std::size_t i = 0; i < published.size(); ++i) {
    text(i == 0 ? 16 : width / 2, height - 16, "start", "Published " + published[i].text, 10);
  }
  return svg + "</svg>\n";
}

}  // namespace

int run_surface(const SurfaceOptions& options) {
  tools::Output json(options.json), svg(options.svg);
  const model::Profile profile = model::load_profile(options.profile);
  const auto& published = profile.published;
  const auto points = model::surface(options.request, profile);
  std::printf("%12s  %-20s  copy_GBps  overlap    peer_us  staged_us  ratio\n", "bytes", "pipelining");
  for (const SurfacePoint& p : points) {
    std::printf("%12" PRIu64 "  %-20s  %9.4g  %7.3f  %9.1f  %9.1f  %5.3f%s\n", p.bytes, name_of(p.pipelining).c_str(),
                p.effective_GBps, p.overlap, p.peer_us, p.staged_us, p.ratio,
                p.consistent_all ? "  consistent, all sizes"
                : p.consistent   ? "  consistent"
                                 : "");
  }
  for (const auto& p : published) std::printf("published: %s\n", p.text.c_str());
  std::printf("%s\n", kClaim);
  json.write(as_json(options, profile, points, published));
  svg.write(as_svg(options, profile, points, published));
  return 0;
}

}  // namespace weft::ccl::tool
