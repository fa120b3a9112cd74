// SPDX-License-Identifier: MIT
// What the tests need of an exporter of DMA-BUFs. Write one for yours, as udmabuf.cpp does, and link it in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

namespace readback {

/** A DMA-BUF, and where in it the wanted part begins (bytes). Whoever asked for it closes `fd`. */
struct Export {
  int fd = -1;
  std::uint64_t offset = 0;
};

/** Memory of the exporter's. Its destructor frees it, whoever still holds exports. Errors: std::exception. */
class Allocation {
 public:
  virtual ~Allocation() = default;
  virtual std::uint64_t bytes() const = 0;
  /** Without the NIC: [offset, offset + size) of it, multiples of 8 bytes. */
  virtual void write(std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual void read(std::uint64_t offset, std::span<std::byte> to) = 0;
  /** [offset, offset + bytes), page-aligned, as a DMA-BUF, or as a part of one. */
  virtual Export share(std::uint64_t offset, std::uint64_t bytes) = 0;
};

class Exporter {
 public:
  virtual ~Exporter() = default;
  /** Largest allocation that the tests may ask for, bytes. */
  virtual std::uint64_t largest() const = 0;
  /** At least `bytes`, a multiple of the page size. Throws when there is none. */
  virtual std::unique_ptr<Allocation> allocate(std::uint64_t bytes) = 0;

  /** Can it be taken away under its users, as a PCI device by unbinding its driver? */
  virtual bool removable() const { return false; }
  /** Take it away. Allocations made before may be destroyed afterwards, nothing else. */
  virtual void remove() { throw std::logic_error("not removable"); }
  /** Back again, with all its memory free. Throws when it refuses. */
  virtual void bring_back() { throw std::logic_error("not removable"); }
};

/** `argument` is what follows "NAME:" on the command line, or empty. */
using MakeExporter = std::unique_ptr<Exporter> (*)(const std::string& argument);

inline std::map<std::string, MakeExporter>& exporters() {
  static std::map<std::string, MakeExporter> known;
  return known;
}

/** A file that holds one of these adds an exporter to the program that it is linked into. */
struct Registration {
  Registration(const char* name, MakeExporter make) { exporters().emplace(name, make); }
};

}  // namespace readback
