// SPDX-License-Identifier: MIT
// The admin queue's commands.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "addresses.hpp"
#include "completions.hpp"
#include "datapath.hpp"
#include "host.hpp"
#include "hw.hpp"
#include "memory.hpp"
#include "options.hpp"

namespace weft::efa {

// Numbers 0..N-1, each free or in use by so many others.
template <std::size_t N>
class Numbers {
 public:
  // The number, or -1 when all are taken. It is reused as late as possible.
  int take() {
    for (std::size_t i = 0; i < N; ++i) {
      const std::size_t at = (next_ + i) % N;
      if (used_[at]) continue;
      used_[at] = true;
      next_ = at + 1;
      return static_cast<int>(at);
    }
    return -1;
  }
  hw::AdminStatus give_back(std::uint32_t number) {
    if (!valid(number)) return hw::AdminStatus::kIllegalParameter;
    if (users_[number] > 0) return hw::AdminStatus::kBusy;
    used_[number] = false;
    return hw::AdminStatus::kSuccess;
  }
  bool valid(std::uint32_t number) const { return number < N && used_[number]; }
  void hold(std::uint32_t number) { ++users_[number]; }
  void release(std::uint32_t number) { --users_[number]; }
  void clear() { *this = {}; }

 private:
  std::array<bool, N> used_{};
  std::array<std::uint32_t, N> users_{};
  std::size_t next_ = 0;
};

class Admin {
 public:
  using Reply = std::array<std::byte, hw::kReplyBytes>;

  Admin(Host& host, const Options& options, const Mac& mac, Regions& regions, Addresses& addresses,
        Completions& completions, DataPath& data_path)
      : host_(host),
        options_(options),
        mac_(mac),
        regions_(regions),
        addresses_(addresses),
        completions_(completions),
        data_path_(data_path) {}

  // Carry out one command; `reply` is what follows the head of the answer.
  hw::AdminStatus execute(const hw::AdminEntry& entry, Reply& reply);
  std::uint32_t enabled_groups() const { return enabled_groups_; }
  void clear();

 private:
  hw::AdminStatus create_qp(const hw::AdminEntry& entry, Reply& reply);
  hw::AdminStatus reg_mr(const hw::AdminEntry& entry, Reply& reply);
  hw::AdminStatus create_ah(const hw::AdminEntry& entry, Reply& reply);
  hw::AdminStatus create_cq(const hw::AdminEntry& entry, Reply& reply);
  hw::AdminStatus get_feature(std::uint8_t feature, Reply& reply);
  hw::AdminStatus set_feature(const hw::FeatureCommand& command);
  hw::AdminStatus get_stats(const hw::GetStatsCommand& command, Reply& reply);

  Host& host_;
  const Options& options_;
  const Mac mac_;
  Regions& regions_;
  Addresses& addresses_;
  Completions& completions_;
  DataPath& data_path_;
  Numbers<hw::kProtectionDomains> domains_;
  Numbers<hw::kUars> uars_;
  std::uint32_t enabled_groups_ = 0;
};

}  // namespace weft::efa
