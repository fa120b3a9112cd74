// SPDX-License-Identifier: MIT
// libfabric's objects, closed at the end of their scope.
#pragma once

#include <rdma/fabric.h>

#include <memory>

namespace weft::ofi {

struct CloseFid {
  template <typename Object>
  void operator()(Object* object) const {
    fi_close(&object->fid);
  }
};
template <typename Object>
using Fid = std::unique_ptr<Object, CloseFid>;

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

}  // namespace weft::ofi
