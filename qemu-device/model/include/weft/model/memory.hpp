// SPDX-License-Identifier: MIT
// Memory as the device names it: (context, key, address). The command processor and the NIC reach memory only through
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/hw/error.h"
#include "weft/hw/mem.h"

namespace weft::model {

using Error = weft_error;  // WEFT_ERR_OK is 0

// A named range.
struct Range {
  std::uint32_t key = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
};

// Who accesses: the context of the command, work request or queue pair, the right it needs (one WEFT_RIGHT_* bit), and
// its protection domain (0 for command queues).
struct Access {
  std::uint32_t context = 0;
  std::uint32_t right = 0;
  std::uint32_t pd = 0;
};

class Memory {
 public:
  virtual ~Memory() = default;

  // Key, context, protection domain, rights and bounds; touches no memory. Errors are counted by kind.
  virtual Error check(Access who, Range range) = 0;

  // Copy out of, or into, named memory of any type; checks first; all or nothing but for DMA errors in the middle.
  virtual Error read(Access who, Range range, std::span<std::byte> out) = 0;
  virtual Error write(Access who, Range range, std::span<const std::byte> in) = 0;

  // Add to sync object `sync` of `context`; WEFT_ERR_BAD_SYNC outside the context's objects.
  virtual Error signal(std::uint32_t context, std::uint32_t sync, std::uint64_t add) = 0;

  // 64-bit fetch-and-add (HBM or sync aperture) or compare-and-swap (HBM: sync objects only grow) of naturally aligned
  // memory; `old` gets the value before. WEFT_ERR_BAD_ALIGN, WEFT_ERR_BAD_RIGHTS for other memory.
  virtual Error fetch_add(Access who, std::uint32_t key, std::uint64_t address, std::uint64_t add,
                          std::uint64_t& old) = 0;
  virtual Error compare_swap(Access who, std::uint32_t key, std::uint64_t address, std::uint64_t compare,
                             std::uint64_t swap, std::uint64_t& old) = 0;
};

}  // namespace weft::model
