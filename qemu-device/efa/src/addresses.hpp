// SPDX-License-Identifier: MIT
// Address handles: a number a (protection domain, GID), counted. Two processes have different ones for one GID, and a
// receive completion must name the receiver's own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "hw.hpp"
#include "options.hpp"

namespace weft::efa {

class Addresses {
 public:
  // The handle, or nothing when all are taken.
  std::optional<std::uint16_t> take(std::uint16_t pd, const Gid& gid) {
    const auto known = index_.find({pd, gid});
    if (known != index_.end()) {
      ++table_[known->second].users;
      return known->second;
    }
    for (std::uint32_t i = 0; i < table_.size(); ++i) {
      const auto at = static_cast<std::uint16_t>((next_ + i) % table_.size());
      if (table_[at].users != 0) continue;
      table_[at] = {1, pd, gid};
      index_.emplace(Key{pd, gid}, at);
      next_ = static_cast<std::uint16_t>((at + 1) % table_.size());
      return at;
    }
    return std::nullopt;
  }

  bool release(std::uint16_t ah, std::uint16_t pd) {
    if (ah >= table_.size() || table_[ah].users == 0 || table_[ah].pd != pd) return false;
    if (--table_[ah].users == 0) index_.erase({pd, table_[ah].gid});
    return true;
  }

  const Gid* find(std::uint16_t ah, std::uint16_t pd) const {
    if (ah >= table_.size() || table_[ah].users == 0 || table_[ah].pd != pd) return nullptr;
    return &table_[ah].gid;
  }

  // The handle of a GID in a domain, hw::kNoAh when it has none.
  std::uint16_t number(std::uint16_t pd, const Gid& gid) const {
    const auto known = index_.find({pd, gid});
    return known == index_.end() ? hw::kNoAh : known->second;
  }

  void clear() {
    table_.fill({});
    index_.clear();
  }

 private:
  using Key = std::pair<std::uint16_t, Gid>;
  struct Entry {
    std::uint32_t users = 0;
    std::uint16_t pd = 0;
    Gid gid{};
  };
  std::array<Entry, hw::kAddressHandles> table_{};
  std::map<Key, std::uint16_t> index_;
  std::uint16_t next_ = 0;
};

}  // namespace weft::efa
