// SPDX-License-Identifier: MIT
#include "model/surface.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "sched/algorithms.hpp"

namespace weft::ccl::model {
namespace {

constexpr std::uint32_t kGrain = 4096;  // slices are multiples of it

// Slice that cuts the largest message of an all-reduce of `bytes` into `pieces`.
std::uint32_t slice_of(std::uint64_t bytes, std::uint32_t ranks, double pieces) {
  const double message = static_cast<double>((bytes + ranks - 1) / ranks);
  const double slice = std::ceil(message / pieces / kGrain) * kGrain;
  if (!(pieces >= 1) || slice > UINT32_MAX / 2) throw std::invalid_argument("messages cannot be cut like that");
  return static_cast<std::uint32_t>(slice);
}

}  // namespace

std::vector<SurfacePoint> surface(const SurfaceRequest& request, const Profile& profile) {
  const std::vector<Published>& published = profile.published;
  if (request.ranks < 2) throw std::invalid_argument("a surface needs two ranks");
  const auto source = find_algorithm(WCCL_COLL_ALLREDUCE)->make({request.ranks, 1, 0});
  const double payload = profile.pcie_payload_bytes;
  const double pcie = profile.pcie_GBps * payload / (payload + profile.pcie_packet_bytes);
  std::vector<SurfacePoint> points;
  for (const std::uint64_t bytes : request.bytes) {
    const auto figure =
        std::find_if(published.begin(), published.end(), [&](const Published& p) { return p.bytes == bytes; });
    for (const Pipelining& pipelining : request.pipelinings) {
      Request replayed;
      replayed.count = bytes / replayed.element_bytes;
      replayed.slots = pipelining.slots;
      replayed.slice_bytes = slice_of(bytes, request.ranks, pipelining.pieces);
      replayed.path = Path::kPeer;
      const double peer_us = replay(*source, replayed, profile).modelled_us;
      replayed.path = request.staged;
      for (const double rate : request.copy_GBps) {
        Profile varied = profile;
        varied.d2h_GBps = varied.h2d_GBps = rate;
        const Result staged = replay(*source, replayed, varied);
        SurfacePoint p;
        p.bytes = bytes;
        p.copy_GBps = rate;
        p.effective_GBps = std::min(rate, pcie);
        p.pipelining = pipelining;
        p.slice_bytes = replayed.slice_bytes;
        p.overlap = staged.overlap().value_or(0);
        p.peer_us = peer_us;
        p.staged_us = staged.modelled_us;
        p.ratio = p.staged_us / p.peer_us;
        p.consistent = figure != published.end() && p.ratio >= figure->low && p.ratio <= figure->high;
        points.push_back(p);
      }
    }
  }
  const std::size_t sheet = request.pipelinings.size() * request.copy_GBps.size();
  for (std::size_t i = 0; i < sheet; ++i) {
    bool all = true, any = false;
    for (std::size_t k = i; k < points.size(); k += sheet) {
      const bool known = std::any_of(published.begin(), published.end(),
                                     [&](const Published& p) { return p.bytes == points[k].bytes; });
      any = any || known;
      all = all && (!known || points[k].consistent);
    }
    for (std::size_t k = i; k < points.size(); k += sheet) points[k].consistent_all = any && all;
  }
  return points;
}

}  // namespace weft::ccl::model
