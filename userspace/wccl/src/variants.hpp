// SPDX-License-Identifier: MIT
// Defects that a test plants by building the library with them: it must see each fail (tests/vm/variants).
#pragma once

namespace weft::ccl {

// A slice goes in two writes, the second with the immediate, as if the NIC kept their order.
#ifdef WCCL_VARIANT_TRUSTS_ORDER
inline constexpr bool kTrustsOrder = true;
#else
inline constexpr bool kTrustsOrder = false;
#endif

// An arrival is taken for visible.
#ifdef WCCL_VARIANT_NO_FLUSH
inline constexpr bool kFlushes = false;
#else
inline constexpr bool kFlushes = true;
#endif

}  // namespace weft::ccl
