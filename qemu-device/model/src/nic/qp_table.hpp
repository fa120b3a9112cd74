// SPDX-License-Identifier: MIT
// The queue pairs by number.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "queue_pair.hpp"

namespace weft::model::nic {

class QpTable {
 public:
  explicit QpTable(std::uint32_t size) : by_number_(std::clamp<std::uint32_t>(size, kFirst + 1, 1u << 24)) {}

  QueuePair* find(std::uint32_t qpn) { return qpn < by_number_.size() ? by_number_[qpn].get() : nullptr; }
  QueuePair* find(std::uint32_t context, std::uint32_t qpn) {
    QueuePair* qp = find(qpn);
    return qp != nullptr && qp->entry.ctx == context ? qp : nullptr;
  }

  // Gives it the number that was used longest ago, so that late packets of a former connection find nobody. False:
  // full.
  bool insert(std::unique_ptr<QueuePair> qp) {
    const auto size = static_cast<std::uint32_t>(by_number_.size());
    for (std::uint32_t i = kFirst; i < size; ++i) {
      last_ = last_ + 1 < size ? last_ + 1 : kFirst;
      if (by_number_[last_] != nullptr) continue;
      qp->entry.qpn = last_;
      by_number_[last_] = std::move(qp);
      return true;
    }
    return false;
  }
  void erase(std::uint32_t qpn) { by_number_[qpn].reset(); }
  void clear() {
    for (auto& qp : by_number_) qp.reset();
    last_ = kFirst - 1;
  }

  // f(QueuePair&) for each; it may erase that one.
  template <typename F>
  void for_each(F f) {
    for (auto& qp : by_number_) {
      if (qp != nullptr) f(*qp);
    }
  }

 private:
  static constexpr std::uint32_t kFirst = 2;  // 0 and 1 are the standard's (IBTA volume 1, section 3.9.2)

  std::vector<std::unique_ptr<QueuePair>> by_number_;
  std::uint32_t last_ = kFirst - 1;
};

}  // namespace weft::model::nic
