// SPDX-License-Identifier: MIT
// The device's accounting counters (weft/hw/counters.h).
#pragma once

#include <array>
#include <cstdint>

#include "weft/hw/counters.h"
#include "weft/hw/error.h"

namespace weft::model {

class Counters {
 public:
  void add(weft_counter which, std::uint64_t amount = 1) { value_[which] += amount; }
  std::uint64_t get(weft_counter which) const { return value_[which]; }
  void clear() { value_ = {}; }

  // Counts one error under its kind. WEFT_ERR_OK counts nothing.
  void error(weft_error error) {
    switch (error) {
      case WEFT_ERR_OK:
        return;
      case WEFT_ERR_BAD_OP:
        return add(WEFT_CTR_err_bad_op);
      case WEFT_ERR_BAD_VERSION:
      case WEFT_ERR_BAD_FIELD:
      case WEFT_ERR_BAD_TYPE:
        return add(WEFT_CTR_err_bad_field);
      case WEFT_ERR_BAD_KEY:
        return add(WEFT_CTR_err_bad_key);
      case WEFT_ERR_BAD_RANGE:
        return add(WEFT_CTR_err_bad_range);
      case WEFT_ERR_BAD_RIGHTS:
        return add(WEFT_CTR_err_bad_rights);
      case WEFT_ERR_BAD_SYNC:
        return add(WEFT_CTR_err_bad_sync);
      case WEFT_ERR_BAD_CHANNEL:
        return add(WEFT_CTR_err_bad_channel);
      case WEFT_ERR_DMA:
        return add(WEFT_CTR_err_dma);
      case WEFT_ERR_BAD_PD:
        return add(WEFT_CTR_err_bad_pd);
      case WEFT_ERR_KEY_INVALID:
        return add(WEFT_CTR_err_key_invalid);
      case WEFT_ERR_BAD_GID:
        return add(WEFT_CTR_err_bad_gid);
      case WEFT_ERR_UNSUPPORTED:
        return add(WEFT_CTR_err_unsupported);
      default:
        return add(WEFT_CTR_err_other);
    }
  }

 private:
  std::array<std::uint64_t, WEFT_CTR_COUNT> value_{};
};

}  // namespace weft::model
